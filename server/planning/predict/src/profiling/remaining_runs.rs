//! What is left to do of a profiling that was begun before.

use std::collections::HashSet;

use super::KeyedRun;

/// A run that a profile has: the fields that determine what is left to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt<'a> {
    /// What it measures; see [`PlannedRun::key`](crate::profiling::PlannedRun::key).
    pub key: &'a str,
    /// At which micro-batch size.
    pub micro_batch_size: u32,
    /// What became of it.
    pub outcome: AttemptOutcome,
}

/// What became of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// It yielded measurements.
    Measured,
    /// It did not fit.
    TooLarge,
    /// It waits or is running.
    Pending,
    /// It was cancelled before it failed.
    GivenUp,
    /// It failed, as often as allowed or until it was cancelled.
    Failed,
}

impl AttemptOutcome {
    /// Nothing came of it, and nothing will.
    fn is_open(self) -> bool {
        matches!(self, Self::GivenUp | Self::Failed)
    }
}

/// The planned runs that have no answer, and those given up that repeat a planned one at a smaller
/// micro-batch size. What did not fit has an answer: whatever repeats it at a smaller size is a run of its
/// own. What failed comes last: a profiling that was stopped because of it goes on with what was not tried yet.
pub fn remaining(planned: &[KeyedRun], attempts: &[Attempt<'_>]) -> Vec<KeyedRun> {
    let mut seen: HashSet<(&str, u32)> = attempts
        .iter()
        .filter(|attempt| !attempt.outcome.is_open())
        .map(|attempt| (attempt.key, attempt.micro_batch_size))
        .collect();
    let mut left: Vec<KeyedRun> = Vec::new();
    for keyed in planned {
        if seen.insert((&keyed.key, keyed.run.strategy.training.micro_batch_size)) {
            left.push(keyed.clone());
        }
    }
    for attempt in attempts.iter().filter(|attempt| attempt.outcome.is_open()) {
        let Some(like) = planned.iter().find(|keyed| keyed.key == attempt.key) else { continue };
        if seen.insert((attempt.key, attempt.micro_batch_size)) {
            left.push(KeyedRun { key: like.key.clone(), run: like.run.at(attempt.micro_batch_size) });
        }
    }
    let failed: HashSet<(&str, u32)> = attempts
        .iter()
        .filter(|attempt| attempt.outcome == AttemptOutcome::Failed)
        .map(|attempt| (attempt.key, attempt.micro_batch_size))
        .collect();
    left.sort_by_key(|keyed| {
        failed.contains(&(keyed.key.as_str(), keyed.run.strategy.training.micro_batch_size))
    });
    left
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::measure::run::{SoloStage, Work};
    use loadmaster_proto::training::Schedule;
    use loadmaster_proto::training::stage::StageConfig;
    use loadmaster_proto::training::strategy::Strategy;

    use super::*;
    use crate::profiling::{PlannedRun, Purpose};
    use crate::tests::training;

    fn planned(key: &str, size: u32) -> KeyedRun {
        let position = SoloStage { stage: StageConfig::single(0, 0), stage_count: 1, stage_index: 0 };
        let run = PlannedRun {
            strategy: Strategy::plain(training(Schedule::Gpipe, size, 2), Work::Solo(position)),
            purpose: Purpose::Fit,
        };
        KeyedRun { key: key.to_owned(), run }
    }

    /// Attempts are a key, a size, and whether there was an answer.
    fn left(attempts: &[(&str, u32, bool)]) -> Vec<(String, u32)> {
        let attempts: Vec<Attempt<'_>> = attempts
            .iter()
            .map(|&(key, micro_batch_size, answered)| {
                let outcome = if answered { AttemptOutcome::TooLarge } else { AttemptOutcome::GivenUp };
                Attempt { key, micro_batch_size, outcome }
            })
            .collect();
        let all = [planned("a", 2), planned("a", 4), planned("b", 2), planned("b", 4)];
        remaining(&all, &attempts)
            .into_iter()
            .map(|keyed| (keyed.key, keyed.run.strategy.training.micro_batch_size))
            .collect()
    }

    fn runs(runs: &[(&str, u32)]) -> Vec<(String, u32)> {
        runs.iter().map(|&(key, size)| (key.to_owned(), size)).collect()
    }

    #[test]
    fn what_has_an_answer_is_not_asked_again_and_what_was_given_up_is() {
        assert_eq!(left(&[]), runs(&[("a", 2), ("a", 4), ("b", 2), ("b", 4)]));
        assert_eq!(left(&[("a", 2, true), ("b", 4, true), ("b", 2, false)]), runs(&[("a", 4), ("b", 2)]));
        // Given up once and measured later, in any order.
        assert_eq!(left(&[("a", 2, true), ("a", 2, false)]), runs(&[("a", 4), ("b", 2), ("b", 4)]));
    }

    #[test]
    fn what_failed_is_asked_again_after_what_was_never_tried() {
        let planned = [planned("a", 2), planned("a", 4), planned("b", 2), planned("b", 4)];
        let attempt = |key, micro_batch_size, outcome| Attempt { key, micro_batch_size, outcome };
        let attempts = [
            attempt("a", 2, AttemptOutcome::Failed),
            attempt("a", 4, AttemptOutcome::GivenUp),
            attempt("b", 2, AttemptOutcome::Measured),
        ];
        let left = remaining(&planned, &attempts);
        let order =
            left.iter().map(|keyed| (keyed.key.clone(), keyed.run.strategy.training.micro_batch_size));
        assert_eq!(order.collect::<Vec<_>>(), runs(&[("a", 4), ("b", 4), ("a", 2)]));
    }

    /// The repetition of what did not fit is remembered by its own run alone.
    #[test]
    fn a_repetition_at_a_smaller_size_that_was_given_up_is_left_once() {
        let attempts = [("a", 2, true), ("a", 4, true), ("b", 2, true), ("b", 4, true)];
        assert_eq!(left(&[&attempts[..], &[("a", 1, false), ("a", 1, false)]].concat()), runs(&[("a", 1)]));
        assert_eq!(left(&[&attempts[..], &[("a", 1, false), ("a", 1, true)]].concat()), []);
        assert_eq!(
            left(&[&attempts[..], &[("gone", 1, false)]].concat()),
            [],
            "of another release's campaign"
        );
    }
}
