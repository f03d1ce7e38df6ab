//! Whom to blame: what became of a run, chosen from the ends of its ranks. Pure.
//!
//! When one rank fails, its neighbours fail after it, and the daemon kills the rest. What is reported
//! is the cause: see [`blame`].

use std::fmt::Write;

use loadmaster_proto::measure::failure::{FailureKind, OutOfMemory, RunFailure};
use loadmaster_proto::measure::links::{LinkMeasurement, RankLinks};
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::rank::{
    EXIT_BAD_SPEC, EXIT_LOST_NEIGHBOUR, EXIT_OUT_OF_MEMORY, EXIT_WRONG_LIBTORCH,
};

use super::assignment::RankId;
use crate::process::exit::{EXIT_NOT_LOADED, killed_by, quoted};
use crate::process::tail::Tail;
use crate::run::{Outcome, describe};

/// How a rank's process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Exit {
    /// It was never there.
    NotSpawned(String),
    /// By itself.
    Code(i32),
    /// By a signal that the daemon did not send.
    Signal(i32),
    /// By the daemon.
    Killed,
}

/// What a rank has measured.
#[derive(Debug)]
pub(super) enum RankResult {
    /// What a device of a stage needed.
    Stage(Box<Measurement>),
    /// How fast it exchanged bytes with others.
    Links(Box<RankLinks>),
}

/// What a rank said.
#[derive(Debug, Default)]
pub(super) struct RankOutput {
    /// Events of any kind.
    pub(super) events: u64,
    pub(super) result: Option<RankResult>,
    /// Its device was too small.
    pub(super) out_of_memory: Option<OutOfMemory>,
    /// What it says went wrong.
    pub(super) error: Option<String>,
    /// Lines that are no events.
    pub(super) garbage: u64,
    /// The first of these.
    pub(super) first_garbage: String,
    /// The end of its standard error.
    pub(super) tail: Tail,
}

/// The end of a rank.
#[derive(Debug)]
pub(super) struct RankEnd {
    pub(super) rank: RankId,
    /// How its process ended.
    pub(super) exit: Exit,
    /// What it said before.
    pub(super) said: RankOutput,
}

impl RankEnd {
    /// Whether it did what it was started for.
    pub(super) fn succeeded(&self) -> bool {
        self.exit == Exit::Code(0) && self.said.result.is_some() && self.said.out_of_memory.is_none()
    }

    /// Whether it may have failed because another rank did.
    pub(super) fn lost_neighbour(&self) -> bool {
        self.exit == Exit::Code(EXIT_LOST_NEIGHBOUR) && self.said.out_of_memory.is_none()
    }
}

/// How likely an end is the cause of the others: the first ones win. An event of being out of memory
/// is never a consequence; a signal is more likely a cause than a code, because a rank that finds its
/// neighbour gone ends with a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RootCause {
    OutOfMemory,
    NotStarted,
    Signal,
    Code,
    LostNeighbour,
    Killed,
}

fn blame(end: &RankEnd) -> Option<RootCause> {
    if end.said.out_of_memory.is_some() {
        return Some(RootCause::OutOfMemory);
    }
    match end.exit {
        Exit::NotSpawned(_) => Some(RootCause::NotStarted),
        Exit::Code(EXIT_WRONG_LIBTORCH) => Some(RootCause::NotStarted),
        Exit::Code(code) if EXIT_NOT_LOADED.contains(&code) && end.said.events == 0 => {
            Some(RootCause::NotStarted)
        }
        Exit::Signal(_) => Some(RootCause::Signal),
        Exit::Code(EXIT_LOST_NEIGHBOUR) => Some(RootCause::LostNeighbour),
        Exit::Code(0) if end.said.result.is_some() => None,
        Exit::Code(_) => Some(RootCause::Code),
        Exit::Killed => Some(RootCause::Killed),
    }
}

/// The outcome of a run from the ends of its ranks, in the order in which they ended.
///
/// `stopped_for` is why the daemon ended the run, if it did: the answer, unless a rank has a failure
/// of its own to show. `kernel_killed` says that the kernel's out-of-memory killer was active.
pub(super) fn judge(mut ends: Vec<RankEnd>, stopped_for: Option<RunFailure>, kernel_killed: bool) -> Outcome {
    let cause = ends.iter().filter_map(|end| Some((blame(end)?, end))).min_by_key(|&(blame, _)| blame);
    match (cause, stopped_for) {
        (Some((RootCause::LostNeighbour | RootCause::Killed, _)) | None, Some(failure)) => {
            Outcome::Failed(failure)
        }
        (None, None) => {
            ends.sort_by_key(|end| end.rank);
            measured(ends.into_iter().filter_map(|end| end.said.result).collect())
        }
        (Some((RootCause::LostNeighbour, _)), None) => Outcome::Failed(nobody_says_why(&ends)),
        (Some((blame, end)), _) => Outcome::Failed(failure(blame, end, kernel_killed)),
    }
}

/// The results of all ranks, in order.
fn measured(results: Vec<RankResult>) -> Outcome {
    let (mut stages, mut links) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            RankResult::Stage(measurement) => stages.push(*measurement),
            RankResult::Links(part) => links.push(*part),
        }
    }
    if links.is_empty() {
        return Outcome::Measured(stages);
    }
    match LinkMeasurement::of_ranks(links) {
        Ok(links) => Outcome::Links(Box::new(links)),
        Err(invalid) => Outcome::Failed(RunFailure {
            kind: FailureKind::Exited { code: 0 },
            message: format!("the ranks' measurements of their links do not match: {invalid}"),
            stage_index: None,
        }),
    }
}

/// Neighbours were lost, but no rank ended that explains it: one of them may be stuck.
fn nobody_says_why(ends: &[RankEnd]) -> RunFailure {
    match ends.iter().find(|end| end.exit == Exit::Killed) {
        Some(stuck) => RunFailure {
            kind: FailureKind::Hung,
            message: format!(
                "the rank of {} hung: neighbour ranks ended, but this rank did not and was killed{}",
                stuck.rank,
                quote(&stuck.said)
            ),
            stage_index: Some(stuck.rank.stage_index),
        },
        None => RunFailure {
            kind: FailureKind::Exited { code: EXIT_LOST_NEIGHBOUR },
            message: format!(
                "ranks lost the connection to neighbour ranks, and no rank reported another cause{}",
                ends.iter().find(|end| end.lost_neighbour()).map(|end| quote(&end.said)).unwrap_or_default()
            ),
            stage_index: None,
        },
    }
}

fn failure(blame: RootCause, end: &RankEnd, kernel_killed: bool) -> RunFailure {
    let rank = format!("the rank of {}", end.rank);
    let said = quote(&end.said);
    if let Some(oom) = &end.said.out_of_memory {
        return RunFailure {
            kind: FailureKind::OutOfMemory { out_of_memory: oom.clone() },
            message: format!("{rank} ran out of memory {}", describe(oom)),
            stage_index: Some(end.rank.stage_index),
        };
    }
    let (kind, message) = match (&end.exit, blame) {
        (Exit::NotSpawned(error), _) => {
            (FailureKind::NotStarted, format!("{rank} could not be started: {error}"))
        }
        (Exit::Code(code), RootCause::NotStarted) => {
            (FailureKind::NotStarted, format!("{rank} could not be started (exit code {code}){said}"))
        }
        (Exit::Code(EXIT_OUT_OF_MEMORY), _) => (
            FailureKind::Exited { code: EXIT_OUT_OF_MEMORY },
            format!("{rank} ran out of memory and did not report how many bytes it requested{said}"),
        ),
        (Exit::Code(EXIT_BAD_SPEC), _) => {
            (FailureKind::Exited { code: EXIT_BAD_SPEC }, format!("{rank} rejected its specification{said}"))
        }
        (Exit::Code(0), _) => {
            (FailureKind::Exited { code: 0 }, format!("{rank} ended without a measurement{said}"))
        }
        (Exit::Code(code), _) => {
            (FailureKind::Exited { code: *code }, format!("{rank} ended with code {code}{said}"))
        }
        (Exit::Signal(signal), _) => {
            let message = format!("{rank} was killed by {}{said}", killed_by(*signal, kernel_killed));
            (FailureKind::Crashed { signal: *signal }, message)
        }
        (Exit::Killed, _) => (FailureKind::Hung, format!("{rank} did not end by itself{said}")),
    };
    RunFailure { kind, message, stage_index: Some(end.rank.stage_index) }
}

/// A rank's own words: what it reports, or else the end of its standard error.
fn quote(said: &RankOutput) -> String {
    let tail = said.tail.text();
    let words = said.error.as_deref().unwrap_or(&tail);
    let mut text = quoted(words);
    if said.garbage > 0 {
        let _ = write!(
            text,
            " ({} lines of the rank's output are not valid events; the first line is {:?})",
            said.garbage, said.first_garbage
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::accounting::Accounting;
    use loadmaster_proto::bytes::Bytes;
    use loadmaster_proto::measure::failure::Phase;

    use super::*;
    use crate::testing::measurement;

    fn end(stage_index: u32, exit: Exit) -> RankEnd {
        RankEnd { rank: RankId { stage_index, shard: 0, devices: 1 }, exit, said: RankOutput::default() }
    }

    fn measured(stage_index: u32) -> RankEnd {
        let mut end = end(stage_index, Exit::Code(0));
        end.said.result = Some(RankResult::Stage(measurement(stage_index)));
        end
    }

    fn out_of_memory(stage_index: u32, exit: Exit) -> RankEnd {
        let mut end = end(stage_index, exit);
        end.said.out_of_memory = Some(OutOfMemory {
            asked: Bytes(1 << 30),
            held: Bytes(3 << 29),
            allowed: Bytes(2 << 30),
            ledger: Accounting::Allocated,
            phase: Phase::Forward,
            layer: Some(3),
        });
        end
    }

    fn failed(ends: Vec<RankEnd>) -> RunFailure {
        match judge(ends, None, false) {
            Outcome::Failed(failure) => failure,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn measurements_come_in_order_of_the_stages() {
        let Outcome::Measured(measurements) = judge(vec![measured(2), measured(0), measured(1)], None, false)
        else {
            panic!("failed")
        };
        let stages: Vec<u32> = measurements.iter().map(|measurement| measurement.stage_index).collect();
        assert_eq!(stages, [0, 1, 2]);
    }

    /// Pins that a message tells which device of a stage failed, where it has several.
    #[test]
    fn the_shard_of_a_parallel_stage_is_named() {
        let mut crashed = end(1, Exit::Signal(11));
        crashed.rank = RankId { stage_index: 1, shard: 2, devices: 4 };
        let failure = failed(vec![crashed]);
        assert!(failure.message.contains("the rank of stage 1, shard 2 was killed"), "{}", failure.message);
    }

    /// Pins that the cause is reported and not a neighbour's end, whichever was seen first.
    #[test]
    fn the_cause_is_reported_whoever_ends_first() {
        let lost = |stage| end(stage, Exit::Code(EXIT_LOST_NEIGHBOUR));
        let crash = failed(vec![lost(0), end(1, Exit::Signal(11)), lost(2)]);
        assert_eq!((crash.kind, crash.stage_index), (FailureKind::Crashed { signal: 11 }, Some(1)));
        assert!(crash.message.contains("SIGSEGV"), "{}", crash.message);

        let code = failed(vec![lost(0), measured(2), end(1, Exit::Code(3)), end(3, Exit::Killed)]);
        assert_eq!((code.kind, code.stage_index), (FailureKind::Exited { code: 3 }, Some(1)));

        let oom =
            failed(vec![end(0, Exit::Code(1)), end(2, Exit::Signal(6)), out_of_memory(1, Exit::Code(77))]);
        assert!(matches!(oom.kind, FailureKind::OutOfMemory { .. }) && oom.stage_index == Some(1));
        assert!(oom.message.contains("forward of layer 3"), "{}", oom.message);
    }

    /// Pins that a rank that ran out of memory is believed although it did not get to end itself.
    #[test]
    fn out_of_memory_counts_however_the_process_ended() {
        for exit in [Exit::Code(77), Exit::Killed, Exit::Signal(6), Exit::Code(0)] {
            assert!(matches!(failed(vec![out_of_memory(0, exit)]).kind, FailureKind::OutOfMemory { .. }));
        }
        let mute = failed(vec![end(0, Exit::Code(EXIT_OUT_OF_MEMORY))]);
        assert_eq!(mute.kind, FailureKind::Exited { code: 77 });
    }

    #[test]
    fn a_program_that_cannot_be_loaded_was_not_started() {
        let mut loader = end(0, Exit::Code(127));
        loader.said.tail.push_line(b"error while loading shared libraries: libtorch_cpu.so");
        let failure = failed(vec![loader]);
        assert_eq!(failure.kind, FailureKind::NotStarted);
        assert!(failure.message.contains("libtorch_cpu.so"), "{}", failure.message);
        assert_eq!(failed(vec![end(0, Exit::Code(EXIT_WRONG_LIBTORCH))]).kind, FailureKind::NotStarted);
        assert_eq!(
            failed(vec![end(0, Exit::NotSpawned("no such file".into()))]).kind,
            FailureKind::NotStarted
        );
        let mut later = end(0, Exit::Code(127));
        later.said.events = 1;
        assert_eq!(failed(vec![later]).kind, FailureKind::Exited { code: 127 });
    }

    #[test]
    fn lost_neighbours_without_a_cause_point_at_the_rank_that_is_stuck() {
        let lost = end(0, Exit::Code(EXIT_LOST_NEIGHBOUR));
        let stuck = failed(vec![lost, end(1, Exit::Killed)]);
        assert_eq!((stuck.kind, stuck.stage_index), (FailureKind::Hung, Some(1)));
        let nobody = failed(vec![end(0, Exit::Code(EXIT_LOST_NEIGHBOUR))]);
        assert_eq!(nobody.stage_index, None);
    }

    /// Pins that a hang or deadline is the answer unless a rank had a failure of its own.
    #[test]
    fn the_daemons_own_reason_yields_to_a_real_failure() {
        let hung = RunFailure { kind: FailureKind::Hung, message: "deadline".into(), stage_index: None };
        let killed = || vec![end(0, Exit::Killed), measured(1)];
        assert!(matches!(judge(killed(), Some(hung.clone()), false), Outcome::Failed(f) if f == hung));
        let mut with_crash = killed();
        with_crash.push(end(2, Exit::Signal(11)));
        assert!(matches!(
            judge(with_crash, Some(hung), false),
            Outcome::Failed(RunFailure { kind: FailureKind::Crashed { .. }, .. })
        ));
    }

    #[test]
    fn the_kernels_out_of_memory_killer_is_named() {
        let kill = |kernel| match judge(vec![end(0, Exit::Signal(9))], None, kernel) {
            Outcome::Failed(failure) => failure,
            other => panic!("{other:?}"),
        };
        assert_eq!(kill(true).kind, FailureKind::Crashed { signal: 9 });
        assert!(kill(true).message.contains("kernel's out-of-memory killer was active"));
        assert!(kill(false).message.contains("kill -9"));
    }

    #[test]
    fn messages_quote_the_rank_within_limits() {
        let mut end = end(0, Exit::Code(3));
        end.said.error = Some(format!("{}the end", "x".repeat(100_000)));
        end.said.garbage = 2;
        end.said.first_garbage = "hello".into();
        let message = failed(vec![end]).message;
        assert!(message.contains("the end") && message.contains("\"hello\"") && message.len() < 2_000);
        let mut ended_early = self::end(0, Exit::Code(0));
        ended_early.said.events = 3;
        assert!(failed(vec![ended_early]).message.contains("without a measurement"));
    }
}
