//! Workers: who is there, with what.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use loadmaster_filter::Query;
use loadmaster_proto::name::{CommandName, WorkerName};

use super::Store;
use super::columns::{clean, document, name, unsigned};
use super::error::{Result, StoreError, retry};
use super::find::ListSql;
use super::records::{
    Heartbeat, NearestWorker, NewWorker, Page, PageRequest, RunNeed, WorkerRecord, WorkerState,
};
use super::states::Word;

/// Most bytes of a text in which a worker describes itself.
const MAX_TEXT: usize = 256;

/// What is selected of a worker.
macro_rules! selected {
    () => {
        "SELECT id, state, devices, links, version, libtorch_version, cuda_version, threads, cores, host, session_id, commands,
                host_memory_bytes, copy_pace, create_time, heartbeat_time,
                ARRAY(SELECT runs.id FROM runs WHERE runs.worker_id = workers.id AND runs.state = 'running'
                      ORDER BY runs.create_time, runs.id) AS runs"
    };
}

/// Not by the last contact, unless it is asked for: rows that move between two pages would be skipped.
const LIST: ListSql = ListSql { select: selected!(), from: "FROM workers", id: "id", around: "" };

/// Only the stream that speaks for a worker does.
const HEARTBEATS: &str = "
WITH heard AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::double precision[]) AS heard(id, connection, age)
), noted AS (
    UPDATE workers
    SET heartbeat_time = greatest(heartbeat_time, now() - make_interval(secs => heard.age)),
        state = CASE WHEN state <> 'lost' THEN state WHEN cordon_requested THEN 'cordoned' ELSE 'alive' END
    FROM heard WHERE workers.id = heard.id AND workers.connection = heard.connection
    RETURNING workers.id
)
SELECT heard.id FROM heard WHERE heard.id NOT IN (SELECT id FROM noted)";

/// One probe of the queue's index per kind.
const LOOK: &str = "
SELECT ARRAY(SELECT kind FROM unnest($1::text[]) AS kind
             WHERE EXISTS (SELECT FROM runs
                           WHERE state = 'queued' AND device_kind = kind
                             AND (not_before <= now() OR not_before > now() + interval '30 seconds'))),
       ARRAY(SELECT id FROM workers WHERE cordon_requested)";

impl Store {
    /// Notes that a worker connected. It is alive afterwards; but a process that was cordoned when its
    /// connection was lost still is, and one that said goodbye still leaves. The name of a worker that is
    /// connected belongs to its process until it has been silent for a lease: until then its leases live.
    ///
    /// # Errors
    /// [`StoreError::NameTaken`] while another process has the name.
    pub async fn upsert_worker(&self, worker: &NewWorker, lease: Duration) -> Result<WorkerRecord> {
        let NewWorker {
            name,
            devices,
            links,
            version,
            libtorch_version,
            cuda_version,
            threads,
            cores,
            host,
            session_id,
            connection,
            commands,
            host_memory,
            copy_pace,
        } = worker;
        let commands: Vec<&str> = commands.iter().map(CommandName::as_str).collect();
        let connected = sqlx::query(
            "INSERT INTO workers AS workers (id, state, devices, version, libtorch_version, host, session_id,
                                             commands, cuda_version, threads, links, cores, connection,
                                             host_memory_bytes, copy_pace)
             VALUES ($1, 'alive', $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $14, $15)
             ON CONFLICT (id) DO UPDATE
             SET cordon_requested = workers.cordon_requested AND workers.session_id = excluded.session_id,
                 state = CASE WHEN workers.session_id <> excluded.session_id THEN 'alive'
                              WHEN workers.state = 'gone' THEN 'gone'
                              WHEN workers.cordon_requested THEN 'cordoned' ELSE 'alive' END,
                 devices = excluded.devices, version = excluded.version,
                 libtorch_version = excluded.libtorch_version, host = excluded.host,
                 session_id = excluded.session_id, commands = excluded.commands,
                 cuda_version = excluded.cuda_version, threads = excluded.threads, links = excluded.links,
                 cores = excluded.cores, connection = excluded.connection,
                 host_memory_bytes = excluded.host_memory_bytes, copy_pace = excluded.copy_pace,
                 heartbeat_time = now()
             WHERE workers.session_id = excluded.session_id OR workers.connection IS NULL
                OR workers.heartbeat_time < now() - make_interval(secs => $13)",
        )
        .bind(name.id())
        .bind(document(devices)?)
        .bind(clean(version, MAX_TEXT))
        .bind(clean(libtorch_version, MAX_TEXT))
        .bind(clean(host, MAX_TEXT))
        .bind(clean(session_id, MAX_TEXT))
        .bind(commands)
        .bind(clean(cuda_version, MAX_TEXT))
        .bind(i32::try_from(*threads).unwrap_or(i32::MAX))
        .bind(document(links)?)
        .bind(i32::try_from(*cores).unwrap_or(i32::MAX))
        .bind(connection)
        .bind(lease.as_secs_f64())
        .bind(i64::try_from(*host_memory).unwrap_or(i64::MAX))
        .bind(document(copy_pace)?)
        .execute(&self.pool)
        .await?;
        let record = self.get_worker(name).await?;
        if connected.rows_affected() == 0 {
            return Err(StoreError::NameTaken {
                what: name.to_string(),
                host: record.host,
                heartbeat_time: record.heartbeat_time,
            });
        }
        Ok(record)
    }

    /// Notes that a stream of a worker has ended: another process may have the name now. A newer stream of the
    /// worker is not touched.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn disconnect_worker(&self, worker: &WorkerName, connection: &str) -> Result<()> {
        sqlx::query("UPDATE workers SET connection = NULL WHERE id = $1 AND connection = $2")
            .bind(worker.id())
            .bind(connection)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Notes that workers were heard of, all in one statement; those that were lost are back. Says whose
    /// stream does not speak for a worker any more.
    ///
    /// # Errors
    /// When the database fails; then nothing was noted.
    pub async fn note_heartbeats(&self, heard: &[Heartbeat<'_>]) -> Result<Vec<WorkerName>> {
        let ids: Vec<&str> = heard.iter().map(|of| of.worker.id()).collect();
        let connections: Vec<&str> = heard.iter().map(|of| of.connection).collect();
        let ages: Vec<f64> = heard.iter().map(|of| of.age.as_secs_f64()).collect();
        let strangers: Vec<String> = retry(|| async {
            let strangers = sqlx::query_scalar(HEARTBEATS)
                .bind(&ids)
                .bind(&connections)
                .bind(&ages)
                .fetch_all(&self.pool)
                .await?;
            Ok(strangers)
        })
        .await?;
        strangers.into_iter().map(|id| name(WorkerName::from_id(id))).collect()
    }

    /// For which of these kinds of devices runs may be claimed now, and which workers are to take none: what
    /// the sessions of all workers need to know, in one statement.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn look(&self, kinds: &BTreeSet<String>) -> Result<(BTreeSet<String>, HashSet<WorkerName>)> {
        let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
        let (waiting, cordoned): (Vec<String>, Vec<String>) =
            sqlx::query_as(LOOK).bind(kinds).fetch_one(&self.pool).await?;
        let cordoned = cordoned.into_iter().map(|id| name(WorkerName::from_id(id)));
        Ok((waiting.into_iter().collect(), cordoned.collect::<Result<_>>()?))
    }

    /// Forgets a worker that is gone or lost. What it measured and what became of its runs stays.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::WorkerInUse`] while it is connected, holds leases, or runs wait
    /// for it alone.
    pub async fn delete_worker(&self, worker: &WorkerName) -> Result<()> {
        let deleted = sqlx::query(
            "DELETE FROM workers WHERE id = $1 AND state IN ('gone', 'lost')
               AND NOT EXISTS (SELECT FROM runs WHERE worker_id = $1 AND state = 'running')
               AND NOT EXISTS (SELECT FROM runs WHERE only_worker_id = $1 AND state = 'queued')",
        )
        .bind(worker.id())
        .execute(&self.pool)
        .await?;
        if deleted.rows_affected() > 0 {
            return Ok(());
        }
        let record = self.get_worker(worker).await?;
        let why = match record.state {
            WorkerState::Alive | WorkerState::Cordoned => "is connected. Stop it first.".to_owned(),
            WorkerState::Lost | WorkerState::Gone if !record.runs.is_empty() => {
                format!("has {} leases. Wait until they end.", record.runs.len())
            }
            WorkerState::Lost | WorkerState::Gone => {
                "is the only worker that can execute some waiting runs. Cancel the operations of these runs before you \
                 delete the worker."
                    .to_owned()
            }
        };
        Err(StoreError::WorkerInUse { what: worker.to_string(), why })
    }

    /// Changes a worker's state, unless another process of the same name has connected since: a
    /// connection that ends late must not speak for its successor. A worker that is lost keeps its
    /// state, and is cordoned or alive when it returns.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn set_worker_state(
        &self,
        worker: &WorkerName,
        session_id: &str,
        state: WorkerState,
    ) -> Result<()> {
        sqlx::query(
            "UPDATE workers
             SET state = CASE WHEN $3 IN ('cordoned', 'alive') AND state IN ('lost', 'gone') THEN state ELSE $3 END,
                 cordon_requested = CASE $3 WHEN 'cordoned' THEN true WHEN 'alive' THEN false ELSE cordon_requested END
             WHERE id = $1 AND session_id = $2",
        )
        .bind(worker.id())
        .bind(clean(session_id, MAX_TEXT))
        .bind(state.to_sql())
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// One worker.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn get_worker(&self, name: &WorkerName) -> Result<WorkerRecord> {
        let found = sqlx::query_as(concat!(selected!(), " FROM workers WHERE id = $1"))
            .bind(name.id())
            .fetch_optional(&self.pool)
            .await?;
        found.ok_or_else(|| StoreError::not_found(name))
    }

    /// Workers that are connected, the newest first: at most `most`, and of these names alone if there are any.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn connected_workers(&self, names: &[WorkerName], most: u32) -> Result<Vec<WorkerRecord>> {
        let ids: Vec<&str> = names.iter().map(WorkerName::id).collect();
        let connected = sqlx::query_as(concat!(
            selected!(),
            " FROM workers WHERE state IN ('alive', 'cordoned') AND (cardinality($1::text[]) = 0 OR id = ANY($1))
              ORDER BY create_time DESC, id DESC LIMIT $2"
        ));
        Ok(connected.bind(ids).bind(i64::from(most)).fetch_all(&self.pool).await?)
    }

    /// Workers that ever connected: those that are asked for, of [`fields::WORKERS`](super::fields::WORKERS).
    ///
    /// # Errors
    /// When the database fails.
    pub async fn list_workers(&self, query: &Query, request: &PageRequest) -> Result<Page<WorkerRecord>> {
        LIST.page(self, query, request, |_| {}).await
    }

    /// Of the connected workers with devices of the kind the one that comes nearest to what a run needs. First those
    /// that offer its command, then those that could hold it, then those with most devices that are large enough. Then those
    /// with enough of their host's memory, then with most devices at all. None where no worker with such devices is
    /// connected.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn nearest_worker(&self, need: &RunNeed) -> Result<Option<NearestWorker>> {
        let RunNeed { device_kind, device_count, min_capacity, host_memory, command } = need;
        let nearest: Option<(String, Vec<i64>, bool, i64)> = sqlx::query_as(
            "SELECT id, array_agg(capacity ORDER BY capacity DESC), offers, host_memory_bytes
             FROM (SELECT id, host_memory_bytes, (device ->> 'capacity')::bigint AS capacity,
                          $3::text IS NULL OR $3 = ANY (commands) AS offers
                   FROM workers CROSS JOIN jsonb_array_elements(devices) AS device
                   WHERE state IN ('alive', 'cordoned') AND device ->> 'kind' = $1) AS of_kind
             GROUP BY id, offers, host_memory_bytes
             ORDER BY offers DESC,
                      (count(*) FILTER (WHERE capacity >= $2) >= $4 AND host_memory_bytes >= $5) DESC,
                      count(*) FILTER (WHERE capacity >= $2) DESC, host_memory_bytes >= $5 DESC,
                      count(*) DESC, max(capacity) DESC, id
             LIMIT 1",
        )
        .bind(device_kind)
        .bind(i64::try_from(*min_capacity).unwrap_or(i64::MAX))
        .bind(command.as_ref().map(CommandName::as_str))
        .bind(i64::from(*device_count))
        .bind(i64::try_from(*host_memory).unwrap_or(i64::MAX))
        .fetch_optional(&self.pool)
        .await?;
        nearest
            .map(|(id, capacities, offers_command, host_memory)| {
                let capacities = capacities.into_iter().map(unsigned).collect::<Result<_>>()?;
                let (worker, host_memory) = (name(WorkerName::from_id(id))?, unsigned(host_memory)?);
                Ok(NearestWorker { worker, capacities, offers_command, host_memory })
            })
            .transpose()
    }

    /// Marks the workers that were silent for longer than a lease; their next heartbeat takes it back.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn mark_lost_workers(&self, lease: Duration) -> Result<()> {
        sqlx::query(
            "UPDATE workers SET state = 'lost'
             WHERE state IN ('alive', 'cordoned') AND heartbeat_time < now() - make_interval(secs => $1)",
        )
        .bind(lease.as_secs_f64())
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
