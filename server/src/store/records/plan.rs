//! Plans.

use jiff::Timestamp;
use loadmaster_proto::name::{ModelName, PlanName, ProfileName};
use loadmaster_proto::stage::StageConfig;
use loadmaster_proto::training::TrainingSpec;
use serde::{Deserialize, Serialize};

/// One stage of a stored plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanStageRecord {
    /// Layers and degree.
    pub config: StageConfig,
    /// Bytes that its device allows.
    pub capacity: u64,
    /// Predicted peak, allocated ledger.
    pub predicted_peak: u64,
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
    /// Solver and version.
    pub solver: String,
    /// What to know before trusting the numbers.
    pub warnings: Vec<String>,
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
