//! Seconds that an iteration takes because what has left must come back over the host's link in time, and takes room on its way.
//!
//! A stage ends an iteration no earlier than its passes allow ([`CriticalEnd`]).
//!
//! Two kinds of moments of a stage, of which each plan passes all:
//!
//! * Between a forward pass and the backward pass that follows it, under 1F1B. What is away of the micro-batch that has just
//!   passed has left during that pass; what is away of the one that goes back next, of gradients and of weights comes back
//!   during the next. So what two passes move, what is recomputed of both micro-batches, and what else may be away is
//!   at least what must be absent.
//! * Before one of the last backward passes. All that lasts is used by the updates at the end. So what is away then comes
//!   back before the last of them, and so does what is left of micro-batches unless it is recomputed.
//!
//! The passes of a stage follow each other, so that the seconds it recomputes, waits or idles behind its first backward pass
//! are at most what an iteration has beside them. Blocks on peers go and come at once. But their pools are taken from others all
//! the time, so that it is enough, and no more is asked, that devices together have what their stages need.

use loadmaster_proto::training::actions::Block;
use loadmaster_simulate::copies::LayerSeconds;
use loadmaster_simulate::{Edge, Order};

use super::stage_policy::Stage;
use crate::actions::Question;

/// Parts into which the seconds at the end are divided.
const PARTS: u32 = 8;
/// How often the range in which the bound lies is halved.
const HALVINGS: u32 = 24;

/// What a stage must move, and when it can.
struct CopyDemand {
    /// Bytes that must be absent while all in flight are there, but for those that may be away without being in anybody's way.
    between: Option<Between>,
    last: Vec<Last>,
    /// Bytes a second to its host, and back.
    rates: [f64; 2],
    /// Of computing its layers once more: bytes of a micro-batch that are saved, and seconds; the cheapest first.
    again: Vec<(f64, f64)>,
    /// What an iteration takes at least, to whom all is extra that is in the moments between passes, and in all of them.
    middle: f64,
    updates: f64,
    /// Micro-batches that go back after the last one went forward, but for the first of them.
    ending: f64,
}

/// Moments between passes.
struct Between {
    /// How many there are.
    count: f64,
    /// Bytes that must be absent at each.
    missing: f64,
    /// For each of them: seconds in which copies may go, in its two passes.
    seconds: [f64; 2],
    /// Whether the same micro-batch goes forward and back, and what gradients it has.
    alone: Option<f64>,
}

/// A moment before the last backward passes.
struct Last {
    /// How many there are.
    passes: f64,
    /// Bytes that must come back, unless they are recomputed.
    missing: f64,
    /// Seconds from there to the last update.
    seconds: f64,
}

/// Seconds that nothing gets below, between `least` and `most`: `needs` are the bytes that must be absent from each stage
/// while all in flight are there.
pub(super) fn bound(
    question: &Question<'_>,
    stages: &[Stage<'_>],
    needs: &[f64],
    edges: &[Edge],
    (least, most): (f64, f64),
) -> f64 {
    if !question.allowed.host || question.node.host_bytes == 0 {
        return least;
    }
    let traffic: Vec<CopyDemand> = stages
        .iter()
        .zip(needs)
        .map(|(stage, &need)| CopyDemand::of(question, stages, stage, need, edges))
        .collect();
    let is_possible = |seconds: f64| {
        // All devices of a stage lack the same.
        let lacking = stages
            .iter()
            .zip(&traffic)
            .map(|(stage, of)| of.lacking(seconds) * f64::from(question.node.alike(stage.index)));
        if question.allowed.peers { lacking.sum::<f64>() <= 0.5 } else { lacking.fold(0.0, f64::max) <= 0.5 }
    };
    if most <= least || is_possible(least) {
        return least;
    }
    let (mut low, mut high) = (least, most);
    for _ in 0..HALVINGS {
        let middle = low + (high - low) / 2.0;
        *(if is_possible(middle) { &mut high } else { &mut low }) = middle;
    }
    low
}

impl CopyDemand {
    fn of(
        question: &Question<'_>,
        stages: &[Stage<'_>],
        stage: &Stage<'_>,
        need: f64,
        edges: &[Edge],
    ) -> Self {
        let layers = &stage.blocks.layers;
        let is_of = |block: Block| question.blocks.contains(&block);
        let all = |block: Block| layers.iter().map(|layer| layer.bytes(block)).sum::<u64>() as f64;
        let allowed = |block: Block| if is_of(block) { all(block) } else { 0.0 };
        let [forward, backward, update] = seconds(stage);
        let in_flight = question.in_flight(stage.index);
        let CriticalEnd { middle, passes, updates } = CriticalEnd::of(question, stages, stage, edges);
        let kept = all(Block::Activations);
        let lowest = layers.first().map(|layer| layer.seconds).unwrap_or_default();
        let count = question.micro_batches.saturating_sub(in_flight + 1);
        // Behind the first backward pass, in front of which there are no gradients, and before the last forward pass.
        let is_between = question.order == Order::OneFOneB && count > 0 && is_of(Block::Activations);
        let between = is_between.then(|| Between {
            count: f64::from(count),
            missing: need - allowed(Block::Optimizer) - f64::from(in_flight.saturating_sub(2)) * kept,
            seconds: [forward - lowest.forward, backward - lowest.backward],
            alone: (in_flight == 1).then(|| allowed(Block::Gradients)),
        });
        // The update that needs its state first. Of a stage of one layer it begins with the exchange of gradients, beside which state
        // comes back.
        let needed_first = match &layers[..] {
            [] | [_] => 0.0,
            [.., last] => last.seconds.update,
        };
        let last = |passes: u32| Last {
            passes: f64::from(passes),
            missing: need
                - f64::from(in_flight - passes) * kept
                // Before the first backward pass there are no gradients.
                - if passes < question.micro_batches { 0.0 } else { all(Block::Gradients) },
            seconds: f64::from(passes) * backward + update - needed_first,
        };
        let mut counts = vec![1, 2, in_flight / 2, in_flight];
        counts.retain(|&count| (1..=in_flight).contains(&count));
        let mut again: Vec<(f64, f64)> = if question.allowed.recompute {
            layers.iter().map(|layer| (layer.activations as f64, layer.seconds.again)).collect()
        } else {
            Vec::new()
        };
        again.retain(|(bytes, _)| *bytes > 0.0);
        again.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
        Self {
            between,
            last: counts.into_iter().map(last).collect(),
            rates: question
                .node
                .host
                .get(stage.index)
                .map_or([0.0; 2], |link| [link.out, link.back].map(|link| link.bytes_per_second)),
            again,
            middle: middle.max(passes),
            updates,
            ending: f64::from(in_flight - 1),
        }
    }

    /// Bytes that its device lacks where an iteration takes so long; below 0 what it can do without.
    fn lacking(&self, seconds: f64) -> f64 {
        let [middle, updates] = [self.middle, self.updates].map(|least| (seconds - least).max(0.0));
        let mut fewest = f64::INFINITY;
        for part in 0..PARTS {
            // At the end this much is recomputed, waited or idled.
            let [from, to] = [part, part + 1].map(|part| updates * f64::from(part) / f64::from(PARTS));
            let before = middle.min(updates - from);
            let last = self
                .last
                .iter()
                .map(|last| last.missing - self.rates[1] * (last.seconds + to) - self.saved(last.passes, to));
            let between = self.between.iter().map(|between| self.lacking_between(between, before, to));
            fewest = fewest.min(last.chain(between).fold(f64::NEG_INFINITY, f64::max));
        }
        fewest
    }

    /// The same between passes, where so much is recomputed, waited or idled before the last ones, and then.
    fn lacking_between(&self, between: &Between, before: f64, then: f64) -> f64 {
        let [out, back] = [0, 1].map(|way| self.rates[way] * (between.count * between.seconds[way] + before));
        let again = self.saved(between.count, before);
        let moved = match between.alone {
            Some(gradients) => back.min(out + between.count * gradients) + again,
            // What it waits between passes is before one or the other.
            None => {
                let twice = self.rates[0].min(self.rates[1]) * before;
                out + back - twice + 2.0 * again + self.saved(self.ending, then)
            }
        };
        between.missing - moved / between.count
    }

    /// Bytes that computing as many micro-batches once more saves in so many seconds.
    fn saved(&self, micro_batches: f64, seconds: f64) -> f64 {
        if micro_batches <= 0.0 {
            return 0.0;
        }
        let (mut left, mut saved) = (seconds / micro_batches, 0.0);
        for &(bytes, takes) in &self.again {
            if takes > left {
                return micro_batches * (saved + bytes * left / takes);
            }
            left -= takes;
            saved += bytes;
        }
        micro_batches * saved
    }
}

/// Seconds that a stage's passes forward, backward and updates take.
pub(super) fn seconds(stage: &Stage<'_>) -> [f64; 3] {
    let sum = |of: fn(&LayerSeconds) -> f64| -> f64 {
        stage.blocks.layers.iter().map(|layer| of(&layer.seconds)).sum()
    };
    [sum(|of| of.forward), sum(|of| of.backward), sum(|of| of.update)]
}

/// When an iteration ends at the soonest.
pub(super) struct CriticalEnd {
    /// By the passes of a stage up to the last one forward, and the way of that micro-batch to the last stage and back.
    pub(super) middle: f64,
    /// By all of its passes.
    pub(super) passes: f64,
    /// By these and its updates, where its part of the iteration ends then.
    pub(super) updates: f64,
}

impl CriticalEnd {
    pub(super) fn of(
        question: &Question<'_>,
        stages: &[Stage<'_>],
        stage: &Stage<'_>,
        edges: &[Edge],
    ) -> Self {
        let [forward, backward, update] = seconds(stage);
        let (mut head, mut back) = (0.0, 0.0);
        for (below, edge) in stages.iter().take(stage.index).zip(edges) {
            head += seconds(below)[0] + edge.forward;
            back += seconds(below)[1] + edge.backward;
        }
        let above = stages.iter().skip(stage.index + 1).zip(edges.iter().skip(stage.index));
        let round: f64 = above
            .map(|(above, edge)| seconds(above)[..2].iter().sum::<f64>() + edge.forward + edge.backward)
            .sum();
        let in_flight = question.in_flight(stage.index);
        // The first backward pass comes behind as many forward passes, and behind the way of its micro-batch to the last stage
        // and back; under GPipe that of the last one.
        let last = if question.order == Order::Gpipe { in_flight } else { 1 };
        let first_back = head + (f64::from(in_flight) * forward).max(f64::from(last) * forward + round);
        let behind = f64::from(question.micro_batches - in_flight);
        let passes = first_back + behind * forward + f64::from(question.micro_batches) * backward;
        let first_update = stages.first().map_or(0.0, |first| seconds(first)[2]);
        let after = if stage.index > 0 { (back + first_update).max(update) } else { update };
        Self {
            middle: first_back + behind * (forward + backward) + round + backward + after,
            passes: passes + after,
            updates: passes + update,
        }
    }
}
