//! A search beside the calls: how long it may take, and how many there may be at once.
//!
//! | slots | how many | of one peer | of one connection | for how long |
//! |---|---|---|---|---|
//! | long | as many as cores, at least 2 | three quarters | | until the search ends |
//! | short | [`SHORT_SEARCHES`] | all but one | two | [`SHORT`] |
//!
//! A search takes a long slot where one is free, else a short one, on which it waits for a long one while it runs. A small search
//! is over by then. So it is served whatever others search, and one peer alone never has all slots of a kind.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use loadmaster_search::progress::Snapshot;
use loadmaster_search::{Progress, Stop};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Request;

use crate::background::{BackgroundThreads, NICEST};
use crate::rpc::blocking::{EndsWithCall, blocking_on};
use crate::rpc::error::ApiError;
use crate::rpc::limits::{MAX_LONG_SEARCH_TIME, MAX_SEARCH_TIME};
use crate::rpc::transport::{SHORT_SEARCHES, SearchShare, searches, timeout};
use crate::store::records::SearchPhase;

/// How long a search waits for a slot.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// How long a search may run on a short slot: most searches end within some milliseconds.
const SHORT: Duration = Duration::from_secs(1);

/// Share of a call's time that is left for everything but the search.
const ANSWERING: f64 = 0.1;

/// Searches that may run at once: each takes a core.
#[derive(Debug, Clone)]
pub(in crate::rpc) struct Searches {
    long: Arc<Semaphore>,
    short: Arc<Semaphore>,
    /// Searches that are operations.
    operations: Arc<Semaphore>,
    threads: BackgroundThreads,
    /// How long a search may run on a short slot.
    time: Duration,
    /// The share of callers whose requests carry none.
    within: SearchShare,
}

impl Default for Searches {
    fn default() -> Self {
        Self::new(searches(), SHORT_SEARCHES, SHORT)
    }
}

/// The slots that a search takes: those of the planner and of its caller's shares.
type Slots = Vec<OwnedSemaphorePermit>;

/// The slots that a search begins on.
enum Granted {
    Long(Slots),
    Short(Slots),
}

impl Searches {
    fn new(long: usize, short: usize, time: Duration) -> Self {
        Self {
            long: Arc::new(Semaphore::new(long)),
            short: Arc::new(Semaphore::new(short)),
            operations: Arc::new(Semaphore::new(long + short)),
            threads: BackgroundThreads::new(long + short, NICEST),
            time,
            within: SearchShare::default(),
        }
    }

    /// Runs a search, and stops it when its time is up or its caller is gone; the seconds that it took come with
    /// its answer.
    ///
    /// # Errors
    /// Those of the search, and [`ApiError::TooManySearches`] where no slot becomes free in time.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        terms: &SearchTerms,
        limit: Duration,
        search: impl FnOnce(&Stop) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(T, f64), ApiError> {
        let share = terms.share.as_ref().unwrap_or(&self.within);
        let (slots, is_short) = match self.granted(share).await? {
            Granted::Long(slots) => (slots, false),
            Granted::Short(slots) => (slots, true),
        };
        // Held to the end of the search, which may be later than the end of its call.
        let held = Arc::new(Mutex::new(slots));
        let stop = Stop::reporting(terms.found.clone());
        let ends = EndsWithCall(stop.clone());
        let began = Instant::now();
        let of_search = Arc::clone(&held);
        terms.enter(SearchPhase::Searching);
        let phase = Arc::clone(&terms.phase);
        let work = blocking_on(&self.threads, "planning failed", move || {
            let _held = of_search;
            let found = search(&stop);
            set(&phase, SearchPhase::Storing);
            found
        });
        let mut work = pin!(work);
        if is_short && limit > self.time {
            let long = self.long_slots(share);
            tokio::select! {
                answer = &mut work => return Ok((answer?, began.elapsed().as_secs_f64())),
                slots = tokio::time::timeout(self.time, take(&long)) => match slots {
                    Ok(slots) => *held.lock().unwrap_or_else(PoisonError::into_inner) = slots?,
                    Err(_) => return Err(ApiError::TooManySearches),
                },
            }
        }
        let answer = tokio::select! {
            answer = &mut work => answer,
            () = tokio::time::sleep(limit.saturating_sub(began.elapsed())) => {
                ends.0.request();
                work.await
            }
        };
        Ok((answer?, began.elapsed().as_secs_f64()))
    }

    /// Room for one more operation: each keeps its request, and waits for a slot of those that all searches have.
    pub(super) fn operation_slot(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(&self.operations).try_acquire_owned().map_err(|_| ApiError::TooManySearches)
    }

    /// A caller's shares of the slots come first, so that it keeps no slot from others while it waits for its own searches.
    fn long_slots<'a>(&'a self, share: &'a SearchShare) -> [&'a Arc<Semaphore>; 2] {
        [&share.long, &self.long]
    }

    fn short_slots<'a>(&'a self, share: &'a SearchShare) -> [&'a Arc<Semaphore>; 3] {
        let [connection, peer] = &share.short;
        [connection, peer, &self.short]
    }

    /// A long slot or else a short one, now or as soon as one is free.
    async fn granted(&self, share: &SearchShare) -> Result<Granted, ApiError> {
        if let Some(slots) = take_now(&self.long_slots(share)) {
            return Ok(Granted::Long(slots));
        }
        if let Some(slots) = take_now(&self.short_slots(share)) {
            return Ok(Granted::Short(slots));
        }
        let (long, short) = (self.long_slots(share), self.short_slots(share));
        tokio::select! {
            slots = take(&long) => Ok(Granted::Long(slots?)),
            slots = take(&short) => Ok(Granted::Short(slots?)),
            () = tokio::time::sleep(MAX_WAIT) => Err(ApiError::TooManySearches),
        }
    }
}

/// A permit of each, in this order.
async fn take(of: &[&Arc<Semaphore>]) -> Result<Slots, ApiError> {
    let mut slots = Vec::with_capacity(of.len());
    for semaphore in of {
        slots.push(Arc::clone(semaphore).acquire_owned().await.map_err(|_| ApiError::Stopping)?);
    }
    Ok(slots)
}

/// The same where no one has to wait.
fn take_now(of: &[&Arc<Semaphore>]) -> Option<Slots> {
    of.iter().map(|&semaphore| Arc::clone(semaphore).try_acquire_owned().ok()).collect()
}

/// What a call grants its searches: its caller's share of the slots, and its time.
#[derive(Debug, Clone)]
pub(super) struct SearchTerms {
    /// None of calls within the process.
    share: Option<SearchShare>,
    /// None where the call has no limit.
    call: Option<Duration>,
    /// Longest search that may be asked for.
    pub(super) longest: Duration,
    /// What its search has found so far.
    found: Progress,
    phase: Arc<Mutex<SearchPhase>>,
}

/// How far a search is.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchProgress {
    pub(super) phase: SearchPhase,
    pub(super) found: Snapshot,
}

fn set(phase: &Mutex<SearchPhase>, to: SearchPhase) {
    *phase.lock().unwrap_or_else(PoisonError::into_inner) = to;
}

impl SearchTerms {
    /// The terms of a call.
    pub(super) fn of<T>(request: &Request<T>) -> Self {
        let header = request.metadata().get(timeout::HEADER);
        let call = header.and_then(|value| timeout::parse(value.to_str().ok()?));
        Self::within(request.extensions().get::<SearchShare>().cloned(), call, MAX_SEARCH_TIME)
    }

    fn within(share: Option<SearchShare>, call: Option<Duration>, longest: Duration) -> Self {
        Self { share, call, longest, found: Progress::default(), phase: Arc::default() }
    }

    /// The same for a search that goes on after the call.
    pub(super) fn of_operation(self) -> Self {
        Self::within(self.share, None, MAX_LONG_SEARCH_TIME)
    }

    /// How far its search is.
    pub(super) fn progress(&self) -> SearchProgress {
        let phase = *self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        SearchProgress { phase, found: self.found.snapshot() }
    }

    fn enter(&self, phase: SearchPhase) {
        set(&self.phase, phase);
    }

    /// How long a search may take: as long as the request says, and no longer than its call lets it.
    pub(super) fn limit(&self, seconds: f64) -> Duration {
        let asked = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        self.call.map_or(asked, |call| asked.min(call.mul_f64(1.0 - ANSWERING)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::task::JoinHandle;

    use super::*;

    /// The shorter of the two, with some time left to answer.
    #[test]
    fn a_search_ends_before_its_call_does() {
        let mut request = Request::new(());
        assert_eq!(SearchTerms::of(&request).limit(10.0), Duration::from_secs(10));
        request.metadata_mut().insert("grpc-timeout", "5S".parse().unwrap());
        assert_eq!(SearchTerms::of(&request).limit(10.0), Duration::from_millis(4_500));
        assert_eq!(SearchTerms::of(&request).limit(1.0), Duration::from_secs(1));
    }

    const LONG: Duration = Duration::from_secs(1_000);

    fn of(share: &SearchShare) -> SearchTerms {
        SearchTerms::within(Some(share.clone()), None, LONG)
    }

    /// A search that goes on until it is stopped; its slots are taken once this returns.
    async fn endless(searches: &Searches, share: &SearchShare) -> JoinHandle<Result<((), f64), ApiError>> {
        let (searches, terms) = (searches.clone(), of(share));
        let (begin, begun) = mpsc::channel();
        let search = move |stop: &Stop| {
            begin.send(()).unwrap();
            while !stop.is_requested() {
                std::thread::sleep(Duration::from_millis(2));
            }
            Ok(())
        };
        let call = tokio::spawn(async move { searches.run(&terms, LONG, search).await });
        tokio::task::spawn_blocking(move || begun.recv().unwrap()).await.unwrap();
        call
    }

    /// Whether a small search is answered.
    async fn is_served(searches: &Searches, share: &SearchShare) -> bool {
        searches.run(&of(share), LONG, |_| Ok(())).await.is_ok()
    }

    /// However many searches of one peer want all of their time, others have slots, long ones too, and so have its own small ones.
    #[tokio::test(flavor = "multi_thread")]
    async fn long_searches_of_one_peer_keep_nobody_out() {
        let (searches, greedy, other) = (Searches::default(), SearchShare::default(), SearchShare::default());
        let share = greedy.long.available_permits();
        let mut calls = Vec::new();
        for _ in 0..share {
            calls.push(endless(&searches, &greedy).await);
        }
        assert_eq!(greedy.long.available_permits(), 0);
        assert!(is_served(&searches, &greedy).await, "a small search of the same peer");
        let too_many = endless(&searches, &greedy).await;
        assert!(is_served(&searches, &other).await, "a small search of another peer");
        let long = endless(&searches, &other).await;
        assert!(matches!(too_many.await.unwrap(), Err(ApiError::TooManySearches)), "its share is taken");
        assert!(!long.is_finished(), "a long search of another peer goes on");
        long.abort();
        calls.iter().for_each(JoinHandle::abort);
        while searches.long.available_permits() < super::searches() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(searches.short.available_permits(), SHORT_SEARCHES);
    }

    /// A search on a short slot goes on where a long one becomes free, and gives the short one back.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_search_moves_to_a_long_slot() {
        let (searches, share) = (Searches::new(1, 1, LONG / 2), SearchShare::default());
        let first = endless(&searches, &share).await;
        let second = endless(&searches, &share).await;
        assert_eq!(searches.short.available_permits(), 0);
        first.abort();
        while searches.short.available_permits() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert!(!second.is_finished());
        second.abort();
    }
}
