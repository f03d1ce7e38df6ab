//! Searches that may take longer than anybody waits.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use loadmaster_planning::search::Stop;

use crate::search::report::Took;

/// How long something ran.
pub(crate) struct Ran(Duration);

impl Ran {
    pub(crate) fn seconds(&self) -> f64 {
        self.0.as_secs_f64()
    }

    /// As the time of a reference, which did not finish if it was stopped.
    pub(crate) fn unless(self, stopped: bool) -> Took {
        if stopped { Took::MoreThan(self.0) } else { Took::Here(self.0) }
    }
}

/// Runs a search and asks it to stop after `limit`.
pub(crate) fn within<R>(limit: Duration, search: impl FnOnce(&Stop) -> R) -> (R, Ran) {
    let stop = Stop::default();
    let (finished, end) = channel::<()>();
    std::thread::scope(|scope| {
        let timer = stop.clone();
        scope.spawn(move || {
            if end.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                timer.request();
            }
        });
        let started = Instant::now();
        let result = search(&stop);
        let ran = Ran(started.elapsed());
        drop(finished);
        (result, ran)
    })
}
