//! MPress's own planner (III-D): host swap and recomputation first, then peers where that is faster.
//!
//! | module | question | MPress |
//! |---|---|---|
//! | here | what is asked, and what is the answer? | |
//! | `decided` | what is done to which block, and what does every device hold then? | III-B |
//! | `ran` | how long does an iteration take, and who waits for what? | III-B, simulator |
//! | `prices` | for how long is a block away at least, and what does each choice cost? | III-D, Table III |
//! | `start` | what is a first plan that fits? | III-D, initial assignment |
//! | `replace` | which blocks go to peers instead? | III-D, iterations |
//! | `peers` | which devices have room, and how is a block split over them? | III-C |
//! | `mapped` | which stage is on which device? | III-C |
//! | `shares` | which share of what is saved is whose? | Table IV |
//!
//! The text leaves open how much of a link's time is taken when a block is weighed; [`Costs`](super::rule::Costs) sees
//! none of it, and the simulation does. When a block is gone and when it is fetched are named points here: as many steps
//! from its uses as its copy takes. A plan that comes out is no slower than the one that the loop began with.

mod decided;
mod mapped;
mod peers;
mod prices;
mod ran;
mod replace;
mod shares;
mod start;
#[cfg(test)]
mod tests;

use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::{Block, StageActions};
use loadmaster_proto::training::overlap::Overlap;

use super::{NodeDevices, StageBlocks};
use crate::iteration::Order;
use crate::iteration::copies::CopiesError;
use crate::search::Stop;
use decided::Decided;
use ran::{Ran, seconds};
pub use shares::Shares;

/// What may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// Computing layers again.
    pub recompute: bool,
    /// Blocks in the host's memory.
    pub host: bool,
    /// Blocks on other devices.
    pub peers: bool,
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The stages in the chain's order, one device each.
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
    /// To which blocks; computing again is for activations alone.
    pub blocks: &'a [Block],
    /// Whether blocks are split over several peers.
    pub stripes: bool,
    /// Of how many mappings of stages to devices the simulation is asked at most; 0 leaves stages in order.
    pub mappings: usize,
    /// When to end: with the best plan that fits, or without one.
    pub stop: &'a Stop,
}

/// What the planner says.
#[derive(Debug, Clone, PartialEq)]
pub struct PaperPlan {
    /// By stage, with its pools.
    pub actions: Vec<StageActions>,
    /// By stage, its device.
    pub mapping: Vec<usize>,
    /// Seconds of an iteration, simulated.
    pub seconds: f64,
    /// The same of the first plan that fits, before any block went to a peer for speed.
    pub start_seconds: f64,
    /// Without any action, as if everything fitted.
    pub untouched_seconds: f64,
    /// By stage: bytes of its device, pools for others included.
    pub peaks: Vec<u64>,
    /// Bytes in the host's memory.
    pub host_bytes: u64,
    /// Bytes that are saved, by what saves them.
    pub shares: Shares,
    /// Times that blocks went to peers and the iteration became shorter.
    pub rounds: u32,
    /// How many mappings the node's links tell apart, if they can be listed and were looked at.
    pub classes: Option<usize>,
    /// Whether no mapping is faster with these actions.
    pub is_mapping_exact: bool,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PaperError {
    /// A stage holds too much, whatever is done.
    #[error("stage {stage} lacks {missing} bytes, with all done that is allowed")]
    NoRoom {
        /// Which one.
        stage: usize,
        /// What it lacks.
        missing: u64,
    },
    /// Asked to end before anything fitted.
    #[error("stopped before a plan was found")]
    Stopped,
    /// Not a pipeline on a node.
    #[error("{0}")]
    Unfit(&'static str),
    /// Numbers that cannot be simulated.
    #[error(transparent)]
    Simulation(#[from] CopiesError),
}

/// The paper's plan. Where blocks may be split, that of whole blocks is made, too, unless nothing could be faster: one link
/// is a way to split a block, and a loop that only looks ahead by one round may go further with it.
///
/// # Errors
/// Nothing fits, it was stopped before anything did, or the question makes no sense; the text says why.
pub fn plan(question: &Question<'_>) -> Result<PaperPlan, PaperError> {
    let split = plan_as_asked(question);
    let is_fastest = |plan: &PaperPlan| plan.seconds <= plan.untouched_seconds;
    if !question.stripes || !question.allowed.peers || split.as_ref().is_ok_and(is_fastest) {
        return split;
    }
    match (split, plan_as_asked(&Question { stripes: false, ..*question })) {
        (Ok(split), Ok(whole)) if whole.seconds < split.seconds => Ok(whole),
        (Err(_), Ok(whole)) => Ok(whole),
        (Err(_), Err(PaperError::Stopped)) => Err(PaperError::Stopped),
        (split, _) => split,
    }
}

fn plan_as_asked(question: &Question<'_>) -> Result<PaperPlan, PaperError> {
    question.check()?;
    let in_order: Vec<usize> = (0..question.stages.len()).collect();
    let untouched = Decided::nothing(question, &in_order);
    let untouched_seconds = seconds(question, &untouched)?;
    let (first, start_seconds) = start::first(question, &untouched)?;
    let (mut decided, mut rounds) = replace::by_peers(question, first, start_seconds)?;
    let mut is_mapping_exact = decided.mapping.len() <= 1;
    let mut classes = None;
    if question.mappings > 0
        && let Some(found) = mapped::best(question, &decided)?
    {
        (classes, is_mapping_exact) = (found.classes, found.is_exact);
        if found.decided.mapping != decided.mapping {
            // Peers that are near now may take what they were too far away for.
            let (again, more) = replace::by_peers(question, found.decided, found.seconds)?;
            (decided, rounds) = (again, rounds + more);
        }
    }
    Ok(PaperPlan {
        seconds: seconds(question, &decided)?,
        start_seconds,
        untouched_seconds,
        peaks: decided.peaks(),
        host_bytes: decided.host(),
        shares: Shares::of(question, &decided),
        actions: decided.actions(),
        mapping: decided.mapping,
        rounds,
        classes,
        is_mapping_exact,
    })
}

impl Question<'_> {
    fn check(&self) -> Result<(), PaperError> {
        if self.stages.iter().any(|stage| stage.layers.is_empty()) || self.stages.is_empty() {
            return Err(PaperError::Unfit("a pipeline has at least one stage, and each at least one layer"));
        }
        if self.edge_bytes.len() + 1 != self.stages.len() {
            return Err(PaperError::Unfit("there is one edge between each stage and the next one"));
        }
        if self.micro_batches == 0 || matches!(self.order, Order::Interleaved { .. }) {
            return Err(PaperError::Unfit(
                "the paper's planner knows GPipe, 1F1B and PipeDream, of at least one micro-batch",
            ));
        }
        let node = self.node;
        let count = node.count();
        let is_whole = node.host.len() == count
            && node.pairs.len() == count
            && node.pairs.iter().all(|row| row.len() == count);
        if count < self.stages.len() || !is_whole {
            return Err(PaperError::Unfit("a node has a device for each stage, and links of each of them"));
        }
        Ok(())
    }

    fn reserve(&self, stage: usize) -> u64 {
        self.reserve.get(stage).copied().unwrap_or(0)
    }

    fn in_flight(&self, stage: usize) -> u32 {
        let (index, count) = self.place(stage);
        let schedule = if self.order == Order::Gpipe { Schedule::Gpipe } else { Schedule::OneFOneB };
        schedule.in_flight(count, index, self.micro_batches).max(1)
    }

    fn place(&self, stage: usize) -> (u32, u32) {
        let number = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
        (number(stage), number(self.stages.len()))
    }
}
