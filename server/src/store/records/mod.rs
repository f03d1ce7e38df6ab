//! What the store hands out and takes in: plain records, one per kind of row.

mod cluster;
mod lease;
mod measurement;
mod plan;
mod reuse;
mod run;
mod trial;
mod work;
mod worker;

use std::collections::BTreeMap;

use jiff::Timestamp;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::name::{ModelName, OperationName, PlacementName, PlanName, ProfileName};
use loadmaster_proto::plan::placement::Placement;
use sqlx::FromRow;
use uuid::Uuid;

use super::columns::Time;
use crate::store::columns::Stored;

pub use super::page::{Cursor, Page, PageRequest, Positioned};
pub use super::purge::PurgeRecord;
pub use super::searches::{SearchPhase, SearchRecord};
pub use cluster::{ClusterRecord, ClusterRow, ClusterSummary, LinkRecord, NewLinkRun};
pub use lease::{AskedRun, Claim, Fenced, FreeDevice, Heartbeat, HeldLease, Renewal};
pub use loadmaster_proto::measure::run::ProfilingMode;
pub use loadmaster_proto::profile::ProfileSettings;
pub use measurement::MeasurementRecord;
pub use plan::{
    DeviceGroupRecord, NewestReport, NewestTrial, PlanRecord, PlanRow, PlanSummary, TrainedSummary,
};
pub use reuse::{AttemptRecord, EndedRun, MeasuredRun, ReusedRun, Software};
pub use run::{
    FailureRecord, Failures, NewRun, RunCounts, RunFilter, RunNeed, RunRecord, RunState, RunWork, TrainedWork,
};
pub(super) use trial::FigureRow;
pub use trial::{MeasuredPlan, NewTrial, ReportRecord, TrialRecord};
pub use worker::{NearestWorker, NewWorker, WorkerRecord, WorkerState};

macro_rules! by_time_and_id {
    ($($row:ty: $record:ident => $id:expr;)*) => {$(
        impl Positioned for $row {
            fn cursor(&self) -> Cursor {
                let $record = self;
                Cursor { keys: Vec::new(), time: $record.create_time, id: $id.to_owned() }
            }
        }
    )*};
}

by_time_and_id! {
    PlacementRecord: placement => placement.name.id();
    ClusterRow: cluster => cluster.name.id();
    LinkRecord: link => link.run.id();
    ModelRecord: model => model.name.id();
    ReportRecord: report => report.id;
    OperationRecord: operation => operation.name.id();
    PlanRow: plan => plan.name.id();
    ProfileRecord: profile => profile.settings.name.id();
    RunRecord: run => run.name.id();
    WorkerRecord: worker => worker.name.id();
}

impl Positioned for PlacementRow {
    fn cursor(&self) -> Cursor {
        self.record.cursor()
    }
}

/// Measurements are in the order of stages and sizes, which the row itself tells.
impl Positioned for MeasurementRecord {
    fn cursor(&self) -> Cursor {
        let id = format!("{}/{}/{}", self.run.id(), self.measurement.stage_index, self.measurement.shard);
        Cursor { keys: Vec::new(), time: self.time, id }
    }
}

/// A stored placement.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementRecord {
    pub name: PlacementName,
    pub content: Placement,
    pub create_time: Timestamp,
}

/// A placement in short.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacementRow {
    /// Without its stages and idle devices.
    pub record: PlacementRecord,
    /// The nodes that have ranks, in the order of these.
    pub nodes: Vec<String>,
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
#[derive(Debug, Clone, PartialEq)]
pub enum OperationTarget {
    /// Measures this profile.
    Profile(ProfileName),
    /// Validates this plan.
    Plan(PlanName),
    /// Measures how fast devices of workers exchange bytes.
    Links,
    /// Deletes old rows.
    Purge(Box<PurgeRecord>),
    /// Searches for a plan.
    Search(SearchRecord),
}

impl OperationTarget {
    /// Share of the work done, as far as it is not in runs.
    pub fn progress(&self) -> f64 {
        match self {
            Self::Search(search) if search.limit_seconds > 0.0 => {
                (search.seconds / search.limit_seconds).clamp(0.0, 1.0)
            }
            Self::Purge(purge) => purge.progress(),
            Self::Search(_) | Self::Profile(_) | Self::Plan(_) | Self::Links => 0.0,
        }
    }
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
    /// Share of the work done, 0 to 1: ended runs count 1, running ones their progress; of a purge, examined rows of all.
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

/// A model with what it was built from.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRecord {
    /// Content-derived name.
    pub name: ModelName,
    pub model: Model,
    /// What it was built from.
    pub source: ModelSource,
    /// When it was first stored.
    pub create_time: Timestamp,
}

/// Where a profile stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfileState {
    /// Runs are queued or running.
    Running,
    /// Nothing is missing.
    Complete,
    /// Runs ended without all that was wanted.
    Incomplete,
    Cancelled,
}

/// A stored profile.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct ProfileRecord {
    /// What was asked for.
    #[sqlx(json)]
    pub settings: ProfileSettings,
    /// Where it stands.
    #[sqlx(try_from = "Stored<String>")]
    pub state: ProfileState,
    /// What people wrote on it.
    #[sqlx(json)]
    pub labels: BTreeMap<String, String>,
    /// What the campaign's predictor lacks.
    pub missing: Vec<String>,
    /// Runs that were made for it, by state.
    #[sqlx(flatten)]
    pub runs: RunCounts,
    /// Those of them that repeat at a smaller micro-batch size what did not fit.
    #[sqlx(rename = "shrunk", try_from = "i64")]
    pub shrunk_runs: u32,
    /// Seconds that devices were held by them, added up over devices.
    pub device_seconds: f64,
    /// Runs that were made for other profiles and serve this one too.
    #[sqlx(try_from = "i64")]
    pub reused_runs: u32,
    /// Seconds that devices were held by those.
    pub saved_device_seconds: f64,
    /// Its newest operation.
    #[sqlx(rename = "operation_id", try_from = "Stored<String>")]
    pub operation: OperationName,
    /// When it was asked for.
    #[sqlx(try_from = "Time")]
    pub create_time: Timestamp,
    /// When its last run ended.
    #[sqlx(try_from = "Stored<Option<Time>>")]
    pub end_time: Option<Timestamp>,
}
