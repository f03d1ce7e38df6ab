//! Planning: from measurements to a partitioning. Values in, values out.
//!
//! Nothing here does I/O, reads a clock or logs, so every answer can be computed again from what
//! was stored. In the order in which a plan comes about (sections are CAPTURE's):
//!
//! | module | question | paper |
//! |---|---|---|
//! | [`neighbours`] | with which other layers is a layer's added memory measured? | III-A1 |
//! | [`campaign`] | which runs have to be made? | III-A1, Description 1; III-A2 |
//! | [`layout`] | what is the campaign of this profile? | III-A |
//! | [`metrics`] | what do the measurements say about each layer, and what is missing? | III-A1 (`M_i`, `M_a`) |
//! | [`predictor`] | what does every predictor answer? | III-B |
//! | [`additive`] | how much memory does a stage need that nobody ran? | III-B1, III-B2, Description 2 |
//! | [`leximax`] | which partitioning has the lowest peaks? | III-C, replaced by an exact search |
//! | [`recommend`] | which stage goes on which device, and does it fit? | III-C |
//!
//! Layers and stages are numbered from 0, ranges of layers include both ends, and all bytes are of
//! the *allocated* ledger.

pub mod additive;
pub mod campaign;
#[cfg(test)]
mod fixtures;
pub mod layout;
pub mod leximax;
pub mod metrics;
pub mod neighbours;
pub mod predictor;
pub mod recommend;
