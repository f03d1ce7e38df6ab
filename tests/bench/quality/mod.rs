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

use std::time::Instant;

use anyhow::{Result, bail};
use loadmaster_tests::{Caller, Planner, Worker, WorkerOptions};

use crate::output::write_json;
pub(crate) use options::Options;

/// Trains and compares them; none is a goal.
///
/// # Errors
/// A command fails.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let started = Instant::now();
    let folder = options.folder()?;
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
