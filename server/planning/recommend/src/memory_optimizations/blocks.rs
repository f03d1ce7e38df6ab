//! What stages hold block by block, as the paper's planner is asked: read from replays in which every block leaves.

use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::actions::{Action, Block, Deed, Destination, Part, StageActions, Swap};

use loadmaster_memory::actions::{LayerBlocks, StageBlocks};
use loadmaster_predict::{ActionsPrediction, PredictionError, Predictor, StageSetting};
use loadmaster_simulate::copies::LayerSeconds;

/// Passes in which every block of a stage has a step of another between its uses, wherever there is one.
const PASSES: u32 = 2;

/// The blocks of a stage whose layers take these seconds. Weights and gradients of tied layers never leave: they are fixed, and
/// so are all of them under PipeDream, where older versions of the weights may leave.
///
/// # Errors
/// What the profile lacks.
pub(crate) fn stage_blocks(
    predictor: &(impl Predictor + ?Sized),
    setting: &StageSetting,
    seconds: &[LayerSeconds],
    is_tied: impl Fn(usize) -> bool,
) -> Result<StageBlocks, PredictionError> {
    let probe = StageSetting {
        training: TrainingSpec { schedule: Schedule::Gpipe, micro_batches: PASSES, ..setting.training },
        ..*setting
    };
    let away = |actions: &StageActions| predictor.acted(&probe, actions);
    let stage = setting.stage;
    let layers = stage.layers();
    let all = |block| vec![swap(block, stage.first_layer, stage.last_layer)];
    let of = |actions: Vec<Action>| away(&StageActions { actions, ..StageActions::default() });
    let [activations, weights, gradients, optimizer] =
        [Block::Activations, Block::Weights, Block::Gradients, Block::Optimizer].map(|block| of(all(block)));
    let (activations, weights, gradients, optimizer) = (activations?, weights?, gradients?, optimizer?);
    let again = layers.clone().flat_map(|layer| [recompute(layer), swap(Block::Inputs, layer, layer)]);
    let inputs = of(again.collect())?;
    let is_endless = setting.training.schedule.updates_always();
    let versions = if is_endless && setting.in_flight() > 1 {
        let probe = StageSetting { stage_index: 0, stage_count: 2, ..*setting };
        let actions = StageActions { actions: all(Block::Versions), ..StageActions::default() };
        Some(predictor.acted(&probe, &actions)?)
    } else {
        None
    };
    let mut fixed = 0_u64;
    let mut blocks = Vec::with_capacity(seconds.len());
    for (layer, &seconds) in layers.zip(seconds) {
        let mut weights = bytes(&weights, layer);
        let mut gradients = bytes(&gradients, layer);
        let versions = versions.as_ref().map_or(0, |versions| bytes(versions, layer));
        if is_tied(layer) || is_endless {
            // The newest version is the weights.
            fixed = fixed.saturating_add(weights).saturating_add(gradients).saturating_sub(versions);
            (weights, gradients) = (0, 0);
        }
        blocks.push(LayerBlocks {
            seconds,
            activations: bytes(&activations, layer),
            input: bytes(&inputs, layer),
            versions,
            weights,
            gradients,
            optimizer: bytes(&optimizer, layer),
            working: 0,
        });
    }
    Ok(StageBlocks { first_layer: stage.first_layer, layers: blocks, fixed })
}

/// Has blocks on the host whenever they are not used.
pub(super) fn swap(block: Block, first_layer: usize, last_layer: usize) -> Action {
    let swap = Swap { block, to: Destination::Host, release_after: 0, fetch_before: 0 };
    Action { first_layer, last_layer, slots: Vec::new(), deed: Deed::Swap(swap) }
}

/// Computes a layer again, alone.
pub(crate) fn recompute(layer: usize) -> Action {
    Action { first_layer: layer, last_layer: layer, slots: Vec::new(), deed: Deed::Recompute }
}

/// The most of a layer that is away at once: of its first micro-batch, its output included that nobody else holds.
fn bytes(acted: &ActionsPrediction, layer: usize) -> u64 {
    let own = |part: Part| {
        let of = acted.away.iter().filter(move |away| {
            let absence = &away.absence;
            absence.layer == layer
                && absence.part == part
                && absence.micro_batch.is_none_or(|index| index == 0)
        });
        of.map(|away| away.bytes).max().unwrap_or(0)
    };
    own(Part::Own).saturating_add(own(Part::Above))
}
