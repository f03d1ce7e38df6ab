//! As little as stages can hold: the first of a few plain ways in which each of them fits.
//!
//! Whoever chooses looks for the fastest actions by what blocks add up to, and may miss those that fit with nothing to spare.

use loadmaster_proto::training::actions::{Action, Allowed, Block, Deed, StageActions, Way};

use super::blocks::{recompute, swap};
use super::problem::ActionProblem;
use crate::plan::PlanBuilder;
use loadmaster_predict::StageSetting;

impl PlanBuilder<'_> {
    /// Actions with which a replay finds all stages to fit; none where no plain way does.
    pub(super) fn minimum_memory(
        &self,
        problem: &ActionProblem<'_>,
        allowed: &Allowed,
    ) -> Option<Vec<StageActions>> {
        self.plain(problem, allowed, |mut ways, capacity| {
            ways.retain(|way| way.needed <= capacity);
            ways.into_iter().next()
        })
    }

    /// Plain actions with which a replay finds every stage to need least.
    pub(super) fn least(&self, problem: &ActionProblem<'_>, allowed: &Allowed) -> Option<Vec<StageActions>> {
        self.plain(problem, allowed, |ways, _| ways.into_iter().min_by_key(|way| way.needed))
    }

    /// What is chosen for every stage of the plain ways for which the host has memory left.
    fn plain(
        &self,
        problem: &ActionProblem<'_>,
        allowed: &Allowed,
        choose: impl Fn(Vec<PlainWay>, u64) -> Option<PlainWay>,
    ) -> Option<Vec<StageActions>> {
        let mut chosen = Vec::with_capacity(problem.settings.len());
        let node = problem.node_within(allowed);
        let mut at_hosts: Vec<u64> = Vec::with_capacity(problem.settings.len());
        for ((setting, blocks), &capacity) in
            problem.settings.iter().zip(&problem.stages).zip(&problem.node.capacity)
        {
            let is_large = |of: &Action| match &of.deed {
                Deed::Swap(swap) => blocks.bytes(of.first_layer, swap.block) >= allowed.smallest_block.0,
                Deed::Recompute => true,
            };
            let ways = ways(setting, allowed, &|layer| self.chain.is_tied(layer)).into_iter();
            let played = ways.filter_map(|mut actions| {
                actions.actions.retain(is_large);
                let acted = self.chain.predictor.acted(setting, &actions).ok()?;
                let needed = self.needed(&acted.prediction(0)).0;
                Some(PlainWay { actions, needed, host: acted.host_peak() })
            });
            let has_room =
                |way: &PlainWay| node.hosts_have_room(at_hosts.iter().copied().chain([way.host]).enumerate());
            let way = choose(played.filter(has_room).collect(), capacity)?;
            at_hosts.push(way.host);
            chosen.push(way.actions);
        }
        Some(chosen)
    }
}

/// A plain way, and what a stage needs with it.
struct PlainWay {
    actions: StageActions,
    needed: u64,
    host: u64,
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
        let stays = |block: Block, layer| match block {
            Block::Weights | Block::Gradients => is_tied(layer),
            Block::Versions => setting.in_flight() == 1,
            Block::Activations | Block::Inputs | Block::Optimizer => false,
        };
        let leaves = |block: Block, layer| block.may_leave(setting.training.schedule) && !stays(block, layer);
        let of_block = |&block: &Block| {
            let leaving: Vec<usize> = layers.clone().filter(|&layer| leaves(block, layer)).collect();
            leaving.into_iter().map(move |layer| swap(block, layer, layer))
        };
        own.flat_map(of_block).collect()
    };
    let again: Vec<Action> =
        layers.clone().filter(|_| allowed.ways.contains(&Way::Recompute)).map(recompute).collect();
    let lasting = swaps(&[Block::Versions, Block::Gradients, Block::Optimizer, Block::Weights]);
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
