//! What stages do about their memory, as MPress decides it.
//!
//! | module | question | MPress |
//! |---|---|---|
//! | `blocks` | what does a stage hold, block by block, and how long does it take? | III-B |
//! | `node` | what is on a node, and what do copies go over? | |
//! | `work` | what does a stage do one after another, and when are its blocks away? | |
//! | `held` | what does a stage hold then, on its device and elsewhere? | |
//! | `ran` | how long does an iteration take then, and who waits for what? | III-B, simulator |
//! | `saved` | by what does a stage hold less? | Table IV |
//! | `question` | what is asked of whoever chooses actions? | |
//! | `striping` | how is a block split over the links to its peers? | III-C |
//! | `rule` | keep a block by host, by a peer, or by computing it again? | III-D, Table III |
//! | `paper` | what does MPress's own planner do? | III-D |
//! | `fastest` | which actions make a pipeline fit and delay it least, and how far from the optimum can they be? | |
//!
//! The words are those of [`loadmaster_proto::training::actions`], which also says when a block is away.

mod blocks;
pub mod fastest;
mod held;
mod node;
pub mod paper;
mod question;
mod ran;
pub mod rule;
mod saved;
pub mod striping;
#[cfg(test)]
mod tests;
mod work;

pub use blocks::{LayerBlocks, StageBlocks};
pub use held::Held;
pub use node::NodeDevices;
pub use question::{Allowed, PlanError, Question};
pub use saved::saved;
pub use work::StageWork;
