//! `make quality`: how good plans are when they are really trained.
//!
//! On four CPU slots, each model is profiled once; then every search and every well-known rule makes its
//! plan, and each plan is trained for real. The table has what was predicted and what was measured. At last,
//! the largest AmoebaNet that still trains under a fixed capacity is looked for, cut by Loadmaster and
//! cut by time.

mod call;
mod contender;
mod largest;
mod measured;
mod options;
mod report;
mod subject;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use loadmaster_tests::{Interruption, Planner, Worker, WorkerOptions};

use call::Caller;
use options::Options;

/// Set by Ctrl-C: the next step is not begun, and what runs is stopped.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Exit code after an interruption, as shells have it.
const EXIT_INTERRUPTED: u8 = 130;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    // First of all: a signal that comes before would end this program and leave what it started behind.
    let interruption = match Interruption::listen() {
        Ok(interruption) => interruption,
        Err(error) => {
            eprintln!("quality: signals cannot be heard: {error}");
            return ExitCode::FAILURE;
        }
    };
    let options = Options::parse();
    tokio::spawn(async move {
        interruption.came().await;
        INTERRUPTED.store(true, Ordering::Relaxed);
    });
    let work = tokio::task::spawn_blocking(move || run(&options));
    match work.await {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(_)) if INTERRUPTED.load(Ordering::Relaxed) => {
            eprintln!("interrupted: planner, worker and ranks are stopped; finished tables are kept");
            ExitCode::from(EXIT_INTERRUPTED)
        }
        Ok(Err(error)) => {
            eprintln!("quality: {error:#}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("quality: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let started = Instant::now();
    let folder = options.folder()?;
    std::fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let planner = Planner::start_with(&[]);
    let worker =
        WorkerOptions { name: "quality".to_owned(), slots: options.slots(), ..WorkerOptions::default() };
    let _worker = Worker::start(&planner, &worker);
    let caller = Caller::new(&planner);

    let mut text = String::new();
    for subject in subject::all(options.quick) {
        if !options.wants(subject.id) {
            continue;
        }
        let results = measured::study(&caller, &subject, options)?;
        let table = report::table(&subject, &results, options);
        println!("{table}");
        text.push_str(&table);
        let data = serde_json::to_string_pretty(&results)?;
        std::fs::write(folder.join(format!("{}.json", subject.id)), data)?;
    }
    if options.wants(largest::ID) {
        let found = largest::search(&caller, options)?;
        let table = report::largest(&found);
        println!("{table}");
        text.push_str(&table);
        std::fs::write(folder.join("largest.json"), serde_json::to_string_pretty(&found)?)?;
    }
    std::fs::write(folder.join("quality.txt"), &text)?;
    if text.is_empty() {
        bail!("nothing is called so: choose of {}", subject::names().join(", "));
    }
    println!("{:.0} s; data in {}", started.elapsed().as_secs_f64(), folder.display());
    Ok(())
}
