//! What stages do about their memory, as MPress decides it.
//!
//! | module | contents | MPress |
//! |---|---|---|
//! | `blocks` | bytes and seconds of a stage, block by block | III-B |
//! | `node` | devices of a node, and the links that copies go over | |
//! | `steps` | the steps of a stage, and when its blocks are away | |
//! | `residency` | the peak memory of a stage, on its device and elsewhere | |
//! | `simulation` | seconds of an iteration with these actions, and its waits | III-B, simulator |
//! | `savings` | bytes that a stage saves, by mechanism | Table IV |
//! | `question` | the problem that planners solve | |
//! | `striping` | the split of a block over the links to its peers | III-C |
//! | `rule` | the choice between host, peer and recompute for one block | III-D, Table III |
//! | `paper` | MPress's own planner | III-D |
//! | `optimizer` | the actions that make a pipeline fit and delay it least, with a bound | |
//!
//! The words are those of [`loadmaster_proto::training::actions`], which also says when a block is away.

mod blocks;
mod node;
pub mod optimizer;
pub mod paper;
mod question;
mod residency;
pub mod rule;
mod savings;
mod simulation;
mod steps;
pub mod striping;
#[cfg(test)]
mod tests;

pub use blocks::{LayerBlocks, StageBlocks};
pub use node::NodeDevices;
pub use question::{Allowed, PlanError, Question};
pub use residency::PeakMemory;
pub use savings::saved_bytes;
pub use steps::StageWork;
