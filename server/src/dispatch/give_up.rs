//! When a campaign is not worth going on with: several of its runs failed alike and nothing succeeded between.
//!
//! A command that cannot start fails each of a hundred runs three times. Whoever asked wants to know after the
//! first few. A campaign that goes on elsewhere is left alone: one broken worker must not end it. Runs that fail together
//! on one host count as one: the kernel's out-of-memory killer ends all ranks of a host at one moment, whatever they train.

use jiff::SignedDuration;
use loadmaster_proto::measure::failure::FailureKind;
use loadmaster_proto::name::{RunName, WorkerName};

use crate::store::records::{FailureRecord, Failures};
use crate::store::{Store, StoreError};

/// Runs that fail alike, one after the other, before a campaign is stopped.
const ALIKE: usize = 3;
/// Failures of a host that are no farther apart coincide: a busy host reports all of its runs within seconds.
const MOMENT: SignedDuration = SignedDuration::from_secs(10);
/// Most characters of a failure in the message.
const QUOTE: usize = 300;

/// Stops the campaign of a run that just failed, if it is hopeless.
pub(super) async fn consider(store: &Store, run: &RunName) -> Result<(), StoreError> {
    let Some(failures) = store.failures_beside(run).await? else { return Ok(()) };
    let Some(last) = hopeless(&failures) else { return Ok(()) };
    let by = last.worker.as_ref().map(|worker| format!(" on {worker}")).unwrap_or_default();
    let quote: String = first_line(&last.failure.message).chars().take(QUOTE).collect();
    let message = format!(
        "the profile was stopped: {ALIKE} runs failed with the same error, and no run succeeded between them. Last \
         error{by}: {quote}. The other runs were not started. Fix the cause, then use `loadmaster profile resume {}`.",
        failures.profile.id()
    );
    if store.stop_operation(&failures.operation, &message).await? {
        tracing::warn!(operation.id = failures.operation.id(), reason = quote, "profile stopped early");
    }
    Ok(())
}

/// The last of the failures that make a campaign hopeless.
fn hopeless(failures: &Failures) -> Option<&FailureRecord> {
    let since = failures.last_answer;
    // One failure of each run, the newest first.
    let counted = failures
        .newest
        .iter()
        .filter(|of| counts(&of.failure.kind) && since.is_none_or(|answer| of.time > answer));
    // The last failure of each moment.
    let mut moments: Vec<&FailureRecord> = Vec::new();
    let mut blamed: Vec<&WorkerName> = Vec::new();
    for failure in counted {
        let is_of_a_moment = moments.iter().any(|last| coincide(last, failure));
        if !is_of_a_moment && moments.first().is_some_and(|last| !are_alike(last, failure)) {
            return None;
        }
        blamed.extend(&failure.worker);
        if !is_of_a_moment {
            moments.push(failure);
        }
        if moments.len() == ALIKE {
            break;
        }
    }
    let goes_on_elsewhere = failures.at_work.iter().any(|worker| !blamed.contains(&worker));
    moments.first().copied().filter(|_| moments.len() == ALIKE && !goes_on_elsewhere)
}

/// Whether a failure happened on the host of a later one, at about the same time, while that one's run was at work.
fn coincide(later: &FailureRecord, other: &FailureRecord) -> bool {
    let is_one_host = match (&later.host, &other.host) {
        (Some(one), Some(other)) => one == other,
        _ => later.worker.is_some() && later.worker == other.worker,
    };
    is_one_host && later.start <= other.time && later.time.duration_since(other.time) <= MOMENT
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
            host: None,
            lease_token: 1,
            start: Timestamp::from_second(second).unwrap(),
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
        let line = |rank: i64| failed(rank, "w", &format!("rank {rank} of process {rank}77 ended"));
        assert!(hopeless(&failures(vec![line(3), line(2), line(1)])).is_some());
        let traceback = |second: i64, file: &str| {
            failed(second, "w", &format!("ended: in {file}\n  import\nImportError: gpt"))
        };
        assert!(
            hopeless(&failures(vec![traceback(3, "a.py"), traceback(2, "b.py"), traceback(1, "c.py")]))
                .is_some()
        );

        let mut killed = failed(2, "w", BROKEN);
        killed.failure.kind = FailureKind::Crashed { signal: 9 };
        assert!(hopeless(&failures(vec![failed(3, "w", BROKEN), killed, failed(1, "w", BROKEN)])).is_none());
    }

    /// The kernel ends all ranks of a host at one moment, those of several workers too: that says nothing of the work.
    #[test]
    fn runs_that_are_killed_together_on_a_host_count_as_one() {
        let killed = |worker: &str, host: &str, start: i64, time: i64| FailureRecord {
            host: Some(host.to_owned()).filter(|host| !host.is_empty()),
            start: Timestamp::from_second(start).unwrap(),
            ..failed(time, worker, BROKEN)
        };
        let together = |worker: &str, host: &str, start, time| -> Vec<FailureRecord> {
            (0..8_i64).map(|rank| killed(worker, host, start, time - rank / 4)).collect()
        };
        assert!(hopeless(&failures(together("w", "h", 0, 100))).is_none());
        assert!(hopeless(&failures(together("w", "", 0, 100))).is_none());
        let beside = [together("w", "h", 0, 100), together("v", "h", 0, 99)].concat();
        assert!(hopeless(&failures(beside)).is_none());
        let twice = [together("w", "h", 110, 200), together("w", "h", 0, 100)].concat();
        assert!(hopeless(&failures(twice.clone())).is_none());
        // Three times over it is the work.
        let thrice = [together("w", "h", 210, 300), twice].concat();
        assert_eq!(hopeless(&failures(thrice)).unwrap().time.as_second(), 300);
        // One after the other within a second, long before the others, or on several hosts: these do not coincide.
        let in_turn = (1..=3).rev().map(|at| killed("w", "h", 2 * at, 2 * at + 1)).collect();
        assert!(hopeless(&failures(in_turn)).is_some());
        let apart = (1..=3).rev().map(|at| killed("w", "h", 0, 60 * at)).collect();
        assert!(hopeless(&failures(apart)).is_some());
        let elsewhere = ["a", "b", "c"].map(|host| killed(host, host, 0, 100)).to_vec();
        assert!(hopeless(&failures(elsewhere)).is_some());
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
