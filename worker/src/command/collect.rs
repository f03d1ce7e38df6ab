//! What became of a command's run: from how it ended and what its ranks left behind.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::measure::failure::{FailureKind, OutOfMemory, RunFailure};
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::RunSpec;
use loadmaster_proto::name::CommandName;

use super::process::{End, How};
use super::rank_file::{self, RankReport};
use crate::process::exit::{EXIT_NOT_LOADED, killed_by, quoted};
use crate::run::{Job, Outcome, describe};

/// The outcome. A rank that ran out of memory is believed however the command ended: the others end in
/// its wake. Measurements count only if the command succeeded and every rank has its own.
pub(super) fn outcome(
    command: &CommandName,
    ledger: Accounting,
    job: &Job<RunSpec>,
    results: &Path,
    end: End,
) -> Outcome {
    if matches!(end.how, How::Stopped) {
        return Outcome::Stopped;
    }
    let ranks = ranks(command, ledger, job, results);
    if let Some((rank, oom)) = ranks.iter().enumerate().find_map(|(rank, result)| match result {
        Ok(RankReport::OutOfMemory(oom)) => Some((rank, oom)),
        Ok(RankReport::Measured(_)) | Err(_) => None,
    }) {
        return Outcome::Failed(out_of_memory(job, rank, oom));
    }
    match ended_badly(command, &end) {
        Some(failure) => Outcome::Failed(failure),
        None => match measurements(ranks) {
            Ok(measurements) => Outcome::Measured(measurements),
            Err((rank, why)) => Outcome::Failed(RunFailure {
                kind: FailureKind::Exited { code: 0 },
                message: format!(
                    "the custom profiler {command} succeeded, but rank-{rank}.json {why}{}",
                    quoted(&end.tail)
                ),
                stage_index: stage_of(job, rank),
            }),
        },
    }
}

type RankOutcome = Result<RankReport, String>;

/// What each rank left behind, in order.
fn ranks(command: &CommandName, ledger: Accounting, job: &Job<RunSpec>, results: &Path) -> Vec<RankOutcome> {
    let places = job.task.ranks();
    let each = places.iter().zip(&job.lease.devices).enumerate();
    each.map(|(rank, (&place, device))| {
        let file = rank_file::read(results, rank).map_err(|why| format!("is not valid: {why}"))?.ok_or(
            "is missing. The profiler must write one file for each rank, see deploy/command/README.md.",
        )?;
        file.result(command, ledger, &job.task, (rank, place, device))
            .map_err(|why| format!("is not valid: {why}"))
    })
    .collect()
}

fn measurements(ranks: Vec<RankOutcome>) -> Result<Vec<Measurement>, (usize, String)> {
    ranks
        .into_iter()
        .enumerate()
        .filter_map(|(rank, result)| match result {
            Ok(RankReport::Measured(measurement)) => Some(Ok(*measurement)),
            Ok(RankReport::OutOfMemory(_)) => None,
            Err(why) => Some(Err((rank, why))),
        })
        .collect()
}

fn out_of_memory(job: &Job<RunSpec>, rank: usize, oom: &OutOfMemory) -> RunFailure {
    RunFailure {
        kind: FailureKind::OutOfMemory { out_of_memory: oom.clone() },
        message: format!("rank {rank} ran out of memory {}", describe(oom)),
        stage_index: stage_of(job, rank),
    }
}

fn stage_of(job: &Job<RunSpec>, rank: usize) -> Option<u32> {
    job.task.ranks().get(rank).map(|place| place.position.stage_index)
}

/// Why the command's results do not count, whatever they are.
fn ended_badly(command: &CommandName, end: &End) -> Option<RunFailure> {
    let said = quoted(&end.tail);
    let (kind, message) = match &end.how {
        // Stopped runs have no failure.
        How::Stopped => return None,
        How::NotSpawned(why) => {
            (FailureKind::NotStarted, format!("the custom profiler {command} could not be started: {why}"))
        }
        How::Deadline { seconds, fraction } => (
            FailureKind::Hung,
            format!(
                "the custom profiler {command} reached its deadline of {seconds} s at {:.0}% and was killed{said}",
                fraction * 100.0
            ),
        ),
        How::OutOfMemory => (
            FailureKind::Hung,
            format!("the custom profiler {command} did not end after a rank ran out of memory{said}"),
        ),
        How::Exited(status) => match (status.code(), status.signal()) {
            (Some(0), _) => return None,
            (Some(code), _) if EXIT_NOT_LOADED.contains(&code) => (
                FailureKind::NotStarted,
                format!(
                    "the custom profiler {command} could not be started: exit code {code} (126: not executable, 127: \
                     not found){said}"
                ),
            ),
            (Some(code), _) => (
                FailureKind::Exited { code },
                format!("the custom profiler {command} ended with code {code}{said}"),
            ),
            (None, signal) => {
                let signal = signal.unwrap_or_default();
                let killed_by = killed_by(signal, end.kernel_killed);
                (
                    FailureKind::Crashed { signal },
                    format!("the custom profiler {command} was killed by {killed_by}{said}"),
                )
            }
        },
    };
    Some(RunFailure { kind, message, stage_index: None })
}
