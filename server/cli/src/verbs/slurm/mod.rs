//! `loadmaster slurm`: plans as Slurm's jobs.

mod near;
mod request;

use clap::Subcommand;

use super::help;
use crate::failure::{Failure, options};
use crate::session::context::Context;
use request::RequestJob;

#[derive(Debug, Subcommand)]
pub(crate) enum SlurmVerb {
    /// What a job asks Slurm for, as lines of sbatch: nodes, GPUs by kind, and how near they are.
    #[command(after_help = help::SLURM_REQUEST)]
    Request(RequestJob),
}

impl SlurmVerb {
    /// The options that fill the fields of its request.
    pub(crate) fn options(&self) -> options::OptionTable {
        match self {
            Self::Request(_) => options::SLURM_REQUEST,
        }
    }
}

pub(crate) async fn run(context: &Context, verb: SlurmVerb) -> Result<(), Failure> {
    match verb {
        SlurmVerb::Request(request) => request.run(context).await,
    }
}
