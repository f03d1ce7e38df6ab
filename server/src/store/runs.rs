//! Reading runs.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::links::LinkWork;
use loadmaster_proto::measure::run::Work;
use loadmaster_proto::name::{
    CommandName, ModelName, OperationName, PlanName, ProfileName, RunName, WorkerName,
};
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};
use serde::Deserialize;
use sqlx::types::Json;
use sqlx::{FromRow, Postgres, QueryBuilder};

use super::Store;
use super::error::{Result, StoreError};
use super::records::{
    FailureRecord, Page, PageRequest, RunFilter, RunNeed, RunRecord, RunState, RunWork, TrainedWork,
};
use super::states::Word;
use super::time::Time;

/// A stored name; anything else than a valid one means that the row is damaged.
pub(super) fn name<N>(name: Result<N, Invalid>) -> Result<N> {
    name.map_err(|invalid| StoreError::corrupt(format!("a stored name is not valid: {invalid}")))
}

/// A stored count or size.
pub(super) fn unsigned<S: Copy + std::fmt::Display, U: TryFrom<S>>(value: S) -> Result<U> {
    U::try_from(value)
        .map_err(|_| StoreError::corrupt(format!("a stored number is {value}, which it cannot be")))
}

/// A stored name of a command.
pub(super) fn command_name(command: String) -> Result<CommandName> {
    name(CommandName::parse("command", command))
}

/// A run's work as it is stored.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum StoredWork {
    /// Exchanges between devices.
    Links {
        /// What to exchange.
        links: LinkWork,
    },
    /// Stages to train.
    Stages(Work),
}

const COLUMNS: &str =
    "SELECT id, state, operation_id, profile_id, plan_id, model_id, training, work, stage_recompute, iterations,
    command, device_kind, device_count, worker_id, attempts, failures, progress, phase, shrunk_from,
    create_time, start_time, end_time FROM runs WHERE ";

#[derive(FromRow)]
struct RunRow {
    id: String,
    state: String,
    operation_id: String,
    profile_id: Option<String>,
    plan_id: Option<String>,
    model_id: Option<String>,
    training: Option<Json<TrainingSpec>>,
    work: Json<StoredWork>,
    stage_recompute: Json<Vec<RecomputePolicy>>,
    iterations: i32,
    command: Option<String>,
    device_kind: String,
    device_count: i32,
    worker_id: Option<String>,
    attempts: i32,
    failures: Json<Vec<FailureRecord>>,
    progress: f64,
    phase: String,
    shrunk_from: Option<String>,
    create_time: Time,
    start_time: Option<Time>,
    end_time: Option<Time>,
}

impl TryFrom<RunRow> for RunRecord {
    type Error = StoreError;

    fn try_from(row: RunRow) -> Result<Self> {
        let RunRow {
            id,
            state,
            operation_id,
            profile_id,
            plan_id,
            model_id,
            training,
            work,
            stage_recompute,
            iterations,
            command,
            device_kind,
            device_count,
            worker_id,
            attempts,
            failures,
            progress,
            phase,
            shrunk_from,
            create_time,
            start_time,
            end_time,
        } = row;
        Ok(Self {
            name: name(RunName::from_id(id))?,
            state: RunState::from_sql(&state)?,
            operation: name(OperationName::from_id(operation_id))?,
            profile: profile_id.map(|id| name(ProfileName::from_id(id))).transpose()?,
            plan: plan_id.map(|id| name(PlanName::from_id(id))).transpose()?,
            work: match (work.0, model_id, training) {
                (StoredWork::Links { links }, None, None) => RunWork::Links(links),
                (StoredWork::Stages(stages), Some(model), Some(training)) => RunWork::Stages(TrainedWork {
                    model: name(ModelName::from_id(model))?,
                    training: training.0,
                    stages,
                    stage_recompute: stage_recompute.0,
                    iterations: unsigned(iterations)?,
                    command: command.map(command_name).transpose()?,
                }),
                _ => return Err(StoreError::corrupt("a stored run trains without a model, or with links")),
            },
            device_kind,
            device_count: unsigned(device_count)?,
            worker: worker_id.map(|id| name(WorkerName::from_id(id))).transpose()?,
            attempts: unsigned(attempts)?,
            failures: failures.0,
            progress,
            phase,
            shrunk_from: shrunk_from.map(|id| name(RunName::from_id(id))).transpose()?,
            create_time: create_time.0,
            start_time: start_time.map(|time| time.0),
            end_time: end_time.map(|time| time.0),
        })
    }
}

impl Store {
    /// One run.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn get_run(&self, name: &RunName) -> Result<RunRecord> {
        let mut query = QueryBuilder::<Postgres>::new(COLUMNS);
        query.push("id = ").push_bind(name.id());
        let row: Option<RunRow> = query.build_query_as().fetch_optional(&self.pool).await?;
        row.ok_or_else(|| StoreError::not_found(name))?.try_into()
    }

    /// Runs, newest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_runs(&self, filter: &RunFilter, request: &PageRequest) -> Result<Page<RunRecord>> {
        let RunFilter { operation, plan, state } = filter;
        // Only the conditions that are asked for: "$1 IS NULL OR …" would hide the indexes.
        let mut query = QueryBuilder::<Postgres>::new(COLUMNS);
        query.push("(create_time, id) < (").push_bind(request.before_time());
        query.push(", ").push_bind(request.before_id()).push(")");
        if let Some(operation) = operation {
            query.push(" AND operation_id = ").push_bind(operation.id());
        }
        if let Some(plan) = plan {
            query.push(" AND plan_id = ").push_bind(plan.id());
        }
        if let Some(state) = state {
            query.push(" AND state = ").push_bind(state.to_sql());
        }
        query.push(" ORDER BY create_time DESC, id DESC LIMIT ").push_bind(request.limit());
        let rows: Vec<RunRow> = query.build_query_as().fetch_all(&self.pool).await?;
        let records = rows.into_iter().map(TryInto::try_into).collect::<Result<Vec<RunRecord>>>()?;
        Ok(request.page(records))
    }

    /// What a queued run of an operation needs that no worker that takes runs has at all, busy devices
    /// included; none when every queued run will find its place.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn unplaceable_run(&self, operation: &OperationName) -> Result<Option<RunNeed>> {
        let need: Option<(String, i32, i64, Option<String>)> = sqlx::query_as(
            "SELECT device_kind, device_count, min_capacity_bytes, command
             FROM (SELECT DISTINCT device_kind, device_count, min_capacity_bytes, command, only_worker_id
                   FROM runs WHERE operation_id = $1 AND state = 'queued') AS need
             WHERE NOT EXISTS (
                 SELECT FROM workers
                 WHERE state = 'alive' AND (command IS NULL OR command = ANY (commands))
                   AND (only_worker_id IS NULL OR only_worker_id = workers.id) AND device_count <= (
                     SELECT count(*) FROM jsonb_array_elements(workers.devices) AS device
                     WHERE device ->> 'kind' = device_kind
                       AND (device ->> 'capacity')::bigint >= min_capacity_bytes))
             ORDER BY device_kind, device_count, min_capacity_bytes, command LIMIT 1",
        )
        .bind(operation.id())
        .fetch_optional(&self.pool)
        .await?;
        need.map(|(device_kind, device_count, min_capacity, command)| {
            Ok(RunNeed {
                device_kind,
                device_count: unsigned(device_count)?,
                min_capacity: unsigned(min_capacity)?,
                command: command.map(command_name).transpose()?,
            })
        })
        .transpose()
    }
}
