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
//! | [`follow_up`] | which runs are needed besides, because some did not fit? | III-A1 |
//! | [`remaining`] | what is left to do of a campaign that was begun before? | |
//! | [`metrics`] | what do the measurements say about each layer, and what is missing? | III-A1 (`M_i`, `M_a`) |
//! | [`needs`] | what does each predictor lack of a profile? | |
//! | [`predictor`] | what does every predictor answer? | III-B |
//! | [`capture`] | how much memory does a stage need that nobody ran, by the paper? | III-B, Description 2 |
//! | [`component`] | the same, from what each layer allocates and frees? | |
//! | [`table`] | the same, from another tool's per-layer table? | |
//! | [`predictors`] | which predictor does a profile have what it takes for? | |
//! | [`imported`] | which predictor does an imported profile have what it takes for? | |
//! | [`predict`] | what does each device of a stage or plan need, and does it fit? | |
//! | [`merger`] | which layers are too small to cut between? | III-A3 |
//! | [`leximax`] | which partitioning has the lowest peaks? | III-C, replaced by an exact search |
//! | [`recommend`] | which stage goes on which device, and does it fit? | III-C |
//!
//! Layers and stages are numbered from 0, ranges of layers include both ends, and all bytes are of
//! the *allocated* ledger, but for imported tables, which name theirs.

pub mod campaign;
pub mod capture;
pub mod component;
#[cfg(test)]
mod fixtures;
pub mod follow_up;
pub mod imported;
pub mod layout;
pub mod leximax;
pub mod merger;
pub mod metrics;
pub mod needs;
pub mod neighbours;
pub mod predict;
pub mod predictor;
pub mod predictors;
pub mod recommend;
pub mod remaining;
pub mod table;
