//! Mean, 90th percentile and largest optimality gap of the plans of all other sections.

use std::cell::RefCell;
use std::rc::Rc;

use crate::memory::{Cell, Claim};
use crate::stats::quantile;

/// Optimality gaps by section, in parts of the best bound.
#[derive(Clone, Default)]
pub(crate) struct Gaps(Rc<RefCell<Vec<(&'static str, f64)>>>);

impl Gaps {
    /// Adds the gap of a section's plan.
    pub(crate) fn add(&self, section: &'static str, gap: f64) {
        self.0.borrow_mut().push((section, gap));
    }

    /// Mean, 90th percentile and largest gap of each section, and of all.
    pub(crate) fn cells(&self) -> Vec<Cell> {
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
