//! What layers cost one by one, besides the bytes of a stage's peak.

use loadmaster_proto::plan::prediction::{Origin, StageSeconds};

/// What the shards of a layer sum while a micro-batch passes it in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exchange {
    /// How often.
    pub count: u32,
    /// Bytes of all of these together, on each shard.
    pub bytes: u64,
}

/// One layer on one device, for one micro-batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerCost {
    /// Its passes, nothing computed again, and its part of the optimizer step.
    pub seconds: StageSeconds,
    /// What its shards sum in each direction and the seconds do not contain. Nothing where the seconds were
    /// measured with shards at work, as those of every profile are.
    pub exchange: Exchange,
    /// Gradients that replicas sum, once per iteration.
    pub gradient_bytes: u64,
    /// What leaves it towards the next layer, and comes back as a gradient.
    pub output_bytes: u64,
    /// How the seconds were read.
    pub origin: Origin,
}
