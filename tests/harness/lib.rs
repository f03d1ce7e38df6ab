//! Starts the real programs for the end-to-end tests, and stops them whatever happens.
//!
//! Nothing here is a stand-in: planners run their embedded Postgres, workers start real ranks that
//! train on libtorch, and the command line is the one that users type at.

mod answer;
mod call;
mod caller;
mod change;
mod cli;
mod cluster;
mod document;
mod interruption;
mod kernel;
mod leftovers;
mod planner;
mod process;
mod rank;
mod raw;
mod rows;
mod sampler;
mod slurm;
mod trial;
mod worker;

pub use answer::{bytes, number, peak, seconds, stages, warnings, whole};
pub use call::call;
pub use caller::{Caller, NO_PLAN, Refused};
pub use change::with_changes;
pub use cli::{CommandLine, Output, SMALL_GPT2, TINY_GPT2, cli, json, profile, profiled, uncertain};
pub use cluster::prepare_cluster;
pub use document::{ADAM, Provenance, TableRow, chain, layer_rows, table_document, uneven_chain};
pub use interruption::{EXIT_INTERRUPTED, Interruption, interrupt, is_interrupted};
pub use kernel::{
    children, is_alive, peak_resident_bytes, processor_seconds, processor_seconds_of_tree, resident_bytes,
};
pub use planner::{AnyPlanner, Planner};
pub use process::{Program, binary, wait_until};
pub use rank::rank_spec;
pub use raw::raw_call;
pub use rows::{measured_run, new_run, new_worker, plain_strategy};
pub use sampler::Sampler;
pub use slurm::SlurmCluster;
pub use trial::{Ledgers, Trial, stage_sizes};
pub use worker::{SECONDS_OF_RANKS, Worker, WorkerOptions, hello, script};
