//! Pages for browsers: what a planner knows, to look at. Nothing can be changed from a page.
//!
//! ```text
//!  guard                pages                 planner
//!  host, room, ───────► asks, fills ───────► the planner's services,
//!  headers              a template            within this process
//!                         │
//!                       events ◄── follows changes while anybody watches
//! ```
//!
//! Pages know the wire alone, as the command line does, and show what it shows: the tables and pictures are
//! `loadmaster_show`'s. They are whole without a script; the one script that there is asks again for parts of a page when
//! [`events`] say that something changed.

mod events;
mod guard;
mod http_error;
mod link;
mod pages;
mod rows;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use loadmaster_proto::wire::call::{self, UnaryRequest};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::history_service_client::HistoryServiceClient;
use loadmaster_show::picture::html;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

use events::Events;
pub use events::PeerListeners;

/// What all pages work with.
#[derive(Debug, Clone)]
struct AppState {
    planner: Planner,
    events: Arc<Events>,
}

/// Pages about the planner that answers at `routes`, for browsers that reach them at `address`; events end when `stop` is
/// cancelled. Every request needs the [`PeerListeners`] of its address as an extension.
pub fn router(routes: Routes, address: SocketAddr, stop: CancellationToken) -> Router {
    let planner = Planner::new(routes);
    let events = Arc::new(Events::new(planner.clone(), stop));
    guard::around(pages::router(AppState { planner, events }), address)
}

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The services of a planner.
#[derive(Clone)]
pub(crate) struct Planner {
    routes: Routes,
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner").finish_non_exhaustive()
    }
}

impl Planner {
    pub(crate) fn new(routes: Routes) -> Self {
        Self { routes }
    }

    /// What a request is answered with, unless that takes too long.
    pub(crate) async fn call<R: UnaryRequest>(&self, request: R) -> Result<R::Answer, Status> {
        match tokio::time::timeout(PATIENCE, call::call(self.routes.clone(), Request::new(request))).await {
            Ok(answered) => answered.map(Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded("the planner did not respond in time: reload the page")),
        }
    }
}

impl Planner {
    /// The planner's changes, of all collections.
    pub(crate) async fn changes(&self) -> Result<Streaming<v1::WatchChangesResponse>, Status> {
        let mut history = HistoryServiceClient::new(self.routes.clone());
        Ok(history.watch_changes(v1::WatchChangesRequest::default()).await?.into_inner())
    }
}

const STYLE: &str = include_str!("../assets/style.css");
const SCRIPT: &str = include_str!("../assets/live.js");
const ICON: &str = include_str!("../assets/icon.svg");

/// The version in their addresses changes with every release.
const CACHED: &str = "public, max-age=86400";

pub(crate) async fn style() -> impl IntoResponse {
    static RULES: OnceLock<String> = OnceLock::new();
    let rules = RULES.get_or_init(|| format!("{}{STYLE}", html::rules()));
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, CACHED)], rules.as_str())
}

pub(crate) async fn icon() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "image/svg+xml"), (header::CACHE_CONTROL, CACHED)], ICON)
}

pub(crate) async fn script() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8"), (header::CACHE_CONTROL, CACHED)], SCRIPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is read by whoever wants to know what a page does.
    #[test]
    fn the_script_is_short() {
        assert!(SCRIPT.lines().count() <= 150);
    }
}
