//! Starts the real programs for the end-to-end tests, and stops them whatever happens.
//!
//! Nothing here is a stand-in: planners run their embedded Postgres, workers start real ranks that
//! train on libtorch, and the command line is the one that users type at.

mod cli;
mod interruption;
mod planner;
mod process;
mod worker;

pub use cli::{Output, TINY_GPT2, cli, json};
pub use interruption::Interruption;
pub use planner::{Planner, PlannerOptions};
pub use process::{Program, binary, is_alive, wait_until};
pub use worker::{Worker, WorkerOptions, script};
