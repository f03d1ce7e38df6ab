//! What the calls of one connection, and of one peer, may take of what all calls may.

use std::sync::Arc;

use loadmaster_proto::MAX_MESSAGE_BYTES;
use tokio::sync::Semaphore;

use super::budget::Budget;
use crate::slow::cores;

/// Calls of one connection that are answered at once; more wait for each other.
const CALLS_PER_CONNECTION: usize = 32;
/// Streams of one connection that have not introduced themselves: a worker opens one.
const OPENING_PER_CONNECTION: usize = 4;
/// Calls of one connection that hand out large contents: more wait for each other, as their answers do on the wire.
const LARGE_PER_CONNECTION: usize = 1;
/// Calls of one connection that wait for operations.
const WAITS_PER_CONNECTION: usize = 16;

/// Most bytes of requests, and of answers, that are on their way: of everybody, of one peer, of one connection.
pub(super) const BYTES: usize = 16 * MAX_MESSAGE_BYTES;
const BYTES_PER_PEER: usize = 8 * MAX_MESSAGE_BYTES;
pub(super) const BYTES_PER_CONNECTION: usize = 2 * MAX_MESSAGE_BYTES;

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
}

/// What the calls of one connection may take.
#[derive(Debug)]
pub(super) struct ConnectionShare {
    pub(super) calls: Arc<Semaphore>,
    pub(super) waits: Arc<Semaphore>,
    pub(super) opening: Arc<Semaphore>,
    pub(super) large: Arc<Semaphore>,
    pub(super) bytes: Bytes,
}

impl PeerShare {
    /// Three quarters, so that nobody alone can keep all others out.
    pub(super) fn new(calls: usize) -> Self {
        Self {
            calls: Arc::new(Semaphore::new((calls - calls / 4).max(1))),
            large: Arc::new(Semaphore::new((large_calls() / 2).max(1))),
            // Of the half of all calls that may wait.
            waits: Arc::new(Semaphore::new((calls / 2 - calls / 8).max(1))),
            bytes: Bytes::new(BYTES_PER_PEER),
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
        }
    }
}
