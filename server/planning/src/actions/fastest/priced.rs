//! The fewest seconds of slots that are all alike, by a price of bytes.
//!
//! With bytes at a price, all slots together cost no less than each of them at its cheapest. That bounds the seconds, and a
//! choice that costs more than the cheapest by more than a plan may be above the bound is in no such plan: few are left, as of
//! a knapsack with a core, and among these the best is proven. How much a micro-batch may need more than it keeps is not known;
//! ranges of that are looked at, the one with the lowest bound first, as if its loosest limit left the bytes of its tightest.

use std::rc::Rc;

use super::exact::Fewest;
use super::floor::{Floor, Steps, Terms};
use super::limited::Limited;
use super::slot::{SlotChoice, SlotChoices};
use super::slots::{Slot, SlotPlan, few_seconds, fewest_within};
use crate::search::Stop;

/// Share of all seconds by which a range's plans may be above its bound at first, and how many times as much later.
const FIRST_SLACK: f64 = 5e-5;
const MORE: f64 = 4.0;
/// Share of all seconds that the bytes of a range which is not halved may cost.
const NARROW: f64 = 1.5e-4;
/// Most looks at what a limit costs at least, and most programs within one.
const MOST_LOOKS: u32 = 200;
const MOST_PROGRAMS: u32 = 32;
/// Most labels of a layer.
const MOST_LABELS: usize = 1 << 11;
/// Prices that are tried at most.
const PRICES: u32 = 40;
/// Share of seconds by which they differ that are the same.
const SAME: f64 = 1e-9;

/// Slots that are all alike.
#[derive(Clone, Copy)]
pub(super) struct Alike<'a> {
    /// What each of them may keep; no more bytes than all of them have together.
    pub(super) limited: Limited<'a>,
    pub(super) count: usize,
    /// How much a second of a micro-batch counts.
    pub(super) weight: f64,
}

/// By how much a micro-batch may need more than it keeps.
struct Range {
    low: u64,
    high: u64,
    /// Within the loosest of these limits.
    floor: Rc<Floor>,
    /// Seconds by the price alone; and as far as they are known.
    priced: f64,
    at_least: f64,
    /// By how much plans may be above that which are looked at.
    slack: f64,
}

/// The best so far.
struct Best {
    choices: Rc<SlotChoices>,
    plan: SlotPlan,
}

/// The best choices; none where none are found.
pub(super) fn fewest(alike: Alike<'_>, stop: &Stop) -> Option<Fewest> {
    let bytes = alike.limited.bytes;
    let (any, alone) = alike.limited.most();
    let steps = Steps::of(alike.limited);
    let terms = Terms { price: alike.price(&steps, alone.min(bytes))?, weight: alike.weight };
    let mut best: Option<Best> = None;
    let whole = Rc::new(Floor::of(&steps, any.min(bytes), terms));
    let mut ranges = vec![alike.range((0, any.min(bytes)), whole, terms)];
    let (mut looks, mut programs) = (0, 0);
    let mut left = f64::INFINITY;
    while let Some(at) = (0..ranges.len()).min_by(|&a, &b| ranges[a].at_least.total_cmp(&ranges[b].at_least))
    {
        let mut range = ranges.swap_remove(at);
        let below = best.as_ref().map_or(f64::INFINITY, |best| best.plan.seconds * (1.0 - SAME));
        if range.at_least >= below {
            break;
        }
        if looks >= MOST_LOOKS || programs >= MOST_PROGRAMS || stop.is_requested() {
            left = left.min(range.at_least);
            break;
        }
        let Range { low, high, .. } = range;
        if high > low && terms.price * (high - low) as f64 > alike.seconds() * NARROW {
            looks += 1;
            let middle = low + (high - low) / 2;
            let tighter = Rc::new(Floor::of(&steps, middle, terms));
            ranges.push(alike.range((low, middle), tighter, terms).no_less(&range));
            ranges.push(alike.range((middle + 1, high), Rc::clone(&range.floor), terms).no_less(&range));
            continue;
        }
        programs += 1;
        let within = (range.at_least + range.slack).min(below);
        let Some(choices) = alike.core(&range, &steps, (within, terms), stop) else {
            left = left.min(range.at_least);
            continue;
        };
        let slots = vec![Slot { choices: &choices, weight: alike.weight }; alike.count];
        let rounded = few_seconds(&slots, bytes).filter(|plan| plan.seconds < below);
        let plan = fewest_within(&slots, high, bytes - low, within);
        best = rounded.map(|plan| Best { choices: Rc::clone(&choices), plan }).or(best);
        let Some(plan) = plan else {
            (range.at_least, range.slack) = (within.min(below), range.slack * MORE);
            ranges.push(range);
            continue;
        };
        let chosen = || plan.choices.iter().map(|&choice| &choices.all[choice]);
        let kept: u64 = chosen().map(|choice| choice.kept).sum();
        let excess = chosen().map(|choice| alike.excess(choice)).max().unwrap_or(0);
        if kept.saturating_add(excess) <= bytes {
            if best.as_ref().is_none_or(|best| plan.seconds < best.plan.seconds) {
                best = Some(Best { choices, plan });
            }
            continue;
        }
        // It needs more than the tightest limit leaves it, and nothing in the range is faster.
        range.at_least = range.at_least.max(plan.seconds);
        looks += 1;
        if let Some(tighter) = excess.checked_sub(1).filter(|&tighter| tighter >= low) {
            let floor = Rc::new(Floor::of(&steps, tighter, terms));
            ranges.push(alike.range((low, tighter), floor, terms).no_less(&range));
        }
        ranges.push(alike.range((excess, high), Rc::clone(&range.floor), terms).no_less(&range));
    }
    let Best { choices, plan } = best?;
    let at_least = left.min(plan.seconds);
    Some(Fewest { choices: vec![choices; alike.count], plan, at_least })
}

impl Range {
    /// The same as a part of another one.
    fn no_less(mut self, of: &Self) -> Self {
        self.at_least = self.at_least.max(of.at_least);
        self.slack = of.slack;
        self
    }
}

impl Alike<'_> {
    /// Of computing all layers of all slots again.
    fn seconds(&self) -> f64 {
        let all: f64 = self.limited.layers.iter().map(|layer| layer.seconds.again).sum();
        all * self.count as f64 * self.weight
    }

    fn range(&self, (low, high): (u64, u64), floor: Rc<Floor>, terms: Terms) -> Range {
        let room = self.limited.bytes.saturating_sub(low) as f64;
        let priced = floor.whole().all * self.count as f64 - terms.price * room;
        Range { low, high, floor, priced, at_least: priced.max(0.0), slack: self.seconds() * FIRST_SLACK }
    }

    /// The price at which a slot keeps its part of what a limit leaves; none where it cannot keep so little.
    fn price(&self, steps: &Steps<'_>, excess: u64) -> Option<f64> {
        let part = (self.limited.bytes - excess) as f64 / self.count as f64;
        let at = |price: f64, weight: f64| Floor::of(steps, excess, Terms { price, weight }).whole();
        let (mut few, mut many) = (at(1.0, 0.0), at(0.0, self.weight));
        if few.kept > part {
            return None;
        }
        if many.kept <= part {
            return Some(0.0);
        }
        let mut price = 0.0;
        for _ in 0..PRICES {
            price = self.weight * (few.seconds - many.seconds) / (many.kept - few.kept);
            let cost = at(price, self.weight);
            if cost.all >= (self.weight * few.seconds + price * few.kept) * (1.0 - SAME) {
                break;
            }
            *(if cost.kept <= part { &mut few } else { &mut many }) = cost;
        }
        Some(price)
    }

    /// All choices that plans below so many seconds within a range have; none where they are too many.
    fn core(
        &self,
        range: &Range,
        steps: &Steps<'_>,
        (below, terms): (f64, Terms),
        stop: &Stop,
    ) -> Option<Rc<SlotChoices>> {
        // Sums are rounded.
        let most = (range.floor.whole().all + (below - range.priced)) * (1.0 + SAME);
        let is_wanted = |position: usize, kept: u64, seconds: f64| {
            let above = terms.weight * seconds + terms.price * kept as f64;
            above + range.floor.at(steps, position, kept).all <= most
        };
        let found = self.limited.within_if(range.high, MOST_LABELS, stop, is_wanted)?;
        Some(Rc::new(SlotChoices::within(found, range.high)))
    }

    /// By how much a micro-batch needs more than it keeps.
    fn excess(&self, choice: &SlotChoice) -> u64 {
        let layers = self.limited.layers;
        let (mut above, mut most, mut position) = (0_u64, 0, layers.len());
        while let Some(top) = position.checked_sub(1) {
            let run = choice.runs.iter().find(|run| *run.end() == top);
            position = run.map_or(top, |run| *run.start());
            if self.limited.is_away(top) {
                most = most.max(layers[top].activations.saturating_sub(above));
            } else if run.is_some() {
                let own = layers[position..=top].iter().rev();
                let needs = own.fold(0_u64, |needs, of| needs.max(of.working).saturating_add(of.activations));
                most = most.max(needs.saturating_sub(above));
                above = above.saturating_add(layers[position].input);
            } else {
                above = above.saturating_add(layers[top].activations);
            }
        }
        most
    }
}
