//! Which micro-batches keep what where the last one goes backward first, as under GPipe: the fewest seconds within a stage's bytes.
//!
//! While a micro-batch goes forward, and while it goes backward, those before it hold what they keep, and none behind it holds
//! anything. So of the choices `c_j` of slots `j`, in the order in which they go forward,
//!
//! ```text
//! kept(c_0) + … + kept(c_{j−1}) + most(c_j) ≤ bytes    for every j
//! ```
//!
//! A label is what the slots so far keep together, and their seconds. One that could not be better than what is known, if each slot
//! behind it had any mixture of its choices, is left out; what a first look with few labels finds is known.

use super::in_flight_assignment::{JointLabel, Mixture, Slot, SlotPlan, Within, traced, unbeaten};
use super::keep_sets::{Level, SlotChoices};
use loadmaster_search::Stop;

/// Most slots that are looked at.
const MOST_SLOTS: usize = 128;
/// Most labels of a slot, at first and then.
const FEW_LABELS: usize = 64;
const MOST_LABELS: usize = 1 << 12;
/// Most choices that labels are continued with, of all slots together.
const MOST_WORK: usize = 1 << 23;

/// The fewest seconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GpipeSlotPlan {
    pub(super) plan: SlotPlan,
    /// No choices of the slots take fewer.
    pub(super) at_least: f64,
}

/// The fewest seconds, as far as the slots' choices are distinguished; none where none fit, slots or their choices
/// are too many, or it was stopped.
pub(super) fn fewest(slots: &[Slot<'_>], bytes: u64, stop: &Stop) -> Option<GpipeSlotPlan> {
    let choices: usize = slots.iter().map(|slot| slot.choices.all.len()).sum();
    let most = (MOST_WORK / choices.max(1)).min(MOST_LABELS);
    if slots.len() > MOST_SLOTS || most < FEW_LABELS {
        return None;
    }
    let asked = SlotProblem::of(slots, bytes)?;
    let (few, _) = asked.labelled(FEW_LABELS, f64::INFINITY, stop)?;
    let below = few.as_ref().map_or(f64::INFINITY, |few| few.seconds);
    let (best, left_out) = asked.labelled(most, below, stop)?;
    let plan = best.or(few)?;
    let at_least = plan.seconds.min(left_out);
    Some(GpipeSlotPlan { plan, at_least })
}

/// Slots, and what they take at least from each of them on.
struct SlotProblem {
    slots: Vec<Choices>,
    /// By slot, and behind the last one.
    rests: Vec<Mixture>,
    bytes: u64,
}

/// What a slot may choose, fewest bytes first.
struct Choices {
    choices: Vec<KeepOption>,
    weight: f64,
}

#[derive(Debug, Clone, Copy)]
struct KeepOption {
    kept: u64,
    most: u64,
    seconds: f64,
    index: usize,
}

impl SlotProblem {
    fn of(slots: &[Slot<'_>], bytes: u64) -> Option<Self> {
        let last = slots.last()?;
        // Behind the last one nothing more is kept, so that what counts of it is the most that it needs.
        let by_most = Level::by_most(last.choices);
        let mut levels: Vec<(&Level, f64)> = slots
            .iter()
            .map(|slot| Some((slot.choices.levels.last()?, slot.weight)))
            .collect::<Option<_>>()?;
        *levels.last_mut()? = (&by_most, last.weight);
        let within = Within { slots: levels, bytes };
        let rests = (0..=slots.len()).map(|first| within.mixture(first)).collect();
        let slots = slots.iter().map(|slot| Choices::of(slot.choices, slot.weight)).collect();
        Some(Self { slots, rests, bytes })
    }

    /// The best choices below so many seconds with at most so many labels of a slot, and seconds that none gets below which was
    /// left out for that; none where it was stopped.
    fn labelled(&self, most: usize, below: f64, stop: &Stop) -> Option<(Option<SlotPlan>, f64)> {
        let (mut labels, mut left_out) = (vec![vec![JointLabel::START]], f64::INFINITY);
        for (slot, rest) in self.slots.iter().zip(&self.rests[1..]) {
            if stop.is_requested() {
                return None;
            }
            // With those of the slots to come.
            let at_least = |label: &JointLabel| label.seconds + rest.seconds_within(self.bytes - label.kept);
            let mut next = Vec::new();
            for (from, label) in labels.last()?.iter().enumerate() {
                slot.go_on(from, *label, self.bytes, |label: JointLabel| {
                    if at_least(&label) < below {
                        next.push(label);
                    }
                });
            }
            let mut next = unbeaten(next);
            if next.len() > most {
                let mut by_bound: Vec<(f64, JointLabel)> =
                    next.iter().map(|of| (at_least(of), *of)).collect();
                by_bound.sort_unstable_by(|(one, _), (other, _)| one.total_cmp(other));
                left_out = left_out.min(by_bound[most].0);
                next = by_bound.into_iter().take(most).map(|(_, label)| label).collect();
                next.sort_unstable_by_key(|label| label.kept);
            }
            labels.push(next);
        }
        Some((traced(&labels), left_out))
    }
}

impl Choices {
    fn of(choices: &SlotChoices, weight: f64) -> Self {
        let choice = |(index, of): (usize, &super::keep_sets::SlotChoice)| KeepOption {
            kept: of.kept,
            most: of.most,
            seconds: of.seconds,
            index,
        };
        let mut choices: Vec<KeepOption> = choices.all.iter().enumerate().map(choice).collect();
        choices.sort_by(|a, b| a.kept.cmp(&b.kept).then(a.seconds.total_cmp(&b.seconds)));
        Self { choices, weight }
    }

    /// Labels of this slot behind one of those before it: of each choice that fits and is faster than all that keep less.
    fn go_on(&self, from: usize, label: JointLabel, bytes: u64, mut push: impl FnMut(JointLabel)) {
        let room = bytes - label.kept;
        let mut least = f64::INFINITY;
        for of in self.choices.iter().take_while(|of| of.kept <= room) {
            if of.most <= room && of.seconds < least {
                least = of.seconds;
                let seconds = label.seconds + of.seconds * self.weight;
                push(JointLabel { kept: label.kept + of.kept, seconds, choice: of.index, from });
            }
        }
    }
}
