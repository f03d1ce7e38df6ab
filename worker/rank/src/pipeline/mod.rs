//! Taking micro-batches forward and backward through a stage.
//!
//! A stage is a list of segments. Each either keeps the autograd graph of its forward pass, or keeps
//! only its input and computes the rest again in the backward pass. That one mechanism covers every
//! recompute policy. What they compute with is a version of the stage's weights: one for ever, or under PipeDream as many
//! as micro-batches in flight went forward with.

mod build;
mod contention_load;
mod record;
mod segment;
mod stage;
mod version;

pub use build::Share;
pub use record::Flow;
pub use segment::{Keep, MicroBatch, Segment};
pub use stage::{Forwarded, Stage};
