//! What the store hands out and takes in: plain records, one per kind of row.

mod cluster;
mod lease;
mod model;
mod operation;
mod pace;
mod page;
mod plan;
mod profile;
mod reuse;
mod run;
mod trial;
mod worker;

pub use cluster::{ClusterRecord, ClusterRow, ClusterSummary, LinkRecord, NewLinkRun};
pub use lease::{AskedRun, Claim, Fenced, FreeDevice, Heartbeat, HeldLease, Renewal};
pub use model::ModelRecord;
pub use operation::{OperationRecord, OperationState, OperationTarget, RequestKey};
pub use pace::Pace;
pub use page::{Cursor, Page, PageRequest, Positioned};
pub use plan::{DeviceGroupRecord, NewestTrial, PlanRecord, PlanRow, PlanSummary, TrainedSummary};
pub use profile::{Campaign, ProfileRecord, ProfileSettings, ProfileState};
pub use reuse::{AttemptRecord, MeasuredRun, ReusedRun, Software};
pub use run::{
    FailureRecord, Failures, MeasurementRecord, NewRun, RunCounts, RunFilter, RunNeed, RunRecord, RunState,
    RunWork, TrainedWork,
};
pub use trial::{MeasuredPlan, NewTrial, ObservationRecord, TrialRecord};
pub use worker::{NearestWorker, NewWorker, WorkerRecord, WorkerState};
