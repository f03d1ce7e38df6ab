//! What a micro-batch may keep of layers of few kinds, within one limit on by how much it needs more while it goes backward.
//!
//! A program over the layers from above: what is kept above a run is free when the run goes backward, so that a run needs no
//! more than the limit and that. A label is what the layers from here up keep, and their seconds. Fewer bytes are worse for
//! the runs below; but where all layers' inputs are as large, a run that is too long for them can be split as often as the
//! difference has inputs in it, which makes up for it. Then some of the best choices also have what equal layers keep above
//! what they compute again, and no run that could take a layer from the one below: only these are looked at.

use rustc_hash::{FxHashMap, FxHashSet};

use super::slot::{SlotChoice, SlotChoices};
use crate::actions::LayerBlocks;
use loadmaster_search::Stop;

/// Most labels of a layer: with more, layers are of too many kinds.
const MOST_LABELS: usize = 1 << 9;
/// Parts of all seconds that are told apart.
const PARTS: f64 = 1e13;

/// Layers, some of which are `away` between their passes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limited<'a> {
    pub(super) layers: &'a [LayerBlocks],
    pub(super) away: &'a [bool],
    /// No choice keeps more.
    pub(super) bytes: u64,
}

/// A way down through the layers to a position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) kept: u64,
    /// In parts of all seconds, so that equal sums are equal.
    pub(super) parts: u64,
    /// The position above and the number of the label that it came from.
    pub(super) from: (usize, usize),
    pub(super) is_run: bool,
}

#[derive(Debug, Clone, Copy)]
struct Label {
    way: Way,
    next: Next,
}

/// What the layer below may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Any,
    /// It would keep what the run above may keep instead.
    NotKept,
    /// It would be taken by the run above.
    NotRun,
}

impl Limited<'_> {
    pub(super) fn is_away(&self, layer: usize) -> bool {
        self.away.get(layer).copied().unwrap_or(false)
    }

    /// What any run below a position needs at most, and what each layer alone does.
    pub(super) fn needs(&self, position: usize) -> (u64, u64) {
        let (mut below, mut most, mut alone) = (0_u64, 0, 0);
        for (index, layer) in self.layers.iter().enumerate().take(position) {
            let working = if self.is_away(index) { 0 } else { layer.working };
            below = below.saturating_add(layer.activations);
            most = most.max(below.saturating_add(working));
            alone = alone.max(layer.activations.saturating_add(working));
        }
        (most, alone)
    }

    /// The input of all layers but the lowest, where they are as large.
    pub(super) fn even_input(&self) -> Option<u64> {
        let mut inputs = self.layers.iter().skip(1).map(|layer| layer.input);
        let input = inputs.next().unwrap_or(0);
        inputs.all(|other| other == input).then_some(input)
    }

    /// Seconds of a part, and by layer the parts that computing it again takes.
    pub(super) fn parts(&self) -> (f64, Vec<u64>) {
        let again = || self.layers.iter().map(|layer| layer.seconds.again);
        let all: f64 = again().sum();
        let part = if all > 0.0 { all / PARTS } else { 1.0 };
        (part, again().map(|seconds| (seconds / part).round() as u64).collect())
    }

    /// The most that any choice needs above what it keeps, and the most of single layers.
    pub(super) fn most(&self) -> (u64, u64) {
        self.needs(self.layers.len())
    }

    /// All choices within a limit that no other one beats; none where there are too many labels, or it was stopped.
    pub(super) fn within(&self, excess: u64, stop: &Stop) -> Option<Vec<SlotChoice>> {
        let count = self.layers.len();
        let input = self.even_input();
        let (part, parts) = self.parts();
        let mut labels: Vec<Vec<Label>> = vec![Vec::new(); count + 1];
        labels[count].push(Label { way: Way::above(count), next: Next::Any });
        for position in (0..=count).rev() {
            let mut own = std::mem::take(&mut labels[position]);
            let (any, alone) = self.needs(position);
            let [any, alone] = [any, alone].map(|needs| needs.saturating_sub(excess));
            let free = if input == Some(0) { alone } else { any };
            retain_unbeaten(&mut own, Worse { free, alone, input });
            if own.len() > MOST_LABELS || stop.is_requested() {
                return None;
            }
            if position > 0 {
                self.extend(&own, position, (excess, &parts, input.is_some()), &mut labels);
            }
            labels[position] = own;
        }
        let way = |position: usize, number: usize| Some(labels.get(position)?.get(number)?.way);
        Some((0..labels[0].len()).filter_map(|number| traced(way, number, excess, part)).collect())
    }

    /// Keeps the layer below a position, or computes it again with some of those below it.
    fn extend(
        &self,
        own: &[Label],
        position: usize,
        (excess, parts, is_even): (u64, &[u64], bool),
        labels: &mut [Vec<Label>],
    ) {
        let top = position - 1;
        let layer = self.layers[top];
        for (index, &Label { way, next: may }) in own.iter().enumerate() {
            let room = excess.saturating_add(way.kept);
            let from = (position, index);
            if self.is_away(top) {
                if layer.activations <= room {
                    labels[top].push(Label { way: Way { from, is_run: false, ..way }, next: Next::Any });
                }
                continue;
            }
            let kept = way.kept.saturating_add(layer.activations);
            if kept <= self.bytes && may != Next::NotKept {
                labels[top].push(Label { way: Way { kept, from, is_run: false, ..way }, next: Next::Any });
            }
            if may == Next::NotRun {
                continue;
            }
            let (mut needs, mut again, mut is_alike) = (0_u64, way.parts, true);
            for first in (0..=top).rev() {
                let below = self.layers[first];
                needs = needs.max(below.working).saturating_add(below.activations);
                if needs > room {
                    break;
                }
                again += parts[first];
                is_alike &= below == layer;
                let kept = way.kept.saturating_add(below.input);
                let under = first.checked_sub(1).filter(|&under| !self.is_away(under));
                let more = under.map(|under| self.layers[under]);
                let is_longest =
                    more.is_none_or(|more| needs.max(more.working).saturating_add(more.activations) > room);
                let may_keep = !is_even || !is_alike || more.is_none_or(|more| more != layer);
                let next = match (may_keep, is_longest || !is_even) {
                    (true, true) => Some(Next::Any),
                    (true, false) => Some(Next::NotRun),
                    (false, true) => Some(Next::NotKept),
                    (false, false) => None,
                };
                if let Some(next) = next.filter(|_| kept <= self.bytes) {
                    labels[first].push(Label { way: Way { kept, parts: again, from, is_run: true }, next });
                }
                if under.is_none() {
                    break;
                }
            }
        }
    }
}

/// Choices within a few limits: nothing more than what is kept, what the largest layer needs, and ever more layers of it.
pub(super) fn within_limits(limited: Limited<'_>, stop: &Stop) -> Option<SlotChoices> {
    let (any, alone) = limited.most();
    let ever_more = std::iter::successors(Some(alone), |&excess| excess.checked_mul(2));
    // With the last of them all is possible.
    let loosest = (any > 0).then_some(any);
    let limits =
        std::iter::once(0).chain(ever_more.take_while(|&excess| excess > 0 && excess < any)).chain(loosest);
    let of = |excess: u64| Some((excess, limited.within(excess, stop)?));
    Some(SlotChoices::within_each(limits.map(of).collect::<Option<_>>()?))
}

/// Where fewer bytes are worse for the runs below.
#[derive(Debug, Clone, Copy)]
struct Worse {
    /// From so many on they never are.
    free: u64,
    /// From so many on they are not where they are fewer by whole inputs.
    alone: u64,
    /// Of all layers but the lowest, where they are as large.
    input: Option<u64>,
}

/// Labels so far, those of fewest seconds first.
#[derive(Debug, Default)]
struct Known {
    kept: FxHashSet<u64>,
    least_free: Option<u64>,
    /// By what is left over of whole inputs.
    least: FxHashMap<u64, u64>,
}

impl Known {
    fn beats(&self, kept: u64, worse: Worse) -> bool {
        let rest = worse.input.and_then(|input| kept.checked_rem(input));
        self.least_free.is_some_and(|least| least <= kept)
            || rest.and_then(|rest| self.least.get(&rest)).is_some_and(|&least| least <= kept)
            || self.kept.contains(&kept)
    }

    fn insert(&mut self, kept: u64, worse: Worse) {
        self.kept.insert(kept);
        if kept >= worse.free {
            self.least_free = Some(self.least_free.map_or(kept, |least| least.min(kept)));
        }
        let rest = worse.input.and_then(|input| kept.checked_rem(input));
        if let Some(rest) = rest.filter(|_| kept >= worse.alone) {
            let least = self.least.entry(rest).or_insert(kept);
            *least = kept.min(*least);
        }
    }
}

/// Labels that no other one beats that leaves as much open.
fn retain_unbeaten(labels: &mut Vec<Label>, worse: Worse) {
    labels.sort_unstable_by_key(|label| (label.way.parts, label.way.kept));
    let [mut any, mut not_kept, mut not_run] = [(); 3].map(|()| Known::default());
    labels.retain(|label| {
        let own = match label.next {
            Next::Any => None,
            Next::NotKept => Some(&mut not_kept),
            Next::NotRun => Some(&mut not_run),
        };
        let is_beaten = any.beats(label.way.kept, worse)
            || own.as_ref().is_some_and(|own| own.beats(label.way.kept, worse));
        if !is_beaten {
            own.unwrap_or(&mut any).insert(label.way.kept, worse);
        }
        !is_beaten
    });
}

impl Way {
    /// Where so many layers are all below.
    pub(super) fn above(count: usize) -> Self {
        Self { kept: 0, parts: 0, from: (count, 0), is_run: false }
    }
}

/// The choice that a label below all layers stands for, by its number, and the ways that labels went by position and number.
pub(super) fn traced(
    way: impl Fn(usize, usize) -> Option<Way>,
    number: usize,
    excess: u64,
    part: f64,
) -> Option<SlotChoice> {
    let last = way(0, number)?;
    let (mut runs, mut at, mut position) = (Vec::new(), last, 0);
    while at.from.0 > position {
        let (above, number) = at.from;
        if at.is_run {
            runs.push(position..=above - 1);
        }
        (at, position) = (way(above, number)?, above);
    }
    let (kept, seconds) = (last.kept, last.parts as f64 * part);
    Some(SlotChoice { runs, kept, most: kept.saturating_add(excess), seconds })
}
