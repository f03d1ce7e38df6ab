//! Taking micro-batches forward and backward through a stage.
//!
//! A stage is a list of segments. Each either keeps the autograd graph of its forward pass, or keeps
//! only its input and computes the rest again in the backward pass. That one mechanism covers every
//! recompute policy.

mod build;
mod part;
mod record;
mod segment;
mod stage;

pub use part::Part;
pub use record::Flow;
pub use segment::{Keep, Segment};
pub use stage::{Forwarded, MicroBatch, Stage};
