//! New work: a profile or a validation, with its operation and its runs, stored all or not at all.

use loadmaster_proto::name::{OperationName, PlanName};
use serde_json::{Value, json};
use uuid::Uuid;

use super::error::{Result, StoreError, broken_constraint};
use super::json::document;
use super::records::{NewRun, ProfileSettings, RequestKey};
use super::runs::name;
use super::states::Word;
use super::{MAX_QUEUED_RUNS, Store};

/// Profile, operation and runs in one statement: all or nothing without a transaction to hold.
const CREATE_PROFILE: &str = "
WITH profile AS (
    INSERT INTO profiles (id, model_id, training, campaign, devices, micro_batch_sizes, device_kind)
    VALUES ($1, $2, $3, $4, $5, $6, $7)
), operation AS (
    INSERT INTO operations (id, profile_id, request_id, request_fingerprint) VALUES ($8, $1, $9, $10)
)
INSERT INTO runs (id, operation_id, profile_id, model_id, training, work, iterations, device_kind,
                  device_count, min_capacity_bytes, deadline_seconds)
SELECT new.id, $8, $1, $2, new.training, new.work, new.iterations, new.device_kind,
       new.device_count, new.min_capacity_bytes, new.deadline_seconds
FROM jsonb_to_recordset($11) AS new(id text, training jsonb, work jsonb, iterations integer,
     device_kind text, device_count integer, min_capacity_bytes bigint, deadline_seconds integer)
ORDER BY new.id";

const CREATE_VALIDATION: &str = "
WITH plan AS (
    SELECT id, model_id FROM plans WHERE id = $1
), operation AS (
    INSERT INTO operations (id, plan_id, request_id, request_fingerprint)
    SELECT $2, plan.id, $3, $4 FROM plan
)
INSERT INTO runs (id, operation_id, plan_id, model_id, training, work, iterations, device_kind,
                  device_count, min_capacity_bytes, deadline_seconds)
SELECT new.id, $2, plan.id, plan.model_id, new.training, new.work, new.iterations, new.device_kind,
       new.device_count, new.min_capacity_bytes, new.deadline_seconds
FROM plan, jsonb_to_recordset($5) AS new(id text, training jsonb, work jsonb, iterations integer,
     device_kind text, device_count integer, min_capacity_bytes bigint, deadline_seconds integer)
ORDER BY new.id";

impl Store {
    /// Stores a profile with its operation and its runs. The same request key returns the first
    /// call's operation and stores nothing.
    ///
    /// # Errors
    /// [`StoreError::RequestIdReused`], [`StoreError::AlreadyExists`] for the profile's name,
    /// [`StoreError::NotFound`] for its model, [`StoreError::QueueFull`].
    pub async fn create_profile(
        &self,
        profile: ProfileSettings,
        runs: Vec<NewRun>,
        request: Option<RequestKey>,
    ) -> Result<OperationName> {
        if let Some(first) = self.find_request(request.as_ref()).await? {
            return Ok(first);
        }
        self.check_room(runs.len()).await?;
        let operation = new_id();
        let sizes: Vec<i32> = profile.micro_batch_sizes.iter().map(|&size| to_i32(size)).collect();
        let created = sqlx::query(CREATE_PROFILE)
            .bind(profile.name.id())
            .bind(profile.model.id())
            .bind(document(&profile.training)?)
            .bind(profile.campaign.to_sql())
            .bind(to_i32(profile.devices))
            .bind(sizes)
            .bind(&profile.device_kind)
            .bind(&operation)
            .bind(request.as_ref().map(|request| request.id))
            .bind(request.as_ref().map(|request| &request.fingerprint))
            .bind(run_documents(&runs)?)
            .execute(&self.pool)
            .await;
        match created {
            Ok(_) => name(OperationName::from_id(operation)),
            Err(error) => match broken_constraint(&error) {
                // The same call may have come twice at the same moment, then the first one counts.
                Some("profiles_pkey" | "operations_by_profile" | "operations_request_id_key") => {
                    match self.find_request(request.as_ref()).await? {
                        Some(first) => Ok(first),
                        None => Err(StoreError::AlreadyExists { what: profile.name.to_string() }),
                    }
                }
                Some("profiles_model_id_fkey" | "runs_model_id_fkey") => {
                    Err(StoreError::not_found(&profile.model))
                }
                _ => Err(error.into()),
            },
        }
    }

    /// Stores a run that validates a plan, with its operation. The same request key returns the first
    /// call's operation and stores nothing.
    ///
    /// # Errors
    /// [`StoreError::RequestIdReused`], [`StoreError::NotFound`] for the plan,
    /// [`StoreError::QueueFull`].
    pub async fn create_validation(
        &self,
        plan: &PlanName,
        run: NewRun,
        request: Option<RequestKey>,
    ) -> Result<OperationName> {
        if let Some(first) = self.find_request(request.as_ref()).await? {
            return Ok(first);
        }
        self.check_room(1).await?;
        let operation = new_id();
        let created = sqlx::query(CREATE_VALIDATION)
            .bind(plan.id())
            .bind(&operation)
            .bind(request.as_ref().map(|request| request.id))
            .bind(request.as_ref().map(|request| &request.fingerprint))
            .bind(run_documents(&[run])?)
            .execute(&self.pool)
            .await;
        match created {
            Ok(done) if done.rows_affected() == 0 => Err(StoreError::not_found(plan)),
            Ok(_) => name(OperationName::from_id(operation)),
            Err(error) if broken_constraint(&error) == Some("operations_request_id_key") => {
                self.find_request(request.as_ref()).await?.ok_or(StoreError::Conflict)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The operation of an earlier call with the same key.
    ///
    /// # Errors
    /// [`StoreError::RequestIdReused`] when that call asked for something else.
    pub async fn find_request(&self, request: Option<&RequestKey>) -> Result<Option<OperationName>> {
        let Some(request) = request else { return Ok(None) };
        let first: Option<(String, String)> =
            sqlx::query_as("SELECT id, request_fingerprint FROM operations WHERE request_id = $1")
                .bind(request.id)
                .fetch_optional(&self.pool)
                .await?;
        match first {
            None => Ok(None),
            Some((id, fingerprint)) if fingerprint == request.fingerprint => {
                name(OperationName::from_id(id)).map(Some)
            }
            Some(_) => Err(StoreError::RequestIdReused),
        }
    }

    /// Protects the database from a caller gone wild. Not exact: calls at the same moment do not see
    /// each other's runs.
    async fn check_room(&self, more: usize) -> Result<()> {
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

/// Version 7 ids grow within a process, so runs get their places in the queue as they were given.
fn new_id() -> String {
    Uuid::now_v7().to_string()
}

fn run_documents(runs: &[NewRun]) -> Result<Value> {
    runs.iter().map(run_document).collect()
}

fn run_document(run: &NewRun) -> Result<Value> {
    let NewRun { training, work, iterations, device_kind, device_count, min_capacity, deadline_seconds } =
        run;
    Ok(json!({
        "id": new_id(),
        "training": document(training)?,
        "work": document(work)?,
        "iterations": iterations,
        "device_kind": device_kind,
        "device_count": device_count,
        "min_capacity_bytes": i64::try_from(*min_capacity).unwrap_or(i64::MAX),
        "deadline_seconds": deadline_seconds,
    }))
}

fn to_i32(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
