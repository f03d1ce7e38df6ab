//! `make accuracy`: how right predictions are on stages that no profile contained.
//!
//! Each study profiles a model with real ranks, measures stages that were held out, and compares them with
//! what every predictor says. Published measurements of other frameworks are compared with what an
//! imported table predicts, and plans with and without memory actions are trained. Everything is printed as tables, and written as CSV and as a picture.

mod actions;
mod gh200;
mod goals;
#[cfg(test)]
mod gpu;
mod measure;
mod plans;
mod predictors;
mod quiet;
mod ranks;
mod report;
mod row;
mod study;
mod suite;
mod time;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use goals::{Extras, goals};
use measure::{Measured, Settings, rank_program};
use nix::sys::resource::{UsageWho, getrusage};
use study::{Composed, Findings, Study};
use suite::Scope;

use crate::output::Output;
use crate::table;

/// Studies whose numbers do not come from stages that were held out.
const PLANNED: [&str; 4] = [gh200::STUDY, time::STUDY, actions::STUDY, quiet::STUDY];
/// Measures how right predictions are on stages that no profile contained.
///
/// Profiles and measures with real ranks, compares, prints tables and writes CSV and SVG. What was measured
/// is kept: a second run with the same build measures only what is new.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Measure everything instead of a sample.
    #[arg(long)]
    pub(crate) full: bool,
    /// Only the study of this name, or else those whose names contain this.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) only: Option<String>,
    /// Show the studies and end.
    #[arg(long)]
    pub(crate) list: bool,
    /// Measure again what is known from earlier.
    #[arg(long)]
    fresh: bool,
    /// Ranks at a time, each with one thread.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=256))]
    ranks: u32,
    /// Longest run of a stage, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit: u64,
    #[command(flatten)]
    output: Output,
}

impl Options {
    pub(crate) fn scope(&self) -> Scope {
        if self.full { Scope::Full } else { Scope::Sample }
    }

    /// Which of the studies with these names are wanted.
    pub(crate) fn selected<'a>(&self, names: &[&'a str]) -> Vec<&'a str> {
        let Some(pattern) = self.only.as_deref() else { return names.to_vec() };
        match names.iter().find(|name| **name == pattern) {
            Some(exact) => vec![exact],
            None => names.iter().copied().filter(|name| name.contains(pattern)).collect(),
        }
    }

    /// Where results go.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        self.output.folder("accuracy")
    }

    /// How stages are measured.
    pub(crate) fn measuring(&self) -> Result<Settings> {
        Ok(Settings {
            rank: rank_program()?,
            cache: self.folder()?.join("cache"),
            fresh: self.fresh,
            ranks: self.ranks,
            limit: Duration::from_secs(self.limit),
        })
    }
}

/// Runs the studies that are wanted; whether all goals are met.
pub(crate) async fn run(options: &Options) -> anyhow::Result<bool> {
    let started = Instant::now();
    let mut studies = suite::studies(options.scope())?;
    let names: Vec<String> = studies.iter().map(|study| study.name.clone()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(PLANNED).collect();
    let selected = options.selected(&names);
    studies.retain(|study| selected.contains(&study.name.as_str()));
    let [with_gh200, with_time, with_actions, with_quiet] = PLANNED.map(|study| selected.contains(&study));
    if options.list {
        list(&studies, &selected, options)?;
        return Ok(true);
    }
    anyhow::ensure!(
        with_gh200 || with_time || with_actions || with_quiet || !studies.is_empty(),
        "no study's name contains {:?}: --list shows them",
        options.only.as_deref().unwrap_or_default()
    );

    let mut rows = if with_gh200 { gh200::rows()? } else { Vec::new() };
    let mut asked = if with_time { time::goals()? } else { Vec::new() };
    if with_actions {
        let scope = options.scope();
        // Beside this thread, which hears signals.
        asked.extend(tokio::task::spawn_blocking(move || actions::goals(scope)).await??);
    }
    if with_quiet {
        asked.extend(tokio::task::spawn_blocking(quiet::goals).await??);
    }
    let measured = measure_all(&studies, options).await?;
    let mut extras = Extras::default();
    let mut costs = Vec::new();
    let mut problems = Vec::new();
    for study in &studies {
        let Findings { rows: more, costs: spent, plan_ratios, composed, profile_share, problems: found } =
            study.findings(&measured)?;
        rows.extend(more);
        costs.extend(spent);
        problems.extend(found);
        if study.judges_cost {
            extras.profile_share = profile_share;
        }
        if let Some(Composed { partitionings, stages }) = composed {
            println!(
                "{}: {partitionings} partitionings, composed of {stages} measured stages: none was trained whole",
                study.name
            );
        }
        for (predictor, ratio) in plan_ratios {
            println!("{}: plan chosen by {predictor} / best measured plan: {ratio:.4}", study.name);
            if predictor.starts_with(goals::DEFAULT) {
                extras.plan_ratio = Some(extras.plan_ratio.map_or(ratio, |worst| worst.max(ratio)));
            }
        }
    }

    println!("\n|error| = |predicted / measured − 1|; bias below zero means too little was predicted");
    report::print_distributions(&rows);
    report::print_costs(&costs);
    let mut goals = goals(&rows, &extras);
    goals.extend(asked);
    println!("{}", table::goals(&goals));
    for problem in &problems {
        println!("problem: {problem}");
    }
    let [csv, svg] = report::write(&rows, &options.folder()?)?;
    println!("{} comparisons in {} and {}", rows.len(), csv.display(), svg.display());
    println!(
        "{} runs measured, {} known from earlier, in {}; the ranks computed for {}",
        measured.ran,
        measured.cached,
        minutes(started.elapsed().as_secs()),
        minutes(ranks_computed()?)
    );
    Ok(problems.is_empty() && table::are_met(&goals))
}

/// Seconds of processor time of all ranks that have ended: what the run takes on idle cores.
fn ranks_computed() -> anyhow::Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok(u64::try_from(usage.user_time().tv_sec() + usage.system_time().tv_sec()).unwrap_or(0))
}

/// `3:07 minutes`.
fn minutes(seconds: u64) -> String {
    format!("{}:{:02} minutes", seconds / 60, seconds % 60)
}

async fn measure_all(studies: &[Study], options: &Options) -> anyhow::Result<Measured> {
    if studies.is_empty() {
        return Ok(Measured::default());
    }
    let mut jobs = Vec::new();
    for study in studies {
        jobs.extend(study.jobs()?);
    }
    measure::measure(jobs, &options.measuring()?).await
}

fn list(studies: &[Study], selected: &[&str], options: &Options) -> anyhow::Result<()> {
    for study in [gh200::STUDY, time::STUDY].iter().filter(|study| selected.contains(study)) {
        println!("{study:34} imported table, nothing is trained");
    }
    if selected.contains(&actions::STUDY) {
        println!("{:34} {:4} plans trained", actions::STUDY, actions::count(options.scope()));
    }
    if selected.contains(&quiet::STUDY) {
        println!("{:34} {:4} plans trained", quiet::STUDY, quiet::count());
    }
    for study in studies {
        let held_out = study.held_out.len();
        println!("{:34} {held_out:4} stages held out, {:4} runs", study.name, study.jobs()?.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A study whose name begins another one's can be asked for alone.
    #[test]
    fn an_exact_name_is_preferred_to_a_part_of_one() {
        let selected = |arguments: &[&str]| {
            let options = Options::parse_from([&["accuracy"], arguments].concat());
            options.selected(&["vgg11", "vgg11-parallel", "gpt2-parallel"])
        };
        assert_eq!(selected(&[]).len(), 3);
        assert_eq!(selected(&["--only", "vgg11"]), ["vgg11"]);
        assert_eq!(selected(&["--only", "parallel"]), ["vgg11-parallel", "gpt2-parallel"]);
        assert!(selected(&["--only", "bert"]).is_empty());
    }
}
