//! Profiles.

use jiff::Timestamp;
use loadmaster_proto::name::{ModelName, OperationName, ProfileName};
use loadmaster_proto::training::TrainingSpec;

use super::RunCounts;

pub use loadmaster_proto::run::Campaign;

/// Where a profile stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfileState {
    /// Runs are queued or running.
    Running,
    /// Nothing is missing.
    Complete,
    /// Runs ended without all that was wanted.
    Incomplete,
    /// Cancelled.
    Cancelled,
}

/// What a profile measures, as its caller asked for it.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileSettings {
    /// Its name.
    pub name: ProfileName,
    /// A stored model.
    pub model: ModelName,
    /// Target settings.
    pub training: TrainingSpec,
    /// Which runs.
    pub campaign: Campaign,
    /// Pipeline stages that the campaign was laid out for.
    pub devices: u32,
    /// Profiled sizes, ascending.
    pub micro_batch_sizes: Vec<u32>,
    /// Kind of device to measure on.
    pub device_kind: String,
}

/// A stored profile.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileRecord {
    /// What was asked for.
    pub settings: ProfileSettings,
    /// Where it stands.
    pub state: ProfileState,
    /// What the predictor lacks.
    pub missing: Vec<String>,
    /// Seconds that devices were held by its runs, added up over devices.
    pub device_seconds: f64,
    /// Its runs by state.
    pub runs: RunCounts,
    /// Its operation.
    pub operation: OperationName,
    /// When it was asked for.
    pub create_time: Timestamp,
    /// When its last run ended.
    pub end_time: Option<Timestamp>,
}
