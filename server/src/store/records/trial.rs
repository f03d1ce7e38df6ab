//! What plans needed when they were trained, by trials and by their users' runs.

use jiff::Timestamp;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::name::{PlanName, RunName};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::report::{CopiedStage, Measured, Peak, Report};
use sqlx::FromRow;

use super::{NewRun, RunState};
use crate::store::columns::{Stored, Time, unsigned};
use crate::store::error::{Result, StoreError};
use crate::store::states::Word;

/// A run to be queued that validates a plan.
#[derive(Debug, Clone)]
pub struct NewTrial {
    pub plan: PlanName,
    /// What trains it.
    pub run: NewRun,
}

/// One plan of a validation.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct TrialRecord {
    #[sqlx(rename = "id", try_from = "Stored<String>")]
    pub run: RunName,
    #[sqlx(rename = "plan_id", try_from = "Stored<String>")]
    pub plan: PlanName,
    /// What the plan is made of, predictions included.
    #[sqlx(json)]
    pub content: Plan,
    /// The stage that was trained alone; none where all were.
    pub stage: Option<i32>,
    /// Where the run stands.
    #[sqlx(try_from = "Stored<String>")]
    pub state: RunState,
    /// The last thing that went wrong with it.
    pub failure: Option<String>,
    /// What it measured; none before it succeeded.
    #[sqlx(flatten, try_from = "FigureRow")]
    pub measured: Option<Measured>,
    /// Others used its devices: its seconds are too long.
    pub contended: bool,
    /// Its ranks had fewer cores than threads.
    pub oversubscribed: bool,
}

/// What a user reported of a plan.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct ReportRecord {
    #[sqlx(rename = "plan_id", try_from = "Stored<String>")]
    pub plan: PlanName,
    /// The last part of its name.
    pub id: String,
    /// What was reported; its kind of device is stated.
    #[sqlx(json)]
    pub report: Report,
    /// When.
    #[sqlx(try_from = "Time")]
    pub create_time: Timestamp,
}

impl ReportRecord {
    /// `plans/{plan}/reports/{report}`.
    pub fn name(&self) -> String {
        format!("{}/reports/{}", self.plan, self.id)
    }
}

/// What was measured of a plan, once, by a trial or by a user.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredPlan {
    pub plan: PlanName,
    /// What it is made of, predictions included.
    pub content: Plan,
    /// Kind of device that it was measured on.
    pub device_kind: String,
    /// The run or the report, by its name.
    pub source: String,
    /// The figures.
    pub measured: Measured,
    /// What its stages copied; empty of plans that copy nothing, and of what users report.
    pub copied: Vec<CopiedStage>,
    /// Others used its devices, so that its seconds are left out.
    pub contended: bool,
    /// When that was.
    pub time: Timestamp,
}

/// What was measured of a trial, with what disturbed it.
#[derive(FromRow)]
pub(in crate::store) struct FigureRow {
    iteration_seconds: Option<f64>,
    peaks: Option<Vec<i64>>,
    ledgers: Option<Vec<String>>,
    pub(in crate::store) contended: bool,
    pub(in crate::store) oversubscribed: bool,
}

impl FigureRow {
    /// None where nothing was measured.
    pub(in crate::store) fn measured(self) -> Result<Option<Measured>> {
        let (Some(peaks), Some(ledgers)) = (self.peaks, self.ledgers) else { return Ok(None) };
        let stage_peaks = peaks.into_iter().zip(&ledgers).map(|(bytes, ledger)| {
            Ok(Peak { bytes: Bytes(unsigned(bytes)?), ledger: Word::from_sql(ledger)? })
        });
        let iteration_seconds = self.iteration_seconds.filter(|&seconds| seconds > 0.0);
        Ok(Some(Measured { iteration_seconds, stage_peaks: stage_peaks.collect::<Result<_>>()? }))
    }
}

/// None where nothing was measured.
impl TryFrom<FigureRow> for Option<Measured> {
    type Error = StoreError;

    fn try_from(row: FigureRow) -> Result<Self> {
        row.measured()
    }
}
