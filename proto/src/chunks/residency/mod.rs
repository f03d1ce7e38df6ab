//! Which chunks are on a device while a model is trained, step by step.
//!
//! A chunk is in the host's memory, and is on the device from one boundary between steps to another, which is a *interval*.
//! Boundary b lies before step b, as with [memory optimizations](crate::training::actions); nothing comes or leaves
//! within a step, which is one pass of one layer.
//!
//! So the bytes of the device in a step are those that it would need
//! without chunks, and those of the payloads that are there: `N(t) + R(t)`. The first interval of a chunk's
//! parameters may begin in the iteration before, once that has updated the chunk, and goes over its end.
//!
//! | file | question |
//! |---|---|
//! | [`tensors`] | which steps use which tensors, whatever chunks these are in? |
//! | [`uses`] | which payloads does a step need, and where do gradients go? |
//! | [`intervals`] | from when to when is each of them there, which are due at a boundary, and how much is moved? |
//! | [`paging_intervals`] | what does a rule make of the room that there is? |
//! | [`refit`] | what is left of planned intervals where there is less room? |
//!
//! At boundary b, in this order:
//!
//! 1. copies of what leaves there begin, of payloads into which gradients were put: others are dropped, since the host has
//!    them as they are;
//! 2. copies of what is gone from there on are waited for, and its memory is given back;
//! 3. what is fetched there gets memory, and its copy begins;
//! 4. what the next step needs is waited for.
//!
//! When all its gradients are in it, a payload leaves, and what comes next time is what the optimizer has made of it.

pub mod intervals;
pub mod paging_intervals;
pub mod refit;
pub mod tensors;
pub mod uses;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

/// A block of the device for one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Payload {
    /// Which chunk, from 0.
    pub chunk: usize,
    /// Whether it is for gradients alone; otherwise for parameters, whose space gradients take where they may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_gradients: bool,
}
