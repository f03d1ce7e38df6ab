//! Dispatch of queued runs to connected workers, under leases with fences.
//!
//! The queue is in Postgres, and no state here must survive a crash. Each connected worker has a [`session`] that claims runs for
//! its free devices. Its background work returns expired leases to the queue and ends operations whose runs are done. Several planners
//! may do so on one database.
//!
//! A claim is one statement with `FOR UPDATE SKIP LOCKED` that raises the fence, `lease_token`. The [`board`] reads the queue
//! once for all sessions: after a notification of the database, or after a heartbeat at the latest.
//!
//! # Failure of a worker
//!
//! 1. The kernel kills the ranks with their daemon (parent-death signal). Of a custom profiler it kills the first process only;
//!    the next daemon in the same work folder finds and ends the rest.
//! 2. The stream breaks or becomes silent. After two missed heartbeats the worker receives no new run. After a lease without a
//!    message its session ends. It may reconnect and announce its runs.
//! 3. Its leases expire. The background work of any planner records `LEASE_EXPIRED` and returns the run to the queue. The third failure
//!    parks it. The worker is listed as lost.
//! 4. Another worker claims the run with a higher fence. If the first worker is still alive, the next renewal stops its run, and
//!    its late result is rejected. There is never a second result.
//! 5. A daemon without its planner for longer than a lease stops its own runs. While it has runs, it reconnects at least every
//!    quarter of a lease.
//!
//! When a planner fails, runs continue. Workers reconnect with back-off, announce their runs, and resend unacknowledged results.

mod board;
mod give_up;
mod ledger;
mod lines;
mod session;
mod settle;

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loadmaster_proto::name::WorkerName;
use loadmaster_proto::wire::worker_v1;
use loadmaster_proto::wire::worker_v1::planner_message::Message as ToWorker;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::store::{DatabaseClock, Store, StoreError};
use board::{Beats, Board};
use lines::WorkerLines;
pub use session::{Inbox, Introduction, MAX_DEVICES, Outbox, held_leases};

/// A worker is told of others that ask for its name once in this time: they try repeatedly.
const NOTICE_EVERY: Duration = Duration::from_secs(60);

/// How long leases last and how often they are renewed.
#[derive(Debug, Clone, Copy)]
pub struct LeaseTerms {
    /// A lease ends this long after its last heartbeat.
    pub lease: Duration,
    /// Time between heartbeats.
    pub heartbeat: Duration,
}

/// The dispatcher of one planner. Clones share everything.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    store: Store,
    terms: LeaseTerms,
    /// Goes up whenever the queue may have changed.
    queue_version: watch::Sender<u64>,
    /// What one look for all sessions found.
    board: watch::Sender<Board>,
    /// Notified when a session wants such a look now.
    wanted: Arc<Notify>,
    /// Notified when the queue has changed, which needs a look too.
    changed: Arc<Notify>,
    /// Heartbeats that are not written yet.
    beats: Arc<Beats>,
    /// How often workers are in the log.
    lines: Arc<WorkerLines>,
    /// The newest session of each worker that is connected to this planner.
    sessions: Arc<Mutex<HashMap<WorkerName, Connected>>>,
    tasks: TaskTracker,
    stopping: CancellationToken,
}

/// Longest wait for the database to take note of the end of a session: a planner must be able to stop.
const DISCONNECT: Duration = Duration::from_secs(2);

/// A connected worker, as others see it.
#[derive(Debug)]
struct Connected {
    /// Ends its session.
    end: CancellationToken,
    /// Its stream, as the store knows it.
    connection: String,
    /// Its kinds of devices.
    kinds: BTreeSet<String>,
    outbox: Outbox,
    /// When it was last told that another process asks for its name.
    noticed: Option<Instant>,
}

impl Dispatcher {
    /// Starts the background tasks.
    pub fn start(store: Store, terms: LeaseTerms) -> Self {
        let dispatcher = Self {
            store,
            terms,
            queue_version: watch::Sender::new(0),
            board: watch::Sender::new(Board::new()),
            wanted: Arc::default(),
            changed: Arc::default(),
            beats: Arc::default(),
            lines: Arc::default(),
            sessions: Arc::default(),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        };
        dispatcher.tasks.spawn(run_rounds(dispatcher.clone()));
        dispatcher.tasks.spawn(wake_on_changes(dispatcher.clone()));
        dispatcher.tasks.spawn(board::pulse(dispatcher.clone()));
        dispatcher
    }

    /// Gives out no more runs, closes the workers' streams and waits for the background tasks.
    /// Leases stay valid: workers go on and connect to the next planner.
    pub async fn stop(&self) {
        self.stopping.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// How long leases last.
    pub fn terms(&self) -> LeaseTerms {
        self.terms
    }

    /// Whether [`Self::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Cancelled by [`Self::stop`].
    pub fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Runs background work that ends soon after [`Self::stopping`]; a stop waits for it.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Has the queue looked at, and wakes the sessions: it may have changed.
    pub fn wake(&self) {
        self.changed.notify_one();
    }

    /// Takes over a worker that introduced itself. An older session of the same worker ends: its
    /// stream is a half-open left-over.
    pub fn connect(&self, introduction: Introduction, inbox: Inbox, outbox: Outbox) {
        let replaced = CancellationToken::new();
        let (worker, connection) = (introduction.worker.clone(), introduction.connection.clone());
        let connected = Connected {
            end: replaced.clone(),
            connection: connection.clone(),
            kinds: introduction.devices.iter().map(|device| device.kind.clone()).collect(),
            outbox: outbox.clone(),
            noticed: None,
        };
        if let Some(older) = self.sessions().insert(worker.clone(), connected) {
            older.end.cancel();
        }
        let dispatcher = self.clone();
        self.tasks.spawn(async move {
            session::run(&dispatcher, introduction, inbox, outbox, replaced).await;
            {
                let mut sessions = dispatcher.sessions();
                // Once replaced, the entry is the successor's.
                if sessions.get(&worker).is_some_and(|of| of.connection == connection) {
                    sessions.remove(&worker);
                }
            }
            // Otherwise the name is free once the worker has been silent for a lease.
            let noted = dispatcher.store.disconnect_worker(&worker, &connection);
            if !matches!(tokio::time::timeout(DISCONNECT, noted).await, Ok(Ok(()))) {
                tracing::debug!(worker.name = %worker, "could not store that the worker disconnected");
            }
        });
    }

    /// Tells a worker, if it is connected to this planner, that another process asked for its name and was
    /// refused.
    pub fn tell_of_namesake(&self, worker: &WorkerName, host: &str) {
        let mut sessions = self.sessions();
        let Some(connected) = sessions.get_mut(worker) else { return };
        if connected.noticed.is_some_and(|noticed| noticed.elapsed() < NOTICE_EVERY) {
            return;
        }
        connected.noticed = Some(Instant::now());
        let text = format!(
            "another process on host {host:?} requested the worker name {worker} and was rejected. Give one of the two \
             another name."
        );
        let message = Some(ToWorker::Notice(worker_v1::Notice { text }));
        // A worker that does not read has other troubles.
        let _ = connected.outbox.try_send(Ok(worker_v1::PlannerMessage { message }));
    }

    /// Ends the session of a stream that does not speak for its worker any more: it was deleted, or another
    /// process has its name.
    fn disown(&self, worker: &WorkerName, connection: &str) {
        if let Some(connected) = self.sessions().get(worker).filter(|of| of.connection == connection) {
            connected.end.cancel();
        }
    }

    /// The kinds of devices of all connected workers.
    fn kinds(&self) -> BTreeSet<String> {
        self.sessions().values().flat_map(|connected| connected.kinds.iter().cloned()).collect()
    }

    /// How many lines about a worker the log lacks since its last one, where it may have another one now.
    pub fn may_log(&self, worker: &WorkerName) -> Option<u64> {
        self.lines.admit(worker)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<WorkerName, Connected>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Time between two rounds.
const ROUND: Duration = Duration::from_secs(1);

/// Returns expired leases to the queue, marks silent workers as lost and ends operations, for ever.
async fn run_rounds(dispatcher: Dispatcher) {
    let mut ticks = tokio::time::interval(ROUND);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut troubled = false;
    let mut clock = DatabaseClock::default();
    loop {
        tokio::select! {
            () = dispatcher.stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        match round(&dispatcher, &mut clock).await {
            Ok(()) if troubled => {
                troubled = false;
                tracing::info!("the database is available");
            }
            Ok(()) => {}
            // Said once per outage, not once per second.
            Err(error) if !troubled => {
                troubled = true;
                tracing::error!(%error, "the database is not available");
            }
            Err(_) => {}
        }
    }
}

async fn round(dispatcher: &Dispatcher, clock: &mut DatabaseClock) -> Result<(), StoreError> {
    dispatcher.store.follow_clock(clock, dispatcher.terms.lease).await?;
    let expired = dispatcher.store.expire_leases().await?;
    for run in &expired {
        tracing::warn!(run.id = run.id(), "lease expired");
    }
    dispatcher.store.mark_lost_workers(dispatcher.terms.lease).await?;
    dispatcher.store.end_silent_searches().await?;
    settle::settle_all(&dispatcher.store).await;
    if !expired.is_empty() {
        dispatcher.wake();
    }
    Ok(())
}

/// Wakes the sessions whenever the database says that the queue changed, for ever.
async fn wake_on_changes(dispatcher: Dispatcher) {
    let mut listener = dispatcher.store.listen();
    loop {
        tokio::select! {
            () = dispatcher.stopping.cancelled() => return,
            () = listener.changed() => dispatcher.wake(),
        }
    }
}
