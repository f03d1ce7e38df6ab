//! What the store hands out and takes in: plain records, one per kind of row.

mod cluster;
mod lease;
mod measurement;
mod operation;
mod plan;
mod profile;
mod reuse;
mod run;
mod trial;
mod work;
mod worker;

use jiff::Timestamp;
use loadmaster_proto::name::BindingName;
use loadmaster_proto::plan::binding::Binding;

pub use super::page::{Cursor, Page, PageRequest, Positioned};
pub use cluster::{ClusterRecord, ClusterRow, ClusterSummary, LinkRecord, NewLinkRun};
pub use lease::{AskedRun, Claim, Fenced, FreeDevice, Heartbeat, HeldLease, Renewal};
pub use measurement::MeasurementRecord;
pub use operation::{OperationRecord, OperationState, OperationTarget, RequestKey};
pub use plan::{
    DeviceGroupRecord, NewestReport, NewestTrial, PlanRecord, PlanRow, PlanSummary, TrainedSummary,
};
pub use profile::{Campaign, ModelRecord, ProfileRecord, ProfileSettings, ProfileState};
pub use reuse::{AttemptRecord, EndedRun, MeasuredRun, ReusedRun, Software};
pub use run::{
    FailureRecord, Failures, NewRun, RunCounts, RunFilter, RunNeed, RunRecord, RunState, RunWork, TrainedWork,
};
pub(super) use trial::FigureRow;
pub use trial::{MeasuredPlan, NewTrial, ObservationRecord, TrialRecord};
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
    BindingRecord: binding => binding.name.id();
    ClusterRow: cluster => cluster.name.id();
    LinkRecord: link => link.run.id();
    ModelRecord: model => model.name.id();
    ObservationRecord: observation => observation.id;
    OperationRecord: operation => operation.name.id();
    PlanRow: plan => plan.name.id();
    ProfileRecord: profile => profile.settings.name.id();
    RunRecord: run => run.name.id();
    WorkerRecord: worker => worker.name.id();
}

impl Positioned for BindingRow {
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

/// A stored binding.
#[derive(Debug, Clone, PartialEq)]
pub struct BindingRecord {
    pub name: BindingName,
    pub content: Binding,
    pub create_time: Timestamp,
}

/// A binding in short.
#[derive(Debug, Clone, PartialEq)]
pub struct BindingRow {
    /// Without its stages and idle devices.
    pub record: BindingRecord,
    /// The nodes that have ranks, in the order of these.
    pub nodes: Vec<String>,
}
