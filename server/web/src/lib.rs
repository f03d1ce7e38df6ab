//! Pages for browsers: what a planner knows, to look at. Nothing can be changed from a page.
//!
//! ```text
//!  connections        guard                pages                 planner
//!  accepts, ───────► host, room, ───────► asks, fills ───────► the planner's services,
//!  limits, times      headers              a template            within this process
//!                                            │
//!                                          events ◄── looks for changes while anybody watches
//! ```
//!
//! Pages know the wire alone, as the command line does, and show what it shows: the tables and pictures are
//! `loadmaster_show`'s. They are whole without a script; the one script that there is asks again for parts of a page when
//! [`events`] say that something changed.

mod assets;
mod connections;
mod events;
mod guard;
mod http_error;
mod link;
mod pages;
mod planner;
mod rows;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use events::Events;
use planner::Planner;

/// What all pages work with.
#[derive(Debug, Clone)]
struct AppState {
    planner: Planner,
    events: Arc<Events>,
}

/// Serves pages about the planner that answers at `routes`, until `stop` is cancelled.
///
/// # Errors
/// When the listener has no address.
pub async fn serve(listener: TcpListener, routes: Routes, stop: CancellationToken) -> std::io::Result<()> {
    let address = listener.local_addr()?;
    let planner = Planner::new(routes);
    let events = Arc::new(Events::new(planner.clone(), stop.clone()));
    let router = guard::around(pages::router(AppState { planner, events }), address);
    connections::serve(listener, router, stop).await;
    Ok(())
}
