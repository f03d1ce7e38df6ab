//! `make quality`: how good plans are when they are really trained.
//!
//! On four CPU slots, each model is profiled once; then every search and every well-known rule makes its
//! plan, and each plan is trained for real. The table has what was predicted and what was measured. At last,
//! the largest AmoebaNet that still trains under a fixed capacity is looked for, cut by Loadmaster and
//! cut by time.

mod largest;
mod measured;
mod report;
mod subject;

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Parser;
use loadmaster_tests::{Caller, Planner, Worker, WorkerOptions};

use crate::output::{Output, write_json};

/// Trains the plans of every search and every well-known rule, and compares them.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Only these: vgg11, amoebanet, gpt2, largest.
    #[arg(value_name = "WHAT")]
    pub(crate) only: Vec<String>,

    /// Tiny models, for trying it out: the numbers mean nothing.
    #[arg(long)]
    pub(crate) quick: bool,

    /// Devices: equal CPU slots of this worker.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=16))]
    pub(crate) devices: u32,

    /// Capacity of each of them, GiB.
    #[arg(long, value_name = "GIB", default_value_t = 4)]
    pub(crate) capacity_gib: u32,

    /// Measured iterations of each trial, after one warm-up iteration.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) iterations: u32,

    #[command(flatten)]
    output: Output,
}

impl Options {
    pub(crate) fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == id)
    }

    /// The worker's slots.
    pub(crate) fn slots(&self) -> String {
        format!("{}x{}GiB", self.devices, self.capacity_gib)
    }
}

/// Trains and compares them; none is a goal.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let started = Instant::now();
    let folder = options.output.folder("quality")?;
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
        write_json(&folder.join(format!("{}.json", subject.id)), &results)?;
    }
    if options.wants(largest::ID) {
        let found = largest::search(&caller, options)?;
        let table = report::largest(&found);
        println!("{table}");
        text.push_str(&table);
        write_json(&folder.join("largest.json"), &found)?;
    }
    std::fs::write(folder.join("quality.txt"), &text)?;
    if text.is_empty() {
        bail!("nothing is called so: choose of {}", subject::names().join(", "));
    }
    println!("{:.0} s; data in {}", started.elapsed().as_secs_f64(), folder.display());
    Ok(true)
}
