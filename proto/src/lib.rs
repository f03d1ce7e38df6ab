//! The language that Loadmaster's planner, daemon and rank share.
//!
//! * [`wire`]: the messages and services generated from `loadmaster/v1/*.proto`.
//! * Everything else: *checked* domain types. A value of one of them is valid by construction; the
//!   conversions in [`convert`] turn a message into one or say which field is wrong.
//!
//! Layer arithmetic (shapes, parameter counts), the order of a schedule and the protocol between
//! daemon and rank are defined here once, because planner and rank must agree to the byte. Nothing
//! in this crate does I/O.

pub mod address;
pub mod buckets;
pub mod bytes;
pub mod cluster;
pub mod codec;
pub mod constraints;
pub mod convert;
pub mod device;
pub mod document;
pub mod environment;
pub mod error;
pub mod import;
pub mod layer;
pub mod links;
pub mod measurement;
pub mod model;
pub mod name;
pub mod notation;
pub mod objective;
pub mod observation;
pub mod overlap;
pub mod prediction;
pub mod profile;
pub mod rank;
pub mod reading;
pub mod reason;
pub mod reshard;
pub mod run;
pub mod scenario;
pub mod schedule;
pub mod shard;
pub mod stage;
pub mod tape;
pub mod training;
pub mod wire;
pub mod zoo;

/// Version of the protocol between planner and worker. Planner and worker must speak the same one.
pub const WORKER_PROTOCOL_VERSION: i32 = 3;

/// The libtorch version that the rank is built for.
pub const LIBTORCH_VERSION: &str = "2.11.0";

/// Longest message that planner and worker accept, bytes.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;
