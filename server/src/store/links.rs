//! Runs that measure links, and what they yielded.

use loadmaster_filter::Query;
use loadmaster_proto::name::{OperationName, WorkerName};
use serde_json::{Value, json};
use sqlx::{Postgres, QueryBuilder};

use super::Store;
use super::columns::{document, name};
use super::error::{Result, StoreError};
use super::find::ListSql;
use super::idempotency::{OPERATION_KEY, refused};
use super::records::{LinkRecord, NewLinkRun, Page, PageRequest, RequestKey};
use super::submit::new_id;

/// Runs with the operation that waits for them, all or nothing. Each belongs to one worker.
const CREATE: &str = "
WITH operation AS (
    INSERT INTO operations (id, measures_links, request_id, request_fingerprint) VALUES ($2, true, $3, $4)
)
INSERT INTO runs (id, operation_id, work, iterations, device_kind, device_count, min_capacity_bytes,
                  deadline_seconds, only_worker_id)
SELECT new.id, $2, new.work, new.iterations, new.device_kind, new.device_count, new.min_capacity_bytes,
       new.deadline_seconds, new.only_worker_id
FROM jsonb_to_recordset($1) AS new(id text, work jsonb, iterations integer, device_kind text,
     device_count integer, min_capacity_bytes bigint, deadline_seconds integer, only_worker_id text)
ORDER BY new.id";

const LIST: ListSql = ListSql {
    select: "SELECT run_id, worker_id, measurement, create_time",
    from: "FROM link_measurements",
    id: "run_id",
    around: "",
};

impl Store {
    /// Stores runs that measure links, with the operation that waits for them. The same request key returns
    /// the first call's operation and stores nothing.
    ///
    /// # Errors
    /// [`StoreError::RequestIdReused`], [`StoreError::NotFound`] for a worker, [`StoreError::QueueFull`].
    pub async fn create_link_runs(
        &self,
        runs: &[NewLinkRun],
        request: Option<RequestKey>,
    ) -> Result<OperationName> {
        let create = async {
            // No constraint: the runs outlive the rows of their workers.
            let wanted: Vec<&str> = runs.iter().map(|run| run.worker.id()).collect();
            let missing: Option<String> = sqlx::query_scalar(
                "SELECT id FROM unnest($1::text[]) AS id WHERE id NOT IN (SELECT id FROM workers) LIMIT 1",
            )
            .bind(wanted)
            .fetch_optional(&self.pool)
            .await?;
            if let Some(id) = missing {
                return Err(StoreError::not_found(format!("workers/{id}")));
            }
            let operation = new_id();
            let created = sqlx::query(CREATE)
                .bind(runs.iter().map(run_document).collect::<Result<Value>>()?)
                .bind(&operation)
                .bind(request.as_ref().map(|request| request.id))
                .bind(request.as_ref().map(|request| &request.fingerprint))
                .execute(&self.pool)
                .await;
            created.map_err(|error| refused(error, OPERATION_KEY))?;
            name(OperationName::from_id(operation))
        };
        self.queue_once(request.as_ref(), runs.len(), create).await
    }

    /// Measurements of links; those of one worker, if one is named: those that are asked for, of
    /// [`fields::LINK_MEASUREMENTS`](super::fields::LINK_MEASUREMENTS).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_link_measurements(
        &self,
        worker: Option<&WorkerName>,
        query: &Query,
        request: &PageRequest,
    ) -> Result<Page<LinkRecord>> {
        let of_worker = |sql: &mut QueryBuilder<Postgres>| {
            if let Some(worker) = worker {
                sql.push(" AND worker_id = ").push_bind(worker.id().to_owned());
            }
        };
        LIST.page(self, query, request, of_worker).await
    }

    /// The newest measurement of each of these workers that has one.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn newest_link_measurements(&self, workers: &[&WorkerName]) -> Result<Vec<LinkRecord>> {
        let ids: Vec<&str> = workers.iter().map(|worker| worker.id()).collect();
        let measured = sqlx::query_as(
            "SELECT DISTINCT ON (worker_id) run_id, worker_id, measurement, create_time
             FROM link_measurements WHERE worker_id = ANY ($1)
             ORDER BY worker_id, create_time DESC, run_id DESC",
        )
        .bind(ids)
        .fetch_all(&self.pool)
        .await?;
        Ok(measured)
    }

    /// What the runs of an operation measured.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn operation_link_measurements(&self, operation: &OperationName) -> Result<Vec<LinkRecord>> {
        let measured = sqlx::query_as(
            "SELECT links.run_id, links.worker_id, links.measurement, links.create_time
             FROM runs JOIN link_measurements AS links ON links.run_id = runs.id
             WHERE runs.operation_id = $1 ORDER BY links.worker_id, links.run_id",
        )
        .bind(operation.id())
        .fetch_all(&self.pool)
        .await?;
        Ok(measured)
    }
}

fn run_document(run: &NewLinkRun) -> Result<Value> {
    let NewLinkRun { worker, work, device_kind, min_capacity, deadline_seconds } = run;
    Ok(json!({
        "id": new_id(),
        "work": { "links": document(work)? },
        "iterations": work.repeats,
        "device_kind": device_kind,
        "device_count": work.devices,
        "min_capacity_bytes": i64::try_from(*min_capacity).unwrap_or(i64::MAX),
        "deadline_seconds": deadline_seconds,
        "only_worker_id": worker.id(),
    }))
}
