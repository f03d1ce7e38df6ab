//! How many calls are answered at once, and how many bytes they may be.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

use super::budget::Charge;
use super::connections::Connection;
use super::methods::Kind;
use super::refusal::Refusal;
use super::share::{BYTES, Bytes, large_calls};

/// Longest wait for room: long enough for small calls to pass, too short for a queue to build up.
const PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a request or an answer that are not counted: small calls get through whatever others do.
const UNCOUNTED_BYTES: usize = 64 << 10;
/// Bytes of an answer that are taken for granted of a large content before it is read.
const LARGE_BYTES: usize = 2 << 20;

/// What all calls may take.
#[derive(Debug)]
pub(super) struct Gate {
    calls: Arc<Semaphore>,
    heavy: Arc<Semaphore>,
    large: Arc<Semaphore>,
    bytes: Bytes,
}

/// Room that a call has, until it is dropped.
#[derive(Debug)]
pub(super) struct Room(Vec<OwnedSemaphorePermit>);

impl Gate {
    pub(super) fn new(calls: usize) -> Self {
        Self {
            calls: Arc::new(Semaphore::new(calls)),
            heavy: Arc::new(Semaphore::new((calls / 2).max(1))),
            large: Arc::new(Semaphore::new(large_calls())),
            bytes: Bytes::new(BYTES),
        }
    }

    /// Room for a call whose request is there. The narrowest door comes first, so that no one keeps others waiting
    /// while waiting for his own calls.
    pub(super) async fn enter(&self, kind: Kind, connection: &Connection) -> Result<Room, Refusal> {
        let (own, peer) = (&connection.share, &connection.peer_share);
        let mut room = Room(Vec::new());
        match kind {
            Kind::Probe => {}
            Kind::Wait => {
                room.take_now(&own.waits).map_err(|_| Refusal::TooManyWaiters)?;
                room.take_now(&peer.waits).map_err(|_| Refusal::TooManyWaiters)?;
            }
            Kind::Stream => {
                let full = "too many worker handshakes are pending on this connection";
                room.take_now(&own.opening).map_err(|_| Refusal::TooManyCalls(full))?;
            }
            Kind::Small | Kind::Sifted | Kind::Heavy | Kind::Large => {
                // The call's own time bounds this wait.
                room.take(&own.calls, Duration::MAX, "too many calls are open on this connection").await?;
                if kind == Kind::Sifted {
                    room.take(&own.lists, Duration::MAX, "another list is being read on this connection")
                        .await?;
                    let full = "too many lists are being read for this address";
                    room.take(&peer.lists, PATIENCE, full).await?;
                }
                let full = "the planner is sending as many large answers as it can";
                if kind == Kind::Large {
                    room.take(&own.large, Duration::MAX, full).await?;
                    room.take(&peer.large, PATIENCE, full).await?;
                    // Nothing is read for whoever leaves unread what was read for him before.
                    if !self.answer(connection).has_room(LARGE_BYTES) {
                        return Err(Refusal::TooMuchUnread);
                    }
                }
                room.take(&peer.calls, PATIENCE, "too many calls are open from this address").await?;
                if kind == Kind::Heavy {
                    room.take(&self.heavy, PATIENCE, "the planner is computing as many answers as it can")
                        .await?;
                }
                if kind == Kind::Large {
                    room.take(&self.large, PATIENCE, full).await?;
                }
                room.take(&self.calls, PATIENCE, "the planner is handling as many calls as it can").await?;
            }
        }
        Ok(room)
    }

    /// A count of the bytes of a request.
    pub(super) fn request(&self, connection: &Connection) -> Counted {
        let (own, peer) = (&connection.share.bytes, &connection.peer_share.bytes);
        Counted(Charge::new([&own.requests, &peer.requests, &self.bytes.requests].map(Arc::clone)))
    }

    /// A count of the bytes of an answer.
    pub(super) fn answer(&self, connection: &Connection) -> Counted {
        let (own, peer) = (&connection.share.bytes, &connection.peer_share.bytes);
        Counted(Charge::new([&own.answers, &peer.answers, &self.bytes.answers].map(Arc::clone)))
    }
}

impl Room {
    async fn take(
        &mut self,
        of: &Arc<Semaphore>,
        patience: Duration,
        full: &'static str,
    ) -> Result<(), Refusal> {
        if self.take_now(of).is_ok() {
            return Ok(());
        }
        match tokio::time::timeout(patience, Arc::clone(of).acquire_owned()).await {
            Ok(Ok(permit)) => self.0.push(permit),
            Ok(Err(_)) | Err(_) => return Err(Refusal::TooManyCalls(full)),
        }
        Ok(())
    }

    fn take_now(&mut self, of: &Arc<Semaphore>) -> Result<(), TryAcquireError> {
        self.0.push(Arc::clone(of).try_acquire_owned()?);
        Ok(())
    }
}

/// Bytes that are held for a call, until it is dropped.
#[derive(Debug)]
pub(super) struct Counted(Charge);

impl Counted {
    /// Holds `bytes`; whether there is room.
    pub(super) fn hold(&mut self, bytes: usize) -> bool {
        self.0.hold(bytes.saturating_sub(UNCOUNTED_BYTES))
    }

    /// Whether there is room for `bytes`, for the moment.
    fn has_room(mut self, bytes: usize) -> bool {
        self.hold(bytes)
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::MAX_MESSAGE_BYTES;

    use super::super::share::BYTES_PER_CONNECTION;
    use super::*;
    use crate::rpc::transport::Limits;
    use crate::rpc::transport::connections::{Connections, Place};

    fn connect(calls: usize, addresses: &[[u8; 4]]) -> (Gate, Vec<Place>) {
        let connections = Connections::new(Limits { calls, ..Limits::default() });
        let entries = addresses.iter().map(|&address| connections.admit(address.into()).unwrap()).collect();
        (Gate::new(calls), entries)
    }

    #[tokio::test]
    async fn a_peer_alone_cannot_take_all_calls_and_searches_leave_room_for_small_ones() {
        let (gate, entries) = connect(8, &[[127, 0, 0, 1], [127, 0, 0, 2]]);
        let (greedy, other) = (&entries[0].connection, &entries[1].connection);
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(gate.enter(Kind::Heavy, greedy).await.unwrap());
        }
        assert!(gate.enter(Kind::Heavy, other).await.is_err(), "half of the room is for heavy calls");
        for _ in 0..2 {
            held.push(gate.enter(Kind::Small, greedy).await.unwrap());
        }
        let refused = gate.enter(Kind::Small, greedy).await.unwrap_err();
        assert!(matches!(refused, Refusal::TooManyCalls(_)));
        held.push(gate.enter(Kind::Small, other).await.unwrap());
        drop(held);
        gate.enter(Kind::Small, greedy).await.unwrap();
    }

    /// Filters and orders that take the database long are the business of those who wrote them.
    #[tokio::test]
    async fn filtered_lists_of_one_caller_leave_room_for_everything_else() {
        let (gate, entries) = connect(64, &[[127, 0, 0, 1], [127, 0, 0, 1], [127, 0, 0, 2]]);
        let [greedy, beside, other] = [0, 1, 2].map(|index| &entries[index].connection);
        let _first = gate.enter(Kind::Sifted, greedy).await.unwrap();
        let second = tokio::time::timeout(Duration::from_millis(20), gate.enter(Kind::Sifted, greedy)).await;
        assert!(second.is_err(), "it waits for the first one");
        gate.enter(Kind::Small, greedy).await.unwrap();
        gate.enter(Kind::Sifted, beside).await.unwrap();
        gate.enter(Kind::Sifted, other).await.unwrap();
    }

    #[tokio::test]
    async fn probes_and_waits_get_in_whatever_others_do() {
        let (gate, entries) = connect(1, &[[127, 0, 0, 1]]);
        let connection = &entries[0].connection;
        let _busy = gate.enter(Kind::Small, connection).await.unwrap();
        assert!(gate.enter(Kind::Small, connection).await.is_err());
        gate.enter(Kind::Probe, connection).await.unwrap();
        gate.enter(Kind::Wait, connection).await.unwrap();
    }

    #[tokio::test]
    async fn large_answers_of_one_connection_leave_room_for_those_of_others() {
        let (gate, entries) = connect(8, &[[127, 0, 0, 1], [127, 0, 0, 1]]);
        let (greedy, other) = (&entries[0].connection, &entries[1].connection);
        let mut first = gate.answer(greedy);
        assert!(first.hold(BYTES_PER_CONNECTION));
        let mut second = gate.answer(greedy);
        assert!(!second.hold(MAX_MESSAGE_BYTES));
        assert!(second.hold(UNCOUNTED_BYTES), "small answers always have room");
        assert!(gate.answer(other).hold(MAX_MESSAGE_BYTES));
        drop(first);
        assert!(second.hold(MAX_MESSAGE_BYTES));
    }

    /// Reading is what costs, so it is not begun for an answer that would find no room.
    #[tokio::test]
    async fn large_contents_are_read_one_by_one_and_for_nobody_who_leaves_them_unread() {
        let (gate, entries) = connect(8, &[[127, 0, 0, 1], [127, 0, 0, 2]]);
        let (greedy, other) = (&entries[0].connection, &entries[1].connection);
        let first = gate.enter(Kind::Large, greedy).await.unwrap();
        let second = tokio::time::timeout(Duration::from_millis(20), gate.enter(Kind::Large, greedy)).await;
        assert!(second.is_err(), "it waits for the first one");
        gate.enter(Kind::Small, greedy).await.unwrap();
        gate.enter(Kind::Large, other).await.unwrap();
        drop(first);
        let mut unread = gate.answer(greedy);
        assert!(unread.hold(BYTES_PER_CONNECTION - LARGE_BYTES / 2));
        assert!(matches!(gate.enter(Kind::Large, greedy).await, Err(Refusal::TooMuchUnread)));
        gate.enter(Kind::Small, greedy).await.unwrap();
        gate.enter(Kind::Large, other).await.unwrap();
        drop(unread);
        gate.enter(Kind::Large, greedy).await.unwrap();
    }
}
