//! The tensors of a stage's layers that are there all the time.

use loadmaster_proto::training::actions::Block;
use loadmaster_proto::training::shard::{Shard, ShardParameter};
use loadmaster_proto::training::sharding::part_length;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{StaticBytes, TrainingSpec};

use crate::StageSetting;
use crate::component::Component;

/// What a device of a stage holds all the time.
#[derive(Debug, Clone, Default)]
pub(in crate::component) struct ResidentState {
    /// The stage's first layer in the model.
    pub(in crate::component) first_layer: usize,
    /// All of it; gradients are not.
    pub(in crate::component) whole: StaticBytes,
    /// Of each layer of the stage the bytes of each of its parameters, then of their master copies.
    pub(in crate::component) weights: Vec<Vec<u64>>,
    /// Of each layer those of what the optimizer keeps.
    pub(in crate::component) optimizer: Vec<Vec<u64>>,
    /// Of each layer those of an older version of what it computes with.
    pub(in crate::component) versions: Vec<Vec<u64>>,
    /// How many older versions there are.
    pub(in crate::component) older: u32,
}

impl ResidentState {
    /// The bytes of each tensor that a layer has of a block.
    pub(super) fn tensors(&self, layer: usize, block: Block) -> &[u64] {
        let all = match block {
            Block::Weights => &self.weights,
            Block::Optimizer => &self.optimizer,
            Block::Versions => &self.versions,
            Block::Activations | Block::Inputs | Block::Gradients => return &[],
        };
        layer.checked_sub(self.first_layer).and_then(|position| all.get(position)).map_or(&[], Vec::as_slice)
    }
}

impl ResidentState {
    /// All of what a block is on a device that has nothing away.
    pub(super) fn all(&self, block: Block) -> u64 {
        match block {
            Block::Weights => self.whole.parameters,
            Block::Optimizer => self.whole.optimizer,
            Block::Versions => {
                let one =
                    self.versions.iter().flatten().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes));
                one.saturating_mul(self.older.into())
            }
            Block::Activations | Block::Inputs | Block::Gradients => 0,
        }
    }
}

impl Component {
    pub(super) fn stored(&self, setting: &StageSetting, index: u32) -> ResidentState {
        let stage = &setting.stage;
        let TrainingSpec { precision, optimizer, .. } = self.training;
        // Of each number that is kept of a scalar its bytes, and among how many replicas it is divided.
        let of_layers = |numbers: &[(u64, u32)]| {
            let of_layer = |layer| {
                let parameters = self.trained(stage, layer, stage.shard(index));
                let of = |&(bytes, parts): &(u64, u32)| {
                    let own = |of: &ShardParameter| part_length(of.elements(), parts).saturating_mul(bytes);
                    parameters.iter().map(own).collect()
                };
                numbers.iter().flat_map(|number| -> Vec<u64> { of(number) }).collect()
            };
            stage.layers().map(of_layer).collect()
        };
        let (parts, scalar) = (stage.optimizer_parts(), (precision.scalar_bytes(), 1));
        let master = precision.has_master_weights().then_some((4, parts));
        let weights: Vec<_> = [scalar].into_iter().chain(master).collect();
        let kept: Vec<_> = (0..optimizer.state_scalars()).map(|_| (4, parts)).collect();
        ResidentState {
            first_layer: stage.first_layer,
            whole: self.model.rank_static_bytes(stage, index, &self.training),
            weights: of_layers(&weights),
            optimizer: of_layers(&kept),
            versions: of_layers(&[scalar]),
            older: setting.training.schedule.weight_versions(setting.in_flight()) - 1,
        }
    }

    /// What is trained of a layer. A head has a tied weight of its own only where the embedding is in another stage.
    fn trained(&self, stage: &StageConfig, layer: usize, shard: Shard) -> Vec<ShardParameter> {
        let layers = self.model.layers();
        let Some(kind) = layers.get(layer).map(|layer| &layer.kind) else { return Vec::new() };
        let mut parameters = kind.shard_parameters(shard);
        if stage.first_layer > 0 && layer + 1 == layers.len() {
            parameters.extend(kind.shard_shared_parameter(shard));
        }
        parameters
    }
}
