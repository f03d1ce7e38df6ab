//! How the devices of a stage may share its work.

use std::fmt;

use loadmaster_proto::training::RecomputePolicy;

/// A way to run a stage: `data × tensor` devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Choice {
    /// Replicas that split the micro-batch.
    pub data: u32,
    /// Shards that split the tensors, within each replica.
    pub tensor: u32,
    /// What the backward pass computes again.
    pub recompute: RecomputePolicy,
}

impl Choice {
    /// One device that keeps everything.
    pub const SINGLE: Self = Self { data: 1, tensor: 1, recompute: RecomputePolicy::None };

    /// Devices that it takes.
    pub fn devices(self) -> u32 {
        self.data.saturating_mul(self.tensor)
    }
}

/// `data2×tensor4`, with the recompute policy where there is one.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data{}×tensor{}", self.data, self.tensor)?;
        match self.recompute {
            RecomputePolicy::None => Ok(()),
            policy => write!(f, " recompute {policy}"),
        }
    }
}
