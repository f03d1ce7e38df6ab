//! `loadmaster slurm exec`: a task of srun becomes a rank of the plan.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::{Args, ValueEnum};

use super::binding::{BindingFile, JobBinding};
use super::task::Task;
use super::variables::Variables;
use crate::failure::Failure;

/// See [`super::SlurmVerb::Exec`].
#[derive(Debug, Args)]
pub(crate) struct ExecTask {
    /// What the command is started for: tasks of srun are as many.
    #[arg(long, value_enum, default_value_t = Per::Rank)]
    per: Per,

    #[command(flatten)]
    file: BindingFile,

    /// What takes the place of this program.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    command: Vec<String>,
}

/// What a command is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Per {
    /// Every rank, as torchrun starts it.
    Rank,
    /// Every node: torchrun itself, or an exported train.sh, which starts the ranks.
    Node,
}

impl ExecTask {
    /// Becomes the command; comes back only if that cannot be started.
    pub(super) fn run(self) -> Result<(), Failure> {
        let variables = Variables::of_this_process();
        let binding = JobBinding::read(&self.file.path(&variables)?)?;
        let environment = Task::of(&binding, &variables, self.per)?.environment();
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::Usage("name a command behind --".to_owned()));
        };
        let error = Command::new(program).args(arguments).envs(environment).exec();
        Err(anyhow::Error::new(error).context(format!("cannot start {program}")).into())
    }
}
