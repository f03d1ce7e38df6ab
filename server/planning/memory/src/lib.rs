//! How stages need less device memory than their tensors take.
//!
//! | module | contents | paper |
//! |---|---|---|
//! | [`actions`] | memory optimizations of pipeline stages: recompute, CPU offload, peer swap | MPress, III |
//! | [`chunks`] | models whose parameters and optimizer state are larger than the device, in chunks | PatrickStar |
//!
//! Nothing here does I/O or reads a clock. Layers and stages are numbered from 0, and ranges of layers include both ends.

pub mod actions;
pub mod chunks;
