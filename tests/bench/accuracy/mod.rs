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
mod job;
mod measure;
mod plans;
mod predictors;
mod quiet;
mod report;
mod row;
mod study;
mod suite;
mod time;

use anyhow::Result;
use goals::{Extras, goals};
use measure::{Measured, measure};
use nix::sys::resource::{UsageWho, getrusage};
use row::Row;
use study::{Findings, Study};
use suite::Scope;

use crate::output::Common;
use crate::report::{Report, minutes};

/// A study whose numbers do not come from stages that were held out: its name, what prints what it finds and returns the
/// comparisons that are judged with those of stages, and how many plans it trains.
type Planned = (&'static str, fn(&mut Report, Scope) -> Result<Vec<Row>>, fn(Scope) -> usize);

const PLANNED: [Planned; 4] = [
    (gh200::STUDY, gh200::study, |_| 0),
    (time::STUDY, time::study, |_| 0),
    (actions::STUDY, actions::study, actions::count),
    (quiet::STUDY, quiet::study, |_| quiet::count()),
];
/// The smallest study.
const TINY: &str = "tiny";

/// Measures how right predictions are on stages that no profile contained.
///
/// Profiles and measures with real ranks, compares, prints tables and writes CSV and SVG. What was measured
/// is kept: a second run with the same build measures only what is new.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,

    /// Measure everything instead of a sample.
    #[arg(long)]
    full: bool,

    /// Show the studies and end.
    #[arg(long)]
    list: bool,
}

/// Runs the studies that are wanted; whether all goals are met.
pub(crate) async fn run(Options { common, full, list }: &Options) -> Result<bool> {
    let scope = if *full { Scope::Full } else { Scope::Sample };
    let mut studies = suite::studies(scope)?;
    let names: Vec<String> = studies.iter().map(|study| study.name.clone()).collect();
    let names = names.iter().map(String::as_str).chain(PLANNED.map(|(name, ..)| name));
    let names: Vec<&str> = names.filter(|name| !common.quick || *name == TINY).collect();
    let selected = common.select(&names)?;
    studies.retain(|study| selected.contains(&study.name.as_str()));
    let planned = PLANNED.into_iter().filter(|(name, ..)| selected.contains(name)).collect::<Vec<_>>();
    if *list {
        return show(&studies, &planned, scope).map(|()| true);
    }
    let mut report = Report::new("accuracy", &common.output, common.quick)?;
    // Beside this thread, which hears signals.
    let planned = tokio::task::spawn_blocking(move || {
        let mut rows = Vec::new();
        for (_, study, _) in planned {
            rows.extend(study(&mut report, scope)?);
        }
        anyhow::Ok((report, rows))
    });
    let (mut report, mut rows) = planned.await??;
    let mut measured = Measured::default();
    if !studies.is_empty() {
        let jobs: Vec<_> = studies.iter().map(Study::jobs).collect::<Result<_>>()?;
        measured = measure(jobs.concat(), &report.folder().join("cache")).await?;
    }
    let mut extras = Extras::default();
    let mut costs = Vec::new();
    let mut problems = Vec::new();
    for study in &studies {
        let found = study.findings(&measured)?;
        let Findings { rows: more, costs: spent, plan_ratios, composed, profile_share, problems: own } =
            found;
        rows.extend(more);
        costs.extend(spent);
        problems.extend(own);
        if study.judges_cost {
            extras.profile_share = profile_share;
        }
        if let Some((partitionings, stages)) = composed {
            report.print(format!(
                "{}: {partitionings} partitionings, composed of {stages} measured stages: none was trained whole",
                study.name
            ));
        }
        for (predictor, ratio) in plan_ratios {
            report.print(format!(
                "{}: plan chosen by {predictor} / best measured plan: {ratio:.4}",
                study.name
            ));
            if predictor.starts_with(goals::DEFAULT) {
                extras.plan_ratio = Some(extras.plan_ratio.map_or(ratio, |worst| worst.max(ratio)));
            }
        }
    }

    report.print("\n|error| = |predicted / measured − 1|; bias below zero means too little was predicted");
    report.print(report::distributions(&rows));
    report.print(report::costs(&costs));
    report.judge(goals(&rows, &extras));
    problems.iter().for_each(|problem| report.print(format!("problem: {problem}")));
    let [csv, svg] = report::write(&rows, report.folder())?;
    report.print(format!("{} comparisons in {} and {}", rows.len(), csv.display(), svg.display()));
    // What the run takes on idle cores.
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let computed = usage.user_time().tv_sec() + usage.system_time().tv_sec();
    report.print(format!(
        "{} runs measured, {} known from earlier; the ranks computed for {}",
        measured.ran,
        measured.cached,
        minutes(computed.try_into().unwrap_or(0))
    ));
    Ok(report.finish()? && problems.is_empty())
}

fn show(studies: &[Study], planned: &[Planned], scope: Scope) -> Result<()> {
    for (name, _, count) in planned {
        match count(scope) {
            0 => println!("{name:34} imported table, nothing is trained"),
            count => println!("{name:34} {count:4} plans trained"),
        }
    }
    for study in studies {
        let held_out = study.held_out.len();
        println!("{:34} {held_out:4} stages held out, {:4} runs", study.name, study.jobs()?.len());
    }
    Ok(())
}
