//! The ranks of a run: started, watched, ended, and gone before their devices are free again.

mod assignment;
mod liveness;
mod rank_process;
mod root_cause;
#[cfg(test)]
mod tests;
mod watch;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use assignment::{Assignment, Spec};
use futures_util::stream::{FuturesUnordered, StreamExt};
use liveness::Liveness;
use loadmaster_proto::cluster::device::Device;
use loadmaster_proto::measure::offload::CopyPace;
use nix::sys::signal::Signal;
use rank_process::{command, drive};
use root_cause::{Exit, RankEnd, RankOutput, judge};
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio::time::Instant;
use watch::{Verdict, Watch};

use crate::process::folder::{self, WorkFolder};
use crate::process::group::Group;
use crate::run::{Contact, Job, Outcome, not_started};

/// Signs of life that wait to be looked at.
const HEARD: usize = 64;

/// Starts and watches the ranks of runs.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) program: PathBuf,
    /// Where runs have their folders.
    pub(crate) folder: WorkFolder,
    /// Threads of each rank.
    pub(crate) threads: u32,
    /// Ranks on CPU slots that have cores of their own at the same time.
    pub(crate) slots_at_once: u32,
    /// A rank that says nothing for this long hangs.
    pub(crate) hang_timeout: Duration,
    /// How fast the copies of CPU slots may be.
    pub(crate) copy_pace: CopyPace,
}

impl Supervisor {
    /// Works on a run until none of its processes is left.
    pub(crate) async fn run(&self, job: &Job, contact: &Contact) -> Outcome {
        let folder = match self.folder.run_folder() {
            Ok(folder) => folder,
            Err(error) => return Outcome::Failed(not_started(format!("no folder for the run: {error}"))),
        };
        let path = folder.path().to_owned();
        let outcome = self.supervise(job, &path, contact).await;
        folder::remove(folder, &path);
        outcome
    }

    async fn supervise(&self, job: &Job, folder: &Path, contact: &Contact) -> Outcome {
        let (heard_sender, heard) = mpsc::channel(HEARD);
        let mut ranks = FuturesUnordered::new();
        let mut ends = Vec::new();
        let mut group = Group::new();
        let assignments = self.assignments(job, folder);
        // No await in this loop: a leader that was reaped would leave no group to join.
        for (assignment, device) in assignments.iter().zip(&job.lease.devices) {
            let rank = assignment.rank;
            match self.start(assignment, (device, &job.lease.devices), folder, &mut group) {
                Ok((child, input)) => ranks.push(drive(child, rank, input, heard_sender.clone())),
                Err(error) => {
                    let exit = Exit::NotSpawned(error.to_string());
                    ends.push(RankEnd { rank, exit, said: RankOutput::default() });
                    break;
                }
            }
        }
        drop(heard_sender);
        let verdict = if ends.is_empty() {
            let watch = Watch {
                lives: Liveness::new(assignments.iter().map(|assignment| assignment.rank), Instant::now()),
                heard,
                deadline: job.lease.deadline,
                hang_timeout: self.hang_timeout,
                contact,
            };
            watch.until_end(&mut ranks, &mut ends).await
        } else {
            Verdict::Ends
        };
        group.kill();
        while let Some(mut end) = ranks.next().await {
            if end.exit == Exit::Signal(Signal::SIGKILL as i32) {
                end.exit = Exit::Killed;
            }
            ends.push(end);
        }
        group.gone().await;
        match verdict {
            Verdict::Stopped => Outcome::Stopped,
            Verdict::Ends => judge(ends, None, group.kernel_killed()),
            Verdict::TooLong(failure) => judge(ends, Some(failure), group.kernel_killed()),
        }
    }

    /// A rank that was started in the group, and what it is to read.
    fn start(
        &self,
        assignment: &Assignment,
        devices: (&Device, &[Device]),
        folder: &Path,
        group: &mut Group,
    ) -> io::Result<(Child, Vec<u8>)> {
        let mut command = command(&self.program, devices, self.threads, folder);
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
        Ok((group.start(command)?, input))
    }
}
