//! Hands queued runs to connected workers under fenced leases.
//!
//! The queue is in Postgres; nothing here must survive a crash. Each connected worker has a
//! [`session`] that claims runs for its free devices; the [`keeper`] returns expired leases to the
//! queue and ends operations whose runs are all done. Several planners may do all of this on one
//! database at once.

mod keeper;
mod ledger;
mod session;
mod settle;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use loadmaster_proto::name::WorkerName;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use session::{Inbox, Introduction, Outbox, held_lease};

use crate::store::Store;

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
    /// The newest session of each worker that is connected to this planner: what ends it.
    sessions: Arc<Mutex<HashMap<WorkerName, CancellationToken>>>,
    tasks: TaskTracker,
    stopping: CancellationToken,
}

impl Dispatcher {
    /// Starts the background tasks.
    pub fn start(store: Store, terms: LeaseTerms) -> Self {
        let dispatcher = Self {
            store,
            terms,
            queue_version: watch::Sender::new(0),
            sessions: Arc::default(),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        };
        dispatcher.tasks.spawn(keeper::keep(dispatcher.clone()));
        dispatcher.tasks.spawn(keeper::listen(dispatcher.clone()));
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

    /// Wakes the sessions: the queue may have changed.
    pub fn wake(&self) {
        self.queue_version.send_modify(|version| *version = version.wrapping_add(1));
    }

    /// Takes over a worker that introduced itself. An older session of the same worker ends: its
    /// stream is a half-open left-over.
    pub fn connect(&self, introduction: Introduction, inbox: Inbox, outbox: Outbox) {
        let replaced = CancellationToken::new();
        let worker = introduction.worker.clone();
        {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(older) = sessions.insert(worker.clone(), replaced.clone()) {
                older.cancel();
            }
        }
        let dispatcher = self.clone();
        self.tasks.spawn(async move {
            session::run(&dispatcher, introduction, inbox, outbox, replaced.clone()).await;
            let mut sessions = dispatcher.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            // Once replaced, the entry is the successor's.
            if !replaced.is_cancelled() {
                sessions.remove(&worker);
            }
        });
    }
}
