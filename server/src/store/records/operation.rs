//! Operations.

use jiff::Timestamp;
use loadmaster_proto::name::{OperationName, PlanName, ProfileName};
use uuid::Uuid;

use super::RunCounts;

/// Who asked for an operation, so that a retried call finds the first call's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    /// The caller's UUID.
    pub id: Uuid,
    /// Fingerprint of the request: the same id with another request is an error.
    pub fingerprint: String,
}

/// What an operation makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationTarget {
    /// Measures this profile.
    Profile(ProfileName),
    /// Validates this plan.
    Plan(PlanName),
    /// Measures how fast devices of workers exchange bytes.
    Links,
}

/// Where an operation stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationState {
    /// Not all runs ended.
    Running,
    /// Done; the target is the response.
    Succeeded,
    /// Ended with an error.
    Failed {
        /// gRPC status code.
        code: i32,
        /// Stable reason, `UPPER_SNAKE`.
        reason: String,
        /// For people.
        message: String,
    },
    /// Cancelled by a user.
    Cancelled,
}

/// A stored operation.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationRecord {
    pub name: OperationName,
    /// What it makes.
    pub target: OperationTarget,
    /// Where it stands.
    pub state: OperationState,
    /// Its runs by state.
    pub runs: RunCounts,
    /// Share of the work done, 0 to 1: ended runs count 1, running ones their progress.
    pub progress: f64,
    /// About how long the rest takes, seconds; none while nothing is running, or nothing has ended with a
    /// result that would tell.
    pub remaining_seconds: Option<f64>,
    /// How often runs were added because of what the first ones showed.
    pub rounds: u32,
    /// Why no more of its runs are made, where they failed alike: it ends with this.
    pub stopped: Option<String>,
    /// When it was asked for.
    pub create_time: Timestamp,
    /// When it ended.
    pub end_time: Option<Timestamp>,
}
