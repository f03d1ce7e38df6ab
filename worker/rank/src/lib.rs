//! The rank: trains one stage of a model for a few iterations on libtorch and reports what it needed.
//!
//! * [`train`] is the whole of it, from the specification to the measurement; [`links`] is the whole of what
//!   is done where nothing is trained and devices only exchange tensors.
//! * [`layers`] builds a stage's layers, [`pipeline`] takes micro-batches forward and backward through
//!   them, [`optimizer`] updates them, [`transport`] moves activations and gradients between stages,
//!   [`collective`] sums within a stage; [`connections`] reaches everybody for both.
//! * [`movement`] takes blocks away from the device between their uses and brings them back, and updates a model's state where
//!   it lies in the host's memory.
//! * [`peers`] are who talks to whom, [`tensor`] what all of them do with tensors.
//! * [`trace`](tape) records what a layer allocates, for the planner.
//! * [`memory`] counts bytes, [`timing`] the seconds of layers by a [`clock`], [`progress`] tells the daemon.
//! * [`ffi`] is the only unsafe code; `completion` is how one thread waits for another.
//!
//! It is a library so that tests can reach its parts; the program is in `main.rs`.

pub mod clock;
pub mod collective;
mod completion;
pub mod connections;
pub mod data;
pub mod error;
pub mod ffi;
pub mod layers;
pub mod library;
pub mod links;
pub mod memory;
pub mod movement;
pub mod optimizer;
pub mod peers;
pub mod pipeline;
pub mod progress;
pub mod random;
pub mod spec;
pub mod tape;
pub mod tensor;
pub mod timing;
pub mod train;
pub mod transport;
