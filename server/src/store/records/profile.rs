//! Profiles.

use jiff::Timestamp;
use loadmaster_proto::name::OperationName;

use super::RunCounts;

pub use loadmaster_proto::measure::run::Campaign;
pub use loadmaster_proto::profile::ProfileSettings;

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

/// A stored profile.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileRecord {
    /// What was asked for.
    pub settings: ProfileSettings,
    /// Where it stands.
    pub state: ProfileState,
    /// What the campaign's predictor lacks.
    pub missing: Vec<String>,
    /// Runs that were made for it, by state.
    pub runs: RunCounts,
    /// Those of them that repeat at a smaller micro-batch size what did not fit.
    pub shrunk_runs: u32,
    /// Seconds that devices were held by them, added up over devices.
    pub device_seconds: f64,
    /// Runs that were made for other profiles and serve this one too.
    pub reused_runs: u32,
    /// Seconds that devices were held by those.
    pub saved_device_seconds: f64,
    /// Its newest operation.
    pub operation: OperationName,
    /// When it was asked for.
    pub create_time: Timestamp,
    /// When its last run ended.
    pub end_time: Option<Timestamp>,
}
