//! By what a stage holds less (MPress, Table IV).

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::prediction::SavedBytes;
use loadmaster_proto::training::actions::{Block, Destination, Optimization, StageActions};

use super::StageBlocks;

/// What these actions of a stage save on each of its devices, which has so many micro-batches in flight.
pub fn saved_bytes(blocks: &StageBlocks, in_flight: u32, actions: &StageActions) -> SavedBytes {
    let mut saved = SavedBytes::default();
    for action in &actions.actions {
        let slots = if action.slots.is_empty() { in_flight as usize } else { action.slots.len() } as u64;
        let layers = action.first_layer..=action.last_layer;
        let all = |block: Block| {
            let each = if block.is_of_micro_batch() { slots } else { 1 };
            let layers = layers.clone().map(|layer| blocks.bytes(layer, block));
            layers.fold(0, u64::saturating_add).saturating_mul(each)
        };
        let (bytes, of) = match &action.optimization {
            Optimization::Recompute => {
                // Of a run its first layer's input is left.
                let left = blocks.bytes(action.first_layer, Block::Inputs).saturating_mul(slots);
                (all(Block::Activations).saturating_sub(left), &mut saved.recompute)
            }
            Optimization::Swap(swap) if swap.to == Destination::Host => (all(swap.block), &mut saved.host),
            Optimization::Swap(swap) => (all(swap.block), &mut saved.peers),
        };
        *of = Bytes(of.0.saturating_add(bytes));
    }
    saved
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::training::actions::{Action, Stripe, Swap};

    use super::*;
    use crate::actions::LayerBlocks;

    /// Activations count once for each micro-batch whose slot is named, what lasts counts once, and a run keeps one input.
    #[test]
    fn each_block_counts_as_often_as_it_is_there() {
        let layer = |size: u64| LayerBlocks {
            activations: 10 * size,
            input: size,
            optimizer: 100 * size,
            ..LayerBlocks::default()
        };
        let blocks = StageBlocks { first_layer: 4, layers: vec![layer(1), layer(2), layer(3)], fixed: 0 };
        let action = |first_layer: usize, last_layer: usize, slots: &[u32], optimization: Optimization| {
            Action { first_layer, last_layer, slots: slots.to_vec(), optimization }
        };
        let swap = |block: Block, to: Destination| {
            Optimization::Swap(Swap { block, to, release_after: 1, fetch_before: 1 })
        };
        let peers = Destination::Peers(vec![Stripe { stage: 0, share: Stripe::WHOLE }]);
        let actions = StageActions {
            actions: vec![
                action(4, 5, &[0, 2], Optimization::Recompute),
                action(4, 4, &[0], swap(Block::Inputs, Destination::Host)),
                action(6, 6, &[], swap(Block::Activations, peers)),
                action(4, 6, &[], swap(Block::Optimizer, Destination::Host)),
            ],
            ..StageActions::default()
        };
        let saved = saved_bytes(&blocks, 3, &actions);
        // Two slots of 30 less the input of 1; one input and 600 of state; three slots of 30.
        let told = [saved.recompute, saved.host, saved.peers].map(|of| of.0);
        assert_eq!(told, [2 * (30 - 1), 1 + 600, 3 * 30]);
        assert_eq!(saved.all(), Bytes(told.iter().sum()));
        assert!((saved.parts().iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
}
