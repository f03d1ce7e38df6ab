//! Plans.

use jiff::Timestamp;
use loadmaster_proto::ledger::Ledger;
use loadmaster_proto::name::{ClusterName, ModelName, PlanName, ProfileName, RunName};
use loadmaster_proto::plan::objective::{Launcher, MemoryUnit, Objective, PlanShape};
use loadmaster_proto::plan::observation::Measured;
use loadmaster_proto::plan::prediction::{Breakdown, Interval, Origin, StageSeconds};
use loadmaster_proto::training::stage::StageConfig;
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

/// A stored plan as lists show it: what tells plans apart.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRow {
    /// Content-derived name.
    pub name: PlanName,
    /// The profile behind the predictions.
    pub profile: ProfileName,
    /// Its model.
    pub model: ModelName,
    /// What is short of its content.
    pub summary: PlanSummary,
    /// What its trainings showed.
    pub trained: TrainedSummary,
    /// When it was first stored.
    pub create_time: Timestamp,
}

/// A plan's content in short. The database reads it out of [`PlanContent`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PlanSummary {
    /// Settings that it is for.
    pub training: TrainingSpec,
    /// Kind of the devices that were profiled.
    pub device_kind: String,
    /// Predictor and version.
    pub predictor: String,
    /// Ledger of all bytes.
    pub ledger: Ledger,
    /// Solver and version.
    pub solver: String,
    /// What it was asked for.
    pub asked: PlanAsked,
    /// Predicted seconds of one iteration; none where the profile has no times.
    pub iteration_seconds: Option<f64>,
    /// The real seconds are expected within this share of those; none where nobody knows.
    pub iteration_margin: Option<f64>,
    /// Price of its devices for an hour; none without prices.
    pub hourly_price: Option<f64>,
    /// Predicted peak of the fullest device.
    pub peak: u64,
    /// Its stages: `8-8d2-7t4`.
    pub partition: String,
    /// Its devices, those that are alike together, in the order of the stages.
    pub devices: Vec<DeviceGroupRecord>,
}

/// What a plan was asked for, without what restricted it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct PlanAsked {
    /// What it should be best at; none for a partitioning that the request named.
    pub objective: Option<Objective>,
    /// What peaks are compared as.
    pub memory_unit: MemoryUnit,
    /// The shape that the search was restricted to.
    pub shape: PlanShape,
    /// The launcher that it is for.
    pub launcher: Option<Launcher>,
    /// Version of the launcher, or empty.
    pub launcher_version: String,
    /// The cluster that it is on.
    pub cluster: Option<ClusterName>,
}

/// Devices that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct DeviceGroupRecord {
    /// How many.
    pub count: u64,
    /// Kind.
    pub kind: String,
    /// Bytes that each allows.
    pub capacity: u64,
}

/// What trainings of a plan showed, in short.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrainedSummary {
    /// Trials that ended.
    pub trials: u32,
    /// Of these, the ones that measured something.
    pub succeeded: u32,
    /// Reported training runs.
    pub observations: u32,
    /// The newest trial that measured something.
    pub newest: Option<NewestTrial>,
}

/// A trial that measured something.
#[derive(Debug, Clone, PartialEq)]
pub struct NewestTrial {
    /// Its run.
    pub run: RunName,
    /// What it measured.
    pub measured: Measured,
    /// Others used its devices: its seconds are too long.
    pub contended: bool,
    /// Its ranks had fewer cores than threads.
    pub oversubscribed: bool,
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
