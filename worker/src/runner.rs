//! A run from its lease to its end: its devices are looked at, its processes work, its devices are looked at
//! again.

use std::path::Path;

use loadmaster_proto::measure::failure::FailureKind;
use loadmaster_proto::measure::failure::RunFailure;
use loadmaster_proto::measure::run::{RunSpec, Task};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::command;
use crate::config::command::Commands;
use crate::health::Health;
use crate::process::folder;
use crate::ranks::blame::Outcome;
use crate::ranks::{Progress, Supervisor};
use crate::state::Job;

/// Works on runs.
#[derive(Debug)]
pub(crate) struct Runner {
    /// Starts Loadmaster's own ranks.
    pub(crate) supervisor: Supervisor,
    /// Training commands, for runs that name one.
    pub(crate) commands: Commands,
    /// Looks at the devices.
    pub(crate) health: Health,
}

impl Runner {
    /// Works on a run until none of its processes is left. `stop` ends it early.
    pub(crate) async fn run(
        &self,
        job: Job,
        stop: CancellationToken,
        progress: mpsc::Sender<Progress>,
    ) -> Outcome {
        let before = match self.health.before(&job.devices).await {
            Ok(before) => before,
            Err(refusal) => return Outcome::Failed(refusal),
        };
        let devices = job.devices.clone();
        let (lease, task) = job.with(());
        let outcome = match task {
            Task::Train(spec) if spec.command.is_some() => {
                self.command(&lease.with(*spec).0, &stop, &progress).await
            }
            task => self.supervisor.run(lease.with(task).0, stop, progress).await,
        };
        self.health.after(&devices, before, outcome).await
    }

    async fn command(
        &self,
        job: &Job<RunSpec>,
        stop: &CancellationToken,
        progress: &mpsc::Sender<Progress>,
    ) -> Outcome {
        let Some((name, command)) =
            job.spec.command.as_ref().and_then(|name| self.commands.get_key_value(name))
        else {
            let name = job.spec.command.as_ref().map(ToString::to_string).unwrap_or_default();
            return Outcome::Failed(handed_back(format!(
                "this worker offers no command {name}: it was started with another configuration since"
            )));
        };
        let folder = match self.supervisor.folder.run_folder() {
            Ok(folder) => folder,
            Err(error) => return Outcome::Failed(handed_back(format!("the run's folder: {error}"))),
        };
        let path: &Path = folder.path();
        let outcome = command::run(name, command, job, path, stop, progress).await;
        let path = path.to_owned();
        folder::remove(folder, &path);
        outcome
    }
}

fn handed_back(message: String) -> RunFailure {
    RunFailure { kind: FailureKind::HandedBack, message, stage_index: None }
}
