//! `make bench-search`: how fast plans are found, and how good they are.
//!
//! Every problem is solved by Loadmaster's own search and, in the same process, by brute force or by the
//! published program where that can finish. Times are medians of one thread; they contain the prices of
//! stages, from a profile document on. A star marks what others published.

mod chains;
mod heterogeneous;
mod piper;
pub(crate) mod problem;
mod report;
mod whole;

use anyhow::Result;
use report::Row;

use crate::output::Common;
use crate::report::Report;

/// Solves planning problems and compares time and value with those of published programs.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
}

/// Runs of each search; the median counts.
const RUNS: usize = 5;

/// A section's name and how it is made.
type Section = (&'static str, Box<dyn Fn() -> Result<Vec<Row>>>);

/// All sections; small problems alone, searched once, where it should be quick.
fn sections(quick: bool) -> [Section; 10] {
    let runs = if quick { 1 } else { RUNS };
    [
        ("mCAP's problem", Box::new(move || chains::mcap(runs, quick))),
        ("CAPTURE's problem", Box::new(move || chains::capture(runs, quick))),
        ("AMP's layer assignment", Box::new(move || chains::amp(runs, quick))),
        ("Alpa's objective", Box::new(move || chains::alpa(runs, quick))),
        ("Piper's space", Box::new(move || piper::piper(runs, quick))),
        ("AMP's whole search", Box::new(move || whole::amp(runs, quick))),
        ("Requests of every objective", Box::new(move || whole::served(runs, quick))),
        ("Large and mixed clusters", Box::new(move || whole::large(runs, quick))),
        ("AMP's heterogeneous set-ups", Box::new(heterogeneous::rows)),
        ("Front between memory and time", Box::new(move || chains::fronts(runs, quick))),
    ]
}

/// Solves and prints them; whether no reference has a better value, and every goal of time is met.
pub(crate) fn run(Options { common }: &Options) -> Result<bool> {
    let mut report = Report::new("search", &common.output, common.quick)?;
    let sections = sections(common.quick);
    let selected = common.select(&sections.each_ref().map(|(name, _)| *name))?;
    for (name, section) in sections.iter().filter(|(name, _)| selected.contains(name)) {
        report.section(name, section()?.into_iter().flat_map(Row::figures).collect());
    }
    report.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On small problems every search finds what brute force, the papers' programs and published optima find, or
    /// better.
    #[test]
    fn no_reference_has_a_better_value() {
        for (name, section) in sections(true) {
            let rows = section().unwrap();
            assert!(!rows.is_empty() && rows.iter().all(|row| row.value.is_some()), "{name}");
            for figure in rows.into_iter().flat_map(Row::figures) {
                assert!(!figure.is_missed(), "{name}: {figure:?}");
            }
        }
    }
}
