//! Plans.

use jiff::Timestamp;
use loadmaster_proto::name::{ModelName, PlanName, ProfileName};
use loadmaster_proto::prediction::{Breakdown, Interval, Origin, StageSeconds};
use loadmaster_proto::run::Ledger;
use loadmaster_proto::stage::StageConfig;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};
use serde::{Deserialize, Serialize};

use super::{AskedRecord, FoundRecord, PlacedDeviceRecord};

/// One stage of a stored plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanStageRecord {
    /// Layers and degrees.
    pub config: StageConfig,
    /// Bytes that each of its devices allows; of different ones the least.
    pub capacity: u64,
    /// Predicted peak of its fullest device, in the plan's ledger.
    pub predicted_peak: u64,
    /// What those bytes are; none where the predictor cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breakdown: Option<Breakdown>,
    /// Where the real peak is expected; none where no margin is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// Predicted times; none where the profile has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<StageSeconds>,
    /// The real seconds are expected within this share of those above; none where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_margin: Option<f64>,
    /// How far the prediction is from what was profiled.
    pub origin: Origin,
    /// The most micro-batches between forward and backward at once.
    pub in_flight: u32,
    /// What it computes again.
    #[serde(default)]
    pub recompute: RecomputePolicy,
    /// Its devices in the order of its ranks.
    #[serde(default)]
    pub devices: Vec<PlacedDeviceRecord>,
}

/// What a plan is made of; never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanContent {
    /// The profile behind the predictions.
    pub profile: ProfileName,
    /// Its model.
    pub model: ModelName,
    /// Settings that it is for.
    pub training: TrainingSpec,
    /// Kind of the devices.
    pub device_kind: String,
    /// The stages in order.
    pub stages: Vec<PlanStageRecord>,
    /// Predictor and version.
    pub predictor: String,
    /// Ledger of all bytes.
    pub ledger: Ledger,
    /// Solver and version.
    pub solver: String,
    /// What to know before trusting the numbers.
    pub warnings: Vec<String>,
    /// What it was asked for.
    #[serde(default)]
    pub asked: AskedRecord,
    /// What was found besides it.
    #[serde(default)]
    pub found: FoundRecord,
}

/// A stored plan.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRecord {
    /// Content-derived name.
    pub name: PlanName,
    /// What it is made of.
    pub content: PlanContent,
    /// When it was first stored.
    pub create_time: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::records::IterationRecord;

    /// Plans that were stored before seconds had intervals are read as plans whose intervals nobody knows, and written
    /// without any.
    #[test]
    fn older_plans_have_no_intervals_of_seconds() {
        let stage = r#"{"config":{"first_layer":0,"last_layer":3,"data_degree":1,"tensor_degree":1},"capacity":9,
            "predicted_peak":5,"seconds":{"forward":1.0,"backward":2.0,"step":0.5},"origin":"profiled","in_flight":2,
            "recompute":"none","devices":[]}"#;
        let stage: PlanStageRecord = serde_json::from_str(stage).unwrap();
        assert_eq!(stage.seconds_margin, None);
        assert!(serde_json::to_value(&stage).unwrap().get("seconds_margin").is_none());
        let iteration =
            r#"{"seconds":3.0,"closed_form":2.5,"bubble":0.1,"step":0.5,"origin":"profiled","links":""}"#;
        let iteration: IterationRecord = serde_json::from_str(iteration).unwrap();
        assert_eq!(iteration.margin, None);
        assert!(serde_json::to_value(&iteration).unwrap().get("margin").is_none());
        let found: FoundRecord = serde_json::from_str("{}").unwrap();
        assert_eq!(found.host, None);
        assert!(serde_json::to_value(&found).unwrap().get("host").is_none());
    }
}
