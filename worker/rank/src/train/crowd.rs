//! How much longer the passes of a CPU slot take while the other slots of its host compute, too.
//!
//! Cores share caches and the way to memory, and stages of a pipeline compute at the same time. Companions stand for the others:
//! threads that go through the stage's own layers, forward and backward, again and again. What is compared is the time that the
//! rank's thread had a core for: who takes turns with it on a busy machine has no part in that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use loadmaster_proto::measure::environment::Environment;
use rustix::time::{ClockId, clock_gettime};

use super::trainer::Trainer;
use crate::error::RankError;
use crate::median::median;
use crate::transport::Crossing;

/// Iterations alone, and as many beside companions.
const ITERATIONS: u32 = 5;

/// Tells companions when to end, however whoever waits for them leaves.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How many times the time of a core an iteration takes beside so many companions, at least 1; none where there are none, or the
/// stage's layers cannot be computed twice at once. Iterations go on from `first`.
///
/// # Errors
/// Those of an iteration.
pub(super) fn ratio(
    trainer: &mut Trainer<'_>,
    first: u32,
    companions: u32,
) -> Result<Option<f64>, RankError> {
    if companions == 0 {
        return Ok(None);
    }
    let is_first = trainer.stage.is_first();
    let inputs = if is_first { None } else { Some(trainer.neighbours.receive(Crossing::Activation, 0)?) };
    let Some(companion) = trainer.stage.companion(inputs)? else { return Ok(None) };
    let alone = core_seconds(trainer, first)?;
    let (ended, threads) = (AtomicBool::new(false), trainer.spec.threads);
    let (tell, begun) = mpsc::channel();
    let beside = std::thread::scope(|scope| {
        let _ended = Ended(&ended);
        for _ in 0..companions {
            let (companion, tell, ended) = (companion.shallow_clone(), tell.clone(), &ended);
            scope.spawn(move || {
                // Whoever listens does so until all have said something.
                let say = |has_begun| tell.send(has_begun).unwrap_or_default();
                // One that fails, for instance because the host has no more memory, slows nobody down.
                if companion.compute(threads, || say(true), ended).is_err() {
                    say(false);
                }
            });
        }
        let are_all = (0..companions).all(|_| begun.recv() == Ok(true));
        are_all.then(|| core_seconds(trainer, first + ITERATIONS)).transpose()
    })?;
    Ok(beside.filter(|_| alone > 0.0).map(|beside| (beside / alone).clamp(1.0, Environment::MOST_CROWDED)))
}

/// Seconds of a core that this thread has in an iteration.
fn core_seconds(trainer: &mut Trainer<'_>, first: u32) -> Result<f64, RankError> {
    let mut taken = Vec::with_capacity(ITERATIONS as usize);
    for iteration in 0..ITERATIONS {
        let begin = now();
        trainer.iterate(first + iteration)?;
        taken.push(now() - begin);
    }
    Ok(median(&taken))
}

fn now() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
