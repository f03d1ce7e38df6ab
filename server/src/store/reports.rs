//! What users report of their own training runs. Written once, never changed.

use loadmaster_filter::Query;
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::report::Report;
use sqlx::{Postgres, QueryBuilder};
use uuid::Uuid;

use super::Store;
use super::columns::document;
use super::error::{Result, StoreError, broken_constraint};
use super::find::ListSql;
use super::idempotency::{once, refused};
use super::records::{Page, PageRequest, ReportRecord, RequestKey};

/// Most reports of one plan: protects the database from a caller gone wild.
pub const MAX_REPORTS: i64 = 10_000;

/// The kind of device that the caller left out is the plan's, so that it is stated in every row. None where the
/// plan does not exist or has too many.
const REPORT: &str = "
INSERT INTO reports (id, plan_id, report, request_id, request_fingerprint)
SELECT $1, plans.id,
       $3::jsonb || jsonb_build_object('device_kind', coalesce($3::jsonb ->> 'device_kind', content ->> 'device_kind')),
       $4, $5
FROM plans
WHERE plans.id = $2
  AND (SELECT count(*) FROM (SELECT FROM reports WHERE plan_id = $2 LIMIT $6) AS stored) < $6
RETURNING id, plan_id, report, create_time";

const LIST: ListSql =
    ListSql { select: "SELECT id, plan_id, report, create_time", from: "FROM reports", id: "id", around: "" };

impl Store {
    /// Stores a report of a plan. The same request key returns the first call's and stores nothing.
    ///
    /// # Errors
    /// [`StoreError::RequestIdReused`], [`StoreError::NotFound`] for the plan,
    /// [`StoreError::TooManyReports`].
    pub async fn put_report(
        &self,
        plan: &PlanName,
        report: &Report,
        request: Option<&RequestKey>,
    ) -> Result<ReportRecord> {
        let create = async {
            let stored: Result<Option<ReportRecord>, sqlx::Error> = sqlx::query_as(REPORT)
                // Version 7 ids grow with time, so lists show equal times in order.
                .bind(Uuid::now_v7().to_string())
                .bind(plan.id())
                .bind(document(report)?)
                .bind(request.map(|request| request.id))
                .bind(request.map(|request| &request.fingerprint))
                .bind(MAX_REPORTS)
                .fetch_optional(&self.pool)
                .await;
            let stored = stored.map_err(|error| match broken_constraint(&error) {
                // The plan was deleted at this moment.
                Some("reports_plan_id_fkey") => StoreError::not_found(plan),
                _ => refused(error, "reports_request_id_key"),
            })?;
            if let Some(stored) = stored {
                return Ok(stored);
            }
            self.get_plan(plan).await?;
            Err(StoreError::TooManyReports { what: plan.to_string() })
        };
        once(|| self.find_report(request), create).await
    }

    /// The report of an earlier call with the same key.
    async fn find_report(&self, request: Option<&RequestKey>) -> Result<Option<ReportRecord>> {
        const SQL: &str = "SELECT id, request_fingerprint FROM reports WHERE request_id = $1";
        let Some(id) = self.find_first(SQL, request).await? else { return Ok(None) };
        const OF_ID: &str = "SELECT id, plan_id, report, create_time FROM reports WHERE id = $1";
        Ok(sqlx::query_as(OF_ID).bind(id).fetch_optional(&self.pool).await?)
    }

    /// One report.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn get_report(&self, plan: &PlanName, id: &str) -> Result<ReportRecord> {
        let found = sqlx::query_as(
            "SELECT id, plan_id, report, create_time FROM reports WHERE plan_id = $1 AND id = $2",
        )
        .bind(plan.id())
        .bind(id)
        .fetch_optional(&self.pool)
        .await?;
        found.ok_or_else(|| StoreError::not_found(format!("{plan}/reports/{id}")))
    }

    /// Reports of a plan, or of all: those that are asked for, of [`fields::REPORTS`](super::fields::REPORTS).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_reports(
        &self,
        plan: Option<&PlanName>,
        query: &Query,
        request: &PageRequest,
    ) -> Result<Page<ReportRecord>> {
        let of_plan = |sql: &mut QueryBuilder<Postgres>| {
            if let Some(plan) = plan {
                sql.push(" AND plan_id = ").push_bind(plan.id().to_owned());
            }
        };
        LIST.page(self, query, request, of_plan).await
    }
}
