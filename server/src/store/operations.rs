//! Operations: what callers wait for, and the stop of a campaign whose runs fail alike.

use loadmaster_filter::Query;
use loadmaster_proto::name::{OperationName, PlanName, ProfileName, RunName};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{FromRow, Postgres, QueryBuilder};

use super::Store;
use super::columns::{Stored, Time, name, unsigned};
use super::error::{Result, StoreError, retry};
use super::find::ListSql;
use super::records::{
    FailureRecord, Failures, Fenced, OperationRecord, OperationState, OperationTarget, Page, PageRequest,
    PurgeRecord, RunCounts, SearchRecord,
};
use super::states::operation_word;

/// Counts the runs whose column is `$of`, for example `runs.operation_id = operations.id`.
macro_rules! run_counts {
    ($of:literal) => {
        concat!("SELECT count(*) FILTER (WHERE runs.state = 'queued') AS queued,
                count(*) FILTER (WHERE runs.state = 'running') AS running,
                count(*) FILTER (WHERE runs.state = 'succeeded') AS succeeded,
                count(*) FILTER (WHERE runs.state = 'out_of_memory') AS out_of_memory,
                count(*) FILTER (WHERE runs.state = 'failed') AS failed,
                count(*) FILTER (WHERE runs.state = 'cancelled') AS cancelled,
                coalesce(sum(CASE runs.state WHEN 'queued' THEN 0 WHEN 'running' THEN runs.progress ELSE 1 END), 0)
                    AS done,
                coalesce(sum(runs.device_seconds), 0) AS device_seconds,
                count(*) FILTER (WHERE runs.shrunk_from IS NOT NULL) AS shrunk,
                avg(extract(epoch FROM runs.end_time - runs.start_time)::double precision)
                    FILTER (WHERE runs.state IN ('succeeded', 'out_of_memory')) AS mean_seconds
         FROM runs WHERE ", $of)
    };
}
pub(super) use run_counts;

/// What is selected of operations, up to their columns.
macro_rules! selected {
    () => {
        "SELECT operations.*, counts.*
             FROM (SELECT id, profile_id, plan_id, measures_links, purge, search, state, error_code, error_reason, error_message,
                          rounds, stopped, create_time, end_time"
    };
}

/// What is told besides of the operations that were chosen, so that only their runs are counted.
macro_rules! around {
    () => {
        concat!(
            ") AS operations
             CROSS JOIN LATERAL (",
            run_counts!("runs.operation_id = operations.id"),
            ") AS counts"
        )
    };
}

const LIST: ListSql = ListSql { select: selected!(), from: "FROM operations", id: "id", around: around!() };

/// What follows the row of an `operation` that makes no more runs, and whether there was one. Queued runs end at once.
/// Running ones are asked to; they end when their worker reports or its lease expires. One UPDATE for both, so that a
/// run claimed or requeued at this moment is not missed.
macro_rules! runs_cancelled {
    () => {
        ", held AS (
    SELECT runs.id FROM runs JOIN operation ON runs.operation_id = operation.id
    WHERE runs.state IN ('queued', 'running')
    ORDER BY runs.id FOR UPDATE OF runs
), cancelled AS (
    UPDATE runs
    SET cancel_requested = runs.state = 'running',
        state = CASE runs.state WHEN 'queued' THEN 'cancelled' ELSE runs.state END,
        end_time = CASE runs.state WHEN 'queued' THEN now() END
    FROM held WHERE runs.id = held.id AND runs.state IN ('queued', 'running')
)
SELECT EXISTS (SELECT FROM operation)"
    };
}

const CANCEL: &str = concat!(
    "WITH operation AS (
    UPDATE operations SET cancel_requested = true
    WHERE id = $1 AND state = 'running' AND NOT deleted
    RETURNING id
)",
    runs_cancelled!()
);

/// A run that is added at the moment of a cancellation (a repetition at a smaller size, or a follow-up) is not
/// among the rows that the cancellation sees. After it none is added any more.
const UNCANCELLED: &str = "
SELECT EXISTS (SELECT FROM runs
    WHERE operation_id = $1 AND (state = 'queued' OR state = 'running' AND NOT cancel_requested))";

/// How often runs that were added meanwhile are looked for: the first look finds all but what is being added.
const MAX_CANCEL_ROUNDS: usize = 8;

/// An operation is cancelled once none of its runs is held any more.
const SETTLE_CANCELLED: &str = "
WITH settled AS (
    UPDATE operations SET state = 'cancelled', end_time = now()
    WHERE state = 'running' AND cancel_requested
      AND NOT EXISTS (SELECT FROM runs WHERE operation_id = operations.id AND state IN ('queued', 'running'))
    RETURNING id, profile_id
), profile AS (
    UPDATE profiles SET state = 'cancelled', end_time = now()
    FROM settled WHERE profiles.id = settled.profile_id AND profiles.state = 'running'
)
SELECT id FROM settled";

/// `end_time` is when the last run ended, not when someone noticed.
const FINISH: &str = "
WITH finished AS (
    UPDATE operations
    SET state = $2, error_code = $3, error_reason = $4, error_message = $5, end_time = now()
    WHERE id = $1 AND state = 'running' AND (NOT cancel_requested OR $2 = 'cancelled')
      AND ($6::text[] IS NULL OR profile_id IS NOT NULL)
      AND NOT EXISTS (SELECT FROM runs WHERE operation_id = $1 AND state IN ('queued', 'running'))
    RETURNING id, profile_id
), profile AS (
    UPDATE profiles
    SET state = CASE
            WHEN $2 = 'cancelled' THEN 'cancelled'
            WHEN $2 = 'failed' OR cardinality($6::text[]) > 0 THEN 'incomplete'
            ELSE 'complete' END,
        missing = coalesce($6::text[], CASE WHEN $2 = 'failed' THEN ARRAY[$5::text] END, profiles.missing),
        end_time = coalesce((SELECT max(end_time) FROM runs WHERE operation_id = $1), now())
    FROM finished WHERE profiles.id = finished.profile_id
)
SELECT EXISTS (SELECT FROM finished)";

/// Part of a row that tells how far its runs are.
#[derive(FromRow)]
struct CountRow {
    #[sqlx(flatten)]
    runs: RunCounts,
    done: f64,
    mean_seconds: Option<f64>,
}

impl CountRow {
    /// What is left of the runs, as so many whole ones, in the pace of those that ended, by as many at once
    /// as are running now.
    fn remaining_seconds(&self) -> Option<f64> {
        let left = (f64::from(self.runs.total()) - self.done).max(0.0);
        let running = f64::from(self.runs.running);
        (self.runs.running > 0).then(|| Some(self.mean_seconds? * left / running)).flatten()
    }
}

#[derive(FromRow)]
struct OperationRow {
    id: String,
    profile_id: Option<String>,
    plan_id: Option<String>,
    measures_links: bool,
    purge: Option<Json<PurgeRecord>>,
    search: Option<Json<SearchRecord>>,
    state: String,
    error_code: Option<i32>,
    error_reason: Option<String>,
    error_message: Option<String>,
    rounds: i32,
    stopped: Option<String>,
    create_time: Time,
    end_time: Option<Time>,
    #[sqlx(flatten)]
    counts: CountRow,
}

impl TryFrom<OperationRow> for OperationRecord {
    type Error = StoreError;

    fn try_from(row: OperationRow) -> Result<Self> {
        let OperationRow {
            id,
            profile_id,
            plan_id,
            measures_links,
            purge,
            search,
            state,
            error_code,
            error_reason,
            error_message,
            rounds,
            stopped,
            create_time,
            end_time,
            counts,
        } = row;
        let target = match (profile_id, plan_id, purge, search) {
            (None, None, None, None) if measures_links => OperationTarget::Links,
            (None, None, Some(Json(purge)), None) => OperationTarget::Purge(Box::new(purge)),
            (None, None, None, Some(Json(search))) => OperationTarget::Search(search),
            (Some(profile), None, None, None) => {
                OperationTarget::Profile(name(ProfileName::from_id(profile))?)
            }
            (None, Some(plan), None, None) => OperationTarget::Plan(name(PlanName::from_id(plan))?),
            _ => {
                return Err(StoreError::corrupt(format!(
                    "stored operation {id} must have one target: a profile, plan, purge, search or link measurement"
                )));
            }
        };
        let state = match state.as_str() {
            "running" => OperationState::Running,
            "succeeded" => OperationState::Succeeded,
            "failed" => OperationState::Failed {
                code: error_code.unwrap_or_default(),
                reason: error_reason.unwrap_or_default(),
                message: error_message.unwrap_or_default(),
            },
            "cancelled" => OperationState::Cancelled,
            other => return Err(StoreError::corrupt(format!("operation {id} has the state {other:?}"))),
        };
        let progress = match (&state, counts.runs.total()) {
            (OperationState::Running, 0) => target.progress(),
            (OperationState::Running, total) => counts.done / f64::from(total),
            _ => 1.0,
        };
        Ok(Self {
            name: name(OperationName::from_id(id))?,
            target,
            state,
            remaining_seconds: counts.remaining_seconds(),
            runs: counts.runs,
            progress,
            rounds: unsigned(rounds)?,
            stopped,
            create_time: create_time.0,
            end_time: end_time.map(|time| time.0),
        })
    }
}

impl FromRow<'_, PgRow> for OperationRecord {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(OperationRow::from_row(row)?.try_into()?)
    }
}

impl Store {
    /// One operation.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], also when it was deleted.
    pub async fn get_operation(&self, name: &OperationName) -> Result<OperationRecord> {
        let found =
            sqlx::query_as(concat!(selected!(), " FROM operations WHERE id = $1 AND NOT deleted", around!()))
                .bind(name.id())
                .fetch_optional(&self.pool)
                .await?;
        found.ok_or_else(|| StoreError::not_found(name))
    }

    /// Operations that no one deleted: those that are asked for, of [`fields::OPERATIONS`](super::fields::OPERATIONS).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_operations(
        &self,
        query: &Query,
        request: &PageRequest,
    ) -> Result<Page<OperationRecord>> {
        let is_there = |sql: &mut QueryBuilder<Postgres>| {
            sql.push(" AND NOT deleted");
        };
        LIST.page(self, query, request, is_there).await
    }

    /// Forgets an ended operation. Its runs and measurements stay.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::NotDone`].
    pub async fn delete_operation(&self, name: &OperationName) -> Result<()> {
        let deleted = sqlx::query(
            "UPDATE operations SET deleted = true WHERE id = $1 AND state <> 'running' AND NOT deleted",
        )
        .bind(name.id())
        .execute(&self.pool)
        .await?;
        if deleted.rows_affected() == 0 {
            self.get_operation(name).await?;
            return Err(StoreError::NotDone { what: name.to_string() });
        }
        Ok(())
    }

    /// Cancels what has not ended; false when the operation had ended before.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn cancel_operation(&self, name: &OperationName) -> Result<bool> {
        let cancelled = self.ask_to_end(name).await?;
        if cancelled {
            for _ in 0..MAX_CANCEL_ROUNDS {
                let missed: bool =
                    sqlx::query_scalar(UNCANCELLED).bind(name.id()).fetch_one(&self.pool).await?;
                if !missed {
                    break;
                }
                self.ask_to_end(name).await?;
            }
            self.settle_cancelled().await?;
        } else {
            self.get_operation(name).await?;
        }
        Ok(cancelled)
    }

    async fn ask_to_end(&self, name: &OperationName) -> Result<bool> {
        retry(|| async {
            let cancelled: bool = sqlx::query_scalar(CANCEL).bind(name.id()).fetch_one(&self.pool).await?;
            Ok(cancelled)
        })
        .await
    }

    /// Ends the cancelled operations that no run holds open any more.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn settle_cancelled(&self) -> Result<()> {
        let settled: Vec<String> =
            retry(|| async { Ok(sqlx::query_scalar(SETTLE_CANCELLED).fetch_all(&self.pool).await?) }).await?;
        for id in settled {
            self.tell_ended(&name(OperationName::from_id(id))?).await;
        }
        Ok(())
    }

    /// Operations that are to be ended: all their runs ended. Cancelled ones end here.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn unsettled_operations(&self) -> Result<Vec<OperationName>> {
        let due: Vec<(String, bool)> = sqlx::query_as(
            "SELECT id, cancel_requested FROM operations WHERE state = 'running' AND ((purge IS NULL AND search IS NULL) OR cancel_requested)
               AND NOT EXISTS (SELECT FROM runs WHERE operation_id = operations.id AND state IN ('queued', 'running'))
             ORDER BY create_time, id",
        )
        .fetch_all(&self.pool)
        .await?;
        if due.iter().any(|&(_, cancelled)| cancelled) {
            self.settle_cancelled().await?;
        }
        due.into_iter()
            .filter(|&(_, cancelled)| !cancelled)
            .map(|(id, _)| name(OperationName::from_id(id)))
            .collect()
    }

    /// Ends an operation whose profile was measured; its profile is incomplete when something is
    /// missing. Only once, and only when all its runs ended.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn finish_profile_operation(&self, name: &OperationName, missing: &[String]) -> Result<Fenced> {
        self.finish(name, &OperationState::Succeeded, Some(missing)).await
    }

    /// Ends an operation that was stopped with this error; its profile is incomplete, and lacks `missing`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn fail_profile_operation(
        &self,
        name: &OperationName,
        error: &OperationState,
        missing: &[String],
    ) -> Result<Fenced> {
        self.finish(name, error, Some(missing)).await
    }

    /// Ends an operation. Only once, and only when all its runs ended. Its profile, if it has one,
    /// becomes complete, incomplete (`missing` then is the error's message) or cancelled.
    ///
    /// # Errors
    /// [`StoreError::Internal`] for [`OperationState::Running`].
    pub async fn finish_operation(&self, name: &OperationName, state: OperationState) -> Result<Fenced> {
        if state == OperationState::Running {
            return Err(StoreError::Internal("an operation cannot end as running".to_owned()));
        }
        self.finish(name, &state, None).await
    }

    async fn finish(
        &self,
        name: &OperationName,
        state: &OperationState,
        missing: Option<&[String]>,
    ) -> Result<Fenced> {
        let (code, reason, message) = match state {
            OperationState::Failed { code, reason, message } => (Some(*code), Some(reason), Some(message)),
            OperationState::Running | OperationState::Succeeded | OperationState::Cancelled => {
                (None, None, None)
            }
        };
        let finished: bool = sqlx::query_scalar(FINISH)
            .bind(name.id())
            .bind(operation_word(state))
            .bind(code)
            .bind(reason)
            .bind(message)
            .bind(missing)
            .fetch_one(&self.pool)
            .await?;
        if !finished {
            return Ok(Fenced::Stale);
        }
        self.tell_ended(name).await;
        Ok(Fenced::Applied)
    }
}

/// Most failures that are read: those that count must be among the newest. All 128 devices of a node may fail at one moment, which
/// counts once, three times over.
const MOST: i64 = 400;

/// Of each run the newest failure: nothing for runs that are of no profile.
const FAILURES: &str = "
SELECT operations.id AS operation, operations.profile_id AS profile,
       ARRAY(SELECT failures -> -1 FROM runs
             WHERE operation_id = operations.id AND failures <> '[]'::jsonb AND state <> 'succeeded'
             ORDER BY failures -> -1 ->> 'time' DESC LIMIT $2) AS newest,
       (SELECT max(end_time) FROM runs
        WHERE operation_id = operations.id AND state IN ('succeeded', 'out_of_memory')) AS last_answer,
       ARRAY(SELECT DISTINCT worker_id FROM runs
             WHERE operation_id = operations.id AND state = 'running') AS at_work
FROM operations
WHERE operations.id = (SELECT operation_id FROM runs WHERE id = $1)
  AND operations.profile_id IS NOT NULL AND operations.state = 'running'";

/// As a cancellation, but the operation ends with an error. Again for what was added meanwhile.
const STOP: &str = concat!(
    "WITH operation AS (
    UPDATE operations SET stopped = coalesce(stopped, $2)
    WHERE id = $1 AND state = 'running' AND NOT cancel_requested
    RETURNING id
)",
    runs_cancelled!()
);

impl From<Stored<Vec<Json<FailureRecord>>>> for Vec<FailureRecord> {
    fn from(Stored(failures): Stored<Vec<Json<FailureRecord>>>) -> Self {
        failures.into_iter().map(|Json(failure)| failure).collect()
    }
}

impl Store {
    /// How the runs of a run's operation failed; none where that measures no profile, or has ended.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn failures_beside(&self, run: &RunName) -> Result<Option<Failures>> {
        Ok(sqlx::query_as(FAILURES).bind(run.id()).bind(MOST).fetch_optional(&self.pool).await?)
    }

    /// Makes no more runs of an operation, stops those that are running, and has it end with this message once
    /// they did; false where it has ended or was cancelled.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn stop_operation(&self, operation: &OperationName, message: &str) -> Result<bool> {
        retry(|| async {
            let stopped: bool =
                sqlx::query_scalar(STOP).bind(operation.id()).bind(message).fetch_one(&self.pool).await?;
            Ok(stopped)
        })
        .await
    }
}
