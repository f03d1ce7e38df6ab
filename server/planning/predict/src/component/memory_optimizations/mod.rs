//! A stage with memory optimizations: every step of every micro-batch is played, and at the boundaries between them
//! blocks leave and come (MPress).
//!
//! What is alike in all micro-batches without actions is not with them, so nothing is folded here as in `schedule`; where
//! nothing is done both tell the same peak. The contract with the rank is [`loadmaster_proto::training::actions`].
//!
//! | module | question |
//! |---|---|
//! | here | what does a stage need with these actions? |
//! | `player` | what does a step do, and which blocks are meant by an absence? |
//! | `shard` | what is on a device of the stage in each step, how much is away, and to where? |
//! | `resident_state` | which tensors of a layer are there all the time: parameters, optimizer's state? |
//!
//! Iterations are those after the first: what is away at the end of one comes back in the next. Under PipeDream a device does
//! the same in every turn; steps are those of as many turns as micro-batches are in flight, once the pipeline is full.

pub(super) mod player;
pub(super) mod resident_state;
pub(super) mod shard;

use std::sync::Arc;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::trace::LayerTrace;
use loadmaster_proto::training::actions::{Block, Optimization, Run, StageActions, Steps};

use super::library::{ShardTraces, TracedLayer};
use super::replay::different_shards;
use super::stage::ReplayStage;
use super::{Component, NAME, margin};
use crate::memory_optimizations::{in_places, seconds};
use crate::{
    ActionsPrediction, MOST_BYTES, Origin, Pool, Prediction, PredictionError, StageSeconds, StageSetting,
    margin_up_to,
};
use player::Gradients;
use shard::{Scene, ShardMemory};

impl Component {
    pub(super) fn with_actions(
        &self,
        setting: &StageSetting,
        actions: &StageActions,
        steps: Steps,
    ) -> Result<ActionsPrediction, PredictionError> {
        let key = self.key(setting)?;
        let traces = self.traces(key)?;
        self.check_saved(setting, actions, &traces)?;
        let absences = actions.absences(&steps);
        let played = self.played(setting)?;
        let synchronisation = played.synchronisation(setting.stage.data_degree).total();
        let shards = different_shards(key.tensor_degree, &traces);
        let play = |trace: fn(&ShardTraces) -> &LayerTrace| -> Vec<ShardMemory> {
            let of_shard = |(index, shards): &(u32, Vec<&ShardTraces>)| {
                let traces: Vec<&LayerTrace> = shards.iter().map(|shard| trace(shard)).collect();
                let shared = self.added_to_shared(&traces, key, *index);
                let stage = ReplayStage {
                    runs: (0..steps.slots()).map(|slot| in_stage(&steps, slot, setting)).collect(),
                    ..self.replay_stage(key, *index, &traces, shared.as_ref())
                };
                let stored = self.stored(setting, *index);
                let (overhead, steps, absences) = (played.overhead, &steps, absences.as_slice());
                let (stage, gradients) = (&stage, Gradients::Wait);
                Scene { stage, stored, overhead, steps, absences, actions, synchronisation, gradients }.play()
            };
            shards.iter().map(of_shard).collect()
        };
        let devices = play(|shard| &shard.trace);
        let most = played.most.map(|_| play(|shard| &shard.most));
        let most = most.into_iter().flatten().map(|device| device.peak().total()).max();
        let most = most.map_or(0, |peak| peak.saturating_add(played.unseen).min(MOST_BYTES));
        let mut pools: Vec<Pool> = Vec::new();
        devices.iter().for_each(|device| merge(&mut pools, in_places(&device.away, steps.all().len())));
        pools.iter_mut().for_each(|pool| pool.moved_bytes = per_iteration(pool.moved_bytes, &steps, setting));
        // The device with the highest peak, the first of several.
        let fullest =
            devices.into_iter().rev().max_by_key(|device| device.peak().total()).unwrap_or_default();
        let parts = fullest.peak();
        let least = margin::margin(played.origin, played.is_aligned, self.largest_error);
        let own: Vec<StageSeconds> = traces.iter().map(|trace| trace.seconds).collect();
        let prediction = Prediction {
            bytes: Bytes(parts.total()),
            breakdown: Some(parts),
            seconds: Some(seconds(&own, &steps, setting)),
            seconds_margin: self.seconds_margin(&played, setting),
            margin: Some(least.max(margin_up_to(parts.total(), most))),
            predictor: NAME,
            origin: traces.iter().map(|trace| trace.origin).max().unwrap_or(Origin::Profiled),
        };
        Ok(ActionsPrediction::new(prediction, steps, fullest.curve, fullest.away, pools))
    }

    /// What a stage does one after another.
    pub(super) fn steps(&self, setting: &StageSetting, actions: &StageActions) -> Steps {
        let stage = &setting.stage;
        let exchanges = Steps::exchanges(Some(&self.model), stage);
        let place = (setting.stage_index, setting.stage_count);
        Steps::of_stage(&setting.training, stage, place, actions, exchanges)
    }

    /// What leaves is known only of layers whose recordings say what autograd saved.
    pub(super) fn check_saved(
        &self,
        setting: &StageSetting,
        actions: &StageActions,
        traces: &[Arc<TracedLayer>],
    ) -> Result<(), PredictionError> {
        let asks = actions
            .actions
            .iter()
            .any(|action| matches!(&action.optimization, Optimization::Swap(swap) if swap.block == Block::Activations));
        let says = |trace: &TracedLayer| trace.shards.values().all(|shard| shard.trace.has_saved);
        let Some(position) = traces.iter().position(|trace| !says(trace)).filter(|_| asks) else {
            return Ok(());
        };
        let layer = setting.stage.first_layer + position;
        let name = self.model.layers().get(layer).map_or("", |layer| layer.name.as_str());
        Err(PredictionError::NotProfiled(format!(
            "the allocation trace of layer {layer} ({name}) does not contain the tensors that autograd saves, so activations \
             cannot be offloaded. Run a new profile with `profiling_mode` PROFILING_MODE_PER_LAYER"
        )))
    }
}

/// The runs of a slot, with layers by their positions in the stage.
fn in_stage(steps: &Steps, slot: u32, setting: &StageSetting) -> Vec<Run> {
    let position = |layer: &usize| {
        let last = setting.stage.last_layer - setting.stage.first_layer;
        layer.saturating_sub(setting.stage.first_layer).min(last)
    };
    let run = |run: &Run| Run { layers: position(run.layers.start())..=position(run.layers.end()), ..*run };
    steps.runs(slot).iter().map(run).collect()
}

/// What is moved in an iteration, of what is moved in all steps: micro-batches that never flush are alike.
fn per_iteration(moved_bytes: u64, steps: &Steps, setting: &StageSetting) -> u64 {
    let Some(_) = steps.turn() else { return moved_bytes };
    let moved = u128::from(moved_bytes) * u128::from(setting.training.micro_batches);
    u64::try_from(moved / u128::from(steps.slots())).unwrap_or(u64::MAX)
}

/// Shards that hold unequal parts set as much aside as the highest peak of them needs.
fn merge(pools: &mut Vec<Pool>, of_shard: Vec<Pool>) {
    for new in of_shard {
        match pools.iter_mut().find(|pool| pool.peer == new.peer) {
            Some(known) if known.peak >= new.peak => {}
            Some(known) => *known = new,
            None => pools.push(new),
        }
    }
    pools.sort_by_key(|pool| pool.peer);
}
