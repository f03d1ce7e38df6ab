//! Blocks that go to peers instead of being recomputed or going to the host, and the peers that have room for them.

use std::collections::{BTreeMap, BTreeSet};

use loadmaster_proto::training::actions::{Destination, Optimization, Stripe};
use loadmaster_simulate::copies::Keep;

use super::decision::BlockId;
use super::prices::Prices;
use super::{Decision, PlanError, Question};
use crate::actions::striping::{Receiver, stripe, whole};

/// The share of an iteration that a round must gain for another one to follow.
const LEAST_GAIN: f64 = 0.01;
/// Stages that are delayed by at least so much of what the slowest one is delayed by are made faster together: as long as
/// one of them is slow, nothing is gained.
const AS_SLOW: f64 = 0.9;

/// Moves what delays most to peers, as long as that makes the iteration shorter; the plan, and how often it did. Never
/// slower than the plan it begins with.
pub(super) fn by_peers(
    question: &Question<'_>,
    mut decided: Decision,
    mut least: f64,
) -> Result<(Decision, u32), PlanError> {
    let mut rounds = 0;
    if !question.allowed.peers || decided.optimizations.iter().all(BTreeMap::is_empty) {
        return Ok((decided, rounds));
    }
    let untouched = Decision::nothing(question, &decided.mapping);
    let ran = untouched.simulated(question, Keep { steps: true, copies: false })?;
    let prices: Vec<Prices> =
        (0..question.stages.len()).map(|stage| Prices::of(question, &untouched, &ran, stage)).collect();
    let mut tried: BTreeSet<(usize, BlockId)> = BTreeSet::new();
    while !question.stop.is_requested() {
        let delays = delays(question, &decided)?;
        let moved = moved(question, &decided, &prices, &delays, &mut tried);
        let Some(candidate) = moved else { break };
        if !candidate.fits(question) {
            continue;
        }
        let seconds = candidate.seconds(question)?;
        if seconds < least {
            let gain = 1.0 - seconds / least;
            (decided, least, rounds) = (candidate, seconds, rounds + 1);
            if gain < LEAST_GAIN {
                break;
            }
        }
    }
    Ok((decided, rounds))
}

/// By stage and block: by how many seconds what is done to it delays its stage in an iteration.
fn delays(question: &Question<'_>, decided: &Decision) -> Result<Vec<BTreeMap<BlockId, f64>>, PlanError> {
    let ran = decided.simulated(question, Keep { steps: false, copies: true })?;
    let mut all = ran.waited();
    for (stage, optimizations) in decided.optimizations.iter().enumerate() {
        let (Some(of_stage), Some(blocks)) = (all.get_mut(stage), question.stages.get(stage)) else {
            continue;
        };
        for (of, _) in
            optimizations.iter().filter(|(_, optimization)| **optimization == Optimization::Recompute)
        {
            let again = blocks.layer(of.0).map_or(0.0, |layer| layer.seconds.again);
            of_stage.insert(*of, again * f64::from(question.micro_batches));
        }
    }
    Ok(all)
}

/// The same plan with the block that delays most of each stage that is among the slowest on peers; none where no peer has
/// room or everything was tried.
fn moved(
    question: &Question<'_>,
    decided: &Decision,
    prices: &[Prices],
    delays: &[BTreeMap<BlockId, f64>],
    tried: &mut BTreeSet<(usize, BlockId)>,
) -> Option<Decision> {
    let of_stage = |delays: &BTreeMap<BlockId, f64>| delays.values().sum::<f64>();
    let mut left: Vec<usize> = (0..delays.len()).collect();
    // Where none of the slowest stages has anything left to move, the next slower ones are tried.
    while !left.is_empty() {
        let most = left.iter().map(|&stage| of_stage(&delays[stage])).fold(0.0, f64::max);
        let (slowest, others): (Vec<usize>, Vec<usize>) =
            left.iter().partition(|&&stage| of_stage(&delays[stage]) >= AS_SLOW * most);
        let mut candidate = decided.clone();
        let mut has_moved = false;
        for stage in slowest {
            let Some(of_prices) = prices.get(stage) else { continue };
            let mut blocks: Vec<(BlockId, f64)> =
                delays[stage].iter().map(|(of, delay)| (*of, *delay)).collect();
            blocks.sort_by(|a, b| b.1.total_cmp(&a.1));
            for (of, delay) in blocks {
                let is_movable = delay > 0.0
                    && decided.optimization(stage, of).is_some_and(|optimization| !is_on_peers(optimization));
                if !is_movable || !tried.insert((stage, of)) {
                    continue;
                }
                let Some(optimization) = to_peers(question, &candidate, of_prices, (stage, of)) else {
                    continue;
                };
                candidate.set(question, stage, &[(of, Some(optimization))]);
                make_room(question, &mut candidate, of_prices, stage);
                has_moved = true;
                break;
            }
        }
        if has_moved {
            return Some(candidate);
        }
        left = others;
    }
    None
}

/// What is on its way takes room that recomputing does not: where a stage lacks it, blocks that stay go to peers, too.
fn make_room(question: &Question<'_>, candidate: &mut Decision, prices: &Prices, stage: usize) {
    for of in prices.longest_first() {
        if candidate.lacks(question, stage) <= 0 {
            return;
        }
        if candidate.optimization(stage, of).is_none()
            && let Some(optimization) = to_peers(question, candidate, prices, (stage, of))
        {
            candidate.set(question, stage, &[(of, Some(optimization))]);
        }
    }
}

/// Whether it is kept by peers.
pub(super) fn is_on_peers(optimization: &Optimization) -> bool {
    matches!(optimization, Optimization::Swap(swap) if matches!(swap.to, Destination::Peers(_)))
}

/// The fastest swap of a block to the peers that have room; none where there is none.
pub(super) fn to_peers(
    question: &Question<'_>,
    decided: &Decision,
    prices: &Prices,
    (stage, of): (usize, BlockId),
) -> Option<Optimization> {
    let bytes = question.stages.get(stage)?.bytes(of.0, of.1);
    let split = if question.stripes { stripe } else { whole };
    let found = split(bytes, prices.idle(of)?.at_once, &receivers(question, decided, stage))?;
    prices.swap(of, Destination::Peers(found.stripes), found.seconds)
}

/// The other stages whose devices have room and can be reached both ways.
pub(super) fn receivers(question: &Question<'_>, decided: &Decision, stage: usize) -> Vec<Receiver> {
    let device = |stage: usize| decided.mapping.get(stage).copied().unwrap_or(usize::MAX);
    let others = (0..question.stages.len()).filter(|&other| other != stage);
    let receiver = |other: usize| {
        let out = question.node.link(device(stage), device(other))?;
        let link = out.slower(question.node.link(device(other), device(stage))?);
        let free = u64::try_from(-decided.lacks(question, other)).ok()?;
        let spare_bytes =
            Some(free / question.node.guests(device(stage), device(other))).filter(|&of| of > 0)?;
        Some(Receiver { stage: question.place(other).0, link, spare_bytes })
    };
    let mut all: Vec<Receiver> = others.filter_map(receiver).collect();
    all.truncate(Stripe::MAX);
    all
}
