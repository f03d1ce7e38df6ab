//! Claiming runs and renewing leases: the two hottest statements.

use std::collections::BTreeMap;
use std::time::Duration;

use loadmaster_proto::name::{RunName, WorkerName};

use super::Store;
use super::columns::{clean, name};
use super::error::{Result, StoreError, retry};
use super::records::{AskedRun, Claim, FreeDevice, HeldLease, Renewal};

/// Most bytes of a phase.
const MAX_PHASE: usize = 200;

/// Claims the oldest queued run of one kind of device that fits, and whose command, if it has one, the
/// worker offers.
///
/// `$2` holds the capacities of the free devices of the kind, largest first, so that element n is
/// what n devices have at least. Rows that another claim just locked are skipped, not waited for;
/// the state is checked again at the update. A test pins this statement's plan.
///
/// No back-off is longer than 30 seconds: a run that is to wait longer was queued before the database's clock went back.
///
/// What a run takes of the host's memory must be left of what the worker offers. Two claims of one worker at the same
/// moment, by planners that both take it for connected, may find the same memory free: then the worker hands one back.
///
/// Small runs must not keep a large one waiting for ever by taking the devices one by one. All devices of
/// the worker (`$5`, as `$2`) and all that it offers of its host could carry such a run, but what is free of them cannot. Once it
/// has waited for 10 seconds, the worker is given nothing that came after it, until enough is free. (A
/// scalar subquery, which the database does not turn into a join that would lose the order.)
pub const CLAIM: &str = "
WITH host AS (
    SELECT offered, greatest(offered - (SELECT coalesce(sum(host_memory_bytes), 0)::bigint FROM runs
                                        WHERE worker_id = $3 AND state = 'running'), 0) AS free
    FROM (SELECT coalesce((SELECT host_memory_bytes FROM workers WHERE id = $3), 0) AS offered) AS worker
), candidate AS (
    SELECT id FROM runs
    WHERE state = 'queued' AND device_kind = $1
      AND device_count <= cardinality($2::bigint[])
      AND min_capacity_bytes <= ($2::bigint[])[1]
      AND min_capacity_bytes <= ($2::bigint[])[device_count]
      AND host_memory_bytes <= (SELECT free FROM host)
      AND (not_before <= now() OR not_before > now() + interval '30 seconds')
      AND (command IS NULL OR command = ANY (SELECT unnest(commands) FROM workers WHERE id = $3))
      AND (only_worker_id IS NULL OR only_worker_id = $3)
      AND coalesce((
          SELECT false FROM runs AS large
          WHERE large.state = 'queued' AND large.device_kind = $1 AND large.position < runs.position
            AND large.device_count <= cardinality($5::bigint[])
            AND large.min_capacity_bytes <= ($5::bigint[])[large.device_count]
            AND large.host_memory_bytes <= (SELECT offered FROM host)
            AND (large.device_count > cardinality($2::bigint[])
                 OR large.min_capacity_bytes > ($2::bigint[])[large.device_count]
                 OR large.host_memory_bytes > (SELECT free FROM host))
            AND (large.command IS NULL
                 OR large.command = ANY (SELECT unnest(commands) FROM workers WHERE id = $3))
            AND (large.only_worker_id IS NULL OR large.only_worker_id = $3)
            AND large.not_before <= now() - interval '10 seconds'
          LIMIT 1), true)
    ORDER BY position
    LIMIT 1 FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE runs
    SET state = 'running', worker_id = $3, lease_token = lease_token + 1, attempts = attempts + 1,
        lease_expires_at = now() + make_interval(secs => $4),
        deadline_at = now() + make_interval(secs => deadline_seconds),
        start_time = now(), progress = 0, phase = ''
    FROM candidate
    WHERE runs.id = candidate.id AND runs.state = 'queued'
    RETURNING runs.*
)
SELECT claimed.id, claimed.lease_token, models.model, claimed.training, claimed.work, claimed.stage_recompute, claimed.stage_actions,
       claimed.chunks, claimed.iterations, claimed.command, claimed.device_kind, claimed.device_count, claimed.min_capacity_bytes,
       claimed.deadline_seconds
FROM claimed LEFT JOIN models ON models.id = claimed.model_id";

/// Renews all leases of a worker, also behind the deadline: workers end their runs then, and the reaper those that go on. (The
/// database's clock alone must not end them: it may jump.) The rows are locked first, in order of their ids, so that what is
/// decided about each is decided on its newest version; only columns without an index change.
const RENEW: &str = "
WITH held AS (
    SELECT * FROM unnest($2::text[], $3::bigint[], $4::double precision[], $5::text[])
        WITH ORDINALITY AS held(id, lease_token, progress, phase, position)
), locked AS (
    SELECT runs.id, held.lease_token, held.progress, held.phase, held.position, runs.cancel_requested
    FROM runs JOIN held ON held.id = runs.id
    WHERE runs.state = 'running' AND runs.worker_id = $1 AND runs.lease_token = held.lease_token
    ORDER BY runs.id FOR UPDATE OF runs
), renewed AS (
    UPDATE runs
    SET lease_expires_at = now() + make_interval(secs => $6), progress = locked.progress, phase = locked.phase
    FROM locked
    WHERE runs.id = locked.id AND runs.state = 'running' AND runs.lease_token = locked.lease_token
      AND NOT locked.cancel_requested
)
SELECT held.id, coalesce(locked.cancel_requested, false) AS cancelled,
       coalesce(NOT locked.cancel_requested, false) AS renewed
FROM held LEFT JOIN locked ON locked.position = held.position
ORDER BY held.position";

/// What a run asks for: without a claim, for its result.
const ASKED: &str = "
SELECT models.model, runs.training, runs.work, runs.stage_recompute, runs.stage_actions, runs.chunks,
       runs.iterations, runs.command, runs.device_kind, runs.deadline_seconds
FROM runs LEFT JOIN models ON models.id = runs.model_id WHERE runs.id = $1";

impl Store {
    /// Leases the oldest queued run that fits the free devices of a worker, unless an older one that
    /// needs more of all its devices has waited for long. Runs of different kinds of device never compete,
    /// so the kinds are asked one after the other.
    ///
    /// # Errors
    /// When the database fails; a run claimed by a call whose answer was lost returns to the queue
    /// when its lease expires.
    pub async fn claim_run(
        &self,
        worker: &WorkerName,
        free: &[FreeDevice],
        all: &[FreeDevice],
        lease: Duration,
    ) -> Result<Option<Claim>> {
        let all = capacities(all);
        for (kind, free) in capacities(free) {
            let claimed: Option<Claim> = sqlx::query_as(CLAIM)
                .bind(kind)
                .bind(free)
                .bind(worker.id())
                .bind(lease.as_secs_f64())
                .bind(all.get(kind).map_or(&[][..], Vec::as_slice))
                .fetch_optional(&self.pool)
                .await?;
            if claimed.is_some() {
                return Ok(claimed);
            }
        }
        Ok(None)
    }

    /// What a run asks for.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such run.
    pub async fn asked_run(&self, run: &RunName) -> Result<AskedRun> {
        let asked = sqlx::query_as(ASKED).bind(run.id()).fetch_optional(&self.pool).await?;
        asked.ok_or_else(|| StoreError::not_found(run))
    }

    /// Renews leases and stores how far their runs are; says for each whether it was renewed, in the same
    /// order.
    ///
    /// # Errors
    /// When the database fails; then nothing was renewed.
    pub async fn renew_leases(
        &self,
        worker: &WorkerName,
        held: &[HeldLease],
        lease: Duration,
    ) -> Result<Vec<(RunName, Renewal)>> {
        let ids: Vec<&str> = held.iter().map(|lease| lease.run.id()).collect();
        let tokens: Vec<i64> = held.iter().map(|lease| lease.lease_token).collect();
        let progress: Vec<f64> = held.iter().map(|lease| share(lease.progress)).collect();
        let phases: Vec<String> = held.iter().map(|lease| clean(&lease.phase, MAX_PHASE)).collect();
        let rows: Vec<(String, bool, bool)> = retry(|| async {
            let rows = sqlx::query_as(RENEW)
                .bind(worker.id())
                .bind(&ids)
                .bind(&tokens)
                .bind(&progress)
                .bind(&phases)
                .bind(lease.as_secs_f64())
                .fetch_all(&self.pool)
                .await?;
            Ok(rows)
        })
        .await?;
        rows.into_iter()
            .map(|(id, cancelled, renewed)| {
                let renewal = match (cancelled, renewed) {
                    (true, _) => Renewal::Cancelled,
                    (false, true) => Renewal::Renewed,
                    (false, false) => Renewal::Lost,
                };
                Ok((name(RunName::from_id(id))?, renewal))
            })
            .collect()
    }
}

/// Capacities of the devices of each kind, largest first.
fn capacities(devices: &[FreeDevice]) -> BTreeMap<&str, Vec<i64>> {
    let mut kinds = BTreeMap::<&str, Vec<i64>>::new();
    for device in devices {
        let capacity = i64::try_from(device.capacity).unwrap_or(i64::MAX);
        kinds.entry(&device.kind).or_default().push(capacity);
    }
    for capacities in kinds.values_mut() {
        capacities.sort_unstable_by(|a, b| b.cmp(a));
    }
    kinds
}

/// What a worker says may be any number.
fn share(progress: f64) -> f64 {
    if progress.is_finite() { progress.clamp(0.0, 1.0) } else { 0.0 }
}
