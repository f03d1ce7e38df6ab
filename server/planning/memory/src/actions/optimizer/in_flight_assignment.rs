//! Which micro-batches in flight keep what: the fewest seconds within a stage's bytes.
//!
//! While one micro-batch goes backward the others in flight hold what they keep. So of the choices `c_j` of slots `j`
//!
//! ```text
//! Σ kept(c_j) + max (most(c_j) − kept(c_j)) ≤ bytes
//! ```
//!
//! For each value that the second term may have, the first is a program over the slots. Where each slot could have any
//! mixture of its choices it would be solved by what costs least per byte; that says how good a plan can be, and rounded
//! it is one.

use super::keep_sets::{Level, Point, SlotChoices};

/// Of each slot, the number of its choice.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SlotPlan {
    pub(super) choices: Vec<usize>,
    /// With the weights of the slots.
    pub(super) seconds: f64,
}

/// A slot: what it may choose, and how much a second of its micro-batches counts: above 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot<'a> {
    pub(super) choices: &'a SlotChoices,
    pub(super) weight: f64,
}

/// What the slots so far keep together, and their seconds: by the choice of the last of them, behind a label of those before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct JointLabel {
    pub(super) kept: u64,
    pub(super) seconds: f64,
    pub(super) choice: usize,
    pub(super) from: usize,
}

impl JointLabel {
    /// Of no slots.
    pub(super) const START: Self = Self { kept: 0, seconds: 0.0, choice: 0, from: 0 };
}

/// Few seconds: the best mixture, rounded; none where no choices fit.
pub(super) fn few_seconds(slots: &[Slot<'_>], bytes: u64) -> Option<SlotPlan> {
    best_rounded(&levels(slots, bytes))
}

fn best_rounded(levels: &[(f64, Within<'_>)]) -> Option<SlotPlan> {
    let mut best: Option<SlotPlan> = None;
    for (at_least, within) in levels {
        let most = best.as_ref().map_or(f64::INFINITY, |best| best.seconds);
        if *at_least < most
            && let Some(rounded) = within.rounded().filter(|rounded| rounded.seconds < most)
        {
            best = Some(rounded);
        }
    }
    best
}

/// The fewest seconds, as far as the slots' choices are distinguished; none where none fit.
pub(super) fn fewest_seconds(slots: &[Slot<'_>], bytes: u64) -> Option<SlotPlan> {
    fewest_seconds_below(slots, bytes, f64::INFINITY)
}

/// The same if they are fewer than these.
pub(super) fn fewest_seconds_below(slots: &[Slot<'_>], bytes: u64, below: f64) -> Option<SlotPlan> {
    let levels = levels(slots, bytes);
    let mut best = best_rounded(&levels).filter(|best| best.seconds < below);
    for (at_least, within) in &levels {
        let most = best.as_ref().map_or(below, |best| best.seconds);
        if *at_least >= most {
            break;
        }
        best = within.solved(most).or(best);
    }
    best
}

/// What keeps least where slots go backward one after the other, the last first or the first. Of the others, only those that still
/// wait for theirs hold anything then, so each need only fit beside these. An iteration that begins no micro-batch after its first
/// backward pass is such; whether another one is must be seen.
pub(super) fn least_in_turn(slots: &[Slot<'_>], bytes: u64) -> Vec<Vec<usize>> {
    let in_turn = |order: &mut dyn Iterator<Item = usize>| {
        let (mut chosen, mut kept) = (vec![0; slots.len()], 0_u64);
        for slot in order {
            let mut all = slots[slot].choices.all.iter();
            // Those that keep least come first.
            chosen[slot] = all.position(|choice| kept.saturating_add(choice.most) <= bytes)?;
            kept = kept.saturating_add(slots[slot].choices.all[chosen[slot]].kept);
        }
        Some(chosen)
    };
    let both = [in_turn(&mut (0..slots.len())), in_turn(&mut (0..slots.len()).rev())];
    let mut found: Vec<Vec<usize>> = both.into_iter().flatten().collect();
    found.dedup();
    found
}

/// The slots within each limit, with the seconds that they take at least, fewest first.
fn levels<'a>(slots: &[Slot<'a>], bytes: u64) -> Vec<(f64, Within<'a>)> {
    let mut excesses: Vec<u64> = Vec::new();
    for (index, slot) in slots.iter().enumerate() {
        if !slots[..index].iter().any(|other| std::ptr::eq(other.choices, slot.choices)) {
            excesses.extend(slot.choices.levels.iter().map(|level| level.excess).filter(|&of| of <= bytes));
        }
    }
    excesses.sort_unstable();
    excesses.dedup();
    let of = |excess| {
        let within = Within::new(slots, excess, bytes - excess)?;
        let at_least = within.mixture(0).seconds_within(within.bytes);
        at_least.is_finite().then_some((at_least, within))
    };
    let mut all: Vec<(f64, Within<'a>)> = excesses.into_iter().filter_map(of).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

/// The slots, with choices whose excess is limited, and what counts of their seconds.
pub(super) struct Within<'a> {
    pub(super) slots: Vec<(&'a Level, f64)>,
    pub(super) bytes: u64,
}

/// Slots of which each could have any mixture of its choices.
#[derive(Debug, Clone, Default)]
pub(super) struct Mixture {
    /// With the fewest seconds for each of them.
    most_bytes: u64,
    seconds: f64,
    /// What is saved first costs least: bytes saved so far, and seconds added so far.
    saved: Vec<(f64, f64)>,
}

impl Mixture {
    /// Seconds within so many bytes.
    pub(super) fn seconds_within(&self, bytes: u64) -> f64 {
        let missing = self.most_bytes.saturating_sub(bytes) as f64;
        if missing == 0.0 {
            return self.seconds;
        }
        let at = self.saved.partition_point(|saved| saved.0 < missing);
        let Some(&(bytes, seconds)) = self.saved.get(at) else { return f64::INFINITY };
        let (before, added) = at.checked_sub(1).map_or((0.0, 0.0), |before| self.saved[before]);
        self.seconds + added + (seconds - added) * (missing - before) / (bytes - before)
    }
}

impl<'a> Within<'a> {
    fn new(slots: &[Slot<'a>], excess: u64, bytes: u64) -> Option<Self> {
        let of = |slot: &Slot<'a>| Some((slot.choices.level(excess)?, slot.weight));
        Some(Self { slots: slots.iter().map(of).collect::<Option<_>>()?, bytes })
    }

    /// Slots from this one on.
    pub(super) fn mixture(&self, first: usize) -> Mixture {
        let (mut mixture, mut pieces) = (Mixture::default(), Vec::new());
        for (level, weight) in &self.slots[first..] {
            let (bytes, seconds, _) = level.hull.last().copied().unwrap_or((0, f64::INFINITY, 0));
            mixture.most_bytes = mixture.most_bytes.saturating_add(bytes);
            mixture.seconds += seconds * weight;
            pieces.extend(level.hull.windows(2).map(|pair| {
                let (bytes, seconds) = saving(&pair[0], &pair[1]);
                (bytes, seconds * weight)
            }));
        }
        pieces.sort_unstable_by(|a: &(f64, f64), b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
        let mut sum = (0.0, 0.0);
        let summed = pieces.into_iter().map(|(bytes, seconds)| {
            sum = (sum.0 + bytes, sum.1 + seconds);
            sum
        });
        mixture.saved = summed.collect();
        mixture
    }

    /// The best mixture with what is mixed rounded to fewer bytes.
    fn rounded(&self) -> Option<SlotPlan> {
        let mut chosen: Vec<Point> =
            self.slots.iter().map(|(level, _)| level.hull.last().copied()).collect::<Option<_>>()?;
        let mut steps: Vec<(f64, usize, Point)> = Vec::new();
        for (slot, (level, weight)) in self.slots.iter().enumerate() {
            steps.extend(level.hull.windows(2).map(|pair| {
                let (bytes, seconds) = saving(&pair[0], &pair[1]);
                (weight * seconds / bytes, slot, pair[0])
            }));
        }
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut kept: u64 = chosen.iter().map(|point| point.0).sum();
        for (_, slot, point) in steps {
            if kept <= self.bytes {
                break;
            }
            // Steps of one slot that cost the same come in any order.
            if point.0 >= chosen[slot].0 {
                continue;
            }
            let others = kept - chosen[slot].0;
            // The last step may be shorter than the hull's.
            let points = &self.slots[slot].0.points;
            let within = points.partition_point(|point| others + point.0 <= self.bytes);
            let shorter = within.checked_sub(1).map(|last| points[last]).filter(|of| of.0 > point.0);
            chosen[slot] = shorter.unwrap_or(point);
            kept = others + chosen[slot].0;
        }
        self.use_up(&mut chosen, kept);
        let weighted = chosen.iter().zip(&self.slots).map(|(point, (_, weight))| point.1 * weight);
        let seconds = weighted.sum();
        let choices = chosen.iter().map(|point| point.2).collect();
        (kept <= self.bytes).then_some(SlotPlan { choices, seconds })
    }

    /// Lets slots keep more where there is room, what gains most first.
    fn use_up(&self, chosen: &mut [Point], mut kept: u64) {
        while kept <= self.bytes {
            let more = |(slot, own): (usize, &Point)| {
                let (level, weight) = &self.slots[slot];
                let within = level.points.partition_point(|point| kept - own.0 + point.0 <= self.bytes);
                let point = level.points[within.checked_sub(1)?];
                (point.1 < own.1).then(|| (weight * (own.1 - point.1), slot, point))
            };
            let best = chosen.iter().enumerate().filter_map(more).max_by(|a, b| a.0.total_cmp(&b.0));
            let Some((_, slot, point)) = best else { return };
            kept = kept - chosen[slot].0 + point.0;
            chosen[slot] = point;
        }
    }

    /// The best choices below so many seconds.
    fn solved(&self, below: f64) -> Option<SlotPlan> {
        let mut labels = vec![vec![JointLabel::START]];
        for (slot, (level, weight)) in self.slots.iter().enumerate() {
            let rest = self.mixture(slot + 1);
            let mut next = Vec::new();
            for (from, label) in labels.last()?.iter().enumerate() {
                for &(kept, seconds, choice) in &level.points {
                    let (kept, seconds) = (label.kept.saturating_add(kept), label.seconds + seconds * weight);
                    let Some(room) = self.bytes.checked_sub(kept) else { break };
                    if seconds + rest.seconds_within(room) < below {
                        next.push(JointLabel { kept, seconds, choice, from });
                    }
                }
            }
            labels.push(unbeaten(next));
        }
        traced(&labels)
    }
}

/// Labels of more and more bytes and fewer and fewer seconds.
pub(super) fn unbeaten(mut labels: Vec<JointLabel>) -> Vec<JointLabel> {
    labels.sort_unstable_by(|a, b| a.kept.cmp(&b.kept).then(a.seconds.total_cmp(&b.seconds)));
    let mut least = f64::INFINITY;
    labels.retain(|label| {
        let is_better = label.seconds < least;
        least = least.min(label.seconds);
        is_better
    });
    labels
}

/// The choices that the last label stands for: fewest bytes come first, fewest seconds last.
pub(super) fn traced(labels: &[Vec<JointLabel>]) -> Option<SlotPlan> {
    let mut index = labels.last()?.len().checked_sub(1)?;
    let seconds = labels.last()?.get(index)?.seconds;
    let mut choices = Vec::with_capacity(labels.len());
    for labels in labels.iter().skip(1).rev() {
        let label = labels.get(index)?;
        choices.push(label.choice);
        index = label.from;
    }
    choices.reverse();
    Some(SlotPlan { choices, seconds })
}

/// Bytes that the first of two points saves, and the seconds that it takes more.
fn saving(few: &Point, many: &Point) -> (f64, f64) {
    ((many.0 - few.0) as f64, few.1 - many.1)
}
