//! `loadmaster slurm`: plans as Slurm's jobs.
//!
//! Before Slurm gives nodes: `request` and `script`. Inside of a job: `bind` learns from `node` what it got and writes who is
//! which rank, and `exec` is a task of srun that becomes one.

mod node;
mod place;
mod placement;
mod request;
mod script;
mod task;
mod topology;
mod variables;

use clap::Subcommand;

use super::help;
use crate::failure::{Failure, options};
use crate::session::context::Context;
use place::PlaceJob;
use request::RequestJob;
use script::WriteScript;
use task::ExecTask;

#[derive(Debug, Subcommand)]
pub(crate) enum SlurmVerb {
    /// What a job asks Slurm for, as lines of sbatch: nodes, GPUs by kind, and how near they are.
    #[command(after_help = help::SLURM_REQUEST)]
    Request(RequestJob),
    /// A whole job for sbatch: asks for what the plan needs, places its ranks and starts a command for each.
    #[command(after_help = help::SLURM_SCRIPT)]
    Script(WriteScript),
    /// Inside of a job: which rank is where on the nodes that it got, as a file for `exec`.
    #[command(after_help = help::SLURM_PLACE)]
    Place(PlaceJob),
    /// As a task of srun: become a rank of the plan, with what torchrun would set.
    #[command(after_help = help::SLURM_EXEC)]
    Exec(ExecTask),
    /// As a task of srun: what Slurm gave on this node, as a line of JSON.
    #[command(after_help = help::SLURM_NODE)]
    Node,
}

impl SlurmVerb {
    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> options::OptionTable {
        match self {
            Self::Request(_) => options::SLURM_REQUEST,
            Self::Script(_) => options::SLURM_SCRIPT,
            Self::Place(_) => options::SLURM_PLACE,
            Self::Exec(_) | Self::Node => &[],
        }
    }
}

pub(crate) async fn run(context: &Context, verb: SlurmVerb) -> Result<(), Failure> {
    match verb {
        SlurmVerb::Request(request) => request.run(context).await,
        SlurmVerb::Script(script) => script.run(context).await,
        SlurmVerb::Place(bind) => bind.run(context).await,
        SlurmVerb::Exec(exec) => exec.run(),
        SlurmVerb::Node => node::print(),
    }
}
