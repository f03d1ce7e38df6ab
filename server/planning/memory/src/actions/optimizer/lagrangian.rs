//! The fewest seconds of slots with the same layers, by a price of bytes, and proof of that.
//!
//! With bytes at a price, all slots together cost no less than each of them at its cheapest. That bounds the seconds, and a
//! choice that costs more than the cheapest by more than a plan may be above the bound is in no such plan. Few are left
//! (`core_set`), and among these the best is proven.
//!
//! How much a micro-batch may need more than it keeps is not known. Ranges of
//! that are looked at, the one with the lowest bound first, as if its loosest limit left the bytes of its tightest. They are
//! halved until all limits of each cost the same at least.

use std::rc::Rc;

use super::core_set::{CoreChoices, CoreSet};
use super::dual_bound::SlotLayers;
use super::dual_bound::{Cost, DualBound, Steps, Terms};
use super::in_flight_assignment::{Slot, SlotPlan, fewest_seconds_below};
use super::keep_sets::SlotChoices;
use loadmaster_search::Stop;

/// Share of all seconds by which a range's plans may be above its bound at first, and how many times as much later: while few
/// labels come of that, and where many do.
const FIRST_SLACK: f64 = 5e-5;
const MUCH_MORE: f64 = 4.0;
const MORE: f64 = 2.0;
const FEW_LABELS: usize = 1 << 10;
/// Share of all seconds that the bytes of a range which is not halved may cost.
const NARROW: f64 = 1.5e-4;
/// Most looks at what a limit costs at least, and labels after which no other program begins.
const MOST_LOOKS: u32 = 200;
const MOST_LABELS: usize = 1 << 17;
/// Most different weights of slots: in an iteration some have one micro-batch more than the others.
const MOST_WEIGHTS: usize = 2;
/// Prices that are tried at most.
const PRICES: u32 = 40;
/// Share of seconds by which they differ that are the same.
const SAME: f64 = 1e-9;

/// The fewest seconds.
#[derive(Debug, Clone)]
pub(super) struct Fewest {
    /// By slot.
    pub(super) choices: Vec<Rc<SlotChoices>>,
    pub(super) plan: SlotPlan,
    /// Nothing takes fewer.
    pub(super) at_least: f64,
}

/// Slots with the same layers.
struct Slots<'a> {
    /// What each of them may keep; no more bytes than all of them have together.
    slot_layers: SlotLayers<'a>,
    /// How much a second of a micro-batch counts, each weight once, and how many slots have it.
    weights: Vec<(f64, usize)>,
    /// By slot, which of these weights is its own.
    of_slot: Vec<usize>,
}

/// What slots cost at least within a limit on by how much a micro-batch may need more than it keeps.
struct DualBounds {
    /// A slot of each weight.
    by_weight: Vec<DualBound>,
    /// All slots together.
    all: f64,
}

/// Limits on by how much a micro-batch may need more than it keeps.
struct Range {
    low: u64,
    high: u64,
    /// Within the loosest of these limits.
    bounds: Rc<DualBounds>,
    /// What all slots cost at least within limits that are tighter than all of these.
    tighter: f64,
    /// Seconds by the price alone; and as far as they are known.
    priced: f64,
    at_least: f64,
    /// By how much plans may be above that which are looked at.
    slack: f64,
}

/// Choices of slots that are cheap enough.
struct Found {
    by_weight: Vec<Rc<SlotChoices>>,
    /// None was left out.
    is_all: bool,
    /// Labels that were looked at.
    labels: usize,
}

/// The best choices of slots with these weights; none where none are found, or weights are too many.
pub(super) fn fewest(slot_layers: SlotLayers<'_>, weights: &[f64], stop: &Stop) -> Option<Fewest> {
    let bytes = slot_layers.bytes;
    let asked = Slots::of(slot_layers, weights)?;
    let (any, alone) = slot_layers.most();
    let steps = Steps::of(slot_layers);
    let price = asked.price(&steps, alone.min(bytes))?;
    let whole = asked.bounds(&steps, any.min(bytes), price);
    let mut ranges = vec![asked.range((0, any.min(bytes)), (f64::INFINITY, whole), price)];
    let mut best: Option<(Found, SlotPlan)> = None;
    let (mut looks, mut looked) = (0, 0);
    let mut left = f64::INFINITY;
    while let Some(at) = (0..ranges.len()).min_by(|&a, &b| ranges[a].at_least.total_cmp(&ranges[b].at_least))
    {
        let mut range = ranges.swap_remove(at);
        let below = best.as_ref().map_or(f64::INFINITY, |(_, plan)| plan.seconds * (1.0 - SAME));
        if range.at_least >= below {
            break;
        }
        if looks >= MOST_LOOKS || looked >= MOST_LABELS || stop.is_requested() {
            left = left.min(range.at_least);
            break;
        }
        let bytes_cost = price * (range.high - range.low) as f64;
        if !range.is_flat() && bytes_cost > asked.seconds() * NARROW {
            looks += 1;
            ranges.extend(asked.halves(&range, &steps, price));
            continue;
        }
        asked.widen(&mut range, &mut ranges, price);
        let within = range.within(below);
        let Some(found) = asked.cheap(&range, within, (&steps, price), stop) else {
            left = left.min(range.at_least);
            break;
        };
        looked += found.labels.max(FEW_LABELS);
        let (is_all, is_few) = (found.is_all, found.labels < FEW_LABELS);
        let slots: Vec<Slot<'_>> = asked
            .of_slot
            .iter()
            .map(|&of| Slot { choices: &found.by_weight[of], weight: asked.weights[of].0 })
            .collect();
        let plan = fewest_seconds_below(&slots, bytes, below);
        // No other plan of the range takes fewer seconds than these choices do, or than was looked for.
        let fewest = plan.as_ref().map_or(f64::INFINITY, |plan| plan.seconds);
        best = plan.map(|plan| (found, plan)).or(best);
        if !is_all {
            left = left.min(range.at_least);
        } else if within < fewest.min(below) {
            range.at_least = within;
            range.slack *= if is_few { MUCH_MORE } else { MORE };
            ranges.push(range);
        }
    }
    let (found, plan) = best?;
    let at_least = left.min(plan.seconds);
    let choices = asked.of_slot.iter().map(|&of| Rc::clone(&found.by_weight[of])).collect();
    Some(Fewest { choices, plan, at_least })
}

impl Range {
    /// Its tightest limit costs as much at least as its loosest.
    fn is_flat(&self) -> bool {
        self.tighter <= self.bounds.all * (1.0 + SAME)
    }

    /// Seconds up to which its plans are looked at: all that matter where that is little more.
    fn within(&self, below: f64) -> f64 {
        let within = self.at_least + self.slack;
        if within + self.slack < below { within } else { below }
    }

    /// The same as a part of another one.
    fn no_less(mut self, of: &Self) -> Self {
        self.at_least = self.at_least.max(of.at_least);
        self.slack = of.slack;
        self
    }
}

impl<'a> Slots<'a> {
    /// None where their weights are too many.
    fn of(slot_layers: SlotLayers<'a>, weights: &[f64]) -> Option<Self> {
        let mut asked = Self { slot_layers, weights: Vec::new(), of_slot: Vec::with_capacity(weights.len()) };
        for &weight in weights {
            let known = asked.weights.iter().position(|of| of.0 == weight);
            let of = known.unwrap_or(asked.weights.len());
            if known.is_none() {
                asked.weights.push((weight, 0));
            }
            asked.weights[of].1 += 1;
            asked.of_slot.push(of);
        }
        (1..=MOST_WEIGHTS).contains(&asked.weights.len()).then_some(asked)
    }

    /// Of computing all layers of all slots once more.
    fn seconds(&self) -> f64 {
        let all: f64 = self.slot_layers.layers.iter().map(|layer| layer.seconds.again).sum();
        all * self.weights.iter().map(|&(weight, count)| weight * count as f64).sum::<f64>()
    }

    fn bounds(&self, steps: &Steps<'_>, excess: u64, price: f64) -> Rc<DualBounds> {
        let of = |&(weight, _): &(f64, usize)| DualBound::of(steps, excess, Terms { price, weight });
        let by_weight: Vec<DualBound> = self.weights.iter().map(of).collect();
        let counted = by_weight.iter().zip(&self.weights);
        let all = counted.map(|(bound, &(_, count))| bound.whole().all * count as f64).sum();
        Rc::new(DualBounds { by_weight, all })
    }

    fn range(&self, (low, high): (u64, u64), (tighter, bounds): (f64, Rc<DualBounds>), price: f64) -> Range {
        let room = self.slot_layers.bytes.saturating_sub(low) as f64;
        let priced = bounds.all - price * room;
        let slack = self.seconds() * FIRST_SLACK;
        Range { low, high, bounds, tighter, priced, at_least: priced.max(0.0), slack }
    }

    fn halves(&self, range: &Range, steps: &Steps<'_>, price: f64) -> [Range; 2] {
        let middle = range.low + (range.high - range.low) / 2;
        let bounds = self.bounds(steps, middle, price);
        let all = bounds.all;
        let halves = [
            self.range((range.low, middle), (range.tighter, bounds), price),
            self.range((middle + 1, range.high), (all, Rc::clone(&range.bounds)), price),
        ];
        halves.map(|half| half.no_less(range))
    }

    /// Takes the ranges beside it to it whose limits cost as much at least: all of them are looked at in one program.
    fn widen(&self, range: &mut Range, ranges: &mut Vec<Range>, price: f64) {
        let all = range.bounds.all;
        let is_same = |of: &Range| (of.bounds.all - all).abs() <= all * SAME;
        let is_next = |of: &Range, to: &Range| of.high.checked_add(1) == Some(to.low);
        while let Some(at) =
            ranges.iter().position(|of| is_same(of) && (is_next(of, range) || is_next(range, of)))
        {
            let other = ranges.swap_remove(at);
            let loosest = if other.low > range.low { &other.bounds } else { &range.bounds };
            let limits = (range.low.min(other.low), range.high.max(other.high));
            let both = self.range(limits, (all, Rc::clone(loosest)), price);
            let at_least = both.at_least.max(range.at_least.min(other.at_least));
            *range = Range { at_least, slack: range.slack.max(other.slack), ..both };
        }
        range.tighter = all;
    }

    /// Choices of which plans of a range consist that take at most `within` seconds; none where it was stopped.
    fn cheap(
        &self,
        range: &Range,
        within: f64,
        (steps, price): (&Steps<'_>, f64),
        stop: &Stop,
    ) -> Option<Found> {
        let mut all = Found { by_weight: Vec::new(), is_all: true, labels: 0 };
        for (bound, &(weight, _)) in range.bounds.by_weight.iter().zip(&self.weights) {
            let cheap = CoreSet {
                slot_layers: self.slot_layers,
                steps,
                bound,
                terms: Terms { price, weight },
                limits: (range.low, range.high),
                // Sums are rounded.
                most: (bound.whole().all + (within - range.priced)) * (1.0 + SAME),
            };
            let CoreChoices { found, is_all, labels } = cheap.choices(stop)?;
            all.by_weight.push(Rc::new(SlotChoices::with_levels(found, 0)));
            all.is_all &= is_all;
            all.labels += labels;
        }
        Some(all)
    }

    /// The price at which all slots keep what a limit leaves, or as little as they can; none where nothing is within it.
    fn price(&self, steps: &Steps<'_>, excess: u64) -> Option<f64> {
        // Of all slots, with seconds as they count.
        let at = |price: f64, seconds_count: bool| {
            let mut all = Cost::default();
            for &(weight, count) in &self.weights {
                let terms = Terms { price, weight: if seconds_count { weight } else { 0.0 } };
                let own = DualBound::of(steps, excess, terms).whole();
                all.all += own.all * count as f64;
                all.seconds += own.seconds * weight * count as f64;
                all.kept += own.kept * count as f64;
            }
            all
        };
        let (mut few, mut many) = (at(1.0, false), at(0.0, true));
        if few.all.is_infinite() {
            return None;
        }
        let room = ((self.slot_layers.bytes - excess) as f64).max(few.kept);
        if many.kept <= room {
            return Some(0.0);
        }
        let mut price = 0.0;
        for _ in 0..PRICES {
            price = (few.seconds - many.seconds) / (many.kept - few.kept);
            let cost = at(price, true);
            if cost.all >= (few.seconds + price * few.kept) * (1.0 - SAME) {
                break;
            }
            *(if cost.kept <= room { &mut few } else { &mut many }) = cost;
        }
        Some(price)
    }
}
