//! Reading runs.

use loadmaster_proto::name::{OperationName, RunName};
use sqlx::{Postgres, QueryBuilder};

use super::Store;
use super::error::{Result, StoreError};
use super::find::ListSql;
use super::records::{Page, PageRequest, RunFilter, RunNeed, RunRecord};
use super::states::Word;

/// The columns of a run. `$chunks` makes its column `chunks`.
macro_rules! select {
    ($chunks:literal) => {
        concat!(
            "SELECT id, state, operation_id, profile_id, plan_id, model_id AS model, training, work, stage_recompute,
    stage_actions, ",
            $chunks,
            ", iterations, command, device_kind, device_count, host_memory_bytes, worker_id, attempts, failures, progress, phase, shrunk_from,
    create_time, start_time, end_time"
        )
    };
}

const WHOLE: &str = concat!(select!("chunks"), " FROM runs WHERE id = $1");
/// Of a stage in chunks there may be more visits than a page of a list has room for.
const LIST: ListSql = ListSql {
    select: select!(
        "CASE WHEN chunks #> '{residency,planned}' IS NULL THEN chunks
          ELSE jsonb_set(chunks, '{residency,planned}', '[]') END AS chunks"
    ),
    from: "FROM runs",
    id: "id",
    around: "",
};

impl Store {
    /// One run.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn get_run(&self, name: &RunName) -> Result<RunRecord> {
        let found: Option<RunRecord> =
            sqlx::query_as(WHOLE).bind(name.id()).fetch_optional(&self.pool).await?;
        found.ok_or_else(|| StoreError::not_found(name))
    }

    /// Runs, without the visits of those in chunks: those that are asked for, also of [`fields::RUNS`](super::fields::RUNS).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_runs(&self, filter: &RunFilter, request: &PageRequest) -> Result<Page<RunRecord>> {
        let RunFilter { operation, plan, state, query } = filter;
        // Only the conditions that are asked for: "$1 IS NULL OR …" would hide the indexes.
        let also = |sql: &mut QueryBuilder<Postgres>| {
            if let Some(operation) = operation {
                sql.push(" AND operation_id = ").push_bind(operation.id().to_owned());
            }
            if let Some(plan) = plan {
                sql.push(" AND plan_id = ").push_bind(plan.id().to_owned());
            }
            if let Some(state) = state {
                sql.push(" AND state = ").push_bind(state.to_sql());
            }
        };
        LIST.page(self, query, request, also).await
    }

    /// What a queued run of an operation needs that no worker that takes runs has at all, busy devices
    /// included; none when every queued run will find its place.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn unplaceable_run(&self, operation: &OperationName) -> Result<Option<RunNeed>> {
        let need = sqlx::query_as(
            "SELECT device_kind, device_count, min_capacity_bytes, host_memory_bytes, command
             FROM (SELECT DISTINCT device_kind, device_count, min_capacity_bytes, host_memory_bytes, command,
                                   only_worker_id
                   FROM runs WHERE operation_id = $1 AND state = 'queued') AS need
             WHERE NOT EXISTS (
                 SELECT FROM workers
                 WHERE state = 'alive' AND (command IS NULL OR command = ANY (commands))
                   AND (only_worker_id IS NULL OR only_worker_id = workers.id)
                   AND need.host_memory_bytes <= workers.host_memory_bytes AND device_count <= (
                     SELECT count(*) FROM jsonb_array_elements(workers.devices) AS device
                     WHERE device ->> 'kind' = device_kind
                       AND (device ->> 'capacity')::bigint >= min_capacity_bytes))
             ORDER BY device_kind, device_count, min_capacity_bytes, host_memory_bytes, command LIMIT 1",
        )
        .bind(operation.id())
        .fetch_optional(&self.pool)
        .await?;
        Ok(need)
    }
}
