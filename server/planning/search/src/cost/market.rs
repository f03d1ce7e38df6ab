//! Where a recommendation gets the prices of stages from.

use std::fmt;

use loadmaster_proto::training::Schedule;

use crate::{Choice, Link, StageCosts};

/// How the samples of an iteration come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Batch {
    /// Samples of one pass of a whole stage; a device of a stage with d replicas takes a d-th of them.
    pub micro_batch_size: u32,
    /// Stage passes per iteration.
    pub micro_batches: u32,
}

impl Batch {
    /// Samples per iteration.
    pub fn samples(self) -> u64 {
        u64::from(self.micro_batch_size) * u64::from(self.micro_batches)
    }
}

/// `8 × 4`: micro-batch size times micro-batches.
impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.micro_batch_size, self.micro_batches)
    }
}

/// What is known of one layer alone, at the request's micro-batch size on one device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerFacts {
    /// Both passes of one micro-batch, seconds; none where the profile has no times.
    pub seconds: Option<f64>,
    /// Bytes of its parameters; none where nobody knows.
    pub parameter_bytes: Option<u64>,
    /// Bytes that one micro-batch keeps for its backward pass; none where nobody knows.
    pub activation_bytes: Option<u64>,
}

/// Prices of the stages of one model on some kinds of devices.
pub trait Market {
    /// Prices at one micro-batch size.
    type Costs: StageCosts;

    /// Layers of the chain.
    fn layers(&self) -> usize;

    /// What is known of each layer alone.
    fn facts(&self) -> &[LayerFacts];

    /// Whether times are known at all; without them only memory can be planned for.
    fn has_times(&self) -> bool;

    /// The prices of stages that make one of `choices`, over `links`: both are named by their index.
    fn costs(&self, schedule: Schedule, batch: Batch, choices: &[Choice], links: &[Link]) -> Self::Costs;

    /// Why layers `first..=last` cannot be run with this choice at this micro-batch size, for people; none
    /// where they can, or nobody knows why not.
    fn obstacle(
        &self,
        schedule: Schedule,
        batch: Batch,
        choice: Choice,
        first: usize,
        last: usize,
    ) -> Option<String>;
}
