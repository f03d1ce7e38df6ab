//! What a stage does one after another, and when its blocks are away meanwhile, under PipeDream too.

use loadmaster_proto::training::actions::{
    Absence, Action, Block, Optimization, Part, StageActions, Step, Steps,
};
use loadmaster_proto::training::{RecomputePolicy, Schedule};

use super::StageBlocks;
use loadmaster_simulate::Order;

/// A stage at work.
#[derive(Debug, Clone)]
pub struct StageWork {
    /// Its steps.
    pub steps: Steps,
    /// When its blocks are away.
    pub absences: Vec<Absence>,
    /// Whether an iteration ends with updates, after which there are no gradients.
    pub flushes: bool,
}

impl StageWork {
    /// The work of stage `index` of `count`. PipeDream's is that of 1F1B, as long as it goes on. Each backward pass ends
    /// with the update of its layer, so that its optimizer's state is needed there, and each micro-batch keeps the
    /// weights that it went forward with until it is back.
    pub fn of(
        stage: &StageBlocks,
        (index, count): (u32, u32),
        order: Order,
        micro_batches: u32,
        actions: &StageActions,
    ) -> Self {
        let schedule = if order == Order::Gpipe { Schedule::Gpipe } else { Schedule::OneFOneB };
        let passes = schedule.passes(count, index, micro_batches);
        let in_flight = schedule.in_flight(count, index, micro_batches).max(1);
        let runs = |slot| actions.runs(stage.range(), RecomputePolicy::None, slot);
        let runs: Vec<_> = (0..in_flight).map(runs).collect();
        let steps = Steps::of(&passes, stage.range(), &runs, false);
        let absences = if order == Order::PipeDream {
            absences_without_flush(actions, &steps)
        } else {
            actions.absences(&steps)
        };
        Self { steps, absences, flushes: order != Order::PipeDream }
    }
}

/// Absences where no iteration ends.
fn absences_without_flush(actions: &StageActions, steps: &Steps) -> Vec<Absence> {
    // What is updated with each backward pass is used by each, as gradients are that are added up.
    let as_gradients = |action: &Action| match &action.optimization {
        Optimization::Swap(swap) if swap.block == Block::Optimizer => {
            let optimization = Optimization::Swap(loadmaster_proto::training::actions::Swap {
                block: Block::Gradients,
                ..swap.clone()
            });
            Action { optimization, ..action.clone() }
        }
        _ => action.clone(),
    };
    let alike = StageActions {
        actions: actions.actions.iter().map(as_gradients).collect(),
        ..StageActions::default()
    };
    let is_update = |at: usize| matches!(steps.all().get(at), Some(Step::Update { .. }));
    let mut all = alike.absences(steps);
    all.retain(|absence| !is_update(absence.at.needed));
    for absence in &mut all {
        if let Some(Optimization::Swap(swap)) =
            actions.actions.get(absence.action).map(|action| &action.optimization)
        {
            absence.block = swap.block;
        }
    }
    for (index, action) in actions.actions.iter().enumerate() {
        let Optimization::Swap(swap) = &action.optimization else { continue };
        if swap.block != Block::Versions {
            continue;
        }
        for &step in steps.all() {
            let Step::Forward { micro_batch, layer } = step else { continue };
            if !action.layers().contains(&layer) || !action.is_for(steps.slot(micro_batch)) {
                continue;
            }
            let again = steps.index(Step::Again { micro_batch, layer });
            let backward = steps.index(Step::Backward { micro_batch, layer });
            let (Some(left), Some(needed)) = (steps.index(step), again.or(backward)) else { continue };
            all.extend(Absence::of(swap, (left, needed), (index, layer, Part::Own, Some(micro_batch))));
        }
    }
    all.sort_unstable_by_key(|one| (one.at.leaves, one.at.freed, *one));
    all
}
