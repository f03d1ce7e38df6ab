//! What the store hands out and takes in: plain records, one per kind of row.

use jiff::Timestamp;
use loadmaster_proto::device::Device;
use loadmaster_proto::measurement::Measurement;
use loadmaster_proto::model::Model;
use loadmaster_proto::name::{ModelName, OperationName, PlanName, ProfileName, RunName, WorkerName};
use loadmaster_proto::run::{RunFailure, RunSpec, Work};
use loadmaster_proto::stage::StageConfig;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::zoo::Zoo;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A model with what it was built from.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRecord {
    /// Content-derived name.
    pub name: ModelName,
    /// The model.
    pub model: Model,
    /// What it was built from.
    pub source: Zoo,
    /// When it was first stored.
    pub create_time: Timestamp,
}

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

/// A profile to be stored together with its runs and its operation.
#[derive(Debug, Clone)]
pub struct NewProfile {
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
    /// Its name.
    pub name: ProfileName,
    /// Its model.
    pub model: ModelName,
    /// Target settings.
    pub training: TrainingSpec,
    /// Which runs.
    pub campaign: Campaign,
    /// Pipeline stages that the campaign was laid out for.
    pub devices: u32,
    /// Profiled sizes, ascending.
    pub micro_batch_sizes: Vec<u32>,
    /// Kind of device that it is measured on.
    pub device_kind: String,
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

/// Runs by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunCounts {
    /// Waiting.
    pub queued: u32,
    /// Leased.
    pub running: u32,
    /// With measurements.
    pub succeeded: u32,
    /// Did not fit.
    pub out_of_memory: u32,
    /// Given up.
    pub parked: u32,
    /// Cancelled.
    pub cancelled: u32,
}

impl RunCounts {
    /// All.
    pub fn total(&self) -> u32 {
        self.unfinished() + self.succeeded + self.out_of_memory + self.parked + self.cancelled
    }

    /// Waiting or leased.
    pub fn unfinished(&self) -> u32 {
        self.queued + self.running
    }
}

/// A run to be queued.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Settings, with the micro-batch size of this run.
    pub training: TrainingSpec,
    /// Which stages.
    pub work: Work,
    /// Measured iterations.
    pub iterations: u32,
    /// Kind of the devices.
    pub device_kind: String,
    /// Devices needed at once.
    pub device_count: u32,
    /// Least capacity of each, bytes.
    pub min_capacity: u64,
    /// Hard limit of one attempt, seconds.
    pub deadline_seconds: u32,
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
    Parked,
    /// Cancelled.
    Cancelled,
}

/// Which runs a list shows; the default shows all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs that this operation waits for.
    pub operation: Option<OperationName>,
    /// Only runs that validate this plan.
    pub plan: Option<PlanName>,
    /// Only runs in this state.
    pub state: Option<RunState>,
}

/// A stored run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Its name.
    pub name: RunName,
    /// Where it stands.
    pub state: RunState,
    /// The operation that waits for it.
    pub operation: OperationName,
    /// The profile that it feeds.
    pub profile: Option<ProfileName>,
    /// The plan that it validates.
    pub plan: Option<PlanName>,
    /// Its model.
    pub model: ModelName,
    /// Settings.
    pub training: TrainingSpec,
    /// Which stages.
    pub work: Work,
    /// Measured iterations.
    pub iterations: u32,
    /// Kind of the devices.
    pub device_kind: String,
    /// Devices needed at once.
    pub device_count: u32,
    /// The worker that holds or held it.
    pub worker: Option<WorkerName>,
    /// Claims so far that counted as attempts.
    pub attempts: u32,
    /// What went wrong, oldest first.
    pub failures: Vec<FailureRecord>,
    /// Share of the work done, as last reported.
    pub progress: f64,
    /// What it does now, for people.
    pub phase: String,
    /// When it was queued.
    pub create_time: Timestamp,
    /// When the last claim began.
    pub start_time: Option<Timestamp>,
    /// When it reached a final state.
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
    /// Which claim.
    pub lease_token: i64,
    /// When it was stored.
    pub time: Timestamp,
}

/// A measurement with where it belongs.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasurementRecord {
    /// The run.
    pub run: RunName,
    /// The profile that it feeds.
    pub profile: Option<ProfileName>,
    /// The measurement.
    pub measurement: Measurement,
    /// When it was stored.
    pub time: Timestamp,
}

/// A free device of a worker, as the queue needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeDevice {
    /// Kind.
    pub kind: String,
    /// Bytes.
    pub capacity: u64,
}

/// What a run needs of one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunNeed {
    /// Kind of the devices.
    pub device_kind: String,
    /// Devices at once.
    pub device_count: u32,
    /// Least capacity of each, bytes.
    pub min_capacity: u64,
}

/// A run that was just claimed.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// The run.
    pub run: RunName,
    /// The fence.
    pub lease_token: i64,
    /// What to train, model included.
    pub spec: RunSpec,
    /// Kind of the devices to take.
    pub device_kind: String,
    /// Devices to take.
    pub device_count: u32,
    /// Least capacity of each, bytes.
    pub min_capacity: u64,
    /// Hard limit of this attempt, seconds.
    pub deadline_seconds: u32,
}

/// A lease as a worker claims to hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldLease {
    /// The run.
    pub run: RunName,
    /// The fence.
    pub lease_token: i64,
    /// Share of the work done.
    pub progress: f64,
    /// What it does now.
    pub phase: String,
}

/// What became of a lease that a worker asked to renew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// Renewed.
    Renewed,
    /// The operation was cancelled: stop the run.
    Cancelled,
    /// Not this worker's any more, or past its deadline: stop the run.
    Lost,
}

/// Whether a fenced write changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Fenced {
    /// Stored; or the same write with the same fence had been stored before.
    Applied,
    /// The fence is stale: nothing changed.
    Stale,
}

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
    /// Its name.
    pub name: OperationName,
    /// What it makes.
    pub target: OperationTarget,
    /// Where it stands.
    pub state: OperationState,
    /// Its runs by state.
    pub runs: RunCounts,
    /// Share of the work done, 0 to 1: ended runs count 1, running ones their progress.
    pub progress: f64,
    /// When it was asked for.
    pub create_time: Timestamp,
    /// When it ended.
    pub end_time: Option<Timestamp>,
}

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

/// A worker as it introduces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWorker {
    /// Its name, the same after a restart.
    pub name: WorkerName,
    /// Its devices.
    pub devices: Vec<Device>,
    /// Version of the daemon.
    pub version: String,
    /// libtorch version of its rank program.
    pub libtorch_version: String,
    /// Host name.
    pub host: String,
    /// Random per process start.
    pub session_id: String,
}

/// A worker as the store knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerRecord {
    /// Its name.
    pub name: WorkerName,
    /// Whether it takes runs.
    pub state: WorkerState,
    /// Its devices.
    pub devices: Vec<Device>,
    /// Version of the daemon.
    pub version: String,
    /// libtorch version of its rank program.
    pub libtorch_version: String,
    /// Host name.
    pub host: String,
    /// Random per process start.
    pub session_id: String,
    /// First contact.
    pub create_time: Timestamp,
    /// Last contact.
    pub heartbeat_time: Timestamp,
    /// Runs that it holds.
    pub runs: Vec<RunName>,
}

/// Whether a worker takes runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerState {
    /// Connected and taking runs.
    Alive,
    /// Ends what it holds, takes no more.
    Draining,
    /// Not heard of for longer than a lease.
    Lost,
    /// Said goodbye.
    Gone,
}

/// One page of a list, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Where the next page starts; none on the last one.
    pub next: Option<Cursor>,
}

/// A position in a list ordered by time and id, both descending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Time of the last row of the page before.
    pub time: Timestamp,
    /// Its id.
    pub id: String,
}

/// Which page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// Most rows, at least 1.
    pub size: u32,
    /// Where to start; none for the first page.
    pub after: Option<Cursor>,
}
