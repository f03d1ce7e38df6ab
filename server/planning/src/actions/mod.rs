//! What stages do about their memory, as MPress decides it.
//!
//! | module | question | MPress |
//! |---|---|---|
//! | `mapping` | which stage is on which device of a node, of all ways that its links tell apart? | III-C |
//!
//! The words are those of [`loadmaster_proto::training::actions`], which also says when a block is away.

pub mod mapping;
