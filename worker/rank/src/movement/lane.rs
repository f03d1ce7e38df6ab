//! A way for bytes in one direction: one thing at a time, in the order in which it was asked. Of a CPU slot a thread
//! copies; of a GPU a queue of its own, which no one on the host waits for.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use crate::completion::{Completion, Doing};
use crate::error::RankError;
use crate::ffi::{ComputingHeld, CopyQueue, Direction, Gpu, QueuedCopy, Transfer};
use crate::timing::median;

/// A way for bytes in one direction.
#[derive(Debug)]
enum Lane {
    /// Never more jobs than an iteration has absences: each has one copy on its way.
    Thread(Sender<Job>),
    Queue(CopyQueue),
}

/// Both ways between a device and a place, whoever copies something: a link does not become faster because two of them do.
#[derive(Debug, Clone)]
pub(crate) struct Ways {
    /// From the device.
    out: Arc<Lane>,
    /// To it.
    back: Arc<Lane>,
}

impl Ways {
    /// Those to and from a place of this name, no faster than this.
    ///
    /// # Errors
    /// When there can be no more of them.
    pub(crate) fn start(
        name: &str,
        bytes_per_second: Option<f64>,
        gpu: Option<&Gpu>,
    ) -> Result<Self, RankError> {
        let lane = |way: &str| Lane::start(format!("{way} {name}"), bytes_per_second, gpu).map(Arc::new);
        Ok(Self { out: lane("to")?, back: lane("from")? })
    }

    /// Asks for a copy one way, behind something else if there is anything. Never waits.
    ///
    /// # Errors
    /// When a GPU refuses.
    pub(crate) fn ask(
        &self,
        direction: Direction,
        first: Option<First>,
        transfers: Vec<Transfer>,
    ) -> Result<Ticket, RankError> {
        let lane = match direction {
            Direction::Out => &*self.out,
            Direction::Back => &*self.back,
        };
        match lane {
            Lane::Thread(jobs) => {
                let (copied, end) = Completion::begun();
                // Where its thread is gone the job comes back, is dropped, and has failed.
                drop(jobs.send(Job { first, transfers, end }));
                Ok(Ticket::OfThread(copied))
            }
            Lane::Queue(queue) => {
                if let Some(first) = first {
                    // Where it failed the rank's own thread finds out.
                    queue.behind(Box::new(move || {
                        first();
                    }))?;
                }
                Ok(Ticket::OfQueue(queue.copy(transfers)?))
            }
        }
    }
}

/// What is done before a copy, on a thread of the lane's: whether what is to be copied is there then.
pub(crate) type First = Box<dyn FnOnce() -> bool + Send>;

/// Waits for something else, whoever does that.
pub(crate) fn behind(after: Option<Completion>) -> Option<First> {
    after.map(|after| Box::new(move || after.is_done_at_last()) as First)
}

/// A copy that was asked for.
struct Job {
    first: Option<First>,
    transfers: Vec<Transfer>,
    end: Doing,
}

/// A copy to wait for.
#[derive(Debug)]
pub(crate) enum Ticket {
    OfThread(Completion),
    OfQueue(QueuedCopy),
}

/// A wait for a copy.
#[derive(Debug)]
pub(crate) enum Wait {
    Over(Duration),
    /// What is to be computed waits, nothing else.
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

/// Who waited how long for copies of one kind, iteration by iteration.
#[derive(Debug, Default)]
pub(crate) struct WaitCounts {
    /// In the iteration so far, and in the last whole one.
    now: Vec<Wait>,
    last: Vec<Wait>,
    /// Seconds in each whole one before it.
    before: Vec<f64>,
}

impl WaitCounts {
    pub(crate) fn add(&mut self, wait: Wait) {
        self.now.push(wait);
    }

    /// An iteration is over. What a GPU waited in it is asked when the next one is: it is not done with it yet.
    ///
    /// # Errors
    /// When the device failed.
    pub(crate) fn end_iteration(&mut self) -> Result<(), RankError> {
        let before = std::mem::replace(&mut self.last, std::mem::take(&mut self.now));
        if !before.is_empty() {
            self.before.push(sum(&before)?);
        }
        Ok(())
    }

    /// Seconds of a typical iteration.
    ///
    /// # Errors
    /// When the device failed.
    pub(crate) fn seconds(&self) -> Result<f64, RankError> {
        let last = sum(&self.last)?;
        Ok(median(&[self.before.as_slice(), &[last]].concat()))
    }
}

fn sum(waits: &[Wait]) -> Result<f64, RankError> {
    waits.iter().map(Wait::seconds).sum()
}

impl Ticket {
    /// Nothing is computed from now on before the copy is done.
    ///
    /// # Errors
    /// When it failed.
    pub(crate) fn wait(self) -> Result<Wait, RankError> {
        match self {
            Self::OfThread(copied) => {
                let begin = Instant::now();
                copied.wait().map(|()| Wait::Over(begin.elapsed()))
            }
            Self::OfQueue(queued) => Ok(Wait::OfComputing(queued.hold_computing()?)),
        }
    }

    /// When it is done, for another thread of the host.
    ///
    /// # Errors
    /// When a GPU refuses.
    pub(crate) fn completion(&self) -> Result<Completion, RankError> {
        match self {
            Self::OfThread(copied) => Ok(copied.clone()),
            Self::OfQueue(queued) => {
                let (copied, end) = Completion::begun();
                queued.then(Box::new(move || end.complete()))?;
                Ok(copied)
            }
        }
    }
}

impl Lane {
    /// One of a GPU, or one whose thread ends when no one can ask any more.
    fn start(name: String, bytes_per_second: Option<f64>, gpu: Option<&Gpu>) -> Result<Self, RankError> {
        if let Some(gpu) = gpu {
            return Ok(Self::Queue(CopyQueue::new(gpu)?));
        }
        let (jobs, asked) = mpsc::channel();
        std::thread::Builder::new().name(name).spawn(move || work(&asked, bytes_per_second)).map_err(
            |error| RankError::Other(format!("cannot start a thread that copies tensors: {error}")),
        )?;
        Ok(Self::Thread(jobs))
    }
}

fn work(jobs: &Receiver<Job>, bytes_per_second: Option<f64>) {
    for Job { first, mut transfers, end } in jobs {
        if first.is_some_and(|first| !first()) {
            continue;
        }
        let mut pace = Pace::begin(bytes_per_second);
        for transfer in &mut transfers {
            let mut done = 0;
            while done < transfer.bytes() {
                let count = transfer.advance(done, pace.next());
                done += count;
                pace.goes_on(count);
            }
        }
        pace.holds();
        // They hold memory, which must not outlive what is waited for.
        drop(transfers);
        end.complete();
    }
}

/// Bytes that are copied between two looks at the clock.
const CHUNK: usize = 1 << 20;
/// A chunk takes no longer than this where copies have a pace.
const CHUNK_SECONDS: f64 = 0.002;

/// Keeps a copy from being faster than its way.
pub(crate) struct Pace {
    begin: Instant,
    bytes_per_second: Option<f64>,
    /// Bytes between two looks at the clock. A block may be hundreds of small tensors, and who sleeps for each of them
    /// sleeps longer than all of them take.
    chunk: usize,
    /// Bytes since the last look.
    ahead: usize,
    copied: u64,
}

impl Pace {
    /// A copy that begins now.
    pub(crate) fn begin(bytes_per_second: Option<f64>) -> Self {
        let chunk = bytes_per_second.map_or(CHUNK, |pace| CHUNK.min((pace * CHUNK_SECONDS) as usize).max(1));
        Self { begin: Instant::now(), bytes_per_second, chunk, ahead: 0, copied: 0 }
    }

    /// Bytes until the next look at the clock.
    pub(crate) fn next(&self) -> usize {
        self.chunk - self.ahead
    }

    /// So many bytes more are copied.
    pub(crate) fn goes_on(&mut self, bytes: usize) {
        self.ahead += bytes;
        self.copied += bytes as u64;
        if self.ahead >= self.chunk {
            self.holds();
        }
    }

    /// Waits until the way would have let all of it through.
    pub(crate) fn holds(&mut self) {
        self.ahead = 0;
        if let Some(pace) = self.bytes_per_second {
            let due = Duration::try_from_secs_f64(self.copied as f64 / pace).unwrap_or(Duration::MAX);
            std::thread::sleep(due.saturating_sub(self.begin.elapsed()));
        }
    }
}
