//! A rank's share of its stage.

use loadmaster_proto::training::shard::Shard;
use loadmaster_proto::training::stage::StageConfig;

use crate::collective::{Group, Groups};

/// A rank's share of its stage.
#[derive(Debug, Clone)]
pub struct Share {
    /// The stage.
    pub config: StageConfig,
    /// Which device of the stage.
    pub shard: u32,
    /// The ranks that it shares its work with.
    pub groups: Groups,
}

impl Share {
    /// The only rank of a stage.
    pub fn single(config: StageConfig) -> Self {
        Self { config, shard: 0, groups: Groups::default() }
    }

    /// The replica of the stage that this rank is, or is a shard of.
    pub fn replica(&self) -> u32 {
        self.config.replica(self.shard)
    }

    /// The shard of the stage's tensors that this rank holds.
    pub fn tensor_shard(&self) -> Shard {
        self.config.shard(self.shard)
    }

    /// The ranks that hold the same tensors in the other replicas, where there are any.
    pub fn replicas(&self) -> Option<&Group> {
        self.groups.replicas.as_ref()
    }

    /// The ranks that hold the other shards of this replica, where there are any.
    pub fn shards(&self) -> Option<&Group> {
        self.groups.shards.as_ref()
    }
}
