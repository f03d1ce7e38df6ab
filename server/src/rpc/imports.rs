//! Documents are read beside the calls, few at once.
//!
//! A document of some megabytes takes up to a quarter of a gigabyte while it is read, and a core for about a second.
//! So a few are read at once, some wait for their turn, and all others are told to come again. Models are built in
//! the same way, wherever they come from.

use std::sync::Arc;
use std::time::Duration;

use loadmaster_search::Stop;
use tokio::sync::Semaphore;

use super::blocking::{EndsWithCall, blocking_on};
use super::error::ApiError;
use super::limits::{MAX_IMPORT_WAIT, MAX_IMPORTS, MAX_WAITING_IMPORTS};
use crate::background::{BackgroundThreads, NICEST, cores};

/// Turns to read documents.
#[derive(Debug, Clone)]
pub(super) struct Imports {
    turns: Arc<Semaphore>,
    queue: Arc<Semaphore>,
    wait: Duration,
    threads: BackgroundThreads,
}

impl Default for Imports {
    /// Half the cores: the other half answers everybody else.
    fn default() -> Self {
        Self::new((cores() / 2).clamp(1, MAX_IMPORTS), MAX_IMPORT_WAIT)
    }
}

impl Imports {
    fn new(turns: usize, wait: Duration) -> Self {
        Self {
            turns: Arc::new(Semaphore::new(turns)),
            queue: Arc::new(Semaphore::new(MAX_WAITING_IMPORTS)),
            wait,
            threads: BackgroundThreads::new(turns, NICEST),
        }
    }

    /// Reads a document when it is its turn, and stops once its caller is gone. `failed` says what could not be done
    /// should the work panic.
    ///
    /// # Errors
    /// Those of the work, and when too many others are read.
    pub(super) async fn run<T: Send + 'static, E: Into<ApiError> + Send + 'static>(
        &self,
        failed: &str,
        work: impl FnOnce(&Stop) -> Result<T, E> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = {
            let _place = self.queue.try_acquire().map_err(|_| ApiError::TooManyImports)?;
            match tokio::time::timeout(self.wait, Arc::clone(&self.turns).acquire_owned()).await {
                Ok(Ok(turn)) => turn,
                Ok(Err(_)) => return Err(ApiError::Stopping),
                Err(_) => return Err(ApiError::TooManyImports),
            }
        };
        let stop = Stop::default();
        let _ends = EndsWithCall(stop.clone());
        let work = blocking_on(&self.threads, failed, move || {
            // Held to the end of the work, which may be later than the end of its call.
            let _turn = turn;
            work(&stop)
        });
        work.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Works until it is let go, or stopped.
    fn held(imports: &Imports) -> (tokio::task::JoinHandle<Result<(), ApiError>>, mpsc::Sender<()>) {
        let (go, wait) = mpsc::channel::<()>();
        let imports = imports.clone();
        let work = move |stop: &Stop| {
            while !stop.is_requested() && wait.recv_timeout(Duration::from_millis(5)).is_err() {}
            Ok::<(), ApiError>(())
        };
        (tokio::spawn(async move { imports.run("nothing", work).await }), go)
    }

    #[tokio::test]
    async fn those_who_wait_too_long_are_told_to_come_again() {
        let imports = Imports::new(1, Duration::from_millis(20));
        let (first, go) = held(&imports);
        while imports.turns.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = imports.run("nothing", |_| Ok::<(), ApiError>(())).await;
        assert!(matches!(refused, Err(ApiError::TooManyImports)), "{refused:?}");
        go.send(()).unwrap();
        first.await.unwrap().unwrap();
        Imports { wait: MAX_IMPORT_WAIT, ..imports }
            .run("nothing", |_| Ok::<(), ApiError>(()))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn nobody_waits_behind_a_long_queue() {
        let imports = Imports::new(1, MAX_IMPORT_WAIT);
        let (first, go) = held(&imports);
        while imports.turns.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let waiting: Vec<_> = (0..MAX_WAITING_IMPORTS).map(|_| held(&imports)).collect();
        while imports.queue.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let refused = imports.run("nothing", |_| Ok::<(), ApiError>(())).await;
        assert!(matches!(refused, Err(ApiError::TooManyImports)), "{refused:?}");
        go.send(()).unwrap();
        first.await.unwrap().unwrap();
        for (call, go) in waiting {
            go.send(()).unwrap();
            call.await.unwrap().unwrap();
        }
    }

    /// Whoever has left does not keep others waiting.
    #[tokio::test]
    async fn a_call_that_is_over_gives_its_turn_back() {
        let imports = Imports::new(1, MAX_IMPORT_WAIT);
        let (first, _go) = held(&imports);
        while imports.turns.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        first.abort();
        imports.run("nothing", |_| Ok::<(), ApiError>(())).await.unwrap();
    }
}
