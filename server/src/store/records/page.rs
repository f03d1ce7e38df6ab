//! Pages of lists.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    ClusterRow, LinkRecord, MeasurementRecord, ModelRecord, ObservationRecord, OperationRecord, PlanRow,
    ProfileRecord, RunRecord, WorkerRecord,
};

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

impl Cursor {
    /// Longest id of a row: the name of a measurement.
    const MAX_ID: usize = 512;

    /// Whether a row may be there: rows are written between 1970 and the year 9000, and have ids that can be stored.
    pub fn is_of_a_row(&self) -> bool {
        const YEAR_9000: i64 = 221_845_392_000;
        (0..YEAR_9000).contains(&self.time.as_second())
            && (1..=Self::MAX_ID).contains(&self.id.len())
            && !self.id.contains(char::is_control)
    }
}

/// Which page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// Most rows, at least 1.
    pub size: u32,
    /// Where to start; none for the first page.
    pub after: Option<Cursor>,
}

/// A row that knows its place in its list, so that a page may end at any row.
pub trait Positioned {
    /// Its place: a page that starts after it leaves nothing out.
    fn cursor(&self) -> Cursor;
}

macro_rules! by_time_and_id {
    ($($row:ty: $record:ident => $id:expr;)*) => {$(
        impl Positioned for $row {
            fn cursor(&self) -> Cursor {
                let $record = self;
                Cursor { time: $record.create_time, id: $id.to_owned() }
            }
        }
    )*};
}

by_time_and_id! {
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

/// Measurements are in the order of stages and sizes, which the row itself tells.
impl Positioned for MeasurementRecord {
    fn cursor(&self) -> Cursor {
        let id = format!("{}/{}/{}", self.run.id(), self.measurement.stage_index, self.measurement.shard);
        Cursor { time: self.time, id }
    }
}
