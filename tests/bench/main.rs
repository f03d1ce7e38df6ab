//! `bench`: one program for everything that this project measures.
//!
//! Each subcommand is a module. The Makefile has a target for each: `make accuracy`, `make bench-search`.

mod accuracy;
mod certificates;
mod chunks;
mod exports;
mod idle;
mod memory;
mod output;
mod quality;
mod ranks;
mod report;
mod rpc;
mod search;
mod slurm;
mod stats;
mod table;
mod train;
mod trial;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use loadmaster_tests::{EXIT_INTERRUPTED, Interruption, interrupt};

/// Exit code of `--strict` when a goal is missed.
const EXIT_MISSED: u8 = 2;

/// Measures predictions, searches, plans, calls and training, and compares them with goals.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Bench {
    #[command(subcommand)]
    measurement: Measurement,

    /// End with exit code 2 if a goal is missed.
    #[arg(long, global = true)]
    strict: bool,
}

#[derive(Debug, Subcommand)]
enum Measurement {
    Accuracy(accuracy::Options),
    Certificates(certificates::Options),
    Chunks(chunks::Options),
    Exports(exports::Options),
    Idle(idle::Options),
    Memory(memory::Options),
    Quality(quality::Options),
    Rpc(rpc::Options),
    Search(search::Options),
    /// Trains a plan as a job of a real Slurm on four nodes of this machine.
    Slurm,
    Train(train::Options),
}

fn main() -> ExitCode {
    let Bench { measurement, mut strict } = Bench::parse();
    // Each returns whether all goals are met; none after an interruption.
    let met = match measurement {
        Measurement::Accuracy(options) => until_interrupted(accuracy::run(&options)),
        Measurement::Certificates(options) => {
            strict |= options.replay.is_some();
            until_interrupted(certificates::run(options))
        }
        Measurement::Chunks(options) => until_interrupted(chunks::run(&options)),
        Measurement::Exports(options) => exports::run(options).map(Some),
        Measurement::Idle(options) => until_interrupted(idle::run(&options)),
        Measurement::Memory(options) => memory::run(&options).map(Some),
        Measurement::Quality(options) => until_interrupted(blocking(move || quality::run(&options))),
        Measurement::Rpc(options) => until_interrupted(rpc::run(&options)),
        Measurement::Search(options) => search::run(&options).map(Some),
        Measurement::Slurm => slurm::run().map(Some),
        Measurement::Train(options) => until_interrupted(blocking(move || train::run(&options))),
    };
    match met {
        Ok(Some(false)) if strict => ExitCode::from(EXIT_MISSED),
        Ok(Some(_)) => ExitCode::SUCCESS,
        Ok(None) => {
            eprintln!("interrupted: planner, workers and ranks are stopped; finished results are kept");
            ExitCode::from(EXIT_INTERRUPTED)
        }
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Does the work unless a signal comes first, which ends what it has started; none then.
fn until_interrupted(work: impl Future<Output = Result<bool>>) -> Result<Option<bool>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let work = Box::pin(work);
    let met = runtime.block_on(async {
        // Before anything is started that would outlive a signal.
        let interruption = Interruption::listen().context("signals cannot be heard")?;
        tokio::select! {
            biased;
            () = interruption.came() => {
                // Planners that are asked end with the work, which begins nothing new.
                interrupt();
                Ok(None)
            }
            met = work => met.map(Some),
        }
    });
    // Waits for work on other threads, which ends early after an interruption.
    drop(runtime);
    met
}

/// Work on a thread of its own, beside the one that hears signals.
async fn blocking(work: impl FnOnce() -> Result<bool> + Send + 'static) -> Result<bool> {
    tokio::task::spawn_blocking(work).await?
}
