//! `make bench-memory`: the tables and figures of MPress, predicted from descriptions of its models. Nothing is trained.
//!
//! Beside each figure is the one that the paper states.

mod chosen;
mod paper;
mod partitioned;
mod published;
mod speed;

use std::cell::RefCell;
use std::rc::Rc;

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

/// A section's name and how it is made.
type Section = (&'static str, Box<dyn Fn() -> Vec<Figure>>);

/// All sections; smaller ones where it should be quick.
fn sections(quick: bool) -> Vec<Section> {
    let (micro_batches, mappings, pipelines) = if quick { (12, 8, 2) } else { (32, 100, 40) };
    let gaps = Gaps::default();
    let [random, alone, partitioned, published] = [(); 4].map(|()| gaps.clone());
    vec![
        ("Table II, largest stages", Box::new(published::largest)),
        ("Table II, BERT-6.2B against itself", Box::new(published::contradiction)),
        ("Table III, six decisions", Box::new(published::decisions)),
        (
            "Table IV, shares of saved bytes",
            Box::new(move || published::shares(micro_batches, mappings, quick)),
        ),
        (published::WHO_TRAINS, Box::new(move || published::who_trains(micro_batches))),
        ("Fig. 7 and 8, iterations", Box::new(move || published::ratios(micro_batches))),
        ("Fig. 9, mapping and striping", Box::new(move || published::links(micro_batches, mappings))),
        ("Mappings", Box::new(speed::mappings)),
        ("Simulation, 8 stages of 12 layers, 64 micro-batches", Box::new(speed::simulations)),
        ("Chosen actions, 8 stages of 12 layers", Box::new(move || chosen::random(pipelines, &random))),
        (
            "Chosen actions, one stage of 48 layers, 8 in flight",
            Box::new(move || chosen::alone(quick, &alone)),
        ),
        (
            "Chosen actions, with the partitioning",
            Box::new(move || partitioned::figures(quick, &partitioned)),
        ),
        (
            "Chosen actions, the paper's models",
            Box::new(move || chosen::published(micro_batches, &published)),
        ),
        // Behind all others, whose searches they are of.
        ("Optimality gaps", Box::new(move || gaps.figures())),
        ("Memory", Box::new(speed::memory)),
    ]
}

/// Predicts and prints them; whether every goal is met in time.
pub(crate) fn run(Options { common }: &Options) -> Result<bool> {
    let mut report = Report::new("memory", &common.output, common.quick)?;
    let sections = sections(common.quick);
    let names: Vec<&str> = sections.iter().map(|(name, _)| *name).collect();
    let selected = common.select(&names)?;
    for (name, figures) in sections.iter().filter(|(name, _)| selected.contains(name)) {
        report.section(name, figures());
    }
    report.finish()
}

/// Optimality gaps by section, in parts of the best bound.
#[derive(Clone, Default)]
pub(crate) struct Gaps(Rc<RefCell<Vec<(&'static str, f64)>>>);

impl Gaps {
    /// Adds the gap of a section's plan.
    pub(crate) fn add(&self, section: &'static str, gap: f64) {
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
        for (name, figures) in sections(true) {
            let figures = figures();
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
