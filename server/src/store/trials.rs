//! What trials and observations measured of plans.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::name::{OperationName, PlanName, RunName};
use loadmaster_proto::plan::observation::{Measured, Observation, Peak};
use sqlx::FromRow;
use sqlx::types::Json;

use super::Store;
use super::error::Result;
use super::records::{MeasuredPlan, RunState, TrialRecord};
use super::runs::{name, unsigned};
use super::states::Word;
use loadmaster_proto::plan::Plan;

/// Of a row of `runs`: the seconds of its slowest rank, and whether these are too long for any of them, and each
/// stage's highest peak with its ledger.
macro_rules! figures_of_run {
    () => {
        "CROSS JOIN LATERAL (
             SELECT max(seconds) AS iteration_seconds,
                    array_agg(bytes ORDER BY stage_index) FILTER (WHERE bytes IS NOT NULL) AS peaks,
                    array_agg(ledger ORDER BY stage_index) FILTER (WHERE bytes IS NOT NULL) AS ledgers,
                    bool_or(contended) IS TRUE AS contended, bool_or(oversubscribed) IS TRUE AS oversubscribed
             FROM (SELECT DISTINCT ON (stage_index) stage_index, peak_allocated_bytes AS bytes,
                          peak_ledger AS ledger,
                          max(iteration_seconds) OVER of_stage AS seconds,
                          bool_or((measurement #>> '{environment,contended}')::boolean) OVER of_stage AS contended,
                          bool_or((measurement #>> '{environment,oversubscribed}')::boolean) OVER of_stage
                              AS oversubscribed
                   FROM measurements WHERE run_id = runs.id
                   WINDOW of_stage AS (PARTITION BY stage_index)
                   ORDER BY stage_index, peak_allocated_bytes DESC) AS stages
         ) AS figures"
    };
}

pub(super) use figures_of_run;

const TRIALS: &str = concat!(
    "SELECT runs.id, runs.plan_id, plans.content, runs.state, runs.failures -> -1 ->> 'message' AS failure, figures.*
     FROM runs JOIN plans ON plans.id = runs.plan_id ",
    figures_of_run!(),
    " WHERE runs.operation_id = $1 ORDER BY runs.position LIMIT $2"
);

const MEASURED_TRIALS: &str = concat!(
    "SELECT runs.plan_id, plans.content, runs.device_kind, figures.*
     FROM (SELECT id, plan_id, device_kind, create_time FROM runs
           WHERE plan_id IS NOT NULL AND state = 'succeeded'
           ORDER BY create_time DESC, id DESC LIMIT $1) AS runs
     JOIN plans ON plans.id = runs.plan_id ",
    figures_of_run!(),
    " ORDER BY runs.create_time DESC, runs.id DESC"
);

const MEASURED_OBSERVATIONS: &str = "
SELECT newest.plan_id, plans.content, newest.device_kind, newest.observation
FROM (SELECT id, plan_id, device_kind, observation, create_time FROM observations
      ORDER BY create_time DESC, id DESC LIMIT $1) AS newest
JOIN plans ON plans.id = newest.plan_id
ORDER BY newest.create_time DESC, newest.id DESC";

#[derive(FromRow)]
pub(super) struct FigureRow {
    iteration_seconds: Option<f64>,
    peaks: Option<Vec<i64>>,
    ledgers: Option<Vec<String>>,
    pub(super) contended: bool,
    pub(super) oversubscribed: bool,
}

impl FigureRow {
    /// None where nothing was measured.
    pub(super) fn measured(self) -> Result<Option<Measured>> {
        let (Some(peaks), Some(ledgers)) = (self.peaks, self.ledgers) else { return Ok(None) };
        let stage_peaks = peaks.into_iter().zip(&ledgers).map(|(bytes, ledger)| {
            Ok(Peak { bytes: Bytes(unsigned(bytes)?), ledger: Word::from_sql(ledger)? })
        });
        let iteration_seconds = self.iteration_seconds.filter(|&seconds| seconds > 0.0);
        Ok(Some(Measured { iteration_seconds, stage_peaks: stage_peaks.collect::<Result<_>>()? }))
    }
}

#[derive(FromRow)]
struct TrialRow {
    id: String,
    plan_id: String,
    content: Json<Plan>,
    state: String,
    failure: Option<String>,
    #[sqlx(flatten)]
    figures: FigureRow,
}

#[derive(FromRow)]
struct MeasuredTrialRow {
    plan_id: String,
    content: Json<Plan>,
    device_kind: String,
    #[sqlx(flatten)]
    figures: FigureRow,
}

#[derive(FromRow)]
struct MeasuredObservationRow {
    plan_id: String,
    content: Json<Plan>,
    device_kind: String,
    observation: Json<Observation>,
}

impl Store {
    /// The trials of an operation, in the order in which they were asked for, at most `most`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn trials(&self, operation: &OperationName, most: u32) -> Result<Vec<TrialRecord>> {
        let rows: Vec<TrialRow> =
            sqlx::query_as(TRIALS).bind(operation.id()).bind(i64::from(most)).fetch_all(&self.pool).await?;
        rows.into_iter()
            .map(|TrialRow { id, plan_id, content, state, failure, figures }| {
                let state = RunState::from_sql(&state)?;
                let (contended, oversubscribed) = (figures.contended, figures.oversubscribed);
                Ok(TrialRecord {
                    run: name(RunName::from_id(id))?,
                    plan: name(PlanName::from_id(plan_id))?,
                    content: content.0,
                    state,
                    failure,
                    measured: figures.measured()?,
                    contended,
                    oversubscribed,
                })
            })
            .collect()
    }

    /// The newest trials that succeeded and the newest observations, at most `most` of each. Without the seconds
    /// of trials that others disturbed: nothing can be learnt from those.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn measured_plans(&self, most: u32) -> Result<Vec<MeasuredPlan>> {
        let trials: Vec<MeasuredTrialRow> =
            sqlx::query_as(MEASURED_TRIALS).bind(i64::from(most)).fetch_all(&self.pool).await?;
        let observations: Vec<MeasuredObservationRow> =
            sqlx::query_as(MEASURED_OBSERVATIONS).bind(i64::from(most)).fetch_all(&self.pool).await?;
        let mut measured = Vec::with_capacity(trials.len() + observations.len());
        for MeasuredTrialRow { plan_id, content, device_kind, figures } in trials {
            let is_contended = figures.contended;
            let Some(mut figures) = figures.measured()? else { continue };
            figures.iteration_seconds = figures.iteration_seconds.filter(|_| !is_contended);
            let plan = name(PlanName::from_id(plan_id))?;
            measured.push(MeasuredPlan { plan, content: content.0, device_kind, measured: figures });
        }
        for MeasuredObservationRow { plan_id, content, device_kind, observation } in observations {
            let plan = name(PlanName::from_id(plan_id))?;
            let measured_by_user = observation.0.measured;
            measured.push(MeasuredPlan { plan, content: content.0, device_kind, measured: measured_by_user });
        }
        Ok(measured)
    }
}
