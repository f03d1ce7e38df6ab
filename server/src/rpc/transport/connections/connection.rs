//! One connection: what is open on it, and since when nothing is.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::rpc::transport::share::{ConnectionShare, PeerShare};

/// What the planner knows of a connection.
#[derive(Debug)]
pub(in crate::rpc::transport) struct Connection {
    number: u64,
    peer: IpAddr,
    state: Mutex<State>,
    /// What its calls may take together.
    pub(in crate::rpc::transport) share: ConnectionShare,
    /// What all calls of its peer may take together.
    pub(in crate::rpc::transport) peer_share: Arc<PeerShare>,
    /// It is to end once its calls have.
    leave: CancellationToken,
    /// It is to end at once.
    cut: CancellationToken,
}

/// Time after a call in which its peer is likely to send the next one.
const BETWEEN_CALLS: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct State {
    open_calls: usize,
    /// Whether there was a call.
    has_called: bool,
    /// Since when no call is open.
    idle_since: Instant,
    /// Answers that wait until the peer takes some of them: since when.
    unread: HashMap<u64, Instant>,
    next_answer: u64,
    asked_to_leave: Option<Instant>,
}

impl Connection {
    pub(super) fn new(number: u64, peer: IpAddr, peer_share: Arc<PeerShare>) -> Self {
        let state = State {
            open_calls: 0,
            has_called: false,
            idle_since: Instant::now(),
            unread: HashMap::new(),
            next_answer: 0,
            asked_to_leave: None,
        };
        Self {
            number,
            peer,
            state: Mutex::new(state),
            share: ConnectionShare::new(),
            peer_share,
            leave: CancellationToken::new(),
            cut: CancellationToken::new(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whose it is.
    pub(in crate::rpc::transport) fn peer(&self) -> IpAddr {
        self.peer
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call begins.
    pub(in crate::rpc::transport) fn enter(self: &Arc<Self>) -> OpenCall {
        let mut state = self.lock();
        state.open_calls += 1;
        state.has_called = true;
        drop(state);
        OpenCall(Arc::clone(self))
    }

    /// An answer begins, none of which was taken yet.
    pub(in crate::rpc::transport) fn answer(self: &Arc<Self>) -> Unread {
        let mut state = self.lock();
        let number = state.next_answer;
        state.next_answer += 1;
        state.unread.insert(number, Instant::now());
        drop(state);
        Unread { connection: Arc::clone(self), number }
    }

    /// Returns whether a call ended lately, and since when none is open; none while one is, or where the connection ends already.
    pub(super) fn idle_since(&self, now: Instant) -> Option<(bool, Instant)> {
        let state = self.lock();
        let is_idle = state.open_calls == 0 && !self.cut.is_cancelled();
        let has_called_lately =
            state.has_called && now.saturating_duration_since(state.idle_since) < BETWEEN_CALLS;
        is_idle.then_some((has_called_lately, state.idle_since))
    }

    /// Ends the connection at once.
    pub(in crate::rpc::transport) fn cut(&self) {
        self.cut.cancel();
    }

    /// Resolves once the connection is to end after its calls.
    pub(in crate::rpc::transport) async fn left(&self) {
        self.leave.cancelled().await;
    }

    /// Resolves once the connection is to end at once.
    pub(in crate::rpc::transport) async fn was_cut(&self) {
        self.cut.cancelled().await;
    }

    #[cfg(test)]
    pub(super) fn is_cut(&self) -> bool {
        self.cut.is_cancelled()
    }

    /// Ends what only takes up room: politely where nothing is open, at once where answers are not read.
    pub(super) fn review(&self, now: Instant, idle: Duration, unread: Duration, parting: Duration) {
        let mut state = self.lock();
        let since = |instant: Instant| now.saturating_duration_since(instant);
        if let Some(asked) = state.asked_to_leave {
            if since(asked) >= parting {
                self.cut.cancel();
            }
        } else if state.unread.values().any(|&waiting| since(waiting) >= unread) {
            tracing::info!(peer = %self.peer, "closed a connection whose client does not read its answers");
            self.cut.cancel();
        } else if state.open_calls == 0 && since(state.idle_since) >= idle {
            state.asked_to_leave = Some(now);
            self.leave.cancel();
        }
    }
}

/// A call that is open, until it is dropped.
#[derive(Debug)]
pub(in crate::rpc::transport) struct OpenCall(Arc<Connection>);

impl Drop for OpenCall {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.open_calls -= 1;
        state.idle_since = Instant::now();
    }
}

/// An answer on its way, until it is dropped.
#[derive(Debug)]
pub(in crate::rpc::transport) struct Unread {
    connection: Arc<Connection>,
    number: u64,
}

impl Unread {
    /// The peer has to take what it was given before it gets more.
    pub(in crate::rpc::transport) fn waits_for_peer(&self) {
        self.connection.lock().unread.insert(self.number, Instant::now());
    }

    /// There is nothing to take for the moment.
    pub(in crate::rpc::transport) fn waits_for_us(&self) {
        self.connection.lock().unread.remove(&self.number);
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.waits_for_us();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(300);
    const UNREAD: Duration = Duration::from_secs(30);
    const PARTING: Duration = Duration::from_secs(10);

    fn connection() -> Arc<Connection> {
        Arc::new(Connection::new(1, [127, 0, 0, 1].into(), Arc::new(PeerShare::new(4))))
    }

    /// Whether it is asked to leave, and whether it is cut off, when looked at this long from now.
    fn after(connection: &Connection, time: Duration) -> (bool, bool) {
        connection.review(Instant::now() + time, IDLE, UNREAD, PARTING);
        (connection.leave.is_cancelled(), connection.cut.is_cancelled())
    }

    #[tokio::test]
    async fn a_connection_without_an_open_call_is_asked_to_leave_and_then_ended() {
        let connection = connection();
        let call = connection.enter();
        assert_eq!(after(&connection, IDLE * 10), (false, false), "a stream may be silent");
        drop(call);
        assert_eq!(after(&connection, IDLE / 2), (false, false));
        assert_eq!(after(&connection, IDLE), (true, false));
        assert_eq!(after(&connection, IDLE + PARTING / 2), (true, false));
        assert_eq!(after(&connection, IDLE + PARTING * 2), (true, true));
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_of_an_answer_is_cut_off() {
        let connection = connection();
        let _call = connection.enter();
        let answer = connection.answer();
        assert_eq!(after(&connection, UNREAD / 2), (false, false), "it has time");
        answer.waits_for_us();
        assert_eq!(after(&connection, UNREAD * 2), (false, false), "a stream without news");
        answer.waits_for_peer();
        assert_eq!(after(&connection, UNREAD * 2), (false, true));
    }
}
