//! What a layer needs alone, whatever is done: no stage that has it needs less.
//!
//! During its own passes a layer has its weights, what it saved and what it computes. All else may be away. What is held at
//! a stage's edges, and what allocators hold besides, is left out: within a stage it may be less.

use std::cell::RefCell;
use std::collections::HashMap;

use loadmaster_proto::training::actions::{Allowed, Block, Way as Move};
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Schedule, TrainingSpec};

use super::ActionsQuestion;
use crate::memory_optimizations::replay_fit::ways;
use loadmaster_memory::actions::LayerBlocks;
use loadmaster_predict::StageSetting;
use loadmaster_search::cost::Batch;

/// What was asked of layers before: every peak, device and pipeline asks for the same.
#[derive(Debug, Default)]
pub(crate) struct LayerMinima(RefCell<HashMap<(usize, LayerSetting), u64>>);

/// A way to run a stage: how samples come in, in which order, and how its devices share them and its tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LayerSetting {
    pub(super) batch: Batch,
    pub(super) schedule: Schedule,
    pub(super) data: u32,
    pub(super) tensor: u32,
}

impl ActionsQuestion<'_> {
    /// Bytes that a device of any stage with a layer that is run so needs at least; 0 where that is not known.
    pub(super) fn layer_minimum(&self, layer: usize, way: LayerSetting) -> u64 {
        let key = (layer, way);
        if let Some(&known) = self.known.0.borrow().get(&key) {
            return known;
        }
        let least = self.replayed_minimum(layer, way);
        self.known.0.borrow_mut().insert(key, least);
        least
    }

    fn replayed_minimum(&self, layer: usize, way: LayerSetting) -> u64 {
        let LayerSetting { batch, schedule, data, tensor } = way;
        let last = self.job.names.len().saturating_sub(1);
        let stage_index = if layer == 0 { 0 } else { 1 + u32::from(layer == last) };
        let training = TrainingSpec {
            micro_batch_size: batch.micro_batch_size,
            micro_batches: 1,
            // In the last stage there is one version of its weights.
            schedule: if schedule.updates_always() { Schedule::OneFOneB } else { schedule },
            recompute: loadmaster_proto::training::RecomputePolicy::None,
            ..self.builder.training
        };
        let stage =
            StageConfig { first_layer: layer, last_layer: layer, data_degree: data, tensor_degree: tensor };
        let setting = StageSetting { stage, stage_index, stage_count: 3, training };
        let needed = |actions| {
            let acted = self.builder.chain.predictor.acted(&setting, &actions).ok()?;
            let prediction = acted.prediction(0);
            let parts = prediction.breakdown?;
            // How gradients are gathered for their sum depends on the stage's other layers.
            let gathered = if stage.devices() > 1 { parts.communication } else { 0 };
            let beside = parts.edges.saturating_add(parts.overhead).saturating_add(gathered);
            Some(prediction.bytes.0.saturating_sub(beside))
        };
        let is_tied = |layer| self.builder.chain.is_tied(layer);
        let all = ways(&setting, &anywhere(self.choice.allowed), &is_tied).into_iter().map(needed);
        all.collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().min()).unwrap_or(0)
    }

    /// Bytes that a stage of these layers needs at least, each of which needs so much alone: during a layer's own passes,
    /// with what others have that may not leave.
    pub(super) fn least_of_stage(&self, layers: &[LayerBlocks], alone: &[u64]) -> u64 {
        let stays = |block: Block, of: &LayerBlocks| {
            let allowed = self.choice.allowed;
            let leaves =
                allowed.blocks.contains(&block) && allowed.ways.iter().any(|way| *way != Move::Recompute);
            if leaves { 0 } else { of.bytes(block) }
        };
        let kept = |of: &LayerBlocks| stays(Block::Weights, of).saturating_add(stays(Block::Optimizer, of));
        let all: u64 = layers.iter().map(kept).fold(0, u64::saturating_add);
        // Both ends of a tied weight may have it in common.
        let tied = self.builder.chain.predictor.tied_bytes(1).saturating_mul(4);
        let mut least = 0;
        let mut gradients = 0_u64;
        for (of, &alone) in layers.iter().zip(alone).rev() {
            let others = all.saturating_sub(kept(of)).saturating_add(gradients).saturating_sub(tied);
            least = least.max(alone.saturating_add(others));
            // Later layers go backward first.
            gradients = gradients.saturating_add(stays(Block::Gradients, of));
        }
        least
    }
}

/// What may be done if the host had room for all that may leave to anywhere.
fn anywhere(allowed: &Allowed) -> Allowed {
    let mut anywhere = allowed.clone();
    if anywhere.ways.contains(&Move::Peer) && !anywhere.ways.contains(&Move::Host) {
        anywhere.ways.push(Move::Host);
    }
    anywhere
}
