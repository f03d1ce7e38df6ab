//! When a campaign is not worth going on with: several of its runs failed alike and nothing succeeded between.
//!
//! A command that cannot start fails each of a hundred runs three times. Whoever asked wants to know after the
//! first few. A campaign that goes on elsewhere is left alone: one broken worker must not end it.

use loadmaster_proto::measure::failure::FailureKind;
use loadmaster_proto::name::{RunName, WorkerName};

use crate::store::records::{FailureRecord, Failures};
use crate::store::{Store, StoreError};

/// Runs that fail alike, one after the other, before a campaign is stopped.
const ALIKE: usize = 3;
/// Most characters of a failure in the message.
const QUOTE: usize = 300;

/// Stops the campaign of a run that just failed, if it is hopeless.
pub(super) async fn consider(store: &Store, run: &RunName) -> Result<(), StoreError> {
    let Some(failures) = store.failures_beside(run).await? else { return Ok(()) };
    let Some(last) = hopeless(&failures) else { return Ok(()) };
    let by = last.worker.as_ref().map(|worker| format!(" on {worker}")).unwrap_or_default();
    let quote: String = first_line(&last.failure.message).chars().take(QUOTE).collect();
    let message = format!(
        "stopped, because {ALIKE} runs failed alike and none succeeded between them, the last{by}: {quote}; the \
         other runs were not made: mend the cause, then `loadmaster profile resume {}`",
        failures.profile.id()
    );
    if store.stop_operation(&failures.operation, &message).await? {
        tracing::warn!(operation.id = failures.operation.id(), reason = quote, "campaign stopped");
    }
    Ok(())
}

/// The last of the failures that make a campaign hopeless.
fn hopeless(failures: &Failures) -> Option<&FailureRecord> {
    let since = failures.last_answer;
    // One failure of each run, the newest first.
    let mut counted = failures
        .newest
        .iter()
        .filter(|of| counts(&of.failure.kind) && since.is_none_or(|answer| of.time > answer))
        .take(ALIKE);
    let last = counted.next()?;
    let mut count = 1;
    let mut blamed: Vec<&WorkerName> = last.worker.iter().collect();
    for other in counted {
        if !are_alike(last, other) {
            return None;
        }
        count += 1;
        blamed.extend(&other.worker);
    }
    let goes_on_elsewhere = failures.at_work.iter().any(|worker| !blamed.contains(&worker));
    (count == ALIKE && !goes_on_elsewhere).then_some(last)
}

/// What says something of the work, and not of the worker's life or of the device's size.
fn counts(kind: &FailureKind) -> bool {
    match kind {
        FailureKind::Crashed { .. }
        | FailureKind::Hung
        | FailureKind::Exited { .. }
        | FailureKind::NotStarted
        | FailureKind::ResultRefused => true,
        FailureKind::OutOfMemory { .. } | FailureKind::LeaseExpired | FailureKind::HandedBack => false,
    }
}

/// The same reason and, but for numbers, the same first line; or the same last one, where a traceback ends
/// with what went wrong and begins anywhere.
fn are_alike(one: &FailureRecord, other: &FailureRecord) -> bool {
    let (a, b) = (&one.failure.message, &other.failure.message);
    one.failure.kind == other.failure.kind
        && (without_numbers(first_line(a)) == without_numbers(first_line(b))
            || without_numbers(last_line(a)) == without_numbers(last_line(b)))
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}

fn last_line(text: &str) -> &str {
    text.trim().lines().last().unwrap_or_default()
}

/// Process ids, ranks and times differ from run to run.
fn without_numbers(line: &str) -> String {
    line.chars().filter(|character| !character.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use loadmaster_proto::measure::failure::RunFailure;
    use loadmaster_proto::name::{OperationName, ProfileName};

    use super::*;

    fn failed(second: i64, worker: &str, message: &str) -> FailureRecord {
        FailureRecord {
            failure: RunFailure {
                kind: FailureKind::Exited { code: 1 },
                message: message.to_owned(),
                stage_index: None,
            },
            worker: Some(WorkerName::from_id(worker).unwrap()),
            lease_token: 1,
            time: Timestamp::from_second(second).unwrap(),
        }
    }

    fn failures(newest: Vec<FailureRecord>) -> Failures {
        Failures {
            operation: OperationName::from_id("o").unwrap(),
            profile: ProfileName::from_id("p").unwrap(),
            newest,
            last_answer: None,
            at_work: Vec::new(),
        }
    }

    const BROKEN: &str = "the command gpt ended with code 1: no module named megatron";

    #[test]
    fn three_runs_that_fail_alike_are_enough_and_two_are_not() {
        let alike = |count: i64| failures((0..count).rev().map(|at| failed(at, "w", BROKEN)).collect());
        assert!(hopeless(&alike(2)).is_none());
        assert_eq!(hopeless(&alike(3)).unwrap().time.as_second(), 2);
        assert!(hopeless(&alike(50)).is_some());
    }

    #[test]
    fn an_answer_between_them_gives_hope_and_one_before_them_does_not() {
        let mut of = failures((1..=3).rev().map(|at| failed(at, "w", BROKEN)).collect());
        of.last_answer = Some(Timestamp::from_second(2).unwrap());
        assert!(hopeless(&of).is_none());
        of.last_answer = Some(Timestamp::from_second(0).unwrap());
        assert!(hopeless(&of).is_some());
    }

    #[test]
    fn failures_differ_by_reason_and_by_words_but_not_by_numbers() {
        let with = |message: &str| {
            hopeless(&failures(vec![failed(3, "w", BROKEN), failed(2, "w", message), failed(1, "w", BROKEN)]))
                .is_some()
        };
        assert!(!with("the command gpt ended with code 1: no space left"));
        let line = |rank: u32| failed(3, "w", &format!("rank {rank} of process {rank}77 ended"));
        assert!(hopeless(&failures(vec![line(1), line(2), line(3)])).is_some());
        let traceback = |file: &str| failed(3, "w", &format!("ended: in {file}\n  import\nImportError: gpt"));
        assert!(hopeless(&failures(vec![traceback("a.py"), traceback("b.py"), traceback("c.py")])).is_some());

        let mut killed = failed(2, "w", BROKEN);
        killed.failure.kind = FailureKind::Crashed { signal: 9 };
        assert!(hopeless(&failures(vec![failed(3, "w", BROKEN), killed, failed(1, "w", BROKEN)])).is_none());
    }

    /// Lost workers and small devices say nothing of the command.
    #[test]
    fn what_is_no_fault_of_the_work_does_not_count() {
        let mut all: Vec<FailureRecord> = (1..=4).rev().map(|at| failed(at, "w", BROKEN)).collect();
        for of in &mut all {
            of.failure.kind = FailureKind::LeaseExpired;
        }
        assert!(hopeless(&failures(all.clone())).is_none());
        all.extend((1..=2).rev().map(|at| failed(at, "w", BROKEN)));
        assert!(hopeless(&failures(all)).is_none());
    }

    #[test]
    fn one_broken_worker_does_not_end_what_another_one_works_on() {
        let mut of = failures((1..=3).rev().map(|at| failed(at, "broken", BROKEN)).collect());
        of.at_work = vec![WorkerName::from_id("broken").unwrap()];
        assert!(hopeless(&of).is_some());
        of.at_work.push(WorkerName::from_id("sound").unwrap());
        assert!(hopeless(&of).is_none());
    }
}
