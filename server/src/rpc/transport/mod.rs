//! Connections and admission: every resource that a peer can occupy has a limit and a deadline.
//!
//! ```text
//!  listener      connections            serving         call
//!  accepts, ───► admits, counts, ─────► HTTP/2 on ────► receives the request, waits for a slot,
//!  rests when    ends what is idle,     one socket      calls the services, sends the response
//!  descriptors   silent or does                         piece by piece
//!  are short     not read
//! ```
//!
//! A call counts against the planner's capacity ([`gate`], [`share`]) only from the moment that its request is complete until its
//! response is. Half-sent calls and unread responses thus block no other caller. Unread responses count bytes ([`budget`]), and
//! end with their connection when the peer does not read them.
//!
//! Connections are served with hyper, not with tonic's `Server`. That has no limit on the bytes that it buffers for a peer that
//! does not read, closes no idle connection, and waits for a preface without end. Browsers, which see the pages, are admitted in the
//! same way ([`pages`]).

mod answer;
mod budget;
mod call;
mod connections;
mod gate;
mod listener;
mod methods;
mod pages;
mod receive;
mod refusal;
mod serving;
mod share;
pub(super) mod timeout;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::service::Routes;

use call::Calls;
use connections::Connections;

pub(super) use methods::Methods;
pub(crate) use pages::serve as serve_pages;
pub(super) use share::{SHORT_SEARCHES, SearchShare, StreamTerms, searches};

/// What callers may take up.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most calls answered at once.
    pub calls: usize,
    /// Most connections.
    pub connections: usize,
    /// Most connections from one address.
    pub connections_per_peer: usize,
    /// A connection without an open call is closed after this time.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { calls: 256, connections: 4_096, connections_per_peer: 1_024, idle: Duration::from_secs(300) }
    }
}

/// Serves `routes` until `stop` is cancelled and open calls have ended.
pub(super) async fn serve(
    listener: TcpListener,
    routes: Routes,
    methods: Methods,
    limits: Limits,
    pages: Option<SocketAddr>,
    stop: CancellationToken,
) {
    let connections = Connections::new(limits);
    let calls = Arc::new(Calls::new(routes, methods, limits.calls, pages));
    let tasks = TaskTracker::new();
    let sweeper = tokio::spawn(connections.clone().sweep());
    loop {
        let (stream, peer) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener::accept(&listener) => accepted,
        };
        // No one waits at a door that is full: who is refused learns it at once.
        let Some(entry) = connections.admit(peer.ip()) else { continue };
        tasks.spawn(serving::serve(stream, entry, Arc::clone(&calls), stop.clone()));
    }
    // New callers are refused by the kernel, not left waiting.
    drop(listener);
    tasks.close();
    tasks.wait().await;
    sweeper.abort();
}
