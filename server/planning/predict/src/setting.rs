//! What is predicted: a stage as it will be trained, and what one of its devices works on.

use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::stage::StageConfig;

/// A stage as it will be trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageSetting {
    /// Layers and degrees.
    pub stage: StageConfig,
    /// Position in its pipeline, from 0.
    pub stage_index: u32,
    /// Stages of that pipeline.
    pub stage_count: u32,
    /// Everything else. The micro-batch size is that of the whole stage: a device of a
    /// stage of d replicas takes one d-th of it.
    pub training: TrainingSpec,
}

impl StageSetting {
    /// The most micro-batches between forward and backward at once.
    pub fn in_flight(&self) -> u32 {
        self.training.schedule.in_flight(self.stage_count, self.stage_index, self.training.micro_batches)
    }
}

/// What one device of a stage works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Share {
    /// Samples of one of its passes.
    pub micro_batch_size: u32,
    /// Shards of each layer's tensors, of which it holds one.
    pub tensor_degree: u32,
}

impl Share {
    /// A replica takes its part of the micro-batch, each of its shards all of that.
    pub fn of(setting: &StageSetting) -> Self {
        let stage = setting.stage;
        Self {
            micro_batch_size: setting.training.micro_batch_size.div_ceil(stage.data_degree.max(1)),
            tensor_degree: stage.tensor_degree.max(1),
        }
    }
}
