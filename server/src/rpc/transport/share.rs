//! What the calls of one connection, and of one peer, may take of what all calls may.

use std::sync::Arc;

use loadmaster_proto::MAX_MESSAGE_BYTES;
use loadmaster_web::PeerListeners;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::budget::Budget;
use crate::background::cores;

/// Calls of one connection that are answered at once; more wait for each other.
const CALLS_PER_CONNECTION: usize = 32;
/// Streams of one connection that have not introduced themselves: a worker opens one.
const OPENING_PER_CONNECTION: usize = 4;
/// Calls of one connection that hand out large contents: more wait for each other, as their answers do on the wire.
const LARGE_PER_CONNECTION: usize = 1;
/// Filtered or ordered lists of one connection, and of one peer: each may take a core of the database for seconds, and a
/// connection of those that are set aside for them.
const LISTS_PER_CONNECTION: usize = 1;
const LISTS_PER_PEER: usize = 3;
/// Calls of one connection that wait for operations.
const WAITS_PER_CONNECTION: usize = 16;
/// Streams of changes of one connection, and of one peer.
const STREAMS_PER_CONNECTION: usize = 4;
const STREAMS_PER_PEER: usize = 64;

/// Most bytes of requests, and of answers, that are on their way: of everybody, of one peer, of one connection.
pub(super) const BYTES: usize = 16 * MAX_MESSAGE_BYTES;
const BYTES_PER_PEER: usize = 8 * MAX_MESSAGE_BYTES;
pub(super) const BYTES_PER_CONNECTION: usize = 2 * MAX_MESSAGE_BYTES;

/// Searches at once, beside short ones: each takes a core. One of two is left to others on a machine with one core, too.
pub(in crate::rpc) fn searches() -> usize {
    cores().max(2)
}

/// Searches at once that have a short time only: a small search never waits for the end of long ones. They share the
/// cores with these.
pub(in crate::rpc) const SHORT_SEARCHES: usize = 4;
/// Short searches of one connection: the calls of one caller wait for each other and not others for them.
const SHORT_SEARCHES_PER_CONNECTION: usize = 2;

/// Calls that hand out large contents at once: each takes a core of the database, and one of the planner.
pub(super) fn large_calls() -> usize {
    cores().max(2)
}

/// Bytes in both directions.
#[derive(Debug)]
pub(super) struct Bytes {
    pub(super) requests: Arc<Budget>,
    pub(super) answers: Arc<Budget>,
}

impl Bytes {
    pub(super) fn new(most: usize) -> Self {
        Self { requests: Budget::new(most), answers: Budget::new(most) }
    }
}

/// What the calls of one peer may take.
#[derive(Debug)]
pub(super) struct PeerShare {
    pub(super) calls: Arc<Semaphore>,
    pub(super) waits: Arc<Semaphore>,
    pub(super) large: Arc<Semaphore>,
    pub(super) bytes: Bytes,
    pub(super) lists: Arc<Semaphore>,
    /// Its browsers that wait for events.
    pub(super) listeners: PeerListeners,
    searches: Arc<Semaphore>,
    short_searches: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// What the calls of one connection may take.
#[derive(Debug)]
pub(super) struct ConnectionShare {
    pub(super) calls: Arc<Semaphore>,
    pub(super) waits: Arc<Semaphore>,
    pub(super) opening: Arc<Semaphore>,
    pub(super) large: Arc<Semaphore>,
    pub(super) bytes: Bytes,
    pub(super) lists: Arc<Semaphore>,
    short_searches: Arc<Semaphore>,
    streams: Arc<Semaphore>,
}

/// What the searches of one caller may take. Its requests carry it to the services.
#[derive(Debug, Clone)]
pub(in crate::rpc) struct SearchShare {
    /// Searches of its peer that may take long.
    pub(in crate::rpc) long: Arc<Semaphore>,
    /// Short searches of its connection, and of its peer.
    pub(in crate::rpc) short: [Arc<Semaphore>; 2],
}

impl SearchShare {
    /// The share of a call on a connection.
    pub(super) fn of(connection: &ConnectionShare, peer: &PeerShare) -> Self {
        let short = [Arc::clone(&connection.short_searches), Arc::clone(&peer.short_searches)];
        Self { long: Arc::clone(&peer.searches), short }
    }
}

/// The terms of a stream that follows a single request. Its request carries them to the services.
#[derive(Debug, Clone)]
pub(in crate::rpc) struct StreamTerms {
    /// When it ends.
    pub(in crate::rpc) until: Instant,
    /// Streams of its connection, and of its peer.
    streams: [Arc<Semaphore>; 2],
}

impl StreamTerms {
    /// The terms of a call on a connection.
    pub(super) fn of(until: Instant, connection: &ConnectionShare, peer: &PeerShare) -> Self {
        Self { until, streams: [Arc::clone(&connection.streams), Arc::clone(&peer.streams)] }
    }

    /// Permits for one more stream, if there are any.
    pub(in crate::rpc) fn slots(&self) -> Option<Vec<OwnedSemaphorePermit>> {
        self.streams.iter().map(|of| Arc::clone(of).try_acquire_owned().ok()).collect()
    }
}

/// The share of all callers within this process: they count as one peer.
impl Default for SearchShare {
    fn default() -> Self {
        Self::of(&ConnectionShare::new(), &PeerShare::new(1))
    }
}

impl PeerShare {
    /// Three quarters, so that no one alone can keep all others out.
    pub(super) fn new(calls: usize) -> Self {
        Self {
            calls: Arc::new(Semaphore::new((calls - calls / 4).max(1))),
            large: Arc::new(Semaphore::new((large_calls() / 2).max(1))),
            // Of the half of all calls that may wait.
            waits: Arc::new(Semaphore::new((calls / 2 - calls / 8).max(1))),
            bytes: Bytes::new(BYTES_PER_PEER),
            lists: Arc::new(Semaphore::new(LISTS_PER_PEER)),
            listeners: PeerListeners::default(),
            searches: Arc::new(Semaphore::new(searches() - searches().div_ceil(4))),
            short_searches: Arc::new(Semaphore::new(SHORT_SEARCHES - 1)),
            streams: Arc::new(Semaphore::new(STREAMS_PER_PEER)),
        }
    }
}

impl ConnectionShare {
    pub(super) fn new() -> Self {
        Self {
            calls: Arc::new(Semaphore::new(CALLS_PER_CONNECTION)),
            waits: Arc::new(Semaphore::new(WAITS_PER_CONNECTION)),
            opening: Arc::new(Semaphore::new(OPENING_PER_CONNECTION)),
            large: Arc::new(Semaphore::new(LARGE_PER_CONNECTION)),
            bytes: Bytes::new(BYTES_PER_CONNECTION),
            lists: Arc::new(Semaphore::new(LISTS_PER_CONNECTION)),
            short_searches: Arc::new(Semaphore::new(SHORT_SEARCHES_PER_CONNECTION)),
            streams: Arc::new(Semaphore::new(STREAMS_PER_CONNECTION)),
        }
    }
}
