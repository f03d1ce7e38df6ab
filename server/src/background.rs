//! Threads for what computes for long: they give way to calls.
//!
//! Where as many of them as there are cores are at work, whoever asks for something small is answered all the same. That
//! takes two things: few of them, and a lower priority than the threads that answer calls.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// By how much nicer than what answers calls is what computes for seconds: searches and imports.
pub(crate) const NICEST: i32 = 10;

/// The same of what reads large contents for a call: searches give way to it, too.
const NICER: i32 = 4;

/// For how long one is kept that has nothing to do.
const KEPT: Duration = Duration::from_secs(60);

/// Some threads, started when they are needed. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct BackgroundThreads(Arc<Threads>);

/// None where they cannot be had: then those of the calls do their work.
#[derive(Debug)]
struct Threads(Option<Runtime>);

impl BackgroundThreads {
    /// At most so many, so much nicer. One that gives way never gets back what it had: so none of them is anybody else's.
    pub(crate) fn new(most: usize, nicer: i32) -> Self {
        let threads = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(most.max(1))
            .thread_name("slow")
            .thread_keep_alive(KEPT)
            .on_thread_start(move || {
                if let Err(error) = rustix::process::nice(nicer) {
                    tracing::debug!(%error, "could not lower the priority of search threads");
                }
            })
            .build();
        Self(Arc::new(Threads(threads.ok())))
    }

    /// Those of everything that has none of its own, as many as cores.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: LazyLock<BackgroundThreads> =
            LazyLock::new(|| BackgroundThreads::new(cores().max(2), NICER));
        &SHARED
    }

    /// Does this on one of them, when it is its turn.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        match &self.0.0 {
            Some(threads) => threads.spawn_blocking(work),
            None => tokio::task::spawn_blocking(work),
        }
    }
}

impl Drop for Threads {
    /// No one waits for what is still computed.
    fn drop(&mut self) {
        if let Some(threads) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

/// How many threads compute at once.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn niceness() -> i32 {
        rustix::process::getpriority_process(None).unwrap()
    }

    /// What computes for long matters less than what answers calls, and never changes how much that matters.
    #[tokio::test]
    async fn slow_threads_give_way_and_nobody_else_does() {
        let own = niceness();
        let slow = BackgroundThreads::new(1, NICEST);
        assert_eq!(slow.spawn(niceness).await.unwrap(), (own + NICEST).min(19));
        assert_eq!(
            slow.spawn(niceness).await.unwrap(),
            (own + NICEST).min(19),
            "the same thread is no nicer yet"
        );
        assert_eq!(BackgroundThreads::shared().spawn(niceness).await.unwrap(), (own + NICER).min(19));
        assert_eq!((tokio::task::spawn_blocking(niceness).await.unwrap(), niceness()), (own, own));
    }

    /// However much is asked for, so much is done at once and no more; the end of the threads is no one's to wait for.
    #[tokio::test]
    async fn slow_threads_are_few() {
        let (slow, at_once, most) =
            (BackgroundThreads::new(2, NICEST), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        // Two are there at once, or neither would go on.
        let both = Arc::new(std::sync::Barrier::new(2));
        let work = || {
            let (at_once, most) = (Arc::clone(&at_once), Arc::clone(&most));
            let both = Arc::clone(&both);
            slow.spawn(move || {
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                both.wait();
                at_once.fetch_sub(1, Ordering::SeqCst);
            })
        };
        let all: Vec<_> = (0..20).map(|_| work()).collect();
        for one in all {
            one.await.unwrap();
        }
        assert_eq!(most.load(Ordering::SeqCst), 2);
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = std::sync::mpsc::channel::<()>();
        let held = slow.spawn(move || {
            begin.send(()).unwrap();
            wait.recv()
        });
        begun.recv().unwrap();
        drop(slow);
        go.send(()).unwrap();
        held.await.unwrap().unwrap();
    }
}
