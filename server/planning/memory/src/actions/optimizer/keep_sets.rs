//! What a micro-batch may keep of a stage: every way to keep some layers and compute runs of others once more that no other
//! way beats.
//!
//! A program over the layers from below: a label is what the layers up to here keep, the most that their backward passes
//! need, and the seconds that recomputing adds. A label that another one beats in all three is dropped, and runs are
//! intervals, so that what is left at the end is exact. Equal layers leave few labels: which of them are kept does not
//! matter, only how many.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::actions::LayerBlocks;
use loadmaster_search::Stop;

/// Most labels of all layers together; where there are more, as many are kept as stand for the others evenly.
const MOST_LABELS: usize = 1 << 17;

/// What a micro-batch keeps.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SlotChoice {
    /// Runs that are recomputed, positions in the stage, from below.
    pub(super) runs: Vec<RangeInclusive<usize>>,
    /// Bytes between its passes.
    pub(super) kept: u64,
    /// Bytes at most while it goes backward; never less than what it keeps.
    pub(super) most: u64,
    /// What recomputing takes.
    pub(super) seconds: f64,
}

/// All choices for a micro-batch that no other one beats, those that keep least first, of these those of fewest seconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct SlotChoices {
    pub(super) all: Vec<SlotChoice>,
    /// The same, within limits on by how much what a choice needs at most is above what it keeps; looser ones later.
    pub(super) levels: Vec<Level>,
    /// Whether no other choice is left out than those that one of them beats.
    pub(super) is_whole: bool,
}

/// A choice: what it keeps, its seconds of a micro-batch, and its number.
pub(super) type Point = (u64, f64, usize);

/// Choices within a limit.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Level {
    /// By how much the most that one needs is above what it keeps at most.
    pub(super) excess: u64,
    /// Those that no other one beats in bytes and seconds, fewest bytes first.
    pub(super) points: Vec<Point>,
    /// The lower convex hull of these.
    pub(super) hull: Vec<Point>,
}

/// What is not told apart, or not looked at; by default everything is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Grains {
    /// Of labels that are the same but for so many bytes, that of fewest seconds stands for all; 0 distinguishes all.
    pub(super) label: u64,
    /// How far apart levels are; 0 distinguishes all.
    pub(super) level: u64,
    /// Most layers of a run; none has no limit.
    pub(super) run: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
struct SlotLabel {
    kept: u64,
    most: u64,
    seconds: f64,
    /// The position and the number of the label that it came from.
    from: (usize, usize),
    is_run: bool,
}

impl SlotChoices {
    /// Those of layers of which some are `away` between their passes: they keep nothing, and are there for their own
    /// backward pass. No choice needs more than `bytes` at once. Without `again`, nothing is recomputed.
    /// None where it was stopped.
    pub(super) fn of(
        layers: &[LayerBlocks],
        away: &[bool],
        bytes: u64,
        again: bool,
        grains: Grains,
        stop: &Stop,
    ) -> Self {
        let is_away = |layer: usize| away.get(layer).copied().unwrap_or(false);
        let start = SlotLabel { kept: 0, most: 0, seconds: 0.0, from: (0, 0), is_run: false };
        let mut labels: Vec<Vec<SlotLabel>> = vec![vec![start]];
        let (most, mut is_whole) =
            (MOST_LABELS / layers.len().max(1), grains.label == 0 && grains.run.is_none());
        for position in 1..=layers.len() {
            if stop.is_requested() {
                return Self::default();
            }
            let mut next = Vec::new();
            let layer = layers.get(position - 1).copied().unwrap_or_default();
            for (index, label) in labels.last().into_iter().flatten().enumerate() {
                let with = label.kept.saturating_add(layer.activations);
                let kept = if is_away(position - 1) { label.kept } else { with };
                let most = label.most.max(with);
                next.push(SlotLabel { kept, most, from: (position - 1, index), is_run: false, ..*label });
            }
            let mut run = Run::default();
            let longest = if again { grains.run.unwrap_or(usize::MAX) } else { 0 };
            for first in (0..position).rev().take(longest).take_while(|&first| !is_away(first)) {
                run.grow(layers.get(first).copied().unwrap_or_default());
                for (index, label) in labels.get(first).into_iter().flatten().enumerate() {
                    let kept = label.kept.saturating_add(run.input);
                    let most = label.most.max(kept.saturating_add(run.most));
                    let seconds = label.seconds + run.seconds;
                    next.push(SlotLabel { kept, most, seconds, from: (first, index), is_run: true });
                }
            }
            next.retain(|label| label.most <= bytes);
            let best = unbeaten(next, grains.label);
            is_whole &= best.len() <= most;
            labels.push(thinned(best, most));
        }
        let count = labels.last().map_or(0, Vec::len);
        let all = (0..count).filter_map(|index| traced(&labels, index)).collect();
        Self { is_whole, ..Self::with_levels(all, grains.level) }
    }

    /// Choices, with levels of their limits that are so far apart; 0 distinguishes all.
    pub(super) fn with_levels(mut all: Vec<SlotChoice>, apart: u64) -> Self {
        all.sort_by(|a, b| a.kept.cmp(&b.kept).then(a.seconds.total_cmp(&b.seconds)));
        let levels = excesses(&all, apart).into_iter().map(|excess| Level::of(&all, excess)).collect();
        Self { all, levels, is_whole: false }
    }

    /// Choices within a limit; none where there is no such choice.
    pub(super) fn level(&self, excess: u64) -> Option<&Level> {
        let within = self.levels.partition_point(|level| level.excess <= excess);
        self.levels.get(within.checked_sub(1)?)
    }
}

/// By how much the most that choices need is above what they keep.
fn excesses(all: &[SlotChoice], apart: u64) -> Vec<u64> {
    let coarse = |excess: u64| match excess.checked_rem(apart) {
        Some(rest) if rest > 0 => excess.saturating_add(apart - rest),
        _ => excess,
    };
    let mut excesses: Vec<u64> = all.iter().map(|choice| coarse(choice.most - choice.kept)).collect();
    excesses.sort_unstable();
    excesses.dedup();
    excesses
}

impl Level {
    fn of(all: &[SlotChoice], excess: u64) -> Self {
        let within = |choice: &&SlotChoice| choice.most - choice.kept <= excess;
        let all = all.iter().enumerate();
        let mut points: Vec<Point> = all
            .filter(|(_, choice)| within(choice))
            .map(|(index, choice)| (choice.kept, choice.seconds, index))
            .collect();
        retain_unbeaten(&mut points);
        let hull = hull(&points);
        Self { excess, points, hull }
    }

    /// All choices by what they need at most, as if that were what they keep.
    pub(super) fn by_most(choices: &SlotChoices) -> Self {
        let all = choices.all.iter().enumerate();
        let mut points: Vec<Point> = all.map(|(index, of)| (of.most, of.seconds, index)).collect();
        points.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        retain_unbeaten(&mut points);
        let hull = hull(&points);
        Self { excess: 0, points, hull }
    }
}

/// Of points of more and more bytes, those with fewer seconds than all before.
fn retain_unbeaten(points: &mut Vec<Point>) {
    let mut least = f64::INFINITY;
    points.retain(|point| {
        let is_better = point.1 < least;
        least = least.min(point.1);
        is_better
    });
}

/// The lower convex hull of points of more and more bytes and fewer and fewer seconds.
fn hull(points: &[Point]) -> Vec<Point> {
    let mut hull: Vec<Point> = Vec::new();
    for &point in points {
        while let [.., a, b] = hull[..]
            && (b.1 - a.1) * (point.0 - a.0) as f64 >= (point.1 - a.1) * (b.0 - a.0) as f64
        {
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

/// A run that grows downwards.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    input: u64,
    /// What its backward passes need at most, its input not counted.
    most: u64,
    seconds: f64,
}

impl Run {
    fn grow(&mut self, below: LayerBlocks) {
        self.input = below.input;
        self.most = self.most.max(below.working).saturating_add(below.activations);
        self.seconds += below.seconds.again;
    }
}

/// Labels that no other one beats, those of fewest seconds first.
fn unbeaten(mut labels: Vec<SlotLabel>, grain: u64) -> Vec<SlotLabel> {
    let coarse = |bytes: u64| bytes.checked_div(grain).unwrap_or(bytes);
    labels.sort_unstable_by(|a, b| {
        a.seconds.total_cmp(&b.seconds).then(a.kept.cmp(&b.kept)).then(a.most.cmp(&b.most))
    });
    // By what they keep, the most that they need: a staircase of those that are in.
    let mut stairs: BTreeMap<u64, u64> = BTreeMap::new();
    labels.retain(|label| {
        let (kept, most) = (coarse(label.kept), coarse(label.most));
        let beaten = stairs.range(..=kept).next_back().is_some_and(|(_, &least)| least <= most);
        if !beaten {
            while let Some((&worse, _)) = stairs.range(kept..).next().filter(|(_, of)| **of >= most) {
                stairs.remove(&worse);
            }
            stairs.insert(kept, most);
        }
        !beaten
    });
    labels
}

/// As many of them at most, the first and the last among these.
fn thinned(mut labels: Vec<SlotLabel>, most: usize) -> Vec<SlotLabel> {
    let (count, most) = (labels.len(), most.max(2));
    if count <= most {
        return labels;
    }
    let part = |index: usize| index * (most - 1) / (count - 1);
    let mut index = 0;
    labels.retain(|_| {
        let is_kept = index == 0 || part(index) != part(index - 1);
        index += 1;
        is_kept
    });
    labels
}

/// The choice that a last label stands for.
fn traced(labels: &[Vec<SlotLabel>], index: usize) -> Option<SlotChoice> {
    let last = *labels.last()?.get(index)?;
    let mut runs = Vec::new();
    let (mut label, mut position) = (last, labels.len() - 1);
    while position > 0 {
        let (before, number) = label.from;
        if label.is_run {
            runs.push(before..=position - 1);
        }
        label = *labels.get(before)?.get(number)?;
        position = before;
    }
    runs.reverse();
    Some(SlotChoice { runs, kept: last.kept, most: last.most, seconds: last.seconds })
}
