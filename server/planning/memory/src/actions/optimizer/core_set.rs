//! What a micro-batch may keep at little more than it costs at least, where bytes have a price.
//!
//! A program over the layers from above: what is kept above a run is free when the run goes backward, so that a run needs no more
//! than that and a limit. A label is what the layers from a position up keep, their seconds, and by how much their runs need more
//! than what is kept above them.
//!
//! All limits of a range are considered at once: a plan has that much less for what is kept, so
//! labels pay for it. Labels from which no cheap enough choice follows are left out (`dual_bound`). Few remain, as of a knapsack
//! with a core.

use rustc_hash::FxHashMap;

use super::dual_bound::SlotLayers;
use super::dual_bound::{DualBound, Steps, Terms};
use super::keep_sets::SlotChoice;
use loadmaster_search::Stop;

/// Most labels of a layer; where there are more, so many stay: the cheapest.
const MOST_LABELS: usize = 1 << 12;
const CHEAPEST: usize = 1 << 10;
/// Parts into which all seconds are divided.
const PARTS: f64 = 1e13;

/// Which choices are looked for.
#[derive(Clone, Copy)]
pub(super) struct CoreSet<'a> {
    pub(super) slot_layers: SlotLayers<'a>,
    pub(super) steps: &'a Steps<'a>,
    /// Within the loosest limit.
    pub(super) bound: &'a DualBound,
    pub(super) terms: Terms,
    /// By how much a micro-batch may need more than it keeps: what plans have left in any case, and at most.
    pub(super) limits: (u64, u64),
    /// What a choice costs at most, with what it needs above the tightest limit.
    pub(super) most: f64,
}

/// Choices that no other one beats.
pub(super) struct CoreChoices {
    pub(super) found: Vec<SlotChoice>,
    /// None was left out.
    pub(super) is_all: bool,
    /// Labels that were looked at.
    pub(super) labels: usize,
}

/// A way down through the layers to a position.
#[derive(Debug, Clone, Copy)]
struct PathLabel {
    kept: u64,
    /// In parts of all seconds, so that equal sums are equal.
    parts: u64,
    /// By how much its backward passes need more than it keeps, and at least the tightest limit.
    excess: u64,
    /// The position above and the number of the label that it came from.
    from: (usize, usize),
    is_run: bool,
}

impl CoreSet<'_> {
    /// Seconds of a part, and by layer the parts that computing it once more takes.
    fn parts(&self) -> (f64, Vec<u64>) {
        let again = || self.slot_layers.layers.iter().map(|layer| layer.seconds.again);
        let all: f64 = again().sum();
        let part = if all > 0.0 { all / PARTS } else { 1.0 };
        (part, again().map(|seconds| (seconds / part).round() as u64).collect())
    }

    /// The choices; none where it was stopped.
    pub(super) fn choices(&self, stop: &Stop) -> Option<CoreChoices> {
        let count = self.slot_layers.layers.len();
        let input = self.slot_layers.even_input();
        let (part, parts) = self.parts();
        let mut labels: Vec<Vec<PathLabel>> = vec![Vec::new(); count + 1];
        let start = PathLabel { kept: 0, parts: 0, excess: self.limits.0, from: (count, 0), is_run: false };
        labels[count].push(start);
        let mut is_all = true;
        for position in (0..=count).rev() {
            if stop.is_requested() {
                return None;
            }
            let mut own = std::mem::take(&mut labels[position]);
            own.sort_unstable_by_key(|label| (label.parts, label.kept, label.excess));
            let (any, alone) = self.slot_layers.needs(position);
            let free = if input == Some(0) { alone } else { any };
            let mut known = Slack { free, alone, input, loosest: self.limits.1, ..Slack::default() };
            own.retain(|label| known.is_new(label.kept, label.excess));
            if own.len() > MOST_LABELS {
                let cost = |label: &PathLabel| self.cost(position, label, part);
                own.select_nth_unstable_by(CHEAPEST, |a, b| cost(a).total_cmp(&cost(b)));
                own.truncate(CHEAPEST);
                is_all = false;
            }
            if position > 0 {
                self.extend(&own, position, (part, &parts), &mut labels);
            }
            labels[position] = own;
        }
        let found = labels[0].iter().filter_map(|label| traced(&labels, *label, part)).collect();
        Some(CoreChoices { found, is_all, labels: labels.iter().map(Vec::len).sum() })
    }

    /// What the choices that a label leads to cost at least.
    fn cost(&self, position: usize, label: &PathLabel, part: f64) -> f64 {
        let bytes = label.kept.saturating_add(label.excess - self.limits.0);
        let above = self.terms.weight * (label.parts as f64 * part) + self.terms.price * bytes as f64;
        above + self.bound.at(self.steps, position, label.kept).all
    }

    /// Keeps the layer below a position, or computes it once more with some of those below it.
    fn extend(
        &self,
        own: &[PathLabel],
        position: usize,
        (part, parts): (f64, &[u64]),
        labels: &mut [Vec<PathLabel>],
    ) {
        let top = position - 1;
        let (layer, is_away) = (self.slot_layers.layers[top], self.slot_layers.is_away(top));
        for (index, &above) in own.iter().enumerate() {
            let from = (position, index);
            let mut add = |position: usize, label: PathLabel| {
                let fits = label.kept <= self.slot_layers.bytes && label.excess <= self.limits.1;
                if fits && self.cost(position, &label, part) <= self.most {
                    labels[position].push(label);
                }
            };
            if is_away {
                let excess = above.excess.max(layer.activations.saturating_sub(above.kept));
                add(top, PathLabel { excess, from, is_run: false, ..above });
                continue;
            }
            let kept = above.kept.saturating_add(layer.activations);
            add(top, PathLabel { kept, from, is_run: false, ..above });
            let (mut needs, mut again) = (0_u64, above.parts);
            for first in (0..=top).rev().take_while(|&first| !self.slot_layers.is_away(first)) {
                let below = self.slot_layers.layers[first];
                needs = needs.max(below.working).saturating_add(below.activations);
                let excess = above.excess.max(needs.saturating_sub(above.kept));
                if excess > self.limits.1 {
                    break;
                }
                again += parts[first];
                let kept = above.kept.saturating_add(below.input);
                add(first, PathLabel { kept, parts: again, excess, from, is_run: true });
            }
        }
    }
}

/// Labels of a position so far, those of fewest seconds first. One beats those after it that keep as much and need no less. And
/// some that keep more, where that is worth nothing to the runs below: with `needs` so large that they are within it whatever is
/// kept.
///
/// Fewer bytes are worse for the runs below. But where all layers' inputs are as large, a run that is too long for them can
/// be split as often as the difference has inputs in it, which makes up for it.
#[derive(Default)]
struct Slack {
    /// What runs below need at most, and what each layer alone does.
    free: u64,
    alone: u64,
    /// Of all layers but the lowest, where they are as large.
    input: Option<u64>,
    loosest: u64,
    /// By what is kept: the least excess.
    least: FxHashMap<u64, u64>,
    /// By what is left over of whole inputs: what one label keeps that keeps little, and its needs.
    by_rest: FxHashMap<u64, (u64, u64)>,
    /// What labels keep, and their needs, which are fewer the more they keep.
    stairs: Vec<(u64, u64)>,
}

impl Slack {
    /// Whether none beats this one, which is known then.
    fn is_new(&mut self, kept: u64, excess: u64) -> bool {
        let at = self.stairs.partition_point(|of| of.0 <= kept);
        if at.checked_sub(1).is_some_and(|below| self.stairs[below].1 <= excess) {
            return false;
        }
        let least = self.least.entry(kept).or_insert(u64::MAX);
        if *least <= excess {
            return false;
        }
        *least = excess;
        if let Some(rest) = self.input.and_then(|input| kept.checked_rem(input)) {
            let few = self.by_rest.entry(rest).or_insert((u64::MAX, u64::MAX));
            if few.0 <= kept && few.1 <= excess {
                return false;
            }
            let needs = excess.max(self.alone.saturating_sub(kept));
            if needs <= self.loosest && kept < few.0 {
                *few = (kept, needs);
            }
        }
        let needs = excess.max(self.free.saturating_sub(kept));
        if needs <= self.loosest {
            self.step(kept, needs);
        }
        true
    }

    fn step(&mut self, kept: u64, needs: u64) {
        let at = self.stairs.partition_point(|of| of.0 <= kept);
        if at.checked_sub(1).is_some_and(|below| self.stairs[below].1 <= needs) {
            return;
        }
        let at = self.stairs.partition_point(|of| of.0 < kept);
        let worse = self.stairs[at..].partition_point(|of| of.1 >= needs);
        self.stairs.splice(at..at + worse, [(kept, needs)]);
    }
}

/// The choice that a label below all layers stands for.
fn traced(labels: &[Vec<PathLabel>], last: PathLabel, part: f64) -> Option<SlotChoice> {
    let (mut runs, mut at, mut position) = (Vec::new(), last, 0);
    while at.from.0 > position {
        let (above, number) = at.from;
        if at.is_run {
            runs.push(position..=above - 1);
        }
        (at, position) = (*labels.get(above)?.get(number)?, above);
    }
    let PathLabel { kept, parts, excess, .. } = last;
    Some(SlotChoice { runs, kept, most: kept.saturating_add(excess), seconds: parts as f64 * part })
}
