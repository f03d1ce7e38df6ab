//! Live updates as server-sent events: kinds of things that have changed. A page that shows such things reloads itself.
//!
//! One stream of the planner's `WatchChanges` serves all browsers, while one is connected. Every change has a number. A browser
//! that reconnects names the last number that it received, and gets the missed ones.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use loadmaster_proto::wire::v1;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::AppState;
use crate::Planner;
use crate::http_error::HttpError;

/// Where browsers listen.
pub(crate) const PATH: &str = "/events";
/// Browsers that listen at once: each holds a connection.
const LISTENERS: usize = 64;
/// The same of one address, behind which there may be many browsers.
const LISTENERS_PER_PEER: usize = LISTENERS / 2;
/// Time between two looks whether a browser listens, and between two streams.
const PAUSE: Duration = Duration::from_millis(250);
/// Longest time between two messages about changes that are one event.
const TOGETHER: Duration = Duration::from_millis(10);
/// Time between two signs of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Kinds of things that change.
const TOPICS: [&str; 7] = ["operations", "runs", "plans", "profiles", "workers", "reports", "placements"];

/// For each topic the number of its last change.
type Changes = [u64; TOPICS.len()];

/// What changed, and who listens.
#[derive(Debug)]
pub(crate) struct Events {
    changes: watch::Sender<Changes>,
    room: Arc<Semaphore>,
    /// Of this process: numbers of another one mean nothing.
    epoch: u32,
}

impl Events {
    /// Follows changes while a browser listens.
    pub(crate) fn new(planner: Planner, stop: CancellationToken) -> Self {
        let changes = watch::Sender::new(Changes::default());
        tokio::spawn(follow(planner, changes.clone(), stop));
        Self { changes, room: Arc::new(Semaphore::new(LISTENERS)), epoch: rand::random() }
    }

    /// The last change that a browser heard of: everything is news to one that was not here.
    fn heard(&self, id: Option<&str>) -> Option<u64> {
        let (epoch, number) = id?.split_once('-')?;
        (epoch.parse() == Ok(self.epoch)).then(|| number.parse().ok()).flatten()
    }
}

/// `GET /events`.
pub(crate) async fn listen(
    State(desk): State<AppState>,
    Extension(PeerListeners(peer)): Extension<PeerListeners>,
    headers: HeaderMap,
) -> Response {
    let events = Arc::clone(&desk.events);
    let places =
        peer.try_acquire_owned().and_then(|own| Ok((own, Arc::clone(&events.room).try_acquire_owned()?)));
    let Ok(places) = places else {
        let told = "too many pages receive updates: this page does not update itself";
        return HttpError::new(StatusCode::SERVICE_UNAVAILABLE, told).into_response();
    };
    let id = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let listener = Listener {
        heard: match id {
            // Its page may be older than this, and asks for itself again once it listens (`live.js`).
            None => Some(newest(&events.changes.borrow())),
            id => events.heard(id),
        },
        changes: events.changes.subscribe(),
        epoch: events.epoch,
        _places: places,
    };
    let stream = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok::<_, Infallible>(event), listener))
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE)).into_response()
}

/// A browser that listens.
struct Listener {
    /// The number of the last change that it knows of; none if it knows nothing.
    heard: Option<u64>,
    changes: watch::Receiver<Changes>,
    epoch: u32,
    _places: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

/// Places of the browsers of one address that listen.
#[derive(Debug, Clone)]
pub struct PeerListeners(Arc<Semaphore>);

impl Default for PeerListeners {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LISTENERS_PER_PEER)))
    }
}

impl Listener {
    async fn next(&mut self) -> Option<Event> {
        loop {
            let changes = *self.changes.borrow_and_update();
            let news = news(&changes, self.heard);
            self.heard = Some(newest(&changes));
            if !news.is_empty() {
                let id = format!("{}-{}", self.epoch, newest(&changes));
                return Some(Event::default().event("changed").id(id).data(news.join(" ")));
            }
            self.changes.changed().await.ok()?;
        }
    }
}

fn newest(changes: &Changes) -> u64 {
    changes.iter().copied().max().unwrap_or(0)
}

/// Topics that changed since.
fn news(changes: &Changes, heard: Option<u64>) -> Vec<&'static str> {
    let is_news = |&(_, number): &(&'static str, u64)| heard.is_none_or(|heard| number > heard);
    TOPICS.into_iter().zip(*changes).filter(is_news).map(|(topic, _)| topic).collect()
}

/// Follows the planner's changes while a browser listens.
async fn follow(planner: Planner, changes: watch::Sender<Changes>, stop: CancellationToken) {
    // The planner's number of each topic's last change.
    let mut seen = [None; TOPICS.len()];
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
        if changes.receiver_count() == 0 {
            continue;
        }
        let followed = tokio::select! {
            () = stop.cancelled() => return,
            followed = follow_once(&planner, &changes, &mut seen) => followed,
        };
        if let Err(status) = followed {
            tracing::debug!(%status, "cannot follow changes");
        }
    }
}

/// The same until the stream ends, or no browser listens any more.
async fn follow_once(
    planner: &Planner,
    changes: &watch::Sender<Changes>,
    seen: &mut [Option<i64>; TOPICS.len()],
) -> Result<(), Status> {
    let mut stream = planner.changes().await?;
    loop {
        let mut message = tokio::select! {
            message = stream.message() => message?,
            () = changes.closed() => return Ok(()),
        };
        if message.is_none() {
            return Ok(());
        }
        let mut changed = [false; TOPICS.len()];
        while let Some(v1::WatchChangesResponse { collection, change_number, .. }) = message {
            if let Some(index) = TOPICS.iter().position(|topic| *topic == collection) {
                changed[index] |= seen[index].replace(change_number) != Some(change_number);
            }
            // What changed together is one event.
            message = match tokio::time::timeout(TOGETHER, stream.message()).await {
                Ok(next) => next?,
                Err(_) => None,
            };
        }
        changes.send_if_modified(|changes| {
            let next = newest(changes) + 1;
            for (number, _) in changes.iter_mut().zip(changed).filter(|(_, changed)| *changed) {
                *number = next;
            }
            changed.contains(&true)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_of_one_address_leave_places_to_others() {
        let PeerListeners(places) = PeerListeners::default();
        let held: Vec<_> = (0..LISTENERS).map_while(|_| places.clone().try_acquire_owned().ok()).collect();
        assert_eq!(held.len(), LISTENERS_PER_PEER);
        const { assert!(LISTENERS_PER_PEER < LISTENERS) };
        drop(held);
        assert!(places.try_acquire().is_ok());
    }

    #[test]
    fn whoever_was_away_hears_what_he_missed() {
        let changes = [3, 7, 0, 7, 1, 2, 3];
        assert_eq!(news(&changes, Some(7)), Vec::<&str>::new());
        assert_eq!(news(&changes, Some(3)), ["runs", "profiles"]);
        assert_eq!(news(&changes, None), TOPICS);
        assert_eq!(newest(&changes), 7);
    }
}
