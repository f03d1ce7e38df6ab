//! How attempts end: results, failures, and the reaper for those that no one reports.

use std::collections::BTreeSet;
use std::time::Duration;

use loadmaster_proto::measure::failure::RunFailure;
use loadmaster_proto::measure::links::LinkMeasurement;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::name::{RunName, WorkerName};
use serde_json::Value;

use super::Store;
use super::columns::{clean, document, name};
use super::error::{Result, StoreError, broken_constraint, retry, unstorable};
use super::records::Fenced;

/// Failed attempts after which a run is failed.
pub const MAX_ATTEMPTS: i32 = 3;
/// Hand-backs after which further ones count as failed attempts: a worker that takes and returns the
/// same run for ever must come to an end.
pub const MAX_HAND_BACKS: i32 = 20;
/// How long after its deadline a run may still be reported by its worker, which kills it at the deadline.
const DEADLINE_GRACE: Duration = Duration::from_secs(10);
/// Longest time of an attempt that is believed: a year.
const MAX_SECONDS: f64 = 365.0 * 86_400.0;
/// Most bytes of a failure's message.
const MAX_MESSAGE: usize = 8 * 1024;

/// `$1` run, `$2` token, `$3` worker, as the fence of a final result.
///
/// The token stays current until the next claim: what arrives after the reaper gave the run back to
/// the queue is taken if no one began it again.
macro_rules! fence_of_results {
    () => {
        "runs.id = $1 AND runs.lease_token = $2 AND runs.worker_id = $3 AND (
             runs.state = 'running'
             OR runs.state = 'queued' AND runs.failures @> jsonb_build_array(jsonb_build_object('lease_token', $2))
                AND runs.failures -> -1 ->> 'kind' IN ('lease_expired', 'hung'))"
    };
}

/// Stores measurements and ends their run: both or neither. A result counts even when its
/// operation was cancelled meanwhile: it is there, and measuring it cost device time.
const COMPLETE: &str = concat!(
    "
WITH ended AS (
    UPDATE runs
    SET state = 'succeeded', end_time = now(), progress = 1, phase = '',
        device_seconds = device_seconds + $4 * device_count
    WHERE NOT work ? 'links' AND ",
    fence_of_results!(),
    "
    RETURNING id, cancel_requested
), stored AS (
    INSERT INTO measurements (run_id, measurement, losses)
    SELECT ended.id, new.measurement,
           ARRAY(SELECT loss::double precision FROM unnest(string_to_array(new.losses, ' ')) AS loss)
    FROM ended, jsonb_to_recordset($5) AS new(measurement jsonb, losses text)
)
SELECT cancel_requested FROM ended"
);

/// Stores what was measured and ends its run: both or neither.
const COMPLETE_LINKS: &str = concat!(
    "
WITH ended AS (
    UPDATE runs
    SET state = 'succeeded', end_time = now(), progress = 1, phase = '',
        device_seconds = device_seconds + $4 * device_count
    WHERE work ? 'links' AND ",
    fence_of_results!(),
    "
    RETURNING id, cancel_requested
), stored AS (
    INSERT INTO link_measurements (run_id, worker_id, measurement) SELECT ended.id, $3, $5 FROM ended
)
SELECT cancel_requested FROM ended"
);

/// Repeats runs of profiles that do not fit: at the half, the quarter, … of their micro-batch size, the
/// largest that the profile does not have yet. So where both of two sizes are too large, two smaller ones
/// come in their place as long as there are any. The pool of the host is as large at every size: a run that did not
/// get it is not repeated.
macro_rules! repeat_smaller {
    () => {
        "smaller AS (
                SELECT gen_random_uuid()::text AS new_id, runs.*, size.value AS new_size
                FROM verdict JOIN runs ON runs.id = verdict.id
                CROSS JOIN LATERAL (
                    SELECT half.value - half.value % runs.smallest_micro_batch_size AS value
                    FROM (SELECT runs.micro_batch_size >> power AS value FROM generate_series(1, 20) AS power) AS half
                    WHERE half.value >= runs.smallest_micro_batch_size
                      AND NOT EXISTS (
                          SELECT FROM profile_runs JOIN runs AS other ON other.id = profile_runs.run_id
                          WHERE profile_runs.profile_id = runs.profile_id AND other.work_key = runs.work_key
                            AND other.micro_batch_size
                                = half.value - half.value % runs.smallest_micro_batch_size)
                    ORDER BY half.value DESC LIMIT 1) AS size
                WHERE verdict.next_state = 'out_of_memory' AND NOT verdict.cancel_requested
                  AND runs.profile_id IS NOT NULL
                  AND verdict.failure #>> '{out_of_memory,ledger}' IS DISTINCT FROM 'host'
            ), repeated AS (
                INSERT INTO runs (id, operation_id, profile_id, model_id, training, work, stage_recompute, stage_actions,
                                  chunks, host_memory_bytes, iterations, command,
                                  device_kind, device_count, min_capacity_bytes, deadline_seconds, work_key,
                                  smallest_micro_batch_size, shrunk_from)
                SELECT new_id, operation_id, profile_id, model_id,
                       jsonb_set(training, '{micro_batch_size}', to_jsonb(new_size)), work, stage_recompute, stage_actions,
                       chunks, host_memory_bytes, iterations, command,
                       device_kind, device_count, min_capacity_bytes, deadline_seconds, work_key,
                       smallest_micro_batch_size, id
                FROM smaller
            ), linked AS (
                INSERT INTO profile_runs (profile_id, run_id) SELECT profile_id, new_id FROM smaller
            ) "
    };
}

/// Ends attempts without a result. `$failed` locks the rows and says what failed: id, failure,
/// seconds, and the columns that the verdict needs. The parameters `$attempts` and `$hand_backs` are
/// [`MAX_ATTEMPTS`] and [`MAX_HAND_BACKS`].
macro_rules! end_attempts {
    ($attempts:literal, $hand_backs:literal, $failed:expr) => {
        concat!(
            "WITH failed AS (",
            $failed,
            "), judged AS (
                SELECT failed.*,
                       failed.failure ->> 'kind' = 'handed_back' AND failed.hand_backs < ",
            $hand_backs,
            " AS handed_back
                FROM failed
            ), verdict AS (
                SELECT judged.*, CASE
                    WHEN judged.failure ->> 'kind' = 'out_of_memory' THEN 'out_of_memory'
                    WHEN judged.cancel_requested THEN 'cancelled'
                    WHEN judged.handed_back THEN 'queued'
                    WHEN judged.attempts >= ",
            $attempts,
            " THEN 'failed'
                    ELSE 'queued' END AS next_state
                FROM judged
            ), ",
            repeat_smaller!(),
            "UPDATE runs
            SET state = verdict.next_state,
                attempts = runs.attempts - verdict.handed_back::integer,
                hand_backs = runs.hand_backs + verdict.handed_back::integer,
                not_before = now() + make_interval(secs => CASE
                    -- The first hand-back is a worker that drains; many are one that cannot.
                    WHEN verdict.handed_back THEN least(30, runs.hand_backs)
                    ELSE least(30, power(2, runs.attempts)) * (0.5 + random() / 2) END),
                end_time = CASE WHEN verdict.next_state <> 'queued' THEN now() END,
                progress = 0, phase = '',
                device_seconds = runs.device_seconds + verdict.seconds * runs.device_count,
                failures = runs.failures || jsonb_build_array(verdict.failure || jsonb_build_object(
                    'worker', 'workers/' || runs.worker_id,
                    'host', (SELECT nullif(host, '') FROM workers WHERE workers.id = runs.worker_id),
                    'lease_token', runs.lease_token,
                    'start', to_char(runs.start_time AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),
                    'time', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')))
            FROM verdict
            WHERE runs.id = verdict.id AND runs.lease_token = verdict.lease_token AND runs.state = verdict.state
            RETURNING runs.id, runs.cancel_requested"
        )
    };
}

/// A failure is for the current attempt only, but an out-of-memory is a result like any other.
const FAIL: &str = end_attempts!(
    "$6",
    "$7",
    concat!(
        "SELECT id, state, lease_token, attempts, hand_backs, cancel_requested, $4::jsonb AS failure,
            $5::double precision AS seconds
     FROM runs WHERE ",
        fence_of_results!(),
        " AND (runs.state = 'running' OR $4::jsonb ->> 'kind' = 'out_of_memory')
     FOR UPDATE"
    )
);

/// A lease that ran out before the deadline belongs to a worker that went silent, and any other to a run that took too long.
const EXPIRE: &str = end_attempts!(
    "$2",
    "$3",
    "SELECT id, state, lease_token, attempts, hand_backs, cancel_requested,
            CASE WHEN lease_expires_at < deadline_at
                THEN jsonb_build_object('kind', 'lease_expired', 'stage_index', NULL,
                    'message', 'the worker was not heard of for longer than its lease')
                ELSE jsonb_build_object('kind', 'hung', 'stage_index', NULL,
                    'message', 'the deadline of ' || deadline_seconds || ' seconds passed')
            END AS failure,
            extract(epoch FROM now() - start_time)::double precision AS seconds
     FROM runs
     WHERE state = 'running' AND (lease_expires_at < now() OR deadline_at < now() - make_interval(secs => $1))
     ORDER BY id FOR UPDATE SKIP LOCKED"
);

impl Store {
    /// Stores the measurements of a run and ends it. Taken once per run and only with the current
    /// token; resent, the same report is applied again in name only.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such run; [`StoreError::Corrupt`] when two measurements
    /// are of the same stage or cannot be stored.
    pub async fn complete_run(
        &self,
        worker: &WorkerName,
        run: &RunName,
        lease_token: i64,
        measurements: &[Measurement],
        seconds: f64,
    ) -> Result<Fenced> {
        let documents = measurement_documents(run, measurements)?;
        let ended: Option<bool> = sqlx::query_scalar(COMPLETE)
            .bind(run.id())
            .bind(lease_token)
            .bind(worker.id())
            .bind(sane(seconds))
            .bind(documents)
            .fetch_optional(&self.pool)
            .await
            .map_err(|error| unstorable(error, format_args!("the result of {run}")))?;
        self.completed(worker, run, lease_token, ended).await
    }

    /// What becomes of a report with a result. `ended` is nothing where the fence was not current, else
    /// whether a cancellation of the run had been asked for.
    async fn completed(
        &self,
        worker: &WorkerName,
        run: &RunName,
        lease_token: i64,
        ended: Option<bool>,
    ) -> Result<Fenced> {
        if let Some(cancelled) = ended {
            if cancelled {
                // Its operation may have waited for nothing else.
                self.settle_cancelled().await?;
            }
            return Ok(Fenced::Applied);
        }
        // In a second statement, which sees what a twin of this call stored a moment ago.
        let stored: Option<bool> = sqlx::query_scalar(
            "SELECT state = 'succeeded' AND lease_token = $2 AND worker_id = $3 FROM runs WHERE id = $1",
        )
        .bind(run.id())
        .bind(lease_token)
        .bind(worker.id())
        .fetch_optional(&self.pool)
        .await?;
        fenced(run, stored)
    }

    /// Stores what a run measured of its worker's links and ends the run. Taken once per run and only with
    /// the current token; resent, the same report is applied again in name only.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such run; [`StoreError::Corrupt`] when the measurement
    /// cannot be stored.
    pub async fn complete_links(
        &self,
        worker: &WorkerName,
        run: &RunName,
        lease_token: i64,
        measurement: &LinkMeasurement,
        seconds: f64,
    ) -> Result<Fenced> {
        let ended: Option<bool> = sqlx::query_scalar(COMPLETE_LINKS)
            .bind(run.id())
            .bind(lease_token)
            .bind(worker.id())
            .bind(sane(seconds))
            .bind(document(measurement)?)
            .fetch_optional(&self.pool)
            .await
            .map_err(|error| unstorable(error, format_args!("the result of {run}")))?;
        self.completed(worker, run, lease_token, ended).await
    }

    /// Ends an attempt without a result. Out of memory ends the run, and if it is of a profile and of a device
    /// queues another one at a smaller micro-batch size. Handing back requeues it and does not count. Anything
    /// else requeues it after a back-off, or fails it after [`MAX_ATTEMPTS`]. A run whose cancellation was requested becomes cancelled instead.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when there is no such run.
    pub async fn fail_run(
        &self,
        worker: &WorkerName,
        run: &RunName,
        lease_token: i64,
        failure: &RunFailure,
        seconds: f64,
    ) -> Result<Fenced> {
        let failure =
            document(&RunFailure { message: clean(&failure.message, MAX_MESSAGE), ..failure.clone() })?;
        let ended: Vec<(String, bool)> = retry(|| async {
            let ended = sqlx::query_as(FAIL)
                .bind(run.id())
                .bind(lease_token)
                .bind(worker.id())
                .bind(&failure)
                .bind(sane(seconds))
                .bind(MAX_ATTEMPTS)
                .bind(MAX_HAND_BACKS)
                .fetch_all(&self.pool)
                .await;
            ended.map_err(|error| match broken_constraint(&error) {
                // The same work was repeated at this size a moment ago; another look takes the next one.
                Some("runs_shrunk") => StoreError::Conflict,
                _ => error.into(),
            })
        })
        .await?;
        if let Some((_, cancelled)) = ended.first() {
            if *cancelled {
                self.settle_cancelled().await?;
            }
            return Ok(Fenced::Applied);
        }
        // The same report may have been stored before: its failure is there, with its token.
        let stored: Option<bool> = sqlx::query_scalar(
            "SELECT failures @> jsonb_build_array(jsonb_build_object(
                 'lease_token', $2, 'worker', $3, 'kind', $4::jsonb ->> 'kind')) FROM runs WHERE id = $1",
        )
        .bind(run.id())
        .bind(lease_token)
        .bind(worker.to_string())
        .bind(&failure)
        .fetch_optional(&self.pool)
        .await?;
        fenced(run, stored)
    }

    /// Ends the attempts whose lease expired or whose deadline passed; the runs are requeued,
    /// failed or cancelled. Says which.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn expire_leases(&self) -> Result<Vec<RunName>> {
        let grace = DEADLINE_GRACE.as_secs_f64();
        // A look first: the update would send a notification even when it finds nothing.
        let due: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM runs WHERE state = 'running'
                 AND (lease_expires_at < now() OR deadline_at < now() - make_interval(secs => $1)))",
        )
        .bind(grace)
        .fetch_one(&self.pool)
        .await?;
        if !due {
            return Ok(Vec::new());
        }
        let expired: Vec<(String, bool)> = retry(|| async {
            let expire = sqlx::query_as(EXPIRE).bind(grace).bind(MAX_ATTEMPTS).bind(MAX_HAND_BACKS);
            Ok(expire.fetch_all(&self.pool).await?)
        })
        .await?;
        if expired.iter().any(|&(_, cancelled)| cancelled) {
            self.settle_cancelled().await?;
        }
        expired.into_iter().map(|(id, _)| name(RunName::from_id(id))).collect()
    }
}

fn fenced(run: &RunName, stored: Option<bool>) -> Result<Fenced> {
    match stored {
        Some(true) => Ok(Fenced::Applied),
        Some(false) => Ok(Fenced::Stale),
        None => Err(StoreError::not_found(run)),
    }
}

/// The losses travel apart, as text, which knows NaN and infinity.
fn measurement_documents(run: &RunName, measurements: &[Measurement]) -> Result<Value> {
    let mut stages = BTreeSet::new();
    let documents = measurements
        .iter()
        .map(|measurement| {
            let Measurement { stage_index, shard, .. } = measurement;
            if !stages.insert((stage_index, shard)) {
                return Err(StoreError::corrupt(format!(
                    "the result of {run} has two measurements of device {shard} of stage {stage_index}. Expected one."
                )));
            }
            let losses: Vec<String> = measurement.losses.iter().map(f64::to_string).collect();
            let measurement = document(&Measurement { losses: Vec::new(), ..measurement.clone() })?;
            Ok(serde_json::json!({ "measurement": measurement, "losses": losses.join(" ") }))
        })
        .collect::<Result<Vec<Value>>>()?;
    Ok(Value::Array(documents))
}

/// What a worker says may be any number, and sums of it must stay finite.
fn sane(seconds: f64) -> f64 {
    if seconds.is_finite() { seconds.clamp(0.0, MAX_SECONDS) } else { 0.0 }
}
