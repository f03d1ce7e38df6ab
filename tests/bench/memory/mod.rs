//! `make bench-memory`: the tables and figures of MPress, predicted from descriptions of its models. Nothing is trained.
//!
//! Beside each figure is the one that the paper states.

mod chosen;
mod paper;
mod partitioned;
mod published;
mod speed;

use std::cell::RefCell;

use anyhow::Result;

use crate::output::Common;
use crate::report::{Claim, Figure, Report};
use crate::stats::quantile;

/// Predicts the tables and figures of MPress, each beside the published one.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
}

/// How much is predicted, and the gaps of the plans that were found.
struct Scope {
    is_quick: bool,
    micro_batches: u32,
    /// Mappings that are simulated at most.
    mappings: usize,
    /// Random ones of each mixture of ways.
    pipelines: u64,
    gaps: Gaps,
}

impl Scope {
    fn new(is_quick: bool) -> Self {
        let (micro_batches, mappings, pipelines) = if is_quick { (12, 8, 2) } else { (32, 100, 40) };
        Self { is_quick, micro_batches, mappings, pipelines, gaps: Gaps::default() }
    }
}

/// A section's name and how it is made.
type Section = (&'static str, fn(&Scope) -> Vec<Figure>);

const SECTIONS: [Section; 15] = [
    ("Table II, largest stages", published::largest),
    ("Table II, BERT-6.2B against itself", published::contradiction),
    ("Table III, six decisions", published::decisions),
    ("Table IV, shares of saved bytes", published::shares),
    (published::WHO_TRAINS, published::who_trains),
    ("Fig. 7 and 8, iterations", published::ratios),
    ("Fig. 9, mapping and striping", published::links),
    ("Mappings", speed::mappings),
    ("Simulation, 8 stages of 12 layers, 64 micro-batches", speed::simulations),
    ("Chosen actions, 8 stages of 12 layers", chosen::random),
    ("Chosen actions, one stage of 48 layers, 8 in flight", chosen::alone),
    ("Chosen actions, with the partitioning", partitioned::figures),
    ("Chosen actions, the paper's models", chosen::published),
    // Behind all others, whose searches they are of.
    ("Optimality gaps", |scope| scope.gaps.figures()),
    ("Memory", speed::memory),
];

/// Predicts and prints them; whether every goal is met in time.
pub(crate) fn run(Options { common }: &Options) -> Result<bool> {
    let mut report = Report::new("memory", &common.output, common.quick)?;
    let selected = common.select(&SECTIONS.map(|(name, _)| name))?;
    let scope = Scope::new(common.quick);
    for (name, figures) in SECTIONS.iter().filter(|(name, _)| selected.contains(name)) {
        report.section(name, figures(&scope));
    }
    report.finish()
}

/// Optimality gaps by section, in parts of the best bound.
#[derive(Default)]
struct Gaps(RefCell<Vec<(&'static str, f64)>>);

impl Gaps {
    /// Adds the gap of a section's plan.
    fn add(&self, section: &'static str, gap: f64) {
        self.0.borrow_mut().push((section, gap));
    }

    /// Mean, 90th percentile and largest gap of each section, and of all.
    fn figures(&self) -> Vec<Figure> {
        let all = self.0.borrow();
        let mut sections: Vec<&str> = all.iter().map(|(section, _)| *section).collect();
        sections.dedup();
        let of_section = |section: &str| {
            let own = all.iter().filter(|(of, _)| *of == section).map(|(_, gap)| *gap);
            figure(section, own.collect())
        };
        let mut figures: Vec<Figure> = sections.into_iter().map(of_section).collect();
        figures.push(figure("all", all.iter().map(|(_, gap)| *gap).collect()));
        figures
    }
}

fn figure(what: &str, mut gaps: Vec<f64>) -> Figure {
    gaps.sort_by(f64::total_cmp);
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let [p90, largest] = [0.9, 1.0].map(|share| 100.0 * quantile(&gaps, share));
    Figure::new(
        format!("{what}, {} plans", gaps.len()),
        format!("mean {:.3} %, p90 {p90:.3} %, largest {largest:.3} %", 100.0 * mean),
        "",
        Claim::Shown(true),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every goal that the paper's figures are, on smaller iterations: largest stages within 3 %, who trains what in all
    /// figures but the two that are shown alone, the six decisions, mapping and striping, the number of mappings, and proofs.
    /// How long they take is for `make bench-memory`, on a machine that does nothing else.
    #[test]
    #[ignore = "slow: make test-slow"]
    fn the_papers_figures_are_met() {
        let mut who_trains_what = 0;
        let scope = Scope::new(true);
        for (name, figures) in SECTIONS {
            let figures = figures(&scope);
            assert!(!figures.is_empty(), "{name}");
            let missed: Vec<&Figure> = figures.iter().filter(|figure| figure.is_missed()).collect();
            assert!(missed.is_empty(), "{name}: {missed:#?}");
            if name == published::WHO_TRAINS {
                let goals = figures.iter().filter(|figure| matches!(figure.claim, Claim::Goal(_)));
                assert_eq!(goals.count(), 50);
                who_trains_what = figures.len();
            }
        }
        assert_eq!(who_trains_what, 52);
    }
}
