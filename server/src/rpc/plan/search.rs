//! A search beside the calls: how long it may take, and how many there may be at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use loadmaster_planning::search::Stop;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::metadata::MetadataMap;

use crate::rpc::blocking::{EndsWithCall, blocking_on};
use crate::rpc::error::ApiError;
use crate::rpc::transport::timeout;
use crate::slow::{NICEST, SlowThreads, cores};

/// How long a search waits for another one to end.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Share of a call's time that is left for everything but the search.
const ANSWERING: f64 = 0.1;

/// Searches that may run at once: each takes a core.
#[derive(Debug, Clone)]
pub(in crate::rpc) struct Searches {
    turns: Arc<Semaphore>,
    threads: SlowThreads,
}

impl Default for Searches {
    fn default() -> Self {
        let cores = cores();
        Self { turns: Arc::new(Semaphore::new(cores)), threads: SlowThreads::new(cores, NICEST) }
    }
}

impl Searches {
    /// Runs a search, and stops it when its time is up or its caller is gone; the seconds that it took come with
    /// its answer.
    ///
    /// # Errors
    /// Those of the search, and when too many others run.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        search: impl FnOnce(&Stop) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(T, f64), ApiError> {
        let permit: OwnedSemaphorePermit =
            match tokio::time::timeout(MAX_WAIT, Arc::clone(&self.turns).acquire_owned()).await {
                Ok(Ok(permit)) => permit,
                Ok(Err(_)) => return Err(ApiError::Stopping),
                Err(_) => return Err(ApiError::TooManySearches),
            };
        let stop = Stop::default();
        let ends = EndsWithCall(stop.clone());
        let began = Instant::now();
        let work = blocking_on(&self.threads, "planning failed", move || {
            // Held to the end of the search, which may be later than the end of its call.
            let _permit = permit;
            search(&stop)
        });
        tokio::pin!(work);
        let answer = tokio::select! {
            answer = &mut work => answer,
            () = tokio::time::sleep(limit) => {
                ends.0.request();
                work.await
            }
        };
        Ok((answer?, began.elapsed().as_secs_f64()))
    }
}

/// How long a search may take: as long as the request says, and no longer than its call lets it.
pub(super) fn limit(metadata: &MetadataMap, seconds: f64) -> Duration {
    let asked = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let call = metadata.get(timeout::HEADER).and_then(|value| timeout::parse(value.to_str().ok()?));
    call.map_or(asked, |call| asked.min(call.mul_f64(1.0 - ANSWERING)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shorter of the two, with some time left to answer.
    #[test]
    fn a_search_ends_before_its_call_does() {
        let mut metadata = MetadataMap::new();
        assert_eq!(limit(&metadata, 10.0), Duration::from_secs(10));
        metadata.insert("grpc-timeout", "5S".parse().unwrap());
        assert_eq!(limit(&metadata, 10.0), Duration::from_millis(4_500));
        assert_eq!(limit(&metadata, 1.0), Duration::from_secs(1));
    }
}
