//! Parameters and optimizer state in chunks: blocks of memory that move and are shared as wholes (PatrickStar, Fang et al.,
//! 2022).
//!
//! | file | what is in it |
//! |---|---|
//! | [`sequence`] | the tensors of a stage in their order, grouped into *parameter groups*: modules inside a layer, which are never cut |
//! | [`packing`] | which parameter groups are in which chunk: next-fit, bare or aligned |
//! | [`layout`] | the lists of chunks; chunk, offset and elements of every tensor |
//! | [`groups`] | what several ranks own of it |
//! | [`footprint`] | what a chunk size costs, before and after that |
//! | [`sizes`] | which sizes are tried, and which is best |
//! | [`paging`] | which chunks are on a device, access by access |
//! | [`residency`] | which chunks are on a device, step by step of a training |
//! | [`host`] | where chunks are in the host's memory |
//! | [`embedding`] | where the rows of an embedding are taken from |
//! | [`activations`] | where what layers keep between their passes is |
//! | [`stage`] | how a rank trains in chunks, and all that follows from it |
//! | [`question`] | all of that of a model, from a request to its answer |
//!
//! Planner and rank lay out by this module alone, so they agree to the byte. Sizes are in *elements*: a chunk of each list has as
//! many of them, so its bytes follow from the list. The paper counts elements in [`MEBI`]s and writes M.
//!
//! A device holds N(t) + R(t) bytes in step t. N(t) are the bytes of the same step without chunks. The predictors play them from
//! allocation traces, with gradients that end when their chunk has them. R(t) are the payloads on the device, from their
//! residency intervals. End-to-end tests compare both with real ranks to the byte.

pub mod activations;
pub mod embedding;
pub mod footprint;
pub mod groups;
pub mod host;
pub mod layout;
pub mod packing;
pub mod paging;
pub mod question;
pub mod residency;
pub mod sequence;
pub mod sizes;
pub mod stage;
mod wire;

#[cfg(test)]
mod tests;

pub use sizes::{ChunkSize, ParseChunkSizeError, mebi};

/// The unit of chunk sizes in the paper, elements: 2^20, written M there.
pub const MEBI: u64 = 1 << 20;

/// Where tensors start in chunks that are trained, bytes: kernels choose by alignment, so speed and bits would change
/// with where a tensor happens to lie.
pub const ALIGNMENT_BYTES: u64 = 64;
