//! Changes of collections, for `WatchChanges` and for the pages.
//!
//! One look at the planner's own lists serves all streams: every 0.25 s while one is open, less often if looks take long, and
//! never while none is. Each change gets a number from the clock, so that numbers increase over restarts too.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use jiff::Timestamp;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::wire::call::{self, UnaryRequest};
use loadmaster_proto::wire::longrunning::ListOperationsRequest;
use loadmaster_proto::wire::v1;
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Status};

use super::error::ApiError;
use super::limits::{MAX_CHANGE_STREAMS, MAX_STREAM_TIME};
use super::messages::time;
use super::transport::StreamTerms;

/// Collections whose changes are reported.
const COLLECTIONS: [&str; 7] =
    ["operations", "runs", "plans", "profiles", "workers", "reports", "placements"];
/// Time between two looks. After a look that took longer there is none for as long again, up to [`REST`].
const LOOK: Duration = Duration::from_millis(250);
/// Longest time without a look.
const REST: Duration = Duration::from_secs(2);
/// Longest wait for one list.
const PATIENCE: Duration = Duration::from_secs(20);
/// Shortest time between two messages of a stream about one collection.
const PERIOD: Duration = Duration::from_secs(1);
/// Rows of a list that are compared: the newest, and those in progress.
const ROWS: i32 = 50;

/// A number for each collection: the hash of its compared rows.
type Digests = [u64; COLLECTIONS.len()];

/// The newest change of a collection.
#[derive(Debug, Clone, Copy)]
struct Change {
    number: i64,
    time: Timestamp,
}

/// For each collection its newest change; none before the first look.
type Newest = [Option<Change>; COLLECTIONS.len()];

/// The newest changes. Clones share everything.
#[derive(Debug, Clone)]
pub(super) struct Changes {
    newest: watch::Sender<Newest>,
    streams: Arc<Semaphore>,
    stopping: CancellationToken,
}

/// The stream of one caller.
pub(super) type ChangeStream = Pin<Box<dyn Stream<Item = Result<v1::WatchChangesResponse, Status>> + Send>>;

impl Changes {
    /// Compares the lists of these services while a stream is open, until `stopping`.
    pub(super) fn new(lists: Routes, stopping: CancellationToken) -> Self {
        let newest = watch::Sender::new([None; COLLECTIONS.len()]);
        tokio::spawn(compare(lists, newest.clone(), stopping.clone()));
        Self { newest, streams: Arc::new(Semaphore::new(MAX_CHANGE_STREAMS)), stopping }
    }

    /// A stream of the changes of these collections; all of them if none is named. Calls within the process have no terms.
    ///
    /// # Errors
    /// An unknown collection, or too many open streams.
    pub(super) fn stream(
        &self,
        collections: &[String],
        terms: Option<&StreamTerms>,
    ) -> Result<ChangeStream, ApiError> {
        let wanted = wanted(collections)?;
        let (slots, until) = match terms {
            Some(terms) => (terms.slots().ok_or(ApiError::TooManyStreams)?, terms.until),
            None => (Vec::new(), Instant::now() + MAX_STREAM_TIME),
        };
        self.open(wanted, slots, until)
    }

    /// The same with these slots, until then.
    fn open(
        &self,
        wanted: Vec<usize>,
        mut slots: Vec<OwnedSemaphorePermit>,
        until: Instant,
    ) -> Result<ChangeStream, ApiError> {
        slots.push(Arc::clone(&self.streams).try_acquire_owned().map_err(|_| ApiError::TooManyStreams)?);
        let watcher = Watcher {
            newest: self.newest.subscribe(),
            wanted,
            sent: [None; COLLECTIONS.len()],
            until,
            stopping: self.stopping.clone(),
            has_ended: false,
            _slots: slots,
        };
        Ok(Box::pin(stream::unfold(watcher, |mut watcher| async move {
            let response = watcher.next().await?;
            Some((response, watcher))
        })))
    }
}

/// The positions of these collections, each once; of all if none is named.
fn wanted(collections: &[String]) -> Result<Vec<usize>, Invalid> {
    if collections.is_empty() {
        return Ok((0..COLLECTIONS.len()).collect());
    }
    let position = |(index, name): (usize, &String)| {
        COLLECTIONS.iter().position(|known| known == name).ok_or_else(|| {
            let why =
                format!("{name:?} is not a collection with changes. Use one of {}.", COLLECTIONS.join(", "));
            Invalid::field(format!("collections[{index}]"), why)
        })
    };
    let mut wanted: Vec<usize> = collections.iter().enumerate().map(position).collect::<Result<_, _>>()?;
    wanted.sort_unstable();
    wanted.dedup();
    Ok(wanted)
}

/// The state of one stream.
struct Watcher {
    newest: watch::Receiver<Newest>,
    wanted: Vec<usize>,
    /// For each collection the number and the time of the last message.
    sent: [Option<(i64, Instant)>; COLLECTIONS.len()],
    until: Instant,
    stopping: CancellationToken,
    has_ended: bool,
    _slots: Vec<OwnedSemaphorePermit>,
}

impl Watcher {
    /// The next message; none at the end of the stream.
    async fn next(&mut self) -> Option<Result<v1::WatchChangesResponse, Status>> {
        if self.has_ended {
            return None;
        }
        loop {
            let newest = *self.newest.borrow_and_update();
            let now = Instant::now();
            let mut due = self.until;
            for &index in &self.wanted {
                let Some(change) = newest[index] else { continue };
                match self.sent[index] {
                    Some((number, _)) if number == change.number => {}
                    Some((_, sent)) if now < sent + PERIOD => due = due.min(sent + PERIOD),
                    _ => {
                        self.sent[index] = Some((change.number, now));
                        return Some(Ok(v1::WatchChangesResponse {
                            collection: COLLECTIONS[index].to_owned(),
                            change_number: change.number,
                            change_time: Some(time(change.time)),
                        }));
                    }
                }
            }
            if now >= self.until {
                return None;
            }
            tokio::select! {
                () = self.stopping.cancelled() => {
                    self.has_ended = true;
                    return Some(Err(ApiError::Stopping.into()));
                }
                () = tokio::time::sleep_until(due) => {}
                changed = self.newest.changed() => changed.ok()?,
            }
        }
    }
}

/// A change now, with a number above `number`.
fn change_after(number: i64) -> Change {
    let time = Timestamp::now();
    Change { number: time.as_millisecond().max(number.saturating_add(1)), time }
}

/// Compares the lists while a stream is open, and notes the collections that differ.
async fn compare(lists: Routes, newest: watch::Sender<Newest>, stopping: CancellationToken) {
    let mut seen: Option<Digests> = None;
    let mut pause = LOOK;
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        if newest.receiver_count() == 0 {
            pause = LOOK;
            continue;
        }
        let begin = Instant::now();
        let looked = tokio::select! {
            () = stopping.cancelled() => return,
            looked = look(&lists) => looked,
        };
        let took = begin.elapsed();
        pause = LOOK.saturating_sub(took).max(took.min(REST));
        let now = match looked {
            Ok(now) => now,
            Err(status) => {
                tracing::debug!(%status, "could not compare the lists of resources");
                continue;
            }
        };
        newest.send_if_modified(|newest| {
            let last = newest.iter().flatten().map(|change| change.number).max().unwrap_or(0);
            let change = change_after(last);
            let mut is_changed = false;
            for (index, digest) in now.iter().enumerate() {
                if seen.is_none_or(|seen| seen[index] != *digest) {
                    newest[index] = Some(change);
                    is_changed = true;
                }
            }
            is_changed
        });
        seen = Some(now);
    }
}

/// The digest of each collection. All lists are requested at once.
async fn look(lists: &Routes) -> Result<Digests, Status> {
    let (operations, runs, plans, profiles, workers, reports, placements) = tokio::try_join!(
        operations(lists),
        runs(lists),
        plans(lists),
        profiles(lists),
        workers(lists),
        reports(lists),
        placements(lists),
    )?;
    Ok([operations, runs, plans, profiles, workers, reports, placements])
}

async fn list<R: UnaryRequest>(lists: &Routes, request: R) -> Result<R::Answer, Status> {
    match tokio::time::timeout(PATIENCE, call::call(lists.clone(), Request::new(request))).await {
        Ok(listed) => listed.map(tonic::Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded("a list of resources took too long")),
    }
}

async fn operations(lists: &Routes) -> Result<u64, Status> {
    let newest = ListOperationsRequest {
        name: "operations".to_owned(),
        page_size: ROWS,
        ..ListOperationsRequest::default()
    };
    let running = ListOperationsRequest { filter: "done = false".to_owned(), ..newest.clone() };
    let (newest, running) = tokio::try_join!(list(lists, newest), list(lists, running))?;
    Ok(digest(&[&newest.encode_to_vec(), &running.encode_to_vec()]))
}

async fn runs(lists: &Routes) -> Result<u64, Status> {
    let newest = v1::ListRunsRequest { page_size: ROWS, ..Default::default() };
    let held = v1::ListRunsRequest { state: v1::run::State::Running.into(), ..newest.clone() };
    let (newest, held) = tokio::try_join!(list(lists, newest), list(lists, held))?;
    Ok(digest(&[&newest.encode_to_vec(), &held.encode_to_vec()]))
}

async fn plans(lists: &Routes) -> Result<u64, Status> {
    let plans = v1::ListPlansRequest { page_size: ROWS, ..Default::default() };
    let mut plans = list(lists, plans).await?;
    let labels = sorted(plans.plans.iter_mut().map(|plan| &mut plan.labels));
    Ok(digest(&[&plans.encode_to_vec(), labels.as_bytes()]))
}

async fn profiles(lists: &Routes) -> Result<u64, Status> {
    let profiles = v1::ListProfilesRequest { page_size: ROWS, ..Default::default() };
    let mut profiles = list(lists, profiles).await?;
    let labels = sorted(profiles.profiles.iter_mut().map(|profile| &mut profile.labels));
    Ok(digest(&[&profiles.encode_to_vec(), labels.as_bytes()]))
}

async fn workers(lists: &Routes) -> Result<u64, Status> {
    let workers = v1::ListWorkersRequest { page_size: 1_000, ..Default::default() };
    let mut workers = list(lists, workers).await?;
    // A heartbeat alone is not a change.
    workers.workers.iter_mut().for_each(|worker| worker.heartbeat_time = None);
    Ok(digest(&[&workers.encode_to_vec()]))
}

async fn reports(lists: &Routes) -> Result<u64, Status> {
    let reports =
        v1::ListReportsRequest { parent: "plans/-".to_owned(), page_size: ROWS, ..Default::default() };
    Ok(digest(&[&list(lists, reports).await?.encode_to_vec()]))
}

async fn placements(lists: &Routes) -> Result<u64, Status> {
    let placements = v1::ListPlacementsRequest { page_size: ROWS, ..Default::default() };
    Ok(digest(&[&list(lists, placements).await?.encode_to_vec()]))
}

/// Labels taken out, in an order: messages contain them in any order.
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
    use futures_util::StreamExt as _;

    use super::*;

    fn changes() -> Changes {
        Changes {
            newest: watch::Sender::new([None; COLLECTIONS.len()]),
            streams: Arc::new(Semaphore::new(2)),
            stopping: CancellationToken::new(),
        }
    }

    fn change(number: i64) -> Change {
        Change { number, time: Timestamp::UNIX_EPOCH }
    }

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|&name| name.to_owned()).collect()
    }

    async fn next(stream: &mut ChangeStream) -> Option<(String, i64)> {
        let response = tokio::time::timeout(Duration::from_millis(100), stream.next()).await.ok()??.unwrap();
        Some((response.collection, response.change_number))
    }

    /// Each collection at once, then each change, and no more than one a second for a collection.
    #[tokio::test]
    async fn a_stream_begins_with_all_collections_and_goes_on_with_changes() {
        let changes = changes();
        let mut stream = changes.stream(&names(&["plans", "runs", "plans"]), None).unwrap();
        assert_eq!(next(&mut stream).await, None, "before the first look");
        changes.newest.send_replace([Some(change(1)); COLLECTIONS.len()]);
        assert_eq!(next(&mut stream).await, Some(("runs".to_owned(), 1)));
        assert_eq!(next(&mut stream).await, Some(("plans".to_owned(), 1)));
        assert_eq!(next(&mut stream).await, None);
        let note = |number: i64| changes.newest.send_modify(|newest| newest[2] = Some(change(number)));
        note(5);
        assert_eq!(next(&mut stream).await, None, "within a second");
        tokio::time::sleep(PERIOD).await;
        note(7);
        assert_eq!(next(&mut stream).await, Some(("plans".to_owned(), 7)), "the newest alone");
        changes.stopping.cancel();
        let ended = stream.next().await.unwrap().unwrap_err();
        assert_eq!(ended.code(), tonic::Code::Unavailable);
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn streams_end_in_time_and_are_few() {
        let changes = changes();
        let first = changes.stream(&[], None).unwrap();
        let until = Instant::now() + Duration::from_millis(50);
        let mut second = changes.open(wanted(&[]).unwrap(), Vec::new(), until).unwrap();
        assert!(matches!(changes.stream(&[], None), Err(ApiError::TooManyStreams)));
        drop(first);
        assert!(changes.stream(&[], None).is_ok());
        assert!(second.next().await.is_none(), "the time is up");
        let unknown = changes.stream(&names(&["plans", "trains"]), None).map(drop).unwrap_err();
        assert!(unknown.to_string().contains("\"trains\" is not a collection"), "{unknown}");
    }

    #[test]
    fn numbers_increase() {
        let now = change_after(0);
        assert!(now.number > 1_600_000_000_000 && change_after(i64::MAX - 1).number == i64::MAX);
        assert!(change_after(now.number + 10).number > now.number + 10);
    }
}
