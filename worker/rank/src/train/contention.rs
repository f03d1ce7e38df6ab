//! How much longer the passes of a CPU slot take while others of its host compute, and while something is copied.
//!
//! Cores share caches and the way to memory, and stages of a pipeline compute at the same time. Companions stand for the others:
//! threads that go through the stage's own layers, forward and backward, repeatedly. Copies of memory actions go through the
//! same caches at their pace. What is compared is the time that the rank's thread had a core for: who takes turns with it on a busy
//! machine has no part in that.
//!
//! A thread stands for the copies of memory actions while a stage is timed. It carries bytes from one part of the host's
//! memory to another at the pace of the slot's copies, as `movement/lane.rs` does.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::host::CopyCost;
use rustix::time::{ClockId, clock_gettime};

use super::trainer::Trainer;
use crate::error::RankError;
use crate::movement::lane::Pace;
use crate::progress;
use crate::transport::Crossing;

/// Iterations alone before the others and behind them, and as many beside each.
const ITERATIONS: u32 = 5;

/// What others cost a stage.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Contention {
    /// How many times the time of a core an iteration takes beside companions, at least 1; none where there are none, or the
    /// stage's layers cannot be computed twice at once.
    pub(super) ratio: Option<f64>,
    /// What copies take, and cost; none where that is not known.
    pub(super) copies: Option<CopyCost>,
}

/// Tells others when to end, however whoever waits for them leaves.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Finds out, beside so many companions, and beside copies at the rank's pace. Iterations go on from `first`.
///
/// # Errors
/// Those of an iteration.
pub(super) fn measure(
    trainer: &mut Trainer<'_>,
    first: u32,
    companions: u32,
) -> Result<Contention, RankError> {
    if companions == 0 {
        return Ok(Contention::default());
    }
    let before = core_seconds(trainer, first)?;
    let copied = beside_copies(trainer, first + ITERATIONS)?;
    let beside = beside_companions(trainer, first + 2 * ITERATIONS, companions)?;
    // Before and behind: a machine that becomes slower or faster meanwhile does so for all of them.
    let alone = (before + core_seconds(trainer, first + 3 * ITERATIONS)?) / 2.0;
    if alone <= 0.0 {
        return Ok(Contention::default());
    }
    let copies = copied.and_then(|(beside, cost)| cost.beside(beside / alone));
    Ok(Contention {
        ratio: beside.map(|beside| (beside / alone).clamp(1.0, Environment::MOST_SLOWDOWN)),
        copies,
    })
}

/// Seconds of a core beside as many others that compute the same.
fn beside_companions(
    trainer: &mut Trainer<'_>,
    first: u32,
    companions: u32,
) -> Result<Option<f64>, RankError> {
    let is_first = trainer.stage.is_first();
    let inputs = if is_first { None } else { Some(trainer.neighbours.receive(Crossing::Activation, 0)?) };
    let Some(companion) = trainer.stage.companion(inputs)? else { return Ok(None) };
    let (ended, threads) = (AtomicBool::new(false), trainer.spec.threads);
    let (tell, begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let _ended = EndOnDrop(&ended);
        for _ in 0..companions {
            let (companion, tell, ended) = (companion.shallow_clone(), tell.clone(), &ended);
            scope.spawn(move || {
                // Whoever listens does so until all have said something.
                let say = |has_begun| tell.send(has_begun).unwrap_or_default();
                // One that fails, for instance because the host has no more memory, slows no one down.
                if companion.compute(threads, || say(true), ended).is_err() {
                    say(false);
                }
            });
        }
        let are_all = (0..companions).all(|_| begun.recv() == Ok(true));
        are_all.then(|| core_seconds(trainer, first)).transpose()
    })
}

/// Seconds of a core beside copies, and what these came to.
fn beside_copies(trainer: &mut Trainer<'_>, first: u32) -> Result<Option<(f64, CopyCost)>, RankError> {
    let (ended, pace) = (AtomicBool::new(false), trainer.spec.pace.host);
    let (tell, begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let (last, ended) = (EndOnDrop(&ended), &ended);
        let begins = move || tell.send(()).unwrap_or_default();
        let copier = scope.spawn(move || copies(pace, begins, ended));
        if begun.recv().is_err() {
            return Ok(None);
        }
        let beside = core_seconds(trainer, first)?;
        drop(last);
        Ok(copier.join().ok().flatten().map(|cost| (beside, cost)))
    })
}

/// Seconds of a core that this thread has in some iterations. All of them: cores of a virtual machine may be as fast as ever in one
/// and share theirs with each other in the next, and trainings take what that comes to.
fn core_seconds(trainer: &mut Trainer<'_>, first: u32) -> Result<f64, RankError> {
    let begin = core_clock();
    for iteration in 0..ITERATIONS {
        trainer.iterate(first + iteration)?;
    }
    Ok(core_clock() - begin)
}

/// Seconds of a core that this thread has had.
pub(super) fn core_clock() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Between two looks at whose turn it is.
const PAUSE: Duration = Duration::from_millis(5);

/// A turn. It ends with this, or with the process.
#[derive(Debug)]
pub(super) struct CoreLock {
    _locked: File,
}

impl CoreLock {
    /// Waits, as a rank that is alive, until nothing else has the lock of this file, which is made where it is missing.
    ///
    /// # Errors
    /// When it cannot be locked.
    pub(super) fn wait(turns: &Path) -> Result<Self, RankError> {
        let failed =
            |why: std::io::Error| RankError::Other(format!("cannot lock {}: {why}", turns.display()));
        let file = File::options().create(true).append(true).open(turns).map_err(failed)?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _locked: file }),
                Err(TryLockError::WouldBlock) => {
                    progress::tick();
                    thread::sleep(PAUSE);
                }
                Err(TryLockError::Error(why)) => return Err(failed(why)),
            }
        }
    }
}

/// Bytes that are carried in turn: more than caches have, as blocks are that were away.
const BYTES: usize = 32 << 20;

/// Copies until it is told to end, no faster than this. Says so when it has gone through its memory for the first time, and copied
/// something since: on a busy machine a short stage may be over before this thread is on again. What it comes to is that of the
/// copies alone, not of what they are beside; none where no time has passed.
pub(super) fn copies(
    bytes_per_second: Option<f64>,
    begun: impl FnOnce(),
    ended: &AtomicBool,
) -> Option<CopyCost> {
    let (from, mut to) = (vec![1_u8; BYTES], vec![2_u8; BYTES]);
    to.copy_from_slice(&from);
    let (begin, core) = (Instant::now(), core_clock());
    let (mut pace, mut at, mut copied) = (Pace::begin(bytes_per_second), 0, 0.0);
    let mut copy = || {
        let end = (at + pace.next()).min(BYTES);
        to[at..end].copy_from_slice(&from[at..end]);
        std::hint::black_box(&mut to);
        copied += (end - at) as f64;
        pace.goes_on(end - at);
        at = end % BYTES;
    };
    copy();
    begun();
    while !ended.load(Ordering::Relaxed) {
        copy();
    }
    let (taken, core) = (begin.elapsed().as_secs_f64(), core_clock() - core);
    CopyCost::of(copied, core, taken)
}
