//! The processes of a run: started, watched, ended, and gone before their devices are free again.

mod assignment;
pub(crate) mod blame;
mod lives;
mod rank_id;
mod rank_process;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::measure::failure::FailureKind;
use loadmaster_proto::measure::failure::RunFailure;
use loadmaster_proto::phase::Phase;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::select;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::process::folder::{self, WorkFolder};
use crate::process::group::Group;
use crate::process::{kernel, spawn};
use crate::run::job::Claim;
use crate::state::Job;
use assignment::{Assignment, Spec};
use blame::{Exit, Outcome, RankEnd, Said, judge};
use lives::Lives;
use rank_id::RankId;
use rank_process::{Heard, command, drive};

/// How long the other ranks may take to end after one has failed.
const GRACE: Duration = Duration::from_secs(2);
/// The same while ranks only lost a neighbour: the one that is to blame is still ending.
const GRACE_WITHOUT_CAUSE: Duration = Duration::from_secs(10);
/// Between two reports of progress.
const PROGRESS: Duration = Duration::from_millis(200);
/// Signs of life that wait to be looked at.
const HEARD: usize = 64;

/// Progress of a run.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Which.
    pub(crate) claim: Claim,
    /// Mean of its ranks' fractions.
    pub(crate) fraction: f64,
    /// What its slowest rank does.
    pub(crate) phase: Phase,
}

/// Starts and watches the ranks of runs.
#[derive(Debug)]
pub(crate) struct Supervisor {
    /// The rank program.
    pub(crate) program: PathBuf,
    /// Where runs have their folders.
    pub(crate) folder: WorkFolder,
    /// Threads of each rank.
    pub(crate) threads: u32,
    /// A rank that says nothing for this long hangs.
    pub(crate) hang_timeout: Duration,
}

/// Why the loop over a run's ranks ended.
enum Verdict {
    /// Every rank ended, or enough of them to know the outcome.
    Ends,
    /// The daemon was told to stop the run.
    Stopped,
    /// A rank hangs, or time is up.
    TooLong(RunFailure),
}

impl Supervisor {
    /// Works on a run until none of its processes is left. `stop` ends it early.
    pub(crate) async fn run(
        &self,
        job: Job,
        stop: CancellationToken,
        progress: mpsc::Sender<Progress>,
    ) -> Outcome {
        let folder = match self.folder.run_folder() {
            Ok(folder) => folder,
            Err(error) => return Outcome::Failed(not_started(format!("the run's folder: {error}"))),
        };
        let path = folder.path().to_owned();
        let outcome = self.supervise(&job, &path, &stop, &progress).await;
        folder::remove(folder, &path);
        outcome
    }

    async fn supervise(
        &self,
        job: &Job,
        folder: &Path,
        stop: &CancellationToken,
        progress: &mpsc::Sender<Progress>,
    ) -> Outcome {
        let kills_before = kernel::out_of_memory_kills();
        let (heard_sender, heard) = mpsc::channel(HEARD);
        let mut ranks = FuturesUnordered::new();
        let mut ends = Vec::new();
        let mut group: Option<Group> = None;
        let assignments = self.assignments(job, folder);
        // No await in this loop: a leader that was reaped would leave no group to join.
        for (assignment, device) in assignments.iter().zip(&job.devices) {
            let rank = assignment.rank;
            let started = self.start(assignment, device, folder, group.as_ref().map(|group| group.0));
            match started {
                Ok((child, input)) => {
                    if let Some(pid) = child.id() {
                        kernel::prefer_to_kill(pid);
                        group.get_or_insert_with(|| Group(Pid::from_raw(pid.cast_signed())));
                    }
                    ranks.push(drive(child, rank, input, heard_sender.clone()));
                }
                Err(error) => {
                    let exit = Exit::NotSpawned(error.to_string());
                    ends.push(RankEnd { rank, exit, said: Said::default() });
                    break;
                }
            }
        }
        drop(heard_sender);
        let watch = Lives::new(assignments.iter().map(|assignment| assignment.rank), Instant::now());
        let verdict = if ends.is_empty() {
            self.watch(job, watch, &mut ranks, &mut ends, heard, stop, progress).await
        } else {
            Verdict::Ends
        };
        if let Some(group) = group {
            group.kill();
            while let Some(mut end) = ranks.next().await {
                if end.exit == Exit::Signal(Signal::SIGKILL as i32) {
                    end.exit = Exit::Killed;
                }
                ends.push(end);
            }
            group.gone().await;
        }
        let kernel_killed = kernel::out_of_memory_kills() > kills_before;
        match verdict {
            Verdict::Stopped => Outcome::Stopped,
            Verdict::Ends => judge(ends, None, kernel_killed),
            Verdict::TooLong(failure) => judge(ends, Some(failure), kernel_killed),
        }
    }

    fn start(
        &self,
        assignment: &Assignment,
        device: &Device,
        folder: &Path,
        group: Option<Pid>,
    ) -> std::io::Result<(tokio::process::Child, Vec<u8>)> {
        let mut command = command(&self.program, device, self.threads, folder);
        let input = match &assignment.spec {
            Spec::Train(spec) => {
                command.arg("train");
                serde_json::to_vec(spec)?
            }
            Spec::Links(spec) => {
                command.arg("links");
                serde_json::to_vec(spec)?
            }
        };
        let child = spawn::spawn(command, group).map_err(|error| {
            std::io::Error::new(error.kind(), format!("{}: {error}", self.program.display()))
        })?;
        Ok((child, input))
    }

    /// Watches the ranks until the outcome is known.
    #[expect(clippy::too_many_arguments, reason = "the state of one loop, split off to be readable")]
    async fn watch(
        &self,
        job: &Job,
        mut watch: Lives,
        ranks: &mut FuturesUnordered<impl Future<Output = RankEnd>>,
        ends: &mut Vec<RankEnd>,
        mut heard: mpsc::Receiver<Heard>,
        stop: &CancellationToken,
        progress: &mpsc::Sender<Progress>,
    ) -> Verdict {
        let deadline = Instant::now() + job.deadline;
        let mut give_up_at: Option<Instant> = None;
        let mut report_at = Instant::now();
        loop {
            let hung_at = watch.hung_at(self.hang_timeout);
            let wake = [Some(deadline), hung_at, give_up_at].into_iter().flatten().min().unwrap_or(deadline);
            select! {
                () = stop.cancelled() => return Verdict::Stopped,
                Some(sign) = heard.recv() => {
                    watch.heard(sign, Instant::now());
                    if report_at <= Instant::now() {
                        report_at = Instant::now() + PROGRESS;
                        let (fraction, phase) = watch.progress();
                        // The next one will do as well.
                        let _ = progress.try_send(Progress { claim: job.claim.clone(), fraction, phase });
                    }
                }
                end = ranks.next() => {
                    let Some(end) = end else { return Verdict::Ends };
                    watch.ended(end.rank, end.succeeded());
                    if !end.succeeded() {
                        let grace = if end.lost_neighbour() { GRACE_WITHOUT_CAUSE } else { GRACE };
                        let until = Instant::now() + grace;
                        give_up_at = Some(give_up_at.map_or(until, |earlier| earlier.min(until)));
                    }
                    ends.push(end);
                }
                () = sleep_until(wake) => {
                    let now = Instant::now();
                    if give_up_at.is_some_and(|at| at <= now) {
                        return Verdict::Ends;
                    }
                    if deadline <= now {
                        return Verdict::TooLong(past_deadline(job, &watch));
                    }
                    if let Some((rank, last)) = watch.quietest()
                        && last + self.hang_timeout <= now
                    {
                        return Verdict::TooLong(self.hung(rank, &watch));
                    }
                }
            }
        }
    }

    fn hung(&self, rank: RankId, watch: &Lives) -> RunFailure {
        RunFailure {
            kind: FailureKind::Hung,
            message: format!(
                "the rank of {rank} reported nothing for {} s ({}) and was killed",
                self.hang_timeout.as_secs_f64(),
                watch.of(rank)
            ),
            stage_index: Some(rank.stage_index),
        }
    }
}

fn past_deadline(job: &Job, watch: &Lives) -> RunFailure {
    let (fraction, phase) = watch.progress();
    RunFailure {
        kind: FailureKind::Hung,
        message: format!(
            "the deadline of {} s passed at {:.0}%, {}; the run was killed",
            job.deadline.as_secs_f64(),
            fraction * 100.0,
            phase.as_str()
        ),
        stage_index: None,
    }
}

fn not_started(message: String) -> RunFailure {
    RunFailure { kind: FailureKind::NotStarted, message, stage_index: None }
}

#[cfg(test)]
mod tests;
