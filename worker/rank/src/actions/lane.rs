//! A way for bytes in one direction: one thing at a time, in the order in which it was asked. Of a CPU slot a thread
//! copies; of a GPU a queue of its own, which nobody on the host waits for.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::RankError;
use crate::ffi::{ComputingHeld, CopyQueue, Gpu, QueuedCopy, Transfer};
use crate::progress;

/// Bytes that are copied between two looks at the clock.
const CHUNK: usize = 1 << 20;
/// A chunk takes no longer than this where copies have a pace.
const CHUNK_SECONDS: f64 = 0.002;
/// How often a waiting stage says that it lives.
const WAITING_PAUSE: Duration = Duration::from_millis(100);

/// A way for bytes in one direction.
#[derive(Debug)]
pub(crate) enum Lane {
    /// Never more jobs than an iteration has absences: each has one copy on its way.
    Thread(Sender<Job>),
    Queue(CopyQueue),
}

/// A copy that was asked for.
#[derive(Debug)]
pub(crate) struct Job {
    transfers: Vec<Transfer>,
    end: End,
}

/// How far a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Begun,
    Complete,
    /// Its thread is gone.
    Failed,
}

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells who waits how a copy ended, however it did.
#[derive(Debug)]
struct End(Arc<Shared>);

impl End {
    fn complete(&self) {
        *self.0.state() = State::Complete;
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if *state == State::Begun {
            *state = State::Failed;
        }
        self.0.changed.notify_all();
    }
}

/// A copy to wait for.
#[derive(Debug)]
pub(crate) enum Ticket {
    OfThread(Arc<Shared>),
    OfQueue(QueuedCopy),
}

/// A wait for a copy.
#[derive(Debug)]
pub(crate) enum Wait {
    Over(Duration),
    /// What is to be computed waits, nobody else.
    OfComputing(ComputingHeld),
}

impl Wait {
    /// How long it is, in seconds, once it is over.
    ///
    /// # Errors
    /// When the device failed meanwhile.
    pub(crate) fn seconds(&self) -> Result<f64, RankError> {
        match self {
            Self::Over(waited) => Ok(waited.as_secs_f64()),
            Self::OfComputing(held) => Ok(held.seconds()?),
        }
    }
}

impl Ticket {
    /// Nothing is computed from now on before the copy is done.
    ///
    /// # Errors
    /// When it failed.
    pub(crate) fn wait(self) -> Result<Wait, RankError> {
        match self {
            Self::OfThread(shared) => {
                let begin = Instant::now();
                shared.wait().map(|()| Wait::Over(begin.elapsed()))
            }
            Self::OfQueue(queued) => Ok(Wait::OfComputing(queued.hold_computing()?)),
        }
    }
}

impl Shared {
    fn wait(&self) -> Result<(), RankError> {
        let mut state = self.state();
        while *state == State::Begun {
            let waited = self.changed.wait_timeout(state, WAITING_PAUSE);
            let (held, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = held;
            if timeout.timed_out() {
                progress::tick();
            }
        }
        match *state {
            State::Failed => Err(RankError::Other("the thread that copies blocks failed".to_owned())),
            State::Begun | State::Complete => Ok(()),
        }
    }
}

impl Lane {
    /// One of a GPU, or one whose thread ends when nobody can ask any more.
    ///
    /// # Errors
    /// When there can be no more of them.
    pub(crate) fn start(
        name: String,
        bytes_per_second: Option<f64>,
        gpu: Option<&Gpu>,
    ) -> Result<Self, RankError> {
        if let Some(gpu) = gpu {
            return Ok(Self::Queue(CopyQueue::new(gpu)?));
        }
        let (jobs, asked) = mpsc::channel();
        std::thread::Builder::new().name(name).spawn(move || work(&asked, bytes_per_second)).map_err(
            |error| RankError::Other(format!("cannot start a thread that copies blocks: {error}")),
        )?;
        Ok(Self::Thread(jobs))
    }

    /// Asks for a copy. Never waits.
    ///
    /// # Errors
    /// When a GPU refuses.
    pub(crate) fn ask(&self, transfers: Vec<Transfer>) -> Result<Ticket, RankError> {
        match self {
            Self::Thread(jobs) => {
                let shared = Arc::new(Shared { state: Mutex::new(State::Begun), changed: Condvar::new() });
                // Where its thread is gone the job comes back, is dropped, and has failed.
                drop(jobs.send(Job { transfers, end: End(shared.clone()) }));
                Ok(Ticket::OfThread(shared))
            }
            Self::Queue(queue) => Ok(Ticket::OfQueue(queue.copy(transfers)?)),
        }
    }
}

fn work(jobs: &Receiver<Job>, bytes_per_second: Option<f64>) {
    for Job { mut transfers, end } in jobs {
        let begin = Instant::now();
        let chunk = bytes_per_second.map_or(CHUNK, |pace| CHUNK.min((pace * CHUNK_SECONDS) as usize).max(1));
        let mut copied = 0_u64;
        for transfer in &mut transfers {
            let mut done = 0;
            while done < transfer.bytes() {
                let count = transfer.advance(done, chunk);
                done += count;
                copied += count as u64;
                if let Some(pace) = bytes_per_second {
                    let due = Duration::try_from_secs_f64(copied as f64 / pace).unwrap_or(Duration::MAX);
                    std::thread::sleep(due.saturating_sub(begin.elapsed()));
                }
            }
        }
        // They hold memory, which must not outlive what is waited for.
        drop(transfers);
        end.complete();
    }
}
