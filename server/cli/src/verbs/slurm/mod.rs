//! `loadmaster slurm`: plans as Slurm's jobs.
//!
//! Before Slurm allocates nodes: `request` and `script`. Inside a job: `place` collects the allocated devices with `node` and
//! writes the device of each rank, and `exec` is a task of srun that becomes a rank.

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
    /// Print the resources that a plan needs as lines of sbatch: nodes, GPUs by type, switches.
    #[command(after_help = help::SLURM_REQUEST)]
    Request(RequestJob),
    /// Print a complete job for sbatch: it requests resources, places the ranks and starts a command for each.
    #[command(after_help = help::SLURM_SCRIPT)]
    Script(WriteScript),
    /// Inside a job: place the ranks on the allocated nodes, and write the placement file for `exec`.
    #[command(after_help = help::SLURM_PLACE)]
    Place(PlaceJob),
    /// As a task of srun: become a rank of the plan, with the variables that torchrun sets.
    #[command(after_help = help::SLURM_EXEC)]
    Exec(ExecTask),
    /// As a task of srun: print the allocated devices of this node as a line of JSON.
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
        SlurmVerb::Place(place) => place.run(context).await,
        SlurmVerb::Exec(exec) => exec.run(),
        SlurmVerb::Node => node::print(),
    }
}
