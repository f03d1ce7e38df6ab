//! Searches for plans that are operations.
//!
//! A search has no runs: the process that searches reports its progress every second, and the operation ends with it. What has
//! not been heard of for `SILENCE_SECONDS` ends with an error, since its process is gone.

use loadmaster_proto::name::{OperationName, PlanName};
use loadmaster_proto::reason::Reason;
use loadmaster_proto::wire::v1;
use prost::Message as _;
use serde::{Deserialize, Serialize};

use super::Store;
use super::columns::{document, name};
use super::error::{Result, StoreError};
use super::idempotency::{OPERATION_KEY, once, refused};
use super::records::RequestKey;
use super::submit::new_id;

/// A search without a report for this long is over.
const SILENCE_SECONDS: f64 = 30.0;

/// The error message of a search whose planner is gone.
pub const RESTARTED: &str = "the planner stopped during the search. Repeat the request.";

/// Where a search stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchPhase {
    /// Reads the profiles and the devices, or waits for a slot.
    #[default]
    Preparing,
    /// Searches.
    Searching,
    /// Stores the plan.
    Storing,
}

/// A search as its process reports it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchRecord {
    /// Where it stands.
    pub phase: SearchPhase,
    /// States weighed.
    pub states: u64,
    /// Seconds of an iteration of the fastest plan so far.
    pub value: Option<f64>,
    /// No plan is faster than this.
    pub bound: Option<f64>,
    /// Seconds since the search began.
    pub seconds: f64,
    /// Seconds that it may take.
    pub limit_seconds: f64,
    /// The plan that it found, once it has ended.
    pub plan: Option<String>,
    /// Why no plan satisfies the request, as its encoded message; none where a plan does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infeasible: Option<Vec<u8>>,
}

impl SearchRecord {
    /// Why no plan satisfies the request; none where a plan does, or the message is of another version.
    pub fn infeasible(&self) -> Option<v1::Infeasible> {
        v1::Infeasible::decode(self.infeasible.as_deref()?).ok()
    }

    /// The plan that it found.
    ///
    /// # Errors
    /// When there is none, or its stored name is damaged.
    pub fn plan_name(&self, operation: &OperationName) -> Result<PlanName> {
        let id = self.plan.clone();
        let id = id.ok_or_else(|| StoreError::corrupt(format!("{operation} succeeded without a plan")))?;
        name(PlanName::from_id(id))
    }
}

const CREATE: &str = "
INSERT INTO operations (id, search, search_time, request_id, request_fingerprint) VALUES ($1, $2, now(), $3, $4)";

const REPORT: &str = "
UPDATE operations SET search = $2, search_time = now()
WHERE id = $1 AND state = 'running' AND NOT cancel_requested";

const FINISH: &str = "
UPDATE operations SET search = $2, search_time = now(), state = 'succeeded', end_time = now()
WHERE id = $1 AND state = 'running' AND NOT cancel_requested";

const END_SILENT: &str = "
UPDATE operations
SET state = 'failed', end_time = now(), error_code = $2, error_reason = $3, error_message = $4
WHERE state = 'running' AND search IS NOT NULL AND search_time < now() - make_interval(secs => $1)
RETURNING id";

impl Store {
    /// Stores the operation of a search that begins. The same request key returns the first call's operation, and false.
    ///
    /// # Errors
    /// [`StoreError::RequestIdReused`].
    pub async fn create_search(
        &self,
        search: &SearchRecord,
        request: Option<&RequestKey>,
    ) -> Result<(OperationName, bool)> {
        let create = async {
            let operation = new_id();
            let created = sqlx::query(CREATE)
                .bind(&operation)
                .bind(document(search)?)
                .bind(request.map(|request| request.id))
                .bind(request.map(|request| &request.fingerprint))
                .execute(&self.pool)
                .await;
            created.map_err(|error| refused(error, OPERATION_KEY))?;
            Ok((name(OperationName::from_id(operation))?, true))
        };
        let find = || async { Ok(self.find_request(request).await?.map(|first| (first, false))) };
        once(find, create).await
    }

    /// Stores how far a search is; false if its operation has ended, so that it has to stop.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn report_search(&self, operation: &OperationName, search: &SearchRecord) -> Result<bool> {
        self.write_search(REPORT, operation, search).await
    }

    /// Ends the operation of a search with its plan; false if it had ended before.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn finish_search(&self, operation: &OperationName, search: &SearchRecord) -> Result<bool> {
        let finished = self.write_search(FINISH, operation, search).await?;
        if finished {
            self.tell_ended(operation).await;
        }
        Ok(finished)
    }

    async fn write_search(
        &self,
        sql: &'static str,
        operation: &OperationName,
        search: &SearchRecord,
    ) -> Result<bool> {
        let written =
            sqlx::query(sql).bind(operation.id()).bind(document(search)?).execute(&self.pool).await?;
        Ok(written.rows_affected() > 0)
    }

    /// Ends the searches whose process reports nothing any more.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn end_silent_searches(&self) -> Result<()> {
        let reason = Reason::PlannerRestarted;
        let ended: Vec<String> = sqlx::query_scalar(END_SILENT)
            .bind(SILENCE_SECONDS)
            .bind(i32::from(reason.code()))
            .bind(reason.as_str())
            .bind(RESTARTED)
            .fetch_all(&self.pool)
            .await?;
        for id in ended {
            self.tell_ended(&name(OperationName::from_id(id))?).await;
        }
        Ok(())
    }
}
