//! `make bench-memory`: the tables and figures of MPress, predicted from descriptions of its models. Nothing is trained.
//!
//! A star marks what the paper says.

mod chosen;
mod paper;
mod partitioned;
mod published;
mod speed;

use std::cell::RefCell;
use std::rc::Rc;

use clap::Parser;

use crate::stats::quantile;
use crate::table::print_missed;

/// Predicts the tables and figures of MPress, each beside the published one.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Only sections whose name contains this.
    #[arg(value_name = "SECTION", default_value = "")]
    only: String,

    /// Few micro-batches and mappings; times mean little.
    #[arg(long)]
    quick: bool,
}

/// A section's name and how it is made.
type Section = (&'static str, Box<dyn Fn() -> Vec<Cell>>);

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
        ("Chosen actions, with the partitioning", Box::new(move || partitioned::cells(quick, &partitioned))),
        (
            "Chosen actions, the paper's models",
            Box::new(move || chosen::published(micro_batches, &published)),
        ),
        // Behind all others, whose searches they are of.
        ("Optimality gaps", Box::new(move || gaps.cells())),
        ("Memory", Box::new(speed::memory)),
    ]
}

/// Predicts and prints them; whether every goal is met in time.
pub(crate) fn run(options: &Options) -> bool {
    let mut missed = Vec::new();
    for (name, cells) in sections(options.quick) {
        if !name.contains(&options.only) {
            continue;
        }
        println!("\n{name}");
        for cell in cells() {
            println!("{}", cell.line());
            if cell.is_missed() || cell.is_late() {
                missed.push(cell.what);
            }
        }
    }
    print_missed(&missed)
}

/// Whether a cell is what it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// It must be.
    Goal(bool),
    /// It is shown, whether it agrees or not.
    Shown(bool),
}

/// One figure, beside the published one.
#[derive(Debug, Clone)]
struct Cell {
    what: String,
    ours: String,
    /// Empty where nothing is.
    published: String,
    claim: Claim,
    /// Seconds that finding it took; 0 where it is a sum.
    took: f64,
    /// Most seconds, where that is a goal, too.
    within: Option<f64>,
}

impl Cell {
    fn new(
        what: impl Into<String>,
        ours: impl Into<String>,
        published: impl Into<String>,
        claim: Claim,
    ) -> Self {
        let (what, ours, published) = (what.into(), ours.into(), published.into());
        Self { what, ours, published, claim, took: 0.0, within: None }
    }

    /// The same, found in so many seconds.
    fn took(self, took: f64) -> Self {
        Self { took, ..self }
    }

    /// The same, with a goal for these seconds.
    fn within(self, seconds: f64) -> Self {
        Self { within: Some(seconds), ..self }
    }

    /// Whether it is not what it must be. That is the same on every machine, unlike how late it is.
    fn is_missed(&self) -> bool {
        self.claim == Claim::Goal(false)
    }

    /// Whether finding it took longer than it may.
    fn is_late(&self) -> bool {
        self.within.is_some_and(|within| self.took > within)
    }

    fn line(&self) -> String {
        let mark = match self.claim {
            Claim::Goal(false) => "MISSED",
            _ if self.is_late() => "LATE",
            Claim::Goal(true) => "ok",
            Claim::Shown(true) => "",
            Claim::Shown(false) => "differs",
        };
        let Self { what, ours, published, took, .. } = self;
        let took = if *took == 0.0 { String::new() } else { format!("{:.0} ms", 1e3 * took) };
        let published = if published.is_empty() { String::new() } else { format!("* {published}") };
        format!("  {what:<52} {ours:<66} {published:<44} {took:>8} {mark}").trim_end().to_owned()
    }
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
    fn cells(&self) -> Vec<Cell> {
        let all = self.0.borrow();
        let mut sections: Vec<&str> = all.iter().map(|(section, _)| *section).collect();
        sections.dedup();
        let of_section = |section: &str| {
            let own = all.iter().filter(|(of, _)| *of == section).map(|(_, gap)| *gap);
            cell(section, own.collect())
        };
        let mut cells: Vec<Cell> = sections.into_iter().map(of_section).collect();
        cells.push(cell("all", all.iter().map(|(_, gap)| *gap).collect()));
        cells
    }
}

fn cell(what: &str, mut gaps: Vec<f64>) -> Cell {
    gaps.sort_by(f64::total_cmp);
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let [p90, largest] = [0.9, 1.0].map(|share| 100.0 * quantile(&gaps, share));
    Cell::new(
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
    /// cells but the two that are shown alone, the six decisions, mapping and striping, the number of mappings, and proofs.
    /// How long they take is for `make bench-memory`, on a machine that does nothing else.
    #[test]
    #[ignore = "slow: make test-slow"]
    fn the_papers_figures_are_met() {
        let mut who_trains_what = 0;
        for (name, cells) in sections(true) {
            let cells = cells();
            assert!(!cells.is_empty(), "{name}");
            let missed: Vec<String> = cells.iter().filter(|cell| cell.is_missed()).map(Cell::line).collect();
            assert!(missed.is_empty(), "{name}: {missed:#?}");
            if name == published::WHO_TRAINS {
                let goals = cells.iter().filter(|cell| matches!(cell.claim, Claim::Goal(_)));
                assert_eq!(goals.count(), 50);
                who_trains_what = cells.len();
            }
        }
        assert_eq!(who_trains_what, 52);
    }
}
