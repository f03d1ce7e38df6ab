//! Something that is done on another thread, and whether it is done.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::RankError;
use crate::progress;

/// How often a waiting stage says that it lives.
const WAITING_PAUSE: Duration = Duration::from_millis(100);

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CompletionState {
    Begun,
    Complete,
    /// Whoever did it is gone.
    Failed,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<CompletionState>,
    changed: Condvar,
}

/// Something to wait for.
#[derive(Debug, Clone)]
pub(crate) struct Completion(Arc<Shared>);

/// Tells those who wait how it ended, however it did.
#[derive(Debug)]
pub(crate) struct Doing(Arc<Shared>);

impl Completion {
    /// Something that is to be done, and who does it.
    pub(crate) fn begun() -> (Self, Doing) {
        let shared = Arc::new(Shared { state: Mutex::new(CompletionState::Begun), changed: Condvar::new() });
        (Self(shared.clone()), Doing(shared))
    }

    /// Waits, and lets the daemon know meanwhile that the rank lives.
    ///
    /// # Errors
    /// When it failed.
    pub(crate) fn wait(&self) -> Result<(), RankError> {
        if self.until(progress::tick) { Ok(()) } else { Err(failed()) }
    }

    /// Waits on a thread that is not the rank's own. Whether it was done.
    pub(crate) fn is_done_at_last(&self) -> bool {
        self.until(|| {})
    }

    fn until(&self, meanwhile: impl Fn()) -> bool {
        let mut state = self.0.state();
        while *state == CompletionState::Begun {
            let waited = self.0.changed.wait_timeout(state, WAITING_PAUSE);
            let (held, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = held;
            if timeout.timed_out() {
                meanwhile();
            }
        }
        *state == CompletionState::Complete
    }
}

fn failed() -> RankError {
    RankError::Other("a thread that copies or updates tensors failed".to_owned())
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, CompletionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Doing {
    /// It is done.
    pub(crate) fn complete(&self) {
        *self.0.state() = CompletionState::Complete;
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if *state == CompletionState::Begun {
            *state = CompletionState::Failed;
        }
        self.0.changed.notify_all();
    }
}
