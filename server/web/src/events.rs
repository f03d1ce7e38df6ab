//! Live updates as server-sent events: kinds of things that have changed. A page that shows such things reloads itself.
//!
//! One look at the planner serves all browsers: every 0.25 s while one is connected, less often where looks take long, and never
//! while none is. Every change has a number. A browser that reconnects names the last number that it received, and gets the
//! missed ones.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use loadmaster_proto::wire::longrunning::ListOperationsRequest;
use loadmaster_proto::wire::v1;
use prost::Message;
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
/// Time from one look to the next. After one that took long there is none for as long again, up to [`REST`]: others use the planner, too.
const LOOK: Duration = Duration::from_millis(250);
/// Longest time without a look.
const REST: Duration = Duration::from_secs(2);
/// Time between two signs of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Rows of a list that are looked at: the newest, and those that are at work. What else becomes of older ones, a label for example,
/// is no news; pages that are looked at ask again from time to time by themselves (`live.js`).
const ROWS: i32 = 50;

/// Kinds of things that change.
const TOPICS: [&str; 7] = ["operations", "runs", "plans", "profiles", "workers", "observations", "bindings"];

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
    /// Begins to look for changes, while anybody listens.
    pub(crate) fn new(planner: Planner, stop: CancellationToken) -> Self {
        let changes = watch::Sender::new(Changes::default());
        tokio::spawn(watch_planner(planner, changes.clone(), stop));
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
        let told = "too many browsers listen: this page does not update itself";
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

/// Looks at the planner while anybody listens, and notes what is not as it was.
async fn watch_planner(planner: Planner, changes: watch::Sender<Changes>, stop: CancellationToken) {
    let mut seen: Option<[u64; TOPICS.len()]> = None;
    let mut pause = LOOK;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        if changes.receiver_count() == 0 {
            (seen, pause) = (None, LOOK);
            continue;
        }
        let begin = Instant::now();
        let looked = tokio::select! {
            () = stop.cancelled() => return,
            looked = look(&planner) => looked,
        };
        let took = begin.elapsed();
        pause = LOOK.saturating_sub(took).max(took.min(REST));
        let now = match looked {
            Ok(now) => now,
            Err(status) => {
                tracing::debug!(%status, "cannot look for changes");
                continue;
            }
        };
        // Who began to listen between two looks may have missed something: the first look is news to everybody.
        changes.send_if_modified(|changes| {
            let next = newest(changes) + 1;
            let mut is_changed = false;
            for (index, digest) in now.iter().enumerate() {
                if seen.is_none_or(|seen| seen[index] != *digest) {
                    changes[index] = next;
                    is_changed = true;
                }
            }
            is_changed
        });
        seen = Some(now);
    }
}

/// What there is to see now, a number for each topic. All are asked for at once: who waits for one of them waits for the slowest alone.
async fn look(planner: &Planner) -> Result<[u64; TOPICS.len()], Status> {
    let (operations, runs, plans, profiles, workers, observations, bindings) = tokio::try_join!(
        look_at_operations(planner),
        look_at_runs(planner),
        look_at_plans(planner),
        look_at_profiles(planner),
        look_at_workers(planner),
        look_at_observations(planner),
        look_at_bindings(planner),
    )?;
    Ok([operations, runs, plans, profiles, workers, observations, bindings])
}

async fn look_at_operations(planner: &Planner) -> Result<u64, Status> {
    let newest = ListOperationsRequest {
        name: "operations".to_owned(),
        page_size: ROWS,
        ..ListOperationsRequest::default()
    };
    let running = ListOperationsRequest { filter: "done = false".to_owned(), ..newest.clone() };
    let (newest, running) = tokio::try_join!(planner.call(newest), planner.call(running))?;
    Ok(digest(&[&newest.encode_to_vec(), &running.encode_to_vec()]))
}

async fn look_at_runs(planner: &Planner) -> Result<u64, Status> {
    let newest = v1::ListRunsRequest { page_size: ROWS, ..Default::default() };
    let held = v1::ListRunsRequest { state: v1::run::State::Running.into(), ..newest.clone() };
    let (newest, held) = tokio::try_join!(planner.call(newest), planner.call(held))?;
    Ok(digest(&[&newest.encode_to_vec(), &held.encode_to_vec()]))
}

async fn look_at_plans(planner: &Planner) -> Result<u64, Status> {
    let plans = v1::ListPlansRequest { page_size: ROWS, ..Default::default() };
    let mut plans = planner.call(plans).await?;
    let labels = sorted(plans.plans.iter_mut().map(|plan| &mut plan.labels));
    Ok(digest(&[&plans.encode_to_vec(), labels.as_bytes()]))
}

async fn look_at_profiles(planner: &Planner) -> Result<u64, Status> {
    let profiles = v1::ListProfilesRequest { page_size: ROWS, ..Default::default() };
    let mut profiles = planner.call(profiles).await?;
    let labels = sorted(profiles.profiles.iter_mut().map(|profile| &mut profile.labels));
    Ok(digest(&[&profiles.encode_to_vec(), labels.as_bytes()]))
}

async fn look_at_workers(planner: &Planner) -> Result<u64, Status> {
    let workers = v1::ListWorkersRequest { page_size: 1_000, ..Default::default() };
    let mut workers = planner.call(workers).await?;
    // That a worker is there is no news.
    workers.workers.iter_mut().for_each(|worker| worker.heartbeat_time = None);
    Ok(digest(&[&workers.encode_to_vec()]))
}

async fn look_at_observations(planner: &Planner) -> Result<u64, Status> {
    let observations =
        v1::ListReportsRequest { parent: "plans/-".to_owned(), page_size: ROWS, ..Default::default() };
    let observations = planner.call(observations).await?;
    Ok(digest(&[&observations.encode_to_vec()]))
}

async fn look_at_bindings(planner: &Planner) -> Result<u64, Status> {
    let bindings = v1::ListPlacementsRequest { page_size: ROWS, ..Default::default() };
    let bindings = planner.call(bindings).await?;
    Ok(digest(&[&bindings.encode_to_vec()]))
}

/// Labels taken out, in an order: messages write them in any.
fn sorted<'a>(labels: impl Iterator<Item = &'a mut HashMap<String, String>>) -> String {
    let taken = labels.map(|of| std::mem::take(of).into_iter().collect::<BTreeMap<_, _>>());
    format!("{:?}", taken.collect::<Vec<_>>())
}

fn digest(of: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
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
