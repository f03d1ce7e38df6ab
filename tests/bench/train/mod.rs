//! `make train-memory`: memory actions, trained.
//!
//! On CPU slots whose copies are as slow beside their computing as a server's, each rule that makes stages fit (nothing,
//! computing again, the host, peers, MPress's planner, all ways together) is asked for the largest GPT-2 that it trains, and
//! that model is trained. Where several rules fit, their plans are trained by turns and compared. PipeDream has a row, and so
//! has how much of copies that passes could hide is not hidden.

mod largest;
mod report;
mod rule;
mod scene;
mod seconds;

use std::time::Instant;

use anyhow::{Result, bail};
use loadmaster_tests::{Caller, Planner, Worker};
pub(crate) use scene::Options;
use scene::{Part, Scene};
use serde::Serialize;

use crate::output::write_json;
use crate::table::{self, Goal};

/// Trains what is wanted; whether all goals are met and every plan trains.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let started = Instant::now();
    let folder = options.folder()?;
    let planner = Planner::start_with(&[]);
    let setting = options.setting();
    let scene = Scene::new(Caller::new(&planner), &setting, "blocks");
    let mut kept = Kept { options, text: String::new(), goals: Vec::new(), failed: 0 };
    kept.print(&report::setting(&setting));
    {
        let _worker = Worker::start(&planner, &setting.worker());
        let mut all = Vec::new();
        if options.wants(Part::Largest) || options.wants(Part::Seconds) {
            all = largest::all(&scene, options)?;
            kept.failed += all.iter().filter(|of| !of.is_trained()).count();
            kept.keep("largest", &all, &report::largest(&all, &setting))?;
            kept.goals.extend(report::of_largest(&all));
        }
        if options.wants(Part::Seconds) {
            let compared = seconds::all(&scene, &all, options)?;
            kept.failed += compared.iter().flat_map(|of| &of.plans).filter(|of| of.has_failed()).count();
            kept.keep("seconds", &compared, &report::side_by_side(&compared))?;
            kept.goals.extend(report::of_seconds(&compared));
        }
        if options.wants(Part::Pipedream) {
            let rows = largest::under_pipedream(&scene, options)?;
            kept.keep("pipedream", &rows, &report::pipedream(&rows).to_string())?;
            kept.goals.extend(report::of_pipedream(&rows));
        }
    }
    if options.wants(Part::Hidden) {
        let found = seconds::hidden(&planner, &setting, options)?;
        kept.keep("hidden", &found, &report::hidden(&found))?;
        kept.goals.push(report::of_hidden(&found));
    }
    if kept.goals.is_empty() {
        bail!("nothing was asked for");
    }
    let goals = table::goals(&kept.goals).to_string();
    kept.print(&goals);
    std::fs::write(folder.join("train-memory.txt"), &kept.text)?;
    println!("{:.0} s; data in {}", started.elapsed().as_secs_f64(), folder.display());
    Ok(kept.failed == 0 && table::are_met(&kept.goals))
}

/// What was found so far.
struct Kept<'a> {
    options: &'a Options,
    text: String,
    goals: Vec<Goal>,
    /// Plans that did not train.
    failed: usize,
}

impl Kept<'_> {
    fn print(&mut self, table: &str) {
        println!("{table}");
        self.text.push_str(table);
        self.text.push('\n');
    }

    /// Prints a table, and writes what it is made of.
    fn keep(&mut self, name: &str, data: &impl Serialize, table: &str) -> Result<()> {
        self.print(table);
        write_json(&self.options.folder()?.join(format!("{name}.json")), data)
    }
}
