//! What trials and reports measured of plans.

use loadmaster_proto::name::{OperationName, PlanName};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::report::{CopiedStage, Measured, Report};
use sqlx::FromRow;

use super::Store;
use super::columns::{Stored, Time};
use super::error::Result;
use super::records::{FigureRow, MeasuredPlan, TrialRecord};

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
    "SELECT runs.id, runs.plan_id, plans.content, runs.state, runs.failures -> -1 ->> 'message' AS failure,
            (runs.work #>> '{solo,stage_index}')::integer AS stage, figures.*
     FROM runs JOIN plans ON plans.id = runs.plan_id ",
    figures_of_run!(),
    " WHERE runs.operation_id = $1 ORDER BY runs.position LIMIT $2"
);

const MEASURED_TRIALS: &str = concat!(
    "SELECT runs.plan_id, plans.content, runs.device_kind, 'runs/' || runs.id AS source, runs.create_time, figures.*,
            copied.stages AS copied
     FROM (SELECT id, plan_id, device_kind, create_time FROM runs
           WHERE plan_id IS NOT NULL AND state = 'succeeded' AND NOT work ? 'solo'
           ORDER BY create_time DESC, id DESC LIMIT $1) AS runs
     JOIN plans ON plans.id = runs.plan_id ",
    figures_of_run!(),
    // Of each stage's fullest device; of equal ones the last, as a plan shows it.
    " CROSS JOIN LATERAL (
         SELECT coalesce(jsonb_agg(jsonb_build_object('stage', stage_index, 'offload', offload, 'chunks', chunks)
                                   ORDER BY stage_index)
                             FILTER (WHERE offload IS NOT NULL OR chunks IS NOT NULL), '[]') AS stages
         FROM (SELECT DISTINCT ON (stage_index) stage_index, measurement -> 'offload' AS offload,
                      (measurement -> 'chunks') || '{\"other_bytes\": [], \"payload_bytes\": []}' AS chunks
               FROM measurements WHERE run_id = runs.id
               ORDER BY stage_index, peak_allocated_bytes DESC, shard DESC) AS fullest
     ) AS copied
     ORDER BY runs.create_time DESC, runs.id DESC"
);

const MEASURED_REPORTS: &str = "
SELECT newest.plan_id, plans.content, newest.device_kind, newest.report, newest.create_time,
       'plans/' || newest.plan_id || '/reports/' || newest.id AS source
FROM (SELECT id, plan_id, device_kind, report, create_time FROM reports
      ORDER BY create_time DESC, id DESC LIMIT $1) AS newest
JOIN plans ON plans.id = newest.plan_id
ORDER BY newest.create_time DESC, newest.id DESC";

/// Something that was measured of a plan.
#[derive(FromRow)]
struct MeasuredRow {
    #[sqlx(rename = "plan_id", try_from = "Stored<String>")]
    plan: PlanName,
    #[sqlx(json)]
    content: Plan,
    device_kind: String,
    source: String,
    create_time: Time,
}

#[derive(FromRow)]
struct MeasuredTrialRow {
    #[sqlx(flatten)]
    of: MeasuredRow,
    #[sqlx(flatten)]
    figures: FigureRow,
    #[sqlx(json)]
    copied: Vec<CopiedStage>,
}

#[derive(FromRow)]
struct MeasuredReportRow {
    #[sqlx(flatten)]
    of: MeasuredRow,
    #[sqlx(json)]
    report: Report,
}

impl MeasuredRow {
    fn with(self, measured: Measured) -> MeasuredPlan {
        let Self { plan, content, device_kind, source, create_time } = self;
        let (copied, contended, time) = (Vec::new(), false, create_time.0);
        MeasuredPlan { plan, content, device_kind, source, measured, copied, contended, time }
    }
}

impl Store {
    /// The trials of an operation, in the order in which they were asked for, at most `most`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn trials(&self, operation: &OperationName, most: u32) -> Result<Vec<TrialRecord>> {
        let trials =
            sqlx::query_as(TRIALS).bind(operation.id()).bind(i64::from(most)).fetch_all(&self.pool).await?;
        Ok(trials)
    }

    /// The newest trials of whole plans that succeeded and the newest reports, at most `most` of each. Without the seconds
    /// of trials that others disturbed: nothing can be learnt from those.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn measured_plans(&self, most: u32) -> Result<Vec<MeasuredPlan>> {
        let trials: Vec<MeasuredTrialRow> =
            sqlx::query_as(MEASURED_TRIALS).bind(i64::from(most)).fetch_all(&self.pool).await?;
        let reports: Vec<MeasuredReportRow> =
            sqlx::query_as(MEASURED_REPORTS).bind(i64::from(most)).fetch_all(&self.pool).await?;
        let mut measured = Vec::with_capacity(trials.len() + reports.len());
        for MeasuredTrialRow { of, figures, copied } in trials {
            let contended = figures.contended;
            let Some(mut figures) = figures.measured()? else { continue };
            figures.iteration_seconds = figures.iteration_seconds.filter(|_| !contended);
            measured.push(MeasuredPlan { copied, contended, ..of.with(figures) });
        }
        let reports = reports.into_iter();
        measured.extend(reports.map(|row| row.of.with(row.report.measured)));
        Ok(measured)
    }
}
