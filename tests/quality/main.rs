//! `make quality`: how good plans are when they are really trained.
//!
//! On four CPU slots, each model is profiled once; then every search and every well-known rule makes its
//! plan, and each plan is trained for real. The table has what was predicted and what was measured. At last,
//! the largest AmoebaNet that still trains under a fixed capacity is looked for, cut by Loadmaster and
//! cut by time.

mod contender;
mod largest;
mod measured;
mod options;
mod report;
mod subject;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use loadmaster_tests::{Caller, Planner, Worker, WorkerOptions, until_interrupted};

use options::Options;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    until_interrupted("quality", || run(&Options::parse())).await
}

fn run(options: &Options) -> Result<ExitCode> {
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
    Ok(ExitCode::SUCCESS)
}
