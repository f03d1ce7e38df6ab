//! Residency intervals that were planned with more room than there is: what of them has room.
//!
//! Where a step has no room for all that would be there, what it does not need is not there: that whose next use is farthest first.
//! A payload that was to come by then comes behind that step. One that was on its way out is gone before, and one that was to
//! stay from one use to the next leaves and comes back. All else is as it was planned.

use std::ops::Range;

use super::intervals::{ResidencyInterval, resident};
use super::paging_intervals::needed;
use super::uses::{PayloadUses, Uses};
use crate::chunks::paging::Shortage;
use crate::training::boundaries::BoundaryInterval;

/// Residency intervals of an iteration, less what there is no `room` for in each step, where a chunk's payload takes
/// `bytes`. Those that are not in the way are as they were, in their order. `spills` says of a payload whether the
/// host has a place for it before its gradients are complete. Residency intervals that are sound stay so.
///
/// # Errors
/// The first step that needs more than there is room for: where no rule has intervals either.
pub fn refit(
    uses: &Uses,
    intervals: &[ResidencyInterval],
    bytes: impl Fn(usize) -> u64,
    room: &[u64],
    spills: impl Fn(&PayloadUses) -> bool,
) -> Result<Vec<ResidencyInterval>, Shortage> {
    let steps = uses.steps();
    let mut there = resident(intervals, steps, &bytes);
    let mut spares = Spare::all(uses, intervals, spills);
    for step in 0..steps {
        let room = room.get(step).copied().unwrap_or(0);
        while there[step] > room {
            let held = spares.iter_mut().filter_map(|spare| Some((spare.holding(step, steps)?, spare)));
            let farthest = held.max_by_key(|(at, spare)| spare.until_use(*at, steps));
            let Some((at, spare)) = farthest else {
                return Err(Shortage { access: step, missing: there[step] - room });
            };
            let bytes = bytes(spare.of.payload.chunk);
            for left in spare.cut(at) {
                there[left % steps] = there[left % steps].saturating_sub(bytes);
            }
        }
    }
    let (mut squeezed, mut parted) = (intervals.to_vec(), Vec::new());
    for spare in &spares {
        parted.extend(spare.apply(&mut squeezed[spare.interval], steps));
    }
    squeezed.extend(parted);
    Ok(squeezed)
}

/// Where of a residency interval a payload is there without need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SparePart {
    /// Before its first use.
    Early,
    /// Between two uses.
    Between,
    /// Behind its last one.
    Late,
}

/// Steps in which a payload is there that do not need it.
#[derive(Debug, Clone)]
struct Spare<'a> {
    of: &'a PayloadUses,
    /// Its interval's number.
    interval: usize,
    part: SparePart,
    /// The steps, counted from the beginning of the iteration in which they begin.
    steps: Range<usize>,
    /// The first and the last step in which it must not be there.
    cut: Option<(usize, usize)>,
}

impl<'a> Spare<'a> {
    /// All of these intervals, each one's in their order.
    fn all(
        uses: &'a Uses,
        intervals: &[ResidencyInterval],
        spills: impl Fn(&PayloadUses) -> bool,
    ) -> Vec<Self> {
        let mut all = Vec::new();
        for (interval, told) in intervals.iter().enumerate() {
            let Some(of) = uses.position(told.payload).and_then(|position| uses.payloads().get(position))
            else {
                continue;
            };
            let mut add = |part: SparePart, steps: Range<usize>| {
                all.extend((!steps.is_empty()).then_some(Self { of, interval, part, steps, cut: None }));
            };
            add(SparePart::Early, told.at.fetched..told.at.awaited(uses.steps()));
            let used = needed(of, of.changed.filter(|_| !spills(of)));
            let used = used.into_iter().filter(|step| (told.at.needed..told.at.leaves).contains(step));
            let mut before = None;
            for step in used {
                add(SparePart::Between, before.map_or(step, |before| before + 1)..step);
                before = Some(step);
            }
            add(SparePart::Late, told.at.leaves..told.at.freed);
        }
        all
    }

    /// Whether the payload is there in one of its steps.
    fn holds(&self, at: usize) -> bool {
        self.steps.contains(&at)
            && self.cut.is_none_or(|(first, last)| match self.part {
                SparePart::Early => at > last,
                SparePart::Between => at < first || at > last,
                SparePart::Late => at < first,
            })
    }

    /// Which of its steps is this one of an iteration, if the payload is there in it: a residency interval that goes
    /// over the end of an iteration is there in steps of two.
    fn holding(&self, step: usize, steps: usize) -> Option<usize> {
        [step, step + steps].into_iter().find(|&at| self.holds(at))
    }

    /// Steps from one until the payload is used once more, in the next iteration if not in this.
    fn until_use(&self, at: usize, steps: usize) -> usize {
        let used = |begin: usize| self.of.steps.iter().map(move |step| begin + step);
        let next = used(0).chain(used(steps)).find(|&step| step >= at);
        next.map_or(usize::MAX, |next| next - at)
    }

    /// Takes it away in one of its steps, and where it would be there for no use because of that. Returns the steps in which it was
    /// there.
    fn cut(&mut self, at: usize) -> Vec<usize> {
        let held: Vec<usize> = self.steps.clone().filter(|&step| self.holds(step)).collect();
        self.cut = Some(self.cut.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
        held.into_iter().filter(|&step| !self.holds(step)).collect()
    }

    /// Its interval without what was taken away. Returns the part of it that is over before, if there are two.
    fn apply(&self, interval: &mut ResidencyInterval, steps: usize) -> Option<ResidencyInterval> {
        let (first, last) = self.cut?;
        let behind = last + 1;
        match self.part {
            // At the end of an iteration is still in it.
            SparePart::Early => interval.at.fetched = if behind > steps { behind - steps } else { behind },
            SparePart::Late => interval.at.freed = first,
            SparePart::Between => {
                let before = ResidencyInterval {
                    at: BoundaryInterval { leaves: self.steps.start, freed: first, ..interval.at },
                    ..*interval
                };
                (interval.at.fetched, interval.at.needed) = (behind, self.steps.end);
                return Some(before);
            }
        }
        None
    }
}
