//! As little as stages can hold: the first of a few plain ways in which each of them fits.
//!
//! Whoever chooses looks for the fastest actions by what blocks add up to, and may miss those that fit with nothing to spare.

use loadmaster_proto::training::actions::{
    Action, Allowed, Block, Deed, Destination, StageActions, Swap, Way,
};

use super::asked::Asked;
use crate::predict::{ActedStages, StageSetting};
use crate::recommend::plan::Writer;

impl Writer<'_> {
    /// Actions with which a replay finds all stages to fit; none where no plain way does.
    pub(super) fn extreme(&self, asked: &Asked<'_>, allowed: &Allowed) -> Option<Vec<StageActions>> {
        let mut chosen = Vec::with_capacity(asked.settings.len());
        let mut at_host = 0_u64;
        for (setting, &capacity) in asked.settings.iter().zip(&asked.node.capacity) {
            let fitting =
                ways(setting, allowed, &|layer| self.chain.is_tied(layer)).into_iter().find_map(|actions| {
                    let acted = self.chain.predictor.acted(setting, &actions).ok()?;
                    let host = at_host.checked_add(acted.host_peak())?;
                    let fits =
                        self.needed(&acted.prediction(0)).0 <= capacity && host <= allowed.host_memory.0;
                    fits.then_some((actions, host))
                });
            let (actions, host) = fitting?;
            chosen.push(actions);
            at_host = host;
        }
        // Once more together, as plans are checked.
        let model = self.chain.model.as_ref();
        ActedStages::of(&*self.chain.predictor, model, &asked.settings, &chosen).ok()?;
        Some(chosen)
    }
}

/// What a stage may do, those ways first that take less time.
pub(super) fn ways(
    setting: &StageSetting,
    allowed: &Allowed,
    is_tied: &impl Fn(usize) -> bool,
) -> Vec<StageActions> {
    let layers = setting.stage.layers();
    let has = |way: Way, block: Block| allowed.ways.contains(&way) && allowed.blocks.contains(&block);
    let swaps = |blocks: &[Block]| -> Vec<Action> {
        let own = blocks.iter().filter(|block| has(Way::Host, **block));
        let stays =
            |block: Block, layer| matches!(block, Block::Weights | Block::Gradients) && is_tied(layer);
        let of_block = |&block: &Block| {
            let leaving: Vec<usize> = layers.clone().filter(|&layer| !stays(block, layer)).collect();
            leaving.into_iter().map(move |layer| swap(block, layer))
        };
        own.flat_map(of_block).collect()
    };
    let again: Vec<Action> =
        layers.clone().filter(|_| allowed.ways.contains(&Way::Recompute)).map(recompute).collect();
    let lasting = swaps(&[Block::Gradients, Block::Optimizer, Block::Weights]);
    let inputs = if again.is_empty() { Vec::new() } else { swaps(&[Block::Inputs]) };
    let activations = swaps(&[Block::Activations]);
    let ways = [
        Vec::new(),
        again.clone(),
        lasting.clone(),
        activations.clone(),
        [again.clone(), lasting.clone()].concat(),
        [activations, lasting.clone()].concat(),
        [again, inputs, lasting].concat(),
    ];
    ways.into_iter().map(|actions| StageActions { actions, ..StageActions::default() }).collect()
}

fn swap(block: Block, layer: usize) -> Action {
    let swap = Swap { block, to: Destination::Host, release_after: 0, fetch_before: 0 };
    Action { first_layer: layer, last_layer: layer, slots: Vec::new(), deed: Deed::Swap(swap) }
}

fn recompute(layer: usize) -> Action {
    Action { first_layer: layer, last_layer: layer, slots: Vec::new(), deed: Deed::Recompute }
}
