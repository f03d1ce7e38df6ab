//! `make bench-idle`: what workers cost that have nothing to do.
//!
//! Starts a planner with its embedded Postgres, connects workers that say hello and send heartbeats and
//! nothing else, each on a connection of its own, and reads from `/proc` how long planner and database
//! computed meanwhile. Seconds of a processor mean something on a busy machine too; what a second takes does
//! not.

mod workers;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use loadmaster_tests::{Planner, processor_seconds, processor_seconds_of_tree};

/// Connects idle workers to a planner and prints which share of a core planner and database take.
#[derive(Debug, Parser)]
#[command(name = "bench-idle")]
struct Options {
    /// Idle workers.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5_000))]
    workers: u32,

    /// Seconds to look for.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,

    /// The planner to look at, instead of the one beside this program.
    #[arg(long, value_name = "PATH")]
    planner: Option<PathBuf>,

    /// End with exit code 2 if the planner takes more than 5 % of a core or the database more than 10 %.
    #[arg(long)]
    strict: bool,
}

/// Exit code of `--strict` when a goal is missed.
const MISSED: u8 = 2;
/// Most that planner and database may take of a core.
const GOALS: [f64; 2] = [0.05, 0.10];

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options).await {
        Ok(shares) => {
            let missed = shares.iter().zip(GOALS).any(|(share, goal)| *share > goal);
            if options.strict && missed { ExitCode::from(MISSED) } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            eprintln!("bench-idle: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<[f64; 2]> {
    let mut planner = match &options.planner {
        Some(program) => Planner::start_program(program),
        None => Planner::start_with(&[]),
    };
    let workers = workers::connect(planner.address(), options.workers).await?;
    // Whatever follows from the hellos is over by then.
    tokio::time::sleep(Duration::from_secs(5)).await;

    let (pid, postmaster) = (planner.program().pid(), planner.postmaster().context("no Postgres runs")?);
    let taken = || [processor_seconds(pid), processor_seconds_of_tree(postmaster)];
    let (before, start, heartbeats) = (taken(), Instant::now(), workers.heartbeats());
    tokio::time::sleep(Duration::from_secs(options.seconds)).await;
    let after = taken();
    let passed = start.elapsed().as_secs_f64();
    workers.check()?;

    println!(
        "{} idle workers, a heartbeat every {} s, {:.1} heartbeats per second, looked at for {passed:.1} s",
        options.workers,
        workers.heartbeat_seconds(),
        f64::from(workers.heartbeats() - heartbeats) / passed
    );
    let shares = [0, 1].map(|which| (after[which] - before[which]) / passed);
    for ((who, share), goal) in ["planner", "database"].iter().zip(shares).zip(GOALS) {
        println!("{who:9} {:5.1} % of a core (goal: at most {:.0} %)", share * 100.0, goal * 100.0);
    }
    Ok(shares)
}
