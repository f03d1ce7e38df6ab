//! What the store hands out and takes in: plain records, one per kind of row.

mod cluster;
mod lease;
mod operation;
mod plan;
mod profile;
mod recommendation;
mod reuse;
mod run;
mod trial;
mod worker;

pub use super::page::{Cursor, Page, PageRequest, Positioned};
pub use cluster::{ClusterRecord, ClusterRow, ClusterSummary, LinkRecord, NewLinkRun};
pub use lease::{AskedRun, Claim, Fenced, FreeDevice, Heartbeat, HeldLease, Renewal};
pub use operation::{OperationRecord, OperationState, OperationTarget, RequestKey};
pub use plan::{
    DeviceGroupRecord, NewestTrial, PlanAsked, PlanContent, PlanRecord, PlanRow, PlanStageRecord,
    PlanSummary, TrainedSummary,
};
pub use profile::{Campaign, ModelRecord, ProfileRecord, ProfileSettings, ProfileState};
pub use recommendation::{
    AlternativeRecord, AskedRecord, BaselineRecord, CertificateRecord, CorrectionRecord, FoundRecord,
    FrontRecord, HostRecord, IterationRecord, PlacedDeviceRecord, RejectedRecord, RestrictionRecord,
    SummaryRecord,
};
pub use reuse::{AttemptRecord, MeasuredRun, Pace, ReusedRun, Software};
pub use run::{
    FailureRecord, Failures, MeasurementRecord, NewRun, RunCounts, RunFilter, RunNeed, RunRecord, RunState,
    RunWork, TrainedWork,
};
pub use trial::{MeasuredPlan, NewTrial, ObservationRecord, TrialRecord};
pub use worker::{NearestWorker, NewWorker, WorkerRecord, WorkerState};
