//! Tests of the rank program from outside: real processes, real sockets.
//!
//! One program, because linking libtorch takes longer than most of these tests. What reads this
//! process's own allocator is in `tests/allocator.rs`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod actions;
mod arithmetic;
mod chunks;
mod contention;
mod correctness;
mod cuda;
mod failures;
mod families;
mod links;
mod memory;
mod models;
mod optimizer;
mod parallel;
mod pipedream;
mod processes;
mod recording;
mod reference;
