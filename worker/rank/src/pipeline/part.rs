//! A rank's part in its stage.

use loadmaster_proto::shard::Shard;
use loadmaster_proto::stage::{Parallelism, StageConfig};

use crate::collective::Group;

/// A rank's part in its stage.
#[derive(Debug, Clone)]
pub struct Part {
    /// The stage.
    pub config: StageConfig,
    /// Which device of the stage.
    pub shard: u32,
    /// The other devices of the stage, where there are any.
    pub group: Option<Group>,
}

impl Part {
    /// The only rank of a stage.
    pub fn single(config: StageConfig) -> Self {
        Self { config, shard: 0, group: None }
    }

    /// The replica of the stage that this rank is; 0 unless the stage is data parallel.
    pub fn replica(&self) -> u32 {
        if self.config.parallelism == Parallelism::Data { self.shard } else { 0 }
    }

    /// The shard of the stage's tensors that this rank holds.
    pub fn tensor_shard(&self) -> Shard {
        self.config.shard(self.shard)
    }

    /// The other replicas of a data-parallel stage.
    pub fn replicas(&self) -> Option<&Group> {
        self.group.as_ref().filter(|_| self.config.parallelism == Parallelism::Data)
    }

    /// The ranks that hold the other shards of a tensor-parallel stage.
    pub fn shards(&self) -> Option<&Group> {
        self.group.as_ref().filter(|_| self.config.parallelism == Parallelism::Tensor)
    }
}
