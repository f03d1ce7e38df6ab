//! What was measured before, for whichever profile, and how long that took.

use loadmaster_proto::name::{ModelName, ProfileName};

use super::Store;
use super::error::Result;
use super::records::{AttemptRecord, EndedRun, MeasuredRun, Software};

/// Of several one that no one disturbed, and of those the newest, as the one whose environment is nearest to
/// today's. Whoever disturbed a run made its seconds longer and left its bytes as they are, but for those of
/// the device ledger. Ranks that took each other's cores would do so again where there are as many.
const FIND_MEASURED: &str = "
SELECT DISTINCT ON (runs.work_key, runs.micro_batch_size)
       runs.id, runs.work_key, runs.micro_batch_size,
       coalesce((runs.work #>> '{solo,stage,first_layer}')::integer, 0) AS first_layer
FROM unnest($1::text[], $2::integer[]) AS wanted(work_key, micro_batch_size)
JOIN runs ON runs.work_key = wanted.work_key AND runs.micro_batch_size = wanted.micro_batch_size
CROSS JOIN LATERAL (
    SELECT bool_and(
               environment ->> 'libtorch_version' = $4 AND environment ->> 'cuda_version' = $5
               AND environment ->> 'driver_version' = $6
               AND ($7::integer[] IS NULL OR (environment ->> 'threads')::integer = ANY ($7))
               AND (contended IS NOT TRUE OR $9 AND coalesce(ledger, 'allocated') <> 'device')
               AND ($8::integer[] IS NULL OR oversubscribed IS NOT TRUE
                    OR (environment ->> 'cores')::integer = ANY ($8))) AS serves,
           bool_or(contended IS TRUE) AS contended
    FROM measurements
    CROSS JOIN LATERAL (
        SELECT measurement -> 'environment' AS environment, measurement ->> 'peak_ledger' AS ledger,
               (measurement #>> '{environment,contended}')::boolean AS contended,
               (measurement #>> '{environment,oversubscribed}')::boolean AS oversubscribed) AS of_rank
    WHERE measurements.run_id = runs.id) AS measured
WHERE runs.state = 'succeeded' AND runs.device_kind = $3 AND measured.serves
ORDER BY runs.work_key, runs.micro_batch_size, measured.contended, runs.end_time DESC, runs.id";

/// The newest runs on a kind of device, those of a model where there are any. Failed attempts count: they hold devices too.
const ENDED: &str = "
WITH newest AS (
    SELECT * FROM runs
    WHERE state = 'succeeded' AND device_kind = $1 AND model_id IS NOT NULL
    ORDER BY end_time DESC LIMIT 1000)
SELECT model_id, training, work, iterations, device_seconds / device_count AS held_seconds,
       (SELECT coalesce(max((measurement ->> 'iteration_seconds')::float8), 0) FROM measurements
        WHERE measurements.run_id = newest.id) AS iteration_seconds
FROM newest
WHERE model_id = $2 OR NOT EXISTS (SELECT FROM newest WHERE model_id = $2)
ORDER BY end_time DESC LIMIT 200";

impl Store {
    /// Of the wanted pairs of work key and micro-batch size, the runs that measured them on this kind of
    /// device with this software; those that others disturbed only if `contended` ones will do.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn find_measured(
        &self,
        wanted: &[(String, u32)],
        device_kind: &str,
        software: &Software,
        contended: bool,
    ) -> Result<Vec<MeasuredRun>> {
        let keys: Vec<&str> = wanted.iter().map(|(key, _)| key.as_str()).collect();
        let sizes: Vec<i32> =
            wanted.iter().map(|&(_, size)| i32::try_from(size).unwrap_or(i32::MAX)).collect();
        let counts = |counts: &Option<Vec<u32>>| {
            let counts = counts.as_ref()?.iter().map(|&count| i32::try_from(count).unwrap_or(i32::MAX));
            Some(counts.collect::<Vec<i32>>())
        };
        let measured = sqlx::query_as(FIND_MEASURED)
            .bind(keys)
            .bind(sizes)
            .bind(device_kind)
            .bind(&software.libtorch_version)
            .bind(&software.cuda_version)
            .bind(&software.driver_version)
            .bind(counts(&software.threads))
            .bind(counts(&software.cores))
            .bind(contended)
            .fetch_all(&self.pool)
            .await?;
        Ok(measured)
    }

    /// What became of the runs that a profile is made of, reused ones included, in order of the queue.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn profile_attempts(&self, profile: &ProfileName) -> Result<Vec<AttemptRecord>> {
        let attempts = sqlx::query_as(
            "SELECT runs.work_key, runs.micro_batch_size, runs.state, runs.failures <> '[]'::jsonb AS failed
             FROM profile_runs JOIN runs ON runs.id = profile_runs.run_id
             WHERE profile_runs.profile_id = $1 AND runs.work_key IS NOT NULL ORDER BY runs.position",
        )
        .bind(profile.id())
        .fetch_all(&self.pool)
        .await?;
        Ok(attempts)
    }

    /// The newest runs that ended on this kind of device: those of the model where there are any, else of any model.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn ended_runs(&self, device_kind: &str, model: &ModelName) -> Result<Vec<EndedRun>> {
        Ok(sqlx::query_as(ENDED).bind(device_kind).bind(model.id()).fetch_all(&self.pool).await?)
    }
}
