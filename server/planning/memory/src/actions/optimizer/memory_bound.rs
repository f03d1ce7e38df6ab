//! What each stage must do at least, and the seconds that follow.

use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::Block;
use loadmaster_search::Seconds;
use loadmaster_simulate::copies::LayerSeconds;
use loadmaster_simulate::{Edge, Order};

use super::bound::{self, Bound, MemoryDemand};
use super::chain::Chain;
use super::copy_bound::CriticalEnd;
use super::in_flight_assignment::Slot;
use super::stage_policy::Stage;
use super::{Known, copy_bound, gpipe_slots};
use crate::actions::{Allowed, Question};

/// Seconds that nothing which takes at most `most` gets below; none where there is no such thing.
pub(super) fn bound(
    question: &Question<'_>,
    stages: &[Stage<'_>],
    known: Known<'_>,
    most: f64,
) -> Option<Bound> {
    let of_stage = |stage: &Stage<'_>| {
        let sum =
            |of: fn(&LayerSeconds) -> f64| stage.blocks.layers.iter().map(|layer| of(&layer.seconds)).sum();
        Seconds { forward: sum(|of| of.forward), backward: sum(|of| of.backward), step: sum(|of| of.update) }
    };
    let edge = |(stage, &bytes): (usize, &u64)| question.node.edge(stage, stage + 1, bytes);
    let by_bytes = || question.edge_bytes.iter().enumerate().map(edge).collect();
    let edges: Vec<Edge> = known.edges.map_or_else(by_bytes, <[Edge]>::to_vec);
    let seconds = stages.iter().map(of_stage).collect();
    let schedule = if question.order == Order::Gpipe { Schedule::Gpipe } else { Schedule::OneFOneB };
    let need = |stage: &Stage<'_>| {
        let missing = i128::from(stage.untouched.device) - i128::from(stage.room);
        known.needs.and_then(|needs| needs.get(stage.index).copied()).unwrap_or(missing) as f64
    };
    let needs: Vec<f64> = stages.iter().map(need).collect();
    // What a replay holds then has no gradients that may leave; what blocks add up to has.
    let has_gradients = known.needs.is_none();
    let of_stage = |(stage, &need): (&Stage<'_>, &f64)| demand(question, stage, (need, has_gradients), most);
    let demands: Vec<MemoryDemand> = stages.iter().zip(&needs).map(of_stage).collect();
    let mut chain = Chain::new(schedule, seconds, edges.clone(), question.overlap, question.micro_batches);
    chain.at_once = question.node.cores.map_or(f64::INFINITY, |cores| cores.slots);
    let played = bound::bound(&chain, &demands, question.allowed.peers, question.stop)?;
    let seconds = copy_bound::bound(question, stages, &needs, &edges, (played.seconds, most));
    // A replay sees less than blocks add up to, and only these tell what recomputing needs.
    let again = if known.needs.is_none() { again(question, stages, &edges) } else { 0.0 };
    Some(Bound { seconds: seconds.max(again), ..played })
}

/// Seconds of an iteration where nothing may leave, by the stage that computes most once more; 0 where that is not known.
fn again(question: &Question<'_>, stages: &[Stage<'_>], edges: &[Edge]) -> f64 {
    let Allowed { recompute, host, peers } = question.allowed;
    if !recompute || host || peers {
        return 0.0;
    }
    let of_stage = |stage: &Stage<'_>| {
        let slots = stage.micro_batches.len();
        // Each slot must go backward while all others are in flight, or while those before it are.
        let is_each = question.order == Order::Gpipe || (question.micro_batches as usize + 1) >= 2 * slots;
        let is_full = is_each && stage.untouched.device > stage.room;
        let kept: u64 = stage.blocks.layers.iter().map(|layer| layer.activations).sum();
        let others = stage.untouched.device.saturating_sub(kept.saturating_mul(slots as u64));
        let bytes = stage.room.checked_sub(others).filter(|_| is_full)?;
        let none = vec![false; stage.blocks.layers.len()];
        let at_least = if question.order == Order::Gpipe {
            under_gpipe(stage, &none, bytes)?
        } else {
            stage.fewest(&vec![none; slots], false, bytes)?.at_least
        };
        Some(CriticalEnd::of(question, stages, stage, edges).passes + at_least)
    };
    stages.iter().filter_map(of_stage).fold(0.0, f64::max)
}

/// Seconds of recomputing that a stage does not get below whose last micro-batch goes backward first; none where not
/// all choices of its slots are distinguished.
fn under_gpipe(stage: &Stage<'_>, away: &[bool], bytes: u64) -> Option<f64> {
    let choices = Some(stage.choices_of(away, false)).filter(|choices| choices.is_whole)?;
    let slot = |&weight: &f64| Slot { choices: &choices, weight };
    let slots: Vec<Slot<'_>> = stage.weights.iter().map(slot).collect();
    Some(gpipe_slots::fewest(&slots, bytes, stage.question.stop)?.at_least)
}

/// What a stage must do that lacks so many bytes at its moment of the highest peak, with gradients that leave at
/// other ones or without.
fn demand(
    question: &Question<'_>,
    stage: &Stage<'_>,
    (need, has_gradients): (f64, bool),
    most: f64,
) -> MemoryDemand {
    let sum = |block: Block| {
        let is_allowed = question.blocks.contains(&block);
        if is_allowed {
            stage.blocks.layers.iter().map(|layer| layer.bytes(block)).sum::<u64>() as f64
        } else {
            0.0
        }
    };
    let [optimizer, weights, gradients] = [Block::Optimizer, Block::Weights, Block::Gradients].map(sum);
    // Those that leave at any time are not there before the first backward pass, and take no other place meanwhile.
    let is_not_yet = has_gradients && is_before_gradients(question, stage);
    let (need, gradients) = if is_not_yet { (need - gradients, 0.0) } else { (need, gradients) };
    let of_micro_batch = sum(Block::Activations) + sum(Block::Inputs);
    let slots = stage.micro_batches.len() as f64;
    // What leaves comes back in an iteration: no more than goes the slower way.
    let moved = question.node.host_link(stage.index).map_or(0.0, |link| link.bytes_per_second * most);
    // At one moment: what lasts has left once, and what a slot keeps as often as it has micro-batches.
    let times = f64::from(stage.micro_batches.iter().copied().min().unwrap_or(1).max(1));
    let lasting = (optimizer + weights + gradients).min(moved);
    let at_one = lasting + (of_micro_batch * slots).min((moved - lasting) / times);
    // On average over such moments: what a micro-batch left is away for as many of them as there are slots, at most, weights
    // and gradients for one between two of their uses.
    let moments = f64::from(moments(question, stage));
    let mut left = moved;
    let mut on_average = 0.0;
    for (bytes, lasts) in [
        (optimizer, moments),
        (of_micro_batch * (moments + slots - 1.0), slots),
        ((weights + gradients) * moments, 1.0),
    ] {
        let taken = bytes.min(left);
        left -= taken;
        on_average += taken * lasts.min(moments) / moments;
    }
    let is_host = question.allowed.host && question.node.host_bytes > 0;
    let of_host = question.node.host_bytes / u64::from(question.node.alike_on_a_host(stage.index));
    let host = if is_host { at_one.min(on_average).min(of_host as f64) } else { 0.0 };
    // Of all devices of the stage: what is free on peers is free for each of them.
    let alike = f64::from(question.node.alike(stage.index));
    let again = |layer: &crate::actions::LayerBlocks| (layer.activations as f64 * alike, layer.seconds.again);
    let layers = if question.allowed.recompute { stage.blocks.layers.as_slice() } else { &[] };
    MemoryDemand {
        need: need * alike,
        host: host * alike,
        again: layers.iter().map(again).collect(),
        oldest: (!is_host).then_some(if question.order == Order::Gpipe {
            stage.micro_batches.len() - 1
        } else {
            0
        }),
    }
}

/// Whether the moment of the highest peak is in front of the first backward pass, and gradients may leave at all.
fn is_before_gradients(question: &Question<'_>, stage: &Stage<'_>) -> bool {
    let is_first =
        question.order == Order::Gpipe || question.micro_batches <= question.in_flight(stage.index);
    is_first && (question.allowed.host || question.allowed.peers)
}

/// Backward passes that meet all micro-batches in flight, but for the first one, which no gradients are there for; one of a
/// stage that has no other.
fn moments(question: &Question<'_>, stage: &Stage<'_>) -> u32 {
    let in_flight = question.in_flight(stage.index);
    if question.order == Order::Gpipe { 1 } else { question.micro_batches.saturating_sub(in_flight).max(1) }
}
