//! What stages do about their memory, as MPress decides it.
//!
//! | module | question | MPress |
//! |---|---|---|
//! | `mapping` | which stage is on which device of a node, of all ways that its links tell apart? | III-C |
//! | `striping` | how is a block split over the links to its peers? | III-C |
//! | `rule` | keep a block by host, by a peer, or by computing it again? | III-D, Table III |
//!
//! The words are those of [`loadmaster_proto::training::actions`], which also says when a block is away.

pub mod mapping;
pub mod rule;
pub mod striping;
