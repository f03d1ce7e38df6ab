//! The fewest seconds of computing again within a stage's bytes, and proof of that.
//!
//! For each limit on by how much a micro-batch needs more than it keeps, what it may keep is a program (`limited`), and so is
//! which micro-batches keep what (`slots`). Between two limits no choice is better than one within the looser limit that has
//! the bytes which the tighter one leaves: ranges of limits where that is no better than what is known are left out, and the
//! others are halved. Where slots are all alike, a price of bytes tells more, and mostly all (`priced`).

use std::collections::HashMap;
use std::rc::Rc;

use super::limited::Limited;
use super::priced::{self, Alike};
use super::slot::SlotChoices;
use super::slots::{Slot, SlotPlan, fewest_within};
use crate::actions::LayerBlocks;
use loadmaster_search::Stop;

/// Most limits that are tried, of all kinds of slots together.
const MOST_LIMITS: usize = 48;
/// Most kinds of layers of which all choices are soon told apart.
const FEW_KINDS: usize = 4;
/// Shares of seconds by which they differ that are the same.
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

/// Slots with these layers, of each of which some are away, and how much a second of its micro-batches counts.
struct Slots<'a> {
    layers: &'a [LayerBlocks],
    kinds: Vec<&'a [bool]>,
    /// By slot: of which kind it is, and its weight.
    slots: Vec<(usize, f64)>,
    bytes: u64,
    known: HashMap<u64, Vec<Rc<SlotChoices>>>,
}

/// The best choices within so many bytes; none where nothing fits, or layers are of too many kinds to tell.
pub(super) fn fewest(
    layers: &[LayerBlocks],
    slots: &[(&[bool], f64)],
    bytes: u64,
    stop: &Stop,
) -> Option<Fewest> {
    let &(away, weight) = slots.first()?;
    if slots.iter().any(|of| *of != (away, weight)) {
        return by_limits(layers, slots, bytes, stop);
    }
    let limited = Limited { layers, away, bytes };
    let priced = priced::fewest(Alike { limited, count: slots.len(), weight }, stop);
    let is_proven = |of: &Fewest| of.at_least >= of.plan.seconds * (1.0 - SAME);
    if priced.as_ref().is_some_and(is_proven) || are_of_many_kinds(layers) {
        return priced;
    }
    let Some(limited) = by_limits(layers, slots, bytes, stop) else { return priced };
    let Some(priced) = priced else { return Some(limited) };
    let at_least = priced.at_least.max(limited.at_least);
    let better = if limited.plan.seconds < priced.plan.seconds { limited } else { priced };
    Some(Fewest { at_least, ..better })
}

fn are_of_many_kinds(layers: &[LayerBlocks]) -> bool {
    let mut kinds: Vec<&LayerBlocks> = Vec::with_capacity(FEW_KINDS);
    layers.iter().any(|layer| {
        if !kinds.contains(&layer) {
            kinds.push(layer);
        }
        kinds.len() > FEW_KINDS
    })
}

/// The same limit by limit.
fn by_limits(layers: &[LayerBlocks], slots: &[(&[bool], f64)], bytes: u64, stop: &Stop) -> Option<Fewest> {
    let mut kinds: Vec<&[bool]> = slots.iter().map(|of| of.0).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let kind = |of: &(&[bool], f64)| Some((kinds.binary_search(&of.0).ok()?, of.1));
    let slots = slots.iter().map(kind).collect::<Option<_>>()?;
    let mut asked = Slots { layers, kinds, slots, bytes, known: HashMap::new() };
    let most = |away: &&[bool]| Limited { layers, away, bytes }.most();
    let (any, alone) = asked.kinds.iter().map(most).max()?;
    let mut best: Option<(u64, SlotPlan)> = None;
    let mut left_at_least = f64::INFINITY;
    for excess in [0, alone] {
        asked.improve(&mut best, excess, stop)?;
    }
    let mut ranges = vec![(0, any.min(bytes))];
    while let Some((low, high)) = ranges.pop() {
        let below = below(best.as_ref());
        let Some(relaxed) = asked.solved(high, bytes - low, below, stop)? else { continue };
        asked.improve(&mut best, high, stop)?;
        if high - low <= 1 {
            asked.improve(&mut best, low, stop)?;
            continue;
        }
        if asked.known.len() * asked.kinds.len() >= MOST_LIMITS {
            left_at_least = left_at_least.min(relaxed.seconds);
            continue;
        }
        let middle = low + (high - low) / 2;
        ranges.push((middle, high));
        ranges.push((low, middle));
    }
    let (excess, plan) = best?;
    let at_least = left_at_least.min(plan.seconds);
    let choices = asked.choices(excess, stop)?;
    let choices = asked.slots.iter().map(|&(kind, _)| Rc::clone(&choices[kind])).collect();
    Some(Fewest { choices, plan, at_least })
}

fn below(best: Option<&(u64, SlotPlan)>) -> f64 {
    best.map_or(f64::INFINITY, |(_, plan)| plan.seconds * (1.0 - SAME))
}

impl Slots<'_> {
    /// What each kind may keep within a limit.
    fn choices(&mut self, excess: u64, stop: &Stop) -> Option<Vec<Rc<SlotChoices>>> {
        if let Some(known) = self.known.get(&excess) {
            return Some(known.clone());
        }
        let of = |&away: &&[bool]| {
            let limited = Limited { layers: self.layers, away, bytes: self.bytes };
            Some(Rc::new(SlotChoices::within(limited.within(excess, stop)?, excess)))
        };
        let found: Vec<_> = self.kinds.iter().map(of).collect::<Option<_>>()?;
        self.known.insert(excess, found.clone());
        Some(found)
    }

    /// The best choices within a limit that keep at most so many bytes and take fewer seconds.
    fn solved(&mut self, excess: u64, bytes: u64, below: f64, stop: &Stop) -> Option<Option<SlotPlan>> {
        let choices = self.choices(excess, stop)?;
        let slot = |&(kind, weight): &(usize, f64)| Slot { choices: &choices[kind], weight };
        let slots: Vec<Slot<'_>> = self.slots.iter().map(slot).collect();
        Some(fewest_within(&slots, excess, bytes, below))
    }

    fn improve(&mut self, best: &mut Option<(u64, SlotPlan)>, excess: u64, stop: &Stop) -> Option<()> {
        let Some(left) = self.bytes.checked_sub(excess) else { return Some(()) };
        if let Some(plan) = self.solved(excess, left, below(best.as_ref()), stop)? {
            *best = Some((excess, plan));
        }
        Some(())
    }
}
