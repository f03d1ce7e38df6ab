//! A run from its lease to its end: its devices are looked at, its processes work, its devices are looked at
//! again.

use std::path::Path;

use loadmaster_proto::measure::run::{RunSpec, Task};

use crate::command;
use crate::config::command::Commands;
use crate::health::Health;
use crate::process::folder;
use crate::ranks::Supervisor;
use crate::run::outcome::{Outcome, handed_back};
use crate::run::{Contact, Job};

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
    /// Works on a run until none of its processes is left.
    pub(crate) async fn run(&self, job: Job, contact: &Contact) -> Outcome {
        let before = match self.health.before(&job.lease.devices).await {
            Ok(before) => before,
            Err(refusal) => return Outcome::Failed(refusal),
        };
        let devices = job.lease.devices.clone();
        let Job { lease, task } = job;
        let outcome = match task {
            Task::Train(spec) if spec.command.is_some() => {
                self.command(&Job { lease, task: *spec }, contact).await
            }
            task => self.supervisor.run(&Job { lease, task }, contact).await,
        };
        self.health.after(&devices, before, outcome).await
    }

    async fn command(&self, job: &Job<RunSpec>, contact: &Contact) -> Outcome {
        let Some((name, command)) =
            job.task.command.as_ref().and_then(|name| self.commands.get_key_value(name))
        else {
            let name = job.task.command.as_ref().map(ToString::to_string).unwrap_or_default();
            return Outcome::Failed(handed_back(format!(
                "this worker offers no command {name}: it was started with another configuration since"
            )));
        };
        let folder = match self.supervisor.folder.run_folder() {
            Ok(folder) => folder,
            Err(error) => return Outcome::Failed(handed_back(format!("the run's folder: {error}"))),
        };
        let path: &Path = folder.path();
        let outcome = command::run(name, command, job, path, contact).await;
        let path = path.to_owned();
        folder::remove(folder, &path);
        outcome
    }
}
