//! Who is connected: how many there may be, and which of them have to go.

mod connection;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Limits;
use super::share::PeerShare;

pub(super) use connection::{Connection, OpenCall, Unread};

/// Time between two looks at all connections.
const ROUND: Duration = Duration::from_secs(1);
/// Time for which a peer may leave an answer where it is.
const UNREAD: Duration = Duration::from_secs(30);
/// Time between asking a connection to end and ending it.
const PARTING: Duration = Duration::from_secs(10);

/// All open connections. Clones share everything.
#[derive(Debug, Clone)]
pub(super) struct Connections {
    limits: Limits,
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    number: u64,
    connections: HashMap<u64, Arc<Connection>>,
    peers: HashMap<IpAddr, Peer>,
}

#[derive(Debug)]
struct Peer {
    connections: usize,
    share: Arc<PeerShare>,
}

/// A connection's place among the others, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) connection: Arc<Connection>,
    connections: Connections,
}

impl Connections {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, open: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a connection in. Where there is no room, the one that has been idle for longest makes some: of the
    /// same peer if that has its share, of anybody else. Those between two calls are ended last.
    ///
    /// Returns none when all of them are at work.
    pub(super) fn admit(&self, address: IpAddr) -> Option<Place> {
        let address = one_peer(address);
        let mut open = self.lock();
        let of_peer = open.peers.get(&address).map_or(0, |peer| peer.connections);
        if of_peer >= self.limits.connections_per_peer {
            open.end_idlest(Some(address))?;
        } else if open.connections.len() >= self.limits.connections {
            open.end_idlest(None)?;
        }
        open.number += 1;
        let number = open.number;
        let peer = open
            .peers
            .entry(address)
            .or_insert_with(|| Peer { connections: 0, share: Arc::new(PeerShare::new(self.limits.calls)) });
        peer.connections += 1;
        let connection = Arc::new(Connection::new(number, address, Arc::clone(&peer.share)));
        open.connections.insert(number, Arc::clone(&connection));
        Some(Place { connection, connections: self.clone() })
    }

    /// Ends connections that only take up room, repeatedly.
    pub(super) async fn sweep(self) {
        loop {
            tokio::time::sleep(ROUND).await;
            let connections: Vec<_> = self.lock().connections.values().cloned().collect();
            let now = Instant::now();
            for connection in connections {
                connection.review(now, self.limits.idle, UNREAD, PARTING);
            }
        }
    }
}

impl Open {
    /// Ends the connection that has been without an open call for longest, those last that called a moment ago: many that say nothing
    /// may come while a busy peer waits for a core.
    fn end_idlest(&self, address: Option<IpAddr>) -> Option<()> {
        let candidates =
            self.connections.values().filter(|one| address.is_none_or(|peer| one.peer() == peer));
        let now = Instant::now();
        let idle = candidates.filter_map(|one| Some((one.idle_since(now)?, one)));
        let (_, idlest) = idle.min_by_key(|(since, one)| (*since, one.number()))?;
        idlest.cut();
        Some(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.connections.lock();
        open.connections.remove(&self.connection.number());
        let address = self.connection.peer();
        if let Some(peer) = open.peers.get_mut(&address) {
            peer.connections -= 1;
            if peer.connections == 0 {
                open.peers.remove(&address);
            }
        }
    }
}

/// What counts as one peer: an IPv4 address, or the network of an IPv6 address, all of which one machine may have.
fn one_peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6((address.to_bits() & !u128::from(u64::MAX)).into())
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: [u8; 4] = [127, 0, 0, 1];
    const THERE: [u8; 4] = [127, 0, 0, 2];

    fn connections(all: usize, per_peer: usize) -> Connections {
        Connections::new(Limits {
            calls: 4,
            connections: all,
            connections_per_peer: per_peer,
            idle: Duration::from_secs(300),
        })
    }

    #[tokio::test]
    async fn whoever_was_idle_for_longest_makes_room_for_a_new_connection() {
        let connections = connections(3, 2);
        let first = connections.admit(HERE.into()).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        let second = connections.admit(HERE.into()).unwrap();
        let _at_work = first.connection.enter();
        tokio::time::sleep(Duration::from_millis(5)).await;
        let third = connections.admit(HERE.into()).unwrap();
        assert!(second.connection.is_cut() && !first.connection.is_cut() && !third.connection.is_cut());
        drop(second);

        let fourth = connections.admit(THERE.into()).unwrap();
        assert!(!third.connection.is_cut(), "there was room");
        tokio::time::sleep(Duration::from_millis(5)).await;
        let _fifth = connections.admit(THERE.into()).unwrap();
        assert!(third.connection.is_cut(), "idle for longest among all");
        assert!(!fourth.connection.is_cut());
    }

    #[tokio::test]
    async fn whoever_is_between_two_calls_is_ended_last() {
        let connections = connections(2, 2);
        let caller = connections.admit(HERE.into()).unwrap();
        drop(caller.connection.enter());
        tokio::time::sleep(Duration::from_millis(5)).await;
        let silent = connections.admit(THERE.into()).unwrap();
        let _next = connections.admit(THERE.into()).unwrap();
        assert!(silent.connection.is_cut() && !caller.connection.is_cut());
    }

    #[tokio::test]
    async fn a_peer_whose_connections_are_all_at_work_gets_no_more_and_others_do() {
        let connections = connections(10, 2);
        let held: Vec<_> = (0..2).map(|_| connections.admit(HERE.into()).unwrap()).collect();
        let calls: Vec<_> = held.iter().map(|entry| entry.connection.enter()).collect();
        assert!(connections.admit(HERE.into()).is_none());
        assert!(connections.admit(THERE.into()).is_some());
        drop(calls);
        assert!(connections.admit(HERE.into()).is_some());
        drop(held);
        assert!(connections.lock().connections.is_empty() && connections.lock().peers.is_empty());
    }

    #[test]
    fn a_peer_is_an_address_or_a_network_of_version_6() {
        let peer = |text: &str| one_peer(text.parse().unwrap()).to_string();
        assert_eq!(peer("10.1.2.3"), "10.1.2.3");
        assert_eq!(peer("::ffff:10.1.2.3"), "10.1.2.3");
        assert_eq!(peer("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(peer("::1"), "::1");
    }
}
