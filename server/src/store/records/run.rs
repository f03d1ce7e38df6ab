//! Runs and what they yield.

use jiff::Timestamp;
use loadmaster_filter::Query;
use loadmaster_proto::measure::failure::RunFailure;
use loadmaster_proto::measure::links::LinkWork;
use loadmaster_proto::name::{
    CommandName, ModelName, OperationName, PlanName, ProfileName, RunName, WorkerName,
};
use loadmaster_proto::training::strategy::Strategy;
use serde::{Deserialize, Serialize};
use sqlx::FromRow;
use sqlx::types::Json;

use super::work::WorkRow;
use crate::store::columns::{Stored, Time};

/// Runs by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromRow)]
pub struct RunCounts {
    /// Waiting.
    #[sqlx(try_from = "i64")]
    pub queued: u32,
    /// Leased.
    #[sqlx(try_from = "i64")]
    pub running: u32,
    /// With measurements.
    #[sqlx(try_from = "i64")]
    pub succeeded: u32,
    /// Did not fit.
    #[sqlx(try_from = "i64")]
    pub out_of_memory: u32,
    /// Given up.
    #[sqlx(try_from = "i64")]
    pub failed: u32,
    #[sqlx(try_from = "i64")]
    pub cancelled: u32,
}

impl RunCounts {
    /// All.
    pub fn total(&self) -> u32 {
        self.unfinished() + self.succeeded + self.out_of_memory + self.failed + self.cancelled
    }

    /// Waiting or leased.
    pub fn unfinished(&self) -> u32 {
        self.queued + self.running
    }
}

/// A run to be queued.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// How stages are trained, with the micro-batch size of this run.
    pub strategy: Strategy,
    /// Measured iterations.
    pub iterations: u32,
    /// The worker's command that trains; none for Loadmaster's rank.
    pub command: Option<CommandName>,
    pub device_kind: String,
    /// Devices needed at once.
    pub device_count: u32,
    /// Least capacity of each, bytes.
    pub min_capacity: u64,
    /// Hard limit of one attempt, seconds.
    pub deadline_seconds: u32,
    /// What it measures, as a content id: runs of equal keys and micro-batch sizes may stand for each
    /// other. None where nothing may.
    pub work_key: Option<String>,
    /// The smallest micro-batch size to try when it does not fit, and the step between sizes; none for a
    /// run that is not repeated.
    pub smallest_micro_batch_size: Option<u32>,
    /// Predictions are held against it, and nothing is learnt from it.
    pub held_out: bool,
}

impl NewRun {
    /// Memory of its worker's host that it takes, bytes.
    pub fn host_memory(&self) -> u64 {
        self.strategy.host_memory().0
    }
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunState {
    /// Waits for a worker.
    Queued,
    /// Leased.
    Running,
    /// Yielded measurements.
    Succeeded,
    /// Did not fit.
    OutOfMemory,
    /// Failed as often as allowed.
    Failed,
    Cancelled,
}

/// Which runs a list shows; the default shows all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunFilter {
    /// Only runs that this operation waits for.
    pub operation: Option<OperationName>,
    /// Only runs that validate this plan.
    pub plan: Option<PlanName>,
    /// Only runs in this state.
    pub state: Option<RunState>,
    /// Of these the ones that this asks for, in its order.
    pub query: Query,
}

/// What a stored run does.
#[derive(Debug, Clone, PartialEq)]
pub enum RunWork {
    /// It trains stages.
    Stages(TrainedWork),
    /// It measures how fast devices of one worker exchange bytes.
    Links(LinkWork),
}

impl RunWork {
    /// What it trains; none where it trains nothing.
    pub fn trained(&self) -> Option<&TrainedWork> {
        match self {
            Self::Stages(trained) => Some(trained),
            Self::Links(_) => None,
        }
    }
}

/// What a stored run trains.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainedWork {
    pub model: ModelName,
    /// How stages are trained; in lists without planned visits of chunks.
    pub strategy: Strategy,
    /// Measured iterations.
    pub iterations: u32,
    /// The worker's command that trains; none for Loadmaster's rank.
    pub command: Option<CommandName>,
}

/// A stored run.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct RunRecord {
    #[sqlx(rename = "id", try_from = "Stored<String>")]
    pub name: RunName,
    /// Where it stands.
    #[sqlx(try_from = "Stored<String>")]
    pub state: RunState,
    /// The operation that waits for it.
    #[sqlx(rename = "operation_id", try_from = "Stored<String>")]
    pub operation: OperationName,
    /// The profile that it feeds.
    #[sqlx(rename = "profile_id", try_from = "Stored<Option<String>>")]
    pub profile: Option<ProfileName>,
    /// The plan that it validates.
    #[sqlx(rename = "plan_id", try_from = "Stored<Option<String>>")]
    pub plan: Option<PlanName>,
    /// What it does.
    #[sqlx(flatten, try_from = "WorkRow<Stored<String>>")]
    pub work: RunWork,
    pub device_kind: String,
    /// Devices needed at once.
    #[sqlx(try_from = "i32")]
    pub device_count: u32,
    /// Memory of its worker's host that it takes, bytes.
    #[sqlx(rename = "host_memory_bytes", try_from = "i64")]
    pub host_memory: u64,
    /// The worker that holds or held it.
    #[sqlx(rename = "worker_id", try_from = "Stored<Option<String>>")]
    pub worker: Option<WorkerName>,
    /// Claims so far that counted as attempts.
    #[sqlx(try_from = "i32")]
    pub attempts: u32,
    /// What went wrong, oldest first.
    #[sqlx(json)]
    pub failures: Vec<FailureRecord>,
    /// Share of the work done, as last reported.
    pub progress: f64,
    /// What it does now, human-readable.
    pub phase: String,
    /// The run that did not fit and that this one repeats at a smaller micro-batch size.
    #[sqlx(try_from = "Stored<Option<String>>")]
    pub shrunk_from: Option<RunName>,
    /// When it was queued.
    #[sqlx(try_from = "Time")]
    pub create_time: Timestamp,
    /// When the last claim began.
    #[sqlx(try_from = "Stored<Option<Time>>")]
    pub start_time: Option<Timestamp>,
    /// When it reached a final state.
    #[sqlx(try_from = "Stored<Option<Time>>")]
    pub end_time: Option<Timestamp>,
}

/// A failure with who reported it and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailureRecord {
    /// What went wrong.
    #[serde(flatten)]
    pub failure: RunFailure,
    /// The worker that held the run.
    pub worker: Option<WorkerName>,
    /// Host of that worker; none where it reported none.
    pub host: Option<String>,
    /// Which claim.
    pub lease_token: i64,
    /// When that claim was made.
    pub start: Timestamp,
    /// When it was stored.
    pub time: Timestamp,
}

/// How the runs of a profile's operation failed.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct Failures {
    #[sqlx(try_from = "Stored<String>")]
    pub operation: OperationName,
    #[sqlx(try_from = "Stored<String>")]
    pub profile: ProfileName,
    /// The newest failure of each run that failed, the newest first.
    #[sqlx(try_from = "Stored<Vec<Json<FailureRecord>>>")]
    pub newest: Vec<FailureRecord>,
    /// When a run last ended with an answer; that it does not fit is one.
    #[sqlx(try_from = "Stored<Option<Time>>")]
    pub last_answer: Option<Timestamp>,
    /// Workers that are at work on one of the runs.
    #[sqlx(try_from = "Stored<Vec<String>>")]
    pub at_work: Vec<WorkerName>,
}

/// What a run needs of one worker.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct RunNeed {
    pub device_kind: String,
    /// Devices at once.
    #[sqlx(try_from = "i32")]
    pub device_count: u32,
    /// Least capacity of each, bytes.
    #[sqlx(rename = "min_capacity_bytes", try_from = "i64")]
    pub min_capacity: u64,
    /// Memory of the worker's host, bytes.
    #[sqlx(rename = "host_memory_bytes", try_from = "i64")]
    pub host_memory: u64,
    /// A command that the worker must offer.
    #[sqlx(try_from = "Stored<Option<String>>")]
    pub command: Option<CommandName>,
}
