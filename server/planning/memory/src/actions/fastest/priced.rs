//! The fewest seconds of slots that are all alike, by a price of bytes.
//!
//! With bytes at a price, all slots together cost no less than each of them at its cheapest. That bounds the seconds, and a
//! choice that costs more than the cheapest by more than a plan may be above the bound is in no such plan: few are left (`cheap`),
//! and among these the best is proven. How much a micro-batch may need more than it keeps is not known; ranges of that are
//! looked at, the one with the lowest bound first, as if its loosest limit left the bytes of its tightest. They are halved
//! until all limits of each cost the same at least.

use std::rc::Rc;

use super::cheap::{Cheap, CheapChoices};
use super::exact::Fewest;
use super::floor::{Floor, Steps, Terms};
use super::limited::Limited;
use super::slot::SlotChoices;
use super::slots::{Slot, SlotPlan, fewest_seconds_below};
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
    /// What a slot costs at least within limits that are tighter than all of these.
    tighter: f64,
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
    let whole = Rc::new(Floor::of(&steps, any.min(bytes), terms));
    let mut ranges = vec![alike.range((0, any.min(bytes)), (f64::INFINITY, whole), terms)];
    let mut best: Option<Best> = None;
    let (mut looks, mut looked) = (0, 0);
    let mut left = f64::INFINITY;
    while let Some(at) = (0..ranges.len()).min_by(|&a, &b| ranges[a].at_least.total_cmp(&ranges[b].at_least))
    {
        let mut range = ranges.swap_remove(at);
        let below = best.as_ref().map_or(f64::INFINITY, |best| best.plan.seconds * (1.0 - SAME));
        if range.at_least >= below {
            break;
        }
        if looks >= MOST_LOOKS || looked >= MOST_LABELS || stop.is_requested() {
            left = left.min(range.at_least);
            break;
        }
        let bytes_cost = terms.price * (range.high - range.low) as f64;
        if !range.is_flat() && bytes_cost > alike.seconds() * NARROW {
            looks += 1;
            ranges.extend(alike.halves(&range, &steps, terms));
            continue;
        }
        alike.widen(&mut range, &mut ranges, terms);
        let within = range.within(below);
        let cheap = Cheap {
            limited: alike.limited,
            steps: &steps,
            floor: &range.floor,
            terms,
            limits: (range.low, range.high),
            // Sums are rounded.
            most: (range.floor.whole().all + (within - range.priced)) * (1.0 + SAME),
        };
        let Some(CheapChoices { found, is_all, labels }) = cheap.choices(stop) else {
            left = left.min(range.at_least);
            break;
        };
        looked += labels.max(FEW_LABELS);
        let choices = Rc::new(SlotChoices::with_levels(found, 0));
        let slots = vec![Slot { choices: &choices, weight: alike.weight }; alike.count];
        let plan = fewest_seconds_below(&slots, bytes, below);
        // No other plan of the range takes fewer seconds than these choices do, or than was looked for.
        let fewest = plan.as_ref().map_or(f64::INFINITY, |plan| plan.seconds);
        best = plan.map(|plan| Best { choices, plan }).or(best);
        if !is_all {
            left = left.min(range.at_least);
        } else if within < fewest.min(below) {
            range.at_least = within;
            range.slack *= if labels < FEW_LABELS { MUCH_MORE } else { MORE };
            ranges.push(range);
        }
    }
    let Best { choices, plan } = best?;
    let at_least = left.min(plan.seconds);
    Some(Fewest { choices: vec![choices; alike.count], plan, at_least })
}

impl Range {
    /// Its tightest limit costs as much at least as its loosest.
    fn is_flat(&self) -> bool {
        self.tighter <= self.floor.whole().all * (1.0 + SAME)
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

impl Alike<'_> {
    /// Of computing all layers of all slots again.
    fn seconds(&self) -> f64 {
        let all: f64 = self.limited.layers.iter().map(|layer| layer.seconds.again).sum();
        all * self.count as f64 * self.weight
    }

    fn range(&self, (low, high): (u64, u64), (tighter, floor): (f64, Rc<Floor>), terms: Terms) -> Range {
        let room = self.limited.bytes.saturating_sub(low) as f64;
        let priced = floor.whole().all * self.count as f64 - terms.price * room;
        let slack = self.seconds() * FIRST_SLACK;
        Range { low, high, floor, tighter, priced, at_least: priced.max(0.0), slack }
    }

    fn halves(&self, range: &Range, steps: &Steps<'_>, terms: Terms) -> [Range; 2] {
        let middle = range.low + (range.high - range.low) / 2;
        let floor = Rc::new(Floor::of(steps, middle, terms));
        let whole = floor.whole().all;
        let halves = [
            self.range((range.low, middle), (range.tighter, floor), terms),
            self.range((middle + 1, range.high), (whole, Rc::clone(&range.floor)), terms),
        ];
        halves.map(|half| half.no_less(range))
    }

    /// Takes the ranges beside it to it whose limits cost as much at least: all of them are looked at in one program.
    fn widen(&self, range: &mut Range, ranges: &mut Vec<Range>, terms: Terms) {
        let whole = range.floor.whole().all;
        let is_same = |of: &Range| (of.floor.whole().all - whole).abs() <= whole * SAME;
        let is_next = |of: &Range, to: &Range| of.high.checked_add(1) == Some(to.low);
        while let Some(at) =
            ranges.iter().position(|of| is_same(of) && (is_next(of, range) || is_next(range, of)))
        {
            let other = ranges.swap_remove(at);
            let loosest = if other.low > range.low { &other.floor } else { &range.floor };
            let limits = (range.low.min(other.low), range.high.max(other.high));
            let both = self.range(limits, (whole, Rc::clone(loosest)), terms);
            let at_least = both.at_least.max(range.at_least.min(other.at_least));
            *range = Range { at_least, slack: range.slack.max(other.slack), ..both };
        }
        range.tighter = whole;
    }

    /// The price at which a slot keeps its part of what a limit leaves, or as little as it can; none where nothing is within it.
    fn price(&self, steps: &Steps<'_>, excess: u64) -> Option<f64> {
        let at = |price: f64, weight: f64| Floor::of(steps, excess, Terms { price, weight }).whole();
        let (mut few, mut many) = (at(1.0, 0.0), at(0.0, self.weight));
        if few.all.is_infinite() {
            return None;
        }
        let part = ((self.limited.bytes - excess) as f64 / self.count as f64).max(few.kept);
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
}
