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
use clap::Parser;
use problem::Published;
use report::Row;

use crate::table::print_missed;

/// Solves planning problems and compares time and value with those of published programs.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Only sections whose name contains this.
    #[arg(value_name = "SECTION")]
    only: Option<String>,

    /// Of requests of every objective only those whose description contains this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    problem: String,

    /// Small problems only; values are checked, times mean little.
    #[arg(long)]
    quick: bool,

    /// Runs of each search; the median counts.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
}

/// A section's name and how it is made.
type Section<'a> = (&'static str, Box<dyn Fn() -> Result<Vec<Row>> + 'a>);

/// All sections, each search run this often; small problems alone where it should be quick.
fn sections<'a>(published: &'a Published, runs: usize, quick: bool, only: &'a str) -> [Section<'a>; 11] {
    [
        ("mCAP's problem", Box::new(move || chains::mcap(runs, quick))),
        ("CAPTURE's problem", Box::new(move || chains::capture(runs, quick))),
        ("AMP's layer assignment", Box::new(move || chains::amp(published, runs, quick))),
        ("Alpa's objective", Box::new(move || chains::alpa(published, runs, quick))),
        ("Piper's space", Box::new(move || piper::piper(published, runs, quick))),
        ("AMP's whole search", Box::new(move || whole::amp(runs, quick))),
        ("Requests of every objective", Box::new(move || whole::served(runs, quick, only))),
        ("Searches with more time", Box::new(move || whole::longer(quick))),
        ("Large and mixed clusters", Box::new(move || whole::large(runs, quick))),
        ("AMP's heterogeneous set-ups", Box::new(heterogeneous::rows)),
        ("Front between memory and time", Box::new(move || chains::fronts(runs, quick))),
    ]
}

/// Solves and prints them; whether no reference has a better value, and every goal of time is met.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let published = Published::read()?;
    let quick = options.quick;
    let runs = usize::from(if quick { 1 } else { options.runs });
    let mut missed = Vec::new();
    for (name, section) in sections(&published, runs, quick, &options.problem) {
        if options.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        println!("\n{name}");
        for mut row in section()? {
            // Times of small problems, perhaps of a debug build, are compared with nothing.
            row.goal = row.goal.filter(|_| !quick);
            row.lines().iter().for_each(|line| println!("{line}"));
            if !row.is_best() {
                missed.push(format!("{}: a reference has a better value", row.problem));
            }
            if row.in_time() == Some(false) {
                missed.push(format!("{}: slower than the goal", row.problem));
            }
        }
    }
    Ok(print_missed(&missed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On small problems every search finds what brute force, the papers' programs and published optima find, or
    /// better.
    #[test]
    fn no_reference_has_a_better_value() {
        let published = Published::read().unwrap();
        for (name, section) in sections(&published, 1, true, "") {
            let rows = section().unwrap();
            assert!(!rows.is_empty(), "{name}");
            for row in rows {
                assert!(row.value.is_some() && row.is_best(), "{name}: {row:?}");
            }
        }
    }
}
