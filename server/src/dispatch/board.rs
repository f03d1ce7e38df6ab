//! What all sessions of a planner ask the database together.
//!
//! A worker without work has nothing to say but that it is there. So heartbeats are noted here and written in
//! one statement for all workers. One look tells every session whether runs wait for its kinds of devices
//! and whether its worker is cordoned. What idle workers cost does not grow with what each of them would ask.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use loadmaster_proto::name::WorkerName;
use tokio::time::{Instant, MissedTickBehavior};

use super::Dispatcher;
use crate::store::StoreError;
use crate::store::records::Heartbeat;

/// What the last look found.
#[derive(Debug, Clone)]
pub(super) struct Board {
    /// When that was.
    looked: Instant,
    /// The kinds of devices that were looked for.
    kinds: BTreeSet<String>,
    /// Kinds of devices that queued runs may be claimed for.
    waiting: BTreeSet<String>,
    /// Workers that are to take no more runs.
    cordoned: HashSet<WorkerName>,
}

impl Board {
    /// Nothing was looked at.
    pub(super) fn new() -> Self {
        Self {
            looked: Instant::now(),
            kinds: BTreeSet::new(),
            waiting: BTreeSet::new(),
            cordoned: HashSet::new(),
        }
    }

    /// Whether these kinds of devices were looked for.
    pub(super) fn knows(&self, kinds: &BTreeSet<String>) -> bool {
        self.kinds.is_superset(kinds)
    }

    /// Whether runs wait for one of these kinds of devices.
    pub(super) fn waits_for(&self, kinds: &BTreeSet<String>) -> bool {
        !self.waiting.is_disjoint(kinds)
    }

    /// Whether the worker is cordoned; none where the last look is older than `since`.
    pub(super) fn is_cordoned(&self, worker: &WorkerName, since: Instant) -> Option<bool> {
        (self.looked > since).then(|| self.cordoned.contains(worker))
    }
}

/// Heartbeats that were heard and not written yet: of each worker the newest, with the stream it came from.
#[derive(Debug, Default)]
pub(super) struct Beats(Mutex<HashMap<WorkerName, (String, Instant)>>);

impl Beats {
    /// The worker was heard of just now.
    pub(super) fn note(&self, worker: &WorkerName, connection: &str) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match noted.get_mut(worker) {
            Some((of, heard)) if of == connection => *heard = Instant::now(),
            _ => drop(noted.insert(worker.clone(), (connection.to_owned(), Instant::now()))),
        }
    }

    fn take(&self) -> HashMap<WorkerName, (String, Instant)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What could not be written is written the next time, unless something newer was heard.
    fn put_back(&self, beats: HashMap<WorkerName, (String, Instant)>) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (worker, beat) in beats {
            noted.entry(worker).or_insert(beat);
        }
    }
}

/// Writes heartbeats and looks at the queue, once per heartbeat and whenever someone asks for a look, for
/// ever. Trouble with the database is logged by the background work of dispatch; sessions go on with what they know.
pub(super) async fn pulse(dispatcher: Dispatcher) {
    let mut ticks = tokio::time::interval(dispatcher.terms.heartbeat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let (is_tick, is_change) = tokio::select! {
            () = dispatcher.stopping.cancelled() => return,
            () = dispatcher.changed.notified() => (false, true),
            () = dispatcher.wanted.notified() => (false, false),
            _ = ticks.tick() => (true, false),
        };
        if is_tick && let Err(error) = write(&dispatcher).await {
            tracing::debug!(%error, "could not store heartbeats; retrying later");
        }
        if let Err(error) = look(&dispatcher).await {
            tracing::debug!(%error, "could not read the queue of runs; retrying later");
        }
        if is_change {
            // The queue may have changed in ways that a look does not tell: cancellations.
            dispatcher.queue_version.send_modify(|version| *version = version.wrapping_add(1));
        }
    }
}

async fn write(dispatcher: &Dispatcher) -> Result<(), StoreError> {
    let beats = dispatcher.beats.take();
    if beats.is_empty() {
        return Ok(());
    }
    let heard: Vec<Heartbeat<'_>> = beats
        .iter()
        .map(|(worker, (connection, heard))| Heartbeat { worker, connection, age: heard.elapsed() })
        .collect();
    match dispatcher.store.note_heartbeats(&heard).await {
        Ok(strangers) => {
            for worker in strangers {
                if let Some((connection, _)) = beats.get(&worker) {
                    dispatcher.disown(&worker, connection);
                }
            }
            Ok(())
        }
        Err(error) => {
            dispatcher.beats.put_back(beats);
            Err(error)
        }
    }
}

async fn look(dispatcher: &Dispatcher) -> Result<(), StoreError> {
    let kinds = dispatcher.kinds();
    if kinds.is_empty() {
        return Ok(());
    }
    let looked = Instant::now();
    let (waiting, cordoned) = dispatcher.store.look(&kinds).await?;
    let found = Board { looked, kinds, waiting, cordoned };
    dispatcher.board.send_if_modified(|board| {
        // Runs that still wait may be claimed by now: a back-off is over, a device is free.
        let is_news =
            !found.waiting.is_empty() || board.waiting != found.waiting || board.cordoned != found.cordoned;
        *board = found;
        is_news
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(id: &str) -> WorkerName {
        WorkerName::from_id(id).unwrap()
    }

    #[test]
    fn of_each_worker_the_newest_heartbeat_is_written_and_none_is_lost() {
        let beats = Beats::default();
        beats.note(&worker("a"), "one");
        beats.note(&worker("b"), "one");
        let taken = beats.take();
        assert_eq!(taken.len(), 2);
        assert!(beats.take().is_empty());
        beats.note(&worker("a"), "two");
        beats.put_back(taken);
        let again = beats.take();
        assert_eq!(again[&worker("a")].0, "two", "what is newer stays");
        assert_eq!(again[&worker("b")].0, "one");
    }

    /// A look from before a session began says nothing about its worker, which the store was asked for then.
    #[test]
    fn an_old_look_cordons_no_worker() {
        let looked = Instant::now();
        let board = Board { looked, cordoned: HashSet::from([worker("a")]), ..Board::new() };
        assert_eq!(board.is_cordoned(&worker("a"), looked), None);
        let earlier = looked.checked_sub(std::time::Duration::from_secs(1)).unwrap();
        assert_eq!(board.is_cordoned(&worker("a"), earlier), Some(true));
        assert_eq!(board.is_cordoned(&worker("b"), earlier), Some(false));
    }
}
