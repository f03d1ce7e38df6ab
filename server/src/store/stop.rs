//! Stopping a campaign whose runs fail alike.

use loadmaster_proto::name::{OperationName, RunName};
use sqlx::types::Json;

use super::Store;
use super::columns::Stored;
use super::error::{Result, retry};
use super::operations::runs_cancelled;
use super::records::{FailureRecord, Failures};

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
