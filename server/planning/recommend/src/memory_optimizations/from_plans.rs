//! Actions of stages that never flush: MPress's plans over some of the blocks, and the best of them with other points.
//!
//! Each is replayed and simulated as the plan will be, turn by turn, so that none is told to be better than it is. What comes
//! out is no slower than MPress's plan over all blocks; nothing bounds it but the untouched stages.

use loadmaster_proto::training::actions::{Allowed, Block, Deed, StageActions, Swap};

use super::certificate::seconds;
use super::choice::{Choice, Chooser};
use super::problem::ActionProblem;
use crate::plan::PlanBuilder;
use crate::result::{QuestionError, RecommendError};
use loadmaster_memory::actions::optimizer::StagePolicies;
use loadmaster_search::Stop;

/// Blocks that leave, without what is left out: what is used seldom, what is large, and each alone.
const SOME: [&[Block]; 5] = [
    &[Block::Versions],
    &[Block::Optimizer],
    &[Block::Versions, Block::Optimizer],
    &[Block::Activations, Block::Inputs],
    &[Block::Versions, Block::Activations, Block::Inputs],
];
/// Times and parts of a swap's distances that are tried.
const DISTANCES: [(u32, u32); 5] = [(2, 1), (4, 1), (1, 2), (1, 4), (0, 1)];

/// The fastest so far.
struct BestActions {
    actions: Vec<StageActions>,
    seconds: f64,
}

impl PlanBuilder<'_> {
    /// The fastest actions that are found, after MPress's, if it found any.
    ///
    /// # Errors
    /// Nothing that is allowed makes the stages fit, as far as was found.
    pub(super) fn fastest_endless(
        &self,
        problem: &ActionProblem<'_>,
        mpress: Option<Vec<StageActions>>,
        choice: Choice<'_>,
        stop: &Stop,
    ) -> Result<Vec<StageActions>, QuestionError> {
        let mut best: Option<BestActions> = None;
        let mut error = None;
        if let Some(actions) = mpress {
            self.tries(problem, actions, choice, &mut best);
        }
        for some in SOME {
            if stop.is_requested() {
                break;
            }
            let blocks: Vec<Block> =
                choice.allowed.blocks.iter().copied().filter(|block| some.contains(block)).collect();
            if blocks.is_empty() && best.is_some() {
                continue;
            }
            let allowed = Allowed { blocks, ..choice.allowed.clone() };
            let fewer = Choice { chooser: Chooser::Mpress, allowed: &allowed, ..choice };
            match self.actions(problem, fewer, &StagePolicies::default(), stop) {
                Ok(actions) => self.tries(problem, actions, choice, &mut best),
                Err(failed) => drop(error.get_or_insert(failed)),
            }
        }
        if best.is_none()
            && let Some(actions) = self.minimum_memory(problem, choice.allowed)
        {
            self.tries(problem, actions, choice, &mut best);
        }
        let Some(mut best) = best else {
            return Err(error.unwrap_or_else(|| RecommendError::Stopped.into()));
        };
        self.move_points(problem, &mut best, choice, stop);
        Ok(best.actions)
    }

    /// Takes actions over that fit and are faster.
    fn tries(
        &self,
        problem: &ActionProblem<'_>,
        actions: Vec<StageActions>,
        choice: Choice<'_>,
        best: &mut Option<BestActions>,
    ) {
        let Ok(plan) = self.with_actions(problem.candidate, &actions, choice.pace, choice.chooser.solver())
        else {
            return;
        };
        let at_host = plan.stages.iter().map(|stage| stage.offload.as_ref().map_or(0, |of| of.host_peak.0));
        let node = problem.node_within(choice.allowed);
        let seconds = seconds(&plan);
        let is_faster = best.as_ref().is_none_or(|best| seconds < best.seconds);
        if is_faster && node.hosts_have_room(at_host.enumerate()) {
            *best = Some(BestActions { actions, seconds });
        }
    }

    /// Tries other distances, stage by stage and block by block, as long as that helps.
    fn move_points(
        &self,
        problem: &ActionProblem<'_>,
        best: &mut BestActions,
        choice: Choice<'_>,
        stop: &Stop,
    ) {
        let least = problem.untouched.iteration_seconds().unwrap_or(0.0);
        let moving = [Block::Versions, Block::Optimizer, Block::Activations, Block::Inputs];
        for stage in 0..best.actions.len() {
            for block in moving {
                for (times, part) in DISTANCES {
                    if stop.is_requested() || best.seconds <= least {
                        return;
                    }
                    let mut actions = best.actions.clone();
                    let of_stage = actions.get_mut(stage).into_iter().flat_map(|of| &mut of.actions);
                    let swaps = of_stage.filter_map(|action| match &mut action.deed {
                        Deed::Swap(swap) if swap.block == block => Some(swap),
                        Deed::Swap(_) | Deed::Recompute => None,
                    });
                    let mut has_moved = false;
                    for Swap { release_after, fetch_before, .. } in swaps {
                        for distance in [release_after, fetch_before] {
                            let moved = (*distance).max(1).saturating_mul(times) / part;
                            has_moved |= moved != *distance;
                            *distance = moved.min(loadmaster_proto::training::actions::Action::MAX_STEPS);
                        }
                    }
                    if has_moved {
                        let mut tried = Some(BestActions { actions: Vec::new(), seconds: best.seconds });
                        self.tries(problem, actions, choice, &mut tried);
                        if let Some(faster) = tried.filter(|tried| !tried.actions.is_empty()) {
                            *best = faster;
                        }
                    }
                }
            }
        }
    }
}
