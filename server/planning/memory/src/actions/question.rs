//! The question that a search for memory optimizations of pipeline stages receives.

use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::Block;
use loadmaster_proto::training::overlap::Overlap;

use super::{NodeDevices, StageBlocks};
use loadmaster_search::Stop;
use loadmaster_simulate::Order;
use loadmaster_simulate::copies::CopiesError;

/// What may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// recomputing layers.
    pub recompute: bool,
    /// Blocks in the host's memory.
    pub host: bool,
    /// Blocks on other devices.
    pub peers: bool,
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The stages in the chain's order: what one device of each holds and does.
    pub stages: &'a [StageBlocks],
    /// Bytes that a micro-batch hands on between each stage and the next one, and as many back.
    pub edge_bytes: &'a [u64],
    /// Who passes what when; chunks are not interleaved.
    pub order: Order,
    /// Passes per iteration and direction.
    pub micro_batches: u32,
    /// Whether transfers between stages occupy devices.
    pub overlap: Overlap,
    /// Where it runs.
    pub node: &'a NodeDevices,
    /// By stage: bytes to leave free, as a predictor that sees more than blocks found that they are missing. None where
    /// it is shorter.
    pub reserve: &'a [u64],
    /// What may be done.
    pub allowed: Allowed,
    /// To which blocks; recomputing is for activations alone.
    pub blocks: &'a [Block],
    /// Bytes below which a block stays.
    pub smallest_block: u64,
    /// Whether blocks are split over several peers.
    pub stripes: bool,
    /// Of how many mappings of stages to devices the simulation is asked at most; 0 leaves stages in order.
    pub mappings: usize,
    /// When to end: with the best plan that fits, or without one.
    pub stop: &'a Stop,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A stage holds too much, whatever is done.
    #[error("stage {stage} needs {missing} more bytes, even with all allowed memory optimizations")]
    NoRoom {
        /// Which one.
        stage: usize,
        /// What it lacks.
        missing: u64,
    },
    /// Asked to end before anything fitted.
    #[error("the search was stopped before it found a plan")]
    Stopped,
    /// Not a pipeline on a node.
    #[error("{0}")]
    Unfit(&'static str),
    /// Numbers that cannot be simulated.
    #[error(transparent)]
    Simulation(#[from] CopiesError),
}

impl Question<'_> {
    pub(super) fn check(&self) -> Result<(), PlanError> {
        if self.stages.iter().any(|stage| stage.layers.is_empty()) || self.stages.is_empty() {
            return Err(PlanError::Unfit(
                "a pipeline needs at least one stage, and each stage at least one layer",
            ));
        }
        if self.edge_bytes.len() + 1 != self.stages.len() {
            return Err(PlanError::Unfit(
                "the bytes of the P2P activations must be set for each stage except the last",
            ));
        }
        if self.micro_batches == 0 || matches!(self.order, Order::Interleaved { .. }) {
            return Err(PlanError::Unfit(
                "the MPress search supports only the schedules GPipe, 1F1B and PipeDream. It needs at least one micro-batch",
            ));
        }
        let node = self.node;
        let count = node.count();
        let is_whole = node.host.len() == count
            && node.pairs.len() == count
            && node.pairs.iter().all(|row| row.len() == count);
        if count < self.stages.len() || !is_whole {
            return Err(PlanError::Unfit(
                "a node must have a device for each stage. Each device must have a link to CPU memory and to every \
                 other device",
            ));
        }
        Ok(())
    }

    pub(super) fn reserve(&self, stage: usize) -> u64 {
        self.reserve.get(stage).copied().unwrap_or(0)
    }

    pub(super) fn in_flight(&self, stage: usize) -> u32 {
        let (index, count) = self.place(stage);
        let schedule = if self.order == Order::Gpipe { Schedule::Gpipe } else { Schedule::OneFOneB };
        schedule.in_flight(count, index, self.micro_batches).max(1)
    }

    pub fn place(&self, stage: usize) -> (u32, u32) {
        let number = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        (number(stage), number(self.stages.len()))
    }
}
