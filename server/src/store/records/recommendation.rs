//! What a plan was asked for, and what was found besides it. All of it is part of the plan's identity.

use loadmaster_proto::ledger::Ledger;
use loadmaster_proto::name::{ClusterName, PlanName};
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::objective::{Launcher, MemoryUnit, Objective, PlanShape};
use loadmaster_proto::plan::prediction::Origin;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::overlap::Overlap;
use loadmaster_proto::training::stage::Partitioning;
use serde::{Deserialize, Serialize};

/// A device of a stage, as its cluster names it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlacedDeviceRecord {
    /// Node; empty where devices were named without a cluster.
    pub node: String,
    /// Index within the node.
    pub index: u32,
    /// NVML's UUID, or empty.
    pub uuid: String,
    /// Kind.
    pub kind: String,
    /// Bytes that it allows.
    pub capacity: u64,
}

/// What a plan was asked for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AskedRecord {
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
    /// What else restricted it.
    pub constraints: Constraints,
    /// The cluster that it is on.
    pub cluster: Option<ClusterName>,
}

/// What was found besides the stages.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FoundRecord {
    /// Seconds of one micro-batch between each stage and the next, both ways; empty without times.
    pub edge_seconds: Vec<f64>,
    /// How long an iteration takes; none without times.
    pub iteration: Option<IterationRecord>,
    /// What proves the plan.
    pub certificate: Option<CertificateRecord>,
    /// Plans of well-known rules.
    pub baselines: Vec<BaselineRecord>,
    /// What shape and launcher cost.
    pub restriction: Option<RestrictionRecord>,
    /// The front between memory and time, from the least memory on.
    pub front: Vec<FrontRecord>,
    /// The plans that came next, best first.
    pub alternatives: Vec<AlternativeRecord>,
    /// Price of its devices for an hour; none without prices.
    pub hourly_price: Option<f64>,
    /// What its predictions were multiplied with.
    pub corrections: Vec<CorrectionRecord>,
    /// The hosts of CPU slots that its profile was measured on; none where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostRecord>,
}

/// A host that CPU slots were profiled on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    /// Cores; of different hosts the fewest.
    pub cores: u32,
    /// Threads that each slot computed with; of different ones the most.
    pub threads: u32,
}

/// Predicted times of one iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IterationRecord {
    /// Simulated, or by the closed form where there are too many passes.
    pub seconds: f64,
    /// By AMP's closed form.
    pub closed_form: f64,
    /// Share of the devices' time in the pipeline that they wait.
    pub bubble: f64,
    /// Seconds after the last backward pass.
    pub step: f64,
    /// How far the layers' times are from what was profiled.
    pub origin: Origin,
    /// Where the bandwidths come from, for people.
    pub links: String,
    /// Whether transfers overlap computing; they do in plans that were stored before anybody could choose.
    #[serde(default)]
    pub overlap: Overlap,
    /// Why, for people.
    #[serde(default)]
    pub overlap_reason: String,
    /// The real seconds are expected within this share of those above; none where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<f64>,
}

/// What proves a plan; the time that the search took is no part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CertificateRecord {
    /// The plan's value.
    pub value: f64,
    /// No plan has a better one; none where nothing is known.
    pub bound: Option<f64>,
    /// |value − bound| / bound.
    pub gap: Option<f64>,
    /// What values are counted in.
    pub unit: String,
    /// Whether it is proven best.
    pub proven: bool,
    /// Whether the search was stopped.
    pub stopped: bool,
    /// States weighed.
    pub states: u64,
    /// The first alternatives that were rejected.
    pub rejected: Vec<RejectedRecord>,
}

/// An alternative that was not chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RejectedRecord {
    /// What it is.
    pub what: String,
    /// Its value.
    pub value: Option<f64>,
    /// Why.
    pub reason: String,
}

/// What is compared of a plan that is not stored with its own stages here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SummaryRecord {
    /// Its stages.
    pub partitioning: Partitioning,
    /// Samples of one pass of a whole stage.
    pub micro_batch_size: u32,
    /// Predicted peak of the fullest device.
    pub peak: u64,
    /// Predicted seconds of one iteration.
    pub seconds: Option<f64>,
}

/// A plan of a well-known rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BaselineRecord {
    /// The rule.
    pub name: String,
    /// Its plan; none where it makes none.
    pub plan: Option<SummaryRecord>,
    /// Whether it fits.
    pub fits: bool,
    /// Its peak by the plan's.
    pub peak_ratio: Option<f64>,
    /// Its iteration by the plan's.
    pub time_ratio: Option<f64>,
    /// Why it makes none, or what it lacks.
    pub note: String,
}

/// What a restriction costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RestrictionRecord {
    /// The best value without it.
    pub free_value: f64,
    /// The best value with it.
    pub restricted_value: f64,
    /// How many times worse.
    pub ratio: f64,
    /// The stages of the best plan without it.
    pub free_partitioning: Partitioning,
    /// Which rules that plan breaks.
    pub binding: Vec<String>,
    /// Whether the free value is proven.
    pub free_proven: bool,
}

/// A point of the front.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrontRecord {
    /// The plan; none where it is not stored.
    pub plan: Option<PlanName>,
    /// Its numbers.
    pub summary: SummaryRecord,
    /// What each stage computes again.
    pub recompute: Vec<RecomputePolicy>,
}

/// A plan that came next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlternativeRecord {
    /// The plan; none where it is not stored.
    pub plan: Option<PlanName>,
    /// Its numbers.
    pub summary: SummaryRecord,
    /// Its value in the certificate's unit.
    pub value: f64,
}

/// A factor that predictions were multiplied with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CorrectionRecord {
    /// Kind of device.
    pub device_kind: String,
    /// Name and version of the predictor.
    pub predictor: String,
    /// The ledger of the bytes that it corrects; none where it corrects seconds.
    pub ledger: Option<Ledger>,
    /// Method, and a hash of the pairs that it was learnt from.
    pub version: String,
    /// The factor.
    pub factor: f64,
    /// Pairs that it was learnt from.
    pub count: usize,
    /// Distinct plans that they are of.
    pub plans: usize,
    /// How it came about.
    pub explanation: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plans that were stored before anybody could choose were simulated with transfers that overlap.
    #[test]
    fn transfers_of_older_plans_overlap() {
        let stored = r#"{"seconds": 1.5, "closed_form": 1.25, "bubble": 0.5, "step": 0.25, "origin": "profiled",
                         "links": "assumed"}"#;
        let older: IterationRecord = serde_json::from_str(stored).unwrap();
        assert_eq!((older.overlap, older.overlap_reason.as_str()), (Overlap::Computing, ""));
        let newer = IterationRecord { overlap: Overlap::Nothing, ..older };
        let read: IterationRecord = serde_json::from_value(serde_json::to_value(&newer).unwrap()).unwrap();
        assert_eq!(read, newer);
    }
}
