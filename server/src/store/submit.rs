//! New work: a profile or a validation, with its operation and its runs, stored all or not at all.

use loadmaster_proto::name::{OperationName, PlanName, ProfileName};
use serde_json::{Value, json};
use uuid::Uuid;

use super::columns::{document, name};
use super::error::{Result, StoreError, broken_constraint};
use super::idempotency::{OPERATION_KEY, refused};
use super::records::{
    Fenced, NewRun, NewTrial, ProfileRecord, ProfileSettings, ProfileState, RequestKey, ReusedRun,
};
use super::states::Word;
use super::{MAX_QUEUED_RUNS, Store};

/// Refuses runs to reuse that retention took since they were found: whoever asks again finds others, or has them made.
const REUSED_KEY: &str = "profile_runs_run_id_fkey";

/// Runs and the links of a profile to its runs, in one statement with what they belong to: all or nothing
/// without a transaction to hold. `$target` makes `target`, one row or none: the operation, its profile or
/// plan, and the model. `$1` holds the runs, `$2` those that are reused.
macro_rules! submit {
    ($target:literal) => {
        concat!(
            "WITH ",
            $target,
            ", queued AS (
    INSERT INTO runs (id, operation_id, profile_id, plan_id, model_id, training, work, stage_recompute, stage_actions,
                      chunks, host_memory_bytes, iterations, command, device_kind, device_count, min_capacity_bytes,
                      deadline_seconds, work_key, smallest_micro_batch_size)
    SELECT new.id, target.operation_id, target.profile_id, coalesce(new.plan_id, target.plan_id),
           coalesce(plans.model_id, target.model_id), new.training, new.work,
           new.stage_recompute, new.stage_actions, new.chunks, new.host_memory_bytes, new.iterations, new.command, new.device_kind,
           new.device_count, new.min_capacity_bytes, new.deadline_seconds, new.work_key, new.smallest_micro_batch_size
    FROM target, jsonb_to_recordset($1) AS new(id text, plan_id text, training jsonb, work jsonb,
         stage_recompute jsonb, stage_actions jsonb, chunks jsonb, host_memory_bytes bigint, iterations integer, command text,
         device_kind text, device_count integer, min_capacity_bytes bigint, deadline_seconds integer, work_key text, smallest_micro_batch_size integer)
         LEFT JOIN plans ON plans.id = new.plan_id
    ORDER BY new.id
), linked AS (
    INSERT INTO profile_runs (profile_id, run_id, layer_offset, held_out, reused)
    SELECT target.profile_id, new.id, 0, new.held_out, false
    FROM target, jsonb_to_recordset($1) AS new(id text, held_out boolean)
    WHERE target.profile_id IS NOT NULL
    UNION ALL
    SELECT target.profile_id, reused.run_id, reused.layer_offset, reused.held_out, true
    FROM target, jsonb_to_recordset($2) AS reused(run_id text, layer_offset integer, held_out boolean)
    ON CONFLICT DO NOTHING
)
SELECT EXISTS (SELECT FROM target)"
        )
    };
}

const CREATE_PROFILE: &str = submit!(
    "profile AS (
    INSERT INTO profiles (id, model_id, settings) VALUES ($3, $4, $5)
), operation AS (
    INSERT INTO operations (id, profile_id, request_id, request_fingerprint) VALUES ($6, $3, $7, $8)
), target AS (
    SELECT $6::text AS operation_id, $3::text AS profile_id, NULL::text AS plan_id, $4::text AS model_id
)"
);

const RESUME_PROFILE: &str = submit!(
    "profile AS (
    UPDATE profiles SET state = 'running', missing = '{}', end_time = NULL
    WHERE id = $3 AND state IN ('incomplete', 'cancelled')
    RETURNING id, model_id
), operation AS (
    INSERT INTO operations (id, profile_id, request_id, request_fingerprint)
    SELECT $4, id, $5, $6 FROM profile
), target AS (
    SELECT $4::text AS operation_id, id AS profile_id, NULL::text AS plan_id, model_id FROM profile
)"
);

/// The number of rounds is the fence: of two planners that see the same results, one adds runs.
const CONTINUE_PROFILE: &str = submit!(
    "target AS (
    UPDATE operations SET rounds = rounds + 1
    FROM profiles
    WHERE operations.id = $3 AND operations.rounds = $4 AND operations.state = 'running'
      AND NOT operations.cancel_requested AND profiles.id = operations.profile_id
      AND NOT EXISTS (SELECT FROM runs WHERE operation_id = $3 AND runs.state IN ('queued', 'running'))
    RETURNING operations.id AS operation_id, profiles.id AS profile_id, NULL::text AS plan_id, profiles.model_id
)"
);

const CREATE_VALIDATION: &str = submit!(
    "plan AS (
    SELECT id, model_id FROM plans WHERE id = $3
), operation AS (
    INSERT INTO operations (id, plan_id, request_id, request_fingerprint)
    SELECT $4, plan.id, $5, $6 FROM plan
), target AS (
    SELECT $4::text AS operation_id, NULL::text AS profile_id, id AS plan_id, model_id FROM plan
)"
);

impl Store {
    /// Stores a profile with its operation, its runs, and the runs of others that serve it. The same
    /// request key returns the first call's operation and stores nothing.
    ///
    /// # Errors
    /// [`StoreError::RequestIdReused`], [`StoreError::AlreadyExists`] for the profile's name,
    /// [`StoreError::NotFound`] for its model, [`StoreError::QueueFull`].
    pub async fn create_profile(
        &self,
        profile: ProfileSettings,
        runs: Vec<NewRun>,
        reused: &[ReusedRun],
        request: Option<RequestKey>,
    ) -> Result<OperationName> {
        let create = async {
            let operation = new_id();
            let created = sqlx::query(CREATE_PROFILE)
                .bind(run_documents(&runs)?)
                .bind(reused_documents(reused))
                .bind(profile.name.id())
                .bind(profile.model.id())
                .bind(document(&profile)?)
                .bind(&operation)
                .bind(request.as_ref().map(|request| request.id))
                .bind(request.as_ref().map(|request| &request.fingerprint))
                .execute(&self.pool)
                .await;
            created.map_err(|error| match broken_constraint(&error) {
                Some("profiles_pkey" | "operations_measuring" | OPERATION_KEY) => {
                    StoreError::AlreadyExists { what: profile.name.to_string() }
                }
                Some("profiles_model_id_fkey" | "runs_model_id_fkey") => {
                    StoreError::not_found(&profile.model)
                }
                Some(REUSED_KEY) => StoreError::Conflict,
                _ => error.into(),
            })?;
            name(OperationName::from_id(operation))
        };
        self.queue_once(request.as_ref(), runs.len(), create).await
    }

    /// Begins to measure a profile again that ended without all that it needs, in a new operation with
    /// these runs. The same request key returns the first call's operation and stores nothing.
    ///
    /// # Errors
    /// [`StoreError::RequestIdReused`], [`StoreError::NotFound`] for the profile,
    /// [`StoreError::NotResumable`] when it is complete or being measured, [`StoreError::QueueFull`].
    pub async fn resume_profile(
        &self,
        profile: &ProfileName,
        runs: Vec<NewRun>,
        reused: &[ReusedRun],
        request: Option<RequestKey>,
    ) -> Result<OperationName> {
        let create = async {
            let operation = new_id();
            let resumed: Result<bool, sqlx::Error> = sqlx::query_scalar(RESUME_PROFILE)
                .bind(run_documents(&runs)?)
                .bind(reused_documents(reused))
                .bind(profile.id())
                .bind(&operation)
                .bind(request.as_ref().map(|request| request.id))
                .bind(request.as_ref().map(|request| &request.fingerprint))
                .fetch_one(&self.pool)
                .await;
            let resumed = resumed.map_err(|error| match broken_constraint(&error) {
                Some(REUSED_KEY) => StoreError::Conflict,
                _ => refused(error, OPERATION_KEY),
            })?;
            if resumed {
                name(OperationName::from_id(operation))
            } else {
                self.get_profile(profile).await?.check_resumable()?;
                Err(StoreError::Conflict)
            }
        };
        self.queue_once(request.as_ref(), runs.len(), create).await
    }

    /// Adds runs to an operation whose runs have all ended, because of what they showed. `round` is how
    /// often that was done before; a call that comes late for its round changes nothing.
    ///
    /// # Errors
    /// [`StoreError::QueueFull`].
    pub async fn continue_profile(
        &self,
        operation: &OperationName,
        round: u32,
        runs: &[NewRun],
    ) -> Result<Fenced> {
        self.check_room(runs.len()).await?;
        let continued: bool = sqlx::query_scalar(CONTINUE_PROFILE)
            .bind(run_documents(runs)?)
            .bind(reused_documents(&[]))
            .bind(operation.id())
            .bind(to_i32(round))
            .fetch_one(&self.pool)
            .await?;
        Ok(if continued { Fenced::Applied } else { Fenced::Stale })
    }

    /// Stores the runs that validate a plan and its rivals, one for each, with their operation: it is the
    /// operation of `plan`, whichever plans it trains. The same request key returns the first call's
    /// operation and stores nothing.
    ///
    /// # Errors
    /// [`StoreError::RequestIdReused`], [`StoreError::NotFound`] for a plan,
    /// [`StoreError::QueueFull`].
    pub async fn create_validation(
        &self,
        plan: &PlanName,
        trials: &[NewTrial],
        request: Option<RequestKey>,
    ) -> Result<OperationName> {
        let create = async {
            let operation = new_id();
            let created: Result<bool, sqlx::Error> = sqlx::query_scalar(CREATE_VALIDATION)
                .bind(trials.iter().map(trial_document).collect::<Result<Value>>()?)
                .bind(reused_documents(&[]))
                .bind(plan.id())
                .bind(&operation)
                .bind(request.as_ref().map(|request| request.id))
                .bind(request.as_ref().map(|request| &request.fingerprint))
                .fetch_one(&self.pool)
                .await;
            let created = created.map_err(|error| match broken_constraint(&error) {
                Some("runs_plan_id_fkey" | "operations_plan_id_fkey") => {
                    StoreError::not_found("one of the plans to train")
                }
                _ => refused(error, OPERATION_KEY),
            })?;
            if created { name(OperationName::from_id(operation)) } else { Err(StoreError::not_found(plan)) }
        };
        self.queue_once(request.as_ref(), trials.len(), create).await
    }

    /// Protects the database from a caller gone wild. Not exact: calls at the same moment do not see
    /// each other's runs.
    pub(super) async fn check_room(&self, more: usize) -> Result<()> {
        let queued: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM (SELECT 1 FROM runs WHERE state = 'queued' LIMIT $1) AS waiting",
        )
        .bind(MAX_QUEUED_RUNS)
        .fetch_one(&self.pool)
        .await?;
        let more = i64::try_from(more).unwrap_or(i64::MAX);
        if queued.saturating_add(more) > MAX_QUEUED_RUNS { Err(StoreError::QueueFull) } else { Ok(()) }
    }
}

impl ProfileRecord {
    /// Whether the profile ended without all that it needs.
    ///
    /// # Errors
    /// [`StoreError::NotResumable`] when it is complete or being measured.
    pub fn check_resumable(&self) -> Result<()> {
        match self.state {
            ProfileState::Incomplete | ProfileState::Cancelled => Ok(()),
            ProfileState::Running | ProfileState::Complete => {
                let what = self.settings.name.to_string();
                Err(StoreError::NotResumable { what, state: self.state.to_sql() })
            }
        }
    }
}

/// Version 7 ids grow within a process, so runs get their places in the queue as they were given.
pub(super) fn new_id() -> String {
    Uuid::now_v7().to_string()
}

fn run_documents(runs: &[NewRun]) -> Result<Value> {
    runs.iter().map(run_document).collect()
}

fn run_document(run: &NewRun) -> Result<Value> {
    let NewRun {
        strategy,
        iterations,
        command,
        device_kind,
        device_count,
        min_capacity,
        deadline_seconds,
        work_key,
        smallest_micro_batch_size,
        held_out,
    } = run;
    Ok(json!({
        "id": new_id(),
        "training": document(&strategy.training)?,
        "work": document(&strategy.work)?,
        "stage_recompute": document(&strategy.stage_recompute())?,
        "stage_actions": document(&strategy.stage_actions())?,
        "chunks": document(&strategy.chunks())?,
        "host_memory_bytes": i64::try_from(run.host_memory()).unwrap_or(i64::MAX),
        "iterations": iterations,
        "command": command,
        "device_kind": device_kind,
        "device_count": device_count,
        "min_capacity_bytes": i64::try_from(*min_capacity).unwrap_or(i64::MAX),
        "deadline_seconds": deadline_seconds,
        "work_key": work_key,
        "smallest_micro_batch_size": smallest_micro_batch_size,
        "held_out": held_out,
    }))
}

/// A run of a plan of its own.
fn trial_document(NewTrial { plan, run }: &NewTrial) -> Result<Value> {
    let mut document = run_document(run)?;
    if let Some(fields) = document.as_object_mut() {
        fields.insert("plan_id".to_owned(), plan.id().into());
    }
    Ok(document)
}

fn reused_documents(reused: &[ReusedRun]) -> Value {
    let documents = reused.iter().map(|ReusedRun { run, layer_offset, held_out }| {
        json!({ "run_id": run.id(), "layer_offset": layer_offset, "held_out": held_out })
    });
    documents.collect()
}

fn to_i32(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
