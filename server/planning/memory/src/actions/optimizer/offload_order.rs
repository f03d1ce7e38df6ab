//! Which blocks of a stage leave, in which order, and where to.

use loadmaster_proto::training::actions::{Action, Block, Destination, Optimization, Swap};

use super::stage_policy::{LASTING, Stage, StagePolicy};
use crate::actions::StageBlocks;
use crate::actions::striping::{Receiver, stripe, whole};

/// What leaves, and where to.
#[derive(Debug, Default)]
pub(super) struct StageSwaps {
    pub(super) swaps: Vec<Action>,
    /// By slot, which layers' activations are away between their passes.
    pub(super) away: Vec<Vec<bool>>,
}

impl Stage<'_> {
    /// What a policy has leave; none where it asks for more than there is.
    pub(super) fn leaving(&self, policy: StagePolicy, receivers: &[Receiver]) -> Option<StageSwaps> {
        let layers = self.blocks.layers.len();
        let mut leaving = StageSwaps { swaps: Vec::new(), away: vec![vec![false; layers]; self.slots.len()] };
        let mut receivers = receivers.to_vec();
        let (host, all) = (policy.host as usize, (policy.host.checked_add(policy.peers)?) as usize);
        if all > self.units() as usize || LASTING.iter().any(|&of| policy.lasting(of) as usize > layers) {
            return None;
        }
        let in_flight = self.slots.len();
        for (turn, &layer) in self.order.iter().enumerate() {
            let units = turn * in_flight..(turn + 1) * in_flight;
            let part = |from: usize, to: usize| -> Vec<u32> {
                let within = |unit: &usize| (from..to).contains(unit);
                units.clone().filter(within).map(|unit| self.slots[unit - units.start]).collect()
            };
            for (slots, is_host) in [(part(0, host), true), (part(host, all), false)] {
                if slots.is_empty() {
                    continue;
                }
                slots.iter().for_each(|&slot| leaving.away[slot as usize][layer] = true);
                let bytes = self.blocks.layers[layer].activations;
                let swap = if is_host {
                    let (release_after, fetch_before) = (policy.after, policy.before);
                    Swap { block: Block::Activations, to: Destination::Host, release_after, fetch_before }
                } else {
                    self.to_peers(Block::Activations, bytes, slots.len() as u64, &mut receivers)?
                };
                leaving.swaps.push(self.swap(layer, slots, swap));
            }
        }
        for block in LASTING {
            let (release_after, fetch_before) = if block == Block::Optimizer {
                (policy.state_after, policy.state_before)
            } else {
                (policy.use_steps, policy.use_steps)
            };
            let leaves = |&layer: &usize| {
                self.blocks.layers[layer].bytes(block) >= self.question.smallest_block.max(1)
            };
            for layer in (0..policy.lasting(block) as usize).filter(leaves) {
                let to_host = || Swap { block, to: Destination::Host, release_after, fetch_before };
                let bytes = self.blocks.layers[layer].bytes(block);
                let near = if policy.near { self.to_peers(block, bytes, 1, &mut receivers) } else { None };
                // No earlier and no later than the policy says: what is on its way takes room.
                let near = near.map(|of| Swap {
                    release_after: of.release_after.min(release_after),
                    fetch_before: of.fetch_before.min(fetch_before),
                    ..of
                });
                // What has no place stays.
                let swap = near.or_else(|| self.question.allowed.host.then(to_host));
                leaving.swaps.extend(swap.map(|swap| self.swap(layer, Vec::new(), swap)));
            }
        }
        leaving.swaps = merged(leaving.swaps);
        Some(leaving)
    }

    fn swap(&self, layer: usize, slots: Vec<u32>, swap: Swap) -> Action {
        let layer = self.blocks.first_layer + layer;
        let slots = if slots.is_empty() { slots } else { self.named(slots) };
        Action { first_layer: layer, last_layer: layer, slots, optimization: Optimization::Swap(swap) }
    }

    /// The input of a run that is recomputed, on the host meanwhile.
    pub(super) fn input_of(&self, run: &Action, policy: StagePolicy) -> Action {
        let (release_after, fetch_before) = (policy.after.max(1), policy.before.max(1));
        let swap = Swap { block: Block::Inputs, to: Destination::Host, release_after, fetch_before };
        Action { last_layer: run.first_layer, optimization: Optimization::Swap(swap), ..run.clone() }
    }

    /// The fastest stripes of blocks of which so many are away at once; what they take is no longer free.
    fn to_peers(&self, block: Block, bytes: u64, at_once: u64, receivers: &mut [Receiver]) -> Option<Swap> {
        let split = if self.question.stripes { stripe } else { whole };
        let found = split(bytes, at_once, receivers)?;
        for (part, pool) in found.stripes.iter().zip(&found.pools) {
            if let Some(of) = receivers.iter_mut().find(|of| of.stage == part.stage) {
                of.spare_bytes = of.spare_bytes.saturating_sub(*pool);
            }
        }
        let steps = self.steps(found.seconds).clamp(1, self.layers().max(1));
        Some(Swap { block, to: Destination::Peers(found.stripes), release_after: steps, fetch_before: steps })
    }

    /// No slot is named where all are meant.
    pub(super) fn named(&self, mut slots: Vec<u32>) -> Vec<u32> {
        slots.sort_unstable();
        if slots.len() == self.slots.len() { Vec::new() } else { slots }
    }
}

/// The same with layers next to each other that do the same as one action.
fn merged(mut swaps: Vec<Action>) -> Vec<Action> {
    let block = |of: &Action| match &of.optimization {
        Optimization::Swap(swap) => Some(swap.block),
        Optimization::Recompute => None,
    };
    swaps.sort_by_key(|of| (block(of), of.slots.clone(), of.first_layer));
    let mut merged: Vec<Action> = Vec::with_capacity(swaps.len());
    for swap in swaps {
        match merged.last_mut() {
            Some(last)
                if last.last_layer + 1 == swap.first_layer
                    && (&last.optimization, &last.slots) == (&swap.optimization, &swap.slots) =>
            {
                last.last_layer = swap.last_layer;
            }
            _ => merged.push(swap),
        }
    }
    merged
}

/// Of the layers that keep so many bytes, those first whose bytes take longest to recompute. Of equal ones each as far from
/// those before as can be, so that their copies do not wait for each other.
pub(super) fn leaving_order(blocks: &StageBlocks, smallest: u64) -> Vec<usize> {
    let price = |layer: usize| {
        let of = &blocks.layers[layer];
        if of.activations > 0 { of.seconds.again / of.activations as f64 } else { 0.0 }
    };
    let mut order = spread(blocks.layers.len());
    order.retain(|&layer| blocks.layers[layer].activations >= smallest);
    // Stable: prices that are nearly the same leave the order as it is.
    let rank = |layer: usize| {
        let price = price(layer);
        if price > 0.0 { (price.log2() * 4.0).round() } else { f64::NEG_INFINITY }
    };
    order.sort_by(|&a, &b| rank(b).total_cmp(&rank(a)));
    order
}

/// All numbers below `count`, each as far from those before it as can be: halves, quarters, eighths.
pub(super) fn spread(count: usize) -> Vec<usize> {
    let bits = usize::BITS - count.saturating_sub(1).leading_zeros();
    let reversed = |number: usize| if bits == 0 { 0 } else { number.reverse_bits() >> (usize::BITS - bits) };
    (0..1_usize << bits).map(reversed).filter(|&number| number < count).collect()
}
