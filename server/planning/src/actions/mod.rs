//! What stages do about their memory, as MPress decides it.
//!
//! | module | question | MPress |
//! |---|---|---|
//! | `mapping` | which stage is on which device of a node, of all ways that its links tell apart? | III-C |
//! | `striping` | how is a block split over the links to its peers? | III-C |
//!
//! The words are those of [`loadmaster_proto::training::actions`], which also says when a block is away.

pub mod mapping;
pub mod striping;
