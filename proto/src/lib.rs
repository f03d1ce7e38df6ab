//! The language that Loadmaster's planner, daemon and rank share.
//!
//! | room | what is in it |
//! |---|---|
//! | [`wire`] | the messages and services generated from `proto/loadmaster/`, and what is bounded before it is read |
//! | [`model`] | models: layers and their arithmetic, the zoo, imports from other formats |
//! | [`training`] | how a model is trained: settings, stages and their shards, the order of a schedule, who sends what |
//! | [`chunks`] | how parameters and optimizer state lie in chunks, which move and are shared as wholes |
//! | [`cluster`] | devices, nodes and links, and the formats they are imported from |
//! | [`measure`] | runs, what they measured, allocation traces, links, and the protocol between daemon and rank |
//! | [`profile`] | what a profile is asked to measure, and profiles as documents |
//! | [`plan`] | what a plan is asked to be, predicted to need and observed to have needed |
//! | [`warning`] | the limits of an answer that is valid all the same, each with a stable code |
//!
//! Everything but the generated messages is a *checked* domain type: valid by construction. A message becomes one with
//! `TryFrom`, which says which field is wrong, and is made of one with `From`: both beside the type, in its file or its
//! room's `wire.rs`, most of them by [`message!`].
//!
//! What people call the variants of an enum is one table,
//! [`choice!`]. Layer arithmetic (shapes, parameter counts), the
//! order of a schedule and the protocol between daemon and rank are defined here once, because planner and rank must
//! agree to the byte. Nothing in this crate does I/O.

// What several crates build on is documented to the last field; elsewhere a line says what a name does not.
#![warn(missing_docs)]

#[macro_use]
pub mod error;

pub mod accounting;
pub mod amounts;
pub mod bytes;
pub mod choice;
pub mod chunks;
pub mod cluster;
pub mod label;
pub mod measure;
pub mod model;
pub mod name;
pub mod plan;
pub mod profile;
pub mod quote;
pub mod reason;
pub mod training;
pub mod warning;
pub mod wire;

/// Version of the protocol between planner and worker. Planner and worker must speak the same one.
pub const WORKER_PROTOCOL_VERSION: i32 = 10;

/// The libtorch version that the rank is built for.
pub const LIBTORCH_VERSION: &str = "2.11.0";

/// Longest message that planner and worker accept, bytes.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
