//! Memory optimizations and chunks: stages that need less device memory than their tensors take.
//!
//! | module | contents | paper |
//! |---|---|---|
//! | [`actions`] | memory optimizations of pipeline stages: recompute, CPU offload, peer swap | MPress, III |
//! | [`chunks`] | models whose parameters and optimizer state are larger than the device, in chunks | PatrickStar |
//!
//! Nothing here does I/O or reads a clock. Layers and stages are numbered from 0, and ranges of layers include both ends.
//!
//! # Choice of memory optimizations
//!
//! Two planners decide on a pipeline whose stages are given. [`actions::paper`] follows MPress: live intervals, its cost rule, an
//! initial plan, then blocks that move to peers while an iteration becomes shorter. All micro-batches are treated alike.
//! [`actions::optimizer`] is the default:
//!
//! 1. *Recompute* is solved exactly. A dynamic program lists the Pareto-optimal choices of layers that one micro-batch saves
//!    (bytes, backward peak, seconds). A second program assigns a choice to each micro-batch in flight. Tests compare both with
//!    brute force.
//! 2. *Offload and swap* are searched by simulation. A policy states how many activations, gradients, weights and optimizer
//!    states leave, to CPU memory or to peers, and how many steps before their use they return. All stages start with one policy.
//!    Then single stages change theirs, the busiest first. Recompute fills the bytes that are still missing.
//! 3. MPress's plan, and plans with fewer mechanisms, are candidates too, so the result is no slower than any of them.
//! 4. A *bound* holds for every allowed plan. At one moment of each stage a number of bytes must be absent. Links carry a limited
//!    number of bytes in an iteration, and the rest must be recomputed. The bound ignores the order of copies and the size of
//!    blocks.
//!
//! `recommend::memory_optimizations` replays every result, and repeats the choice with the missing bytes set aside.
//!
//! # Choice of chunks
//!
//! [`chunks`] enumerates layouts, orders of micro-batches, recomputation, formats in CPU memory, places of the embedding table
//! and of saved activations, the number of chunks with state on the device, and prefetch distances. It simulates the iteration of
//! each choice on lanes: passes, both directions of the link, and optimizer steps. Choices are simulated in the order of a lower
//! bound of their seconds, until the bound proves that the rest is slower.
//!
//! * Embedding tables and activations in CPU memory come last. They cost copies, and help only where passes leave time or memory
//!   is short.
//! * Bytes are exact for the chosen residency intervals. Seconds have a gap to the choices that were not simulated.
//! * Ranks that share chunks work in lockstep, so one of them is simulated. Passes stop while parts are exchanged.
//! * Where nothing fits, the result names the choice with the smallest shortage, its step and bytes, and tested remedies.
//! * [`chunks::Baseline`] plans ZeRO-Offload and PatrickStar as published, on the same lanes.

pub mod actions;
pub mod chunks;
