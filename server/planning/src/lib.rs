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
//! | [`result`] | is what a worker measured what its run asked for? | |
//! | [`remaining`] | what is left to do of a campaign that was begun before? | |
//! | [`metrics`] | what do the measurements say about each layer, and what is missing? | III-A1 (`M_i`, `M_a`) |
//! | [`needs`] | what does each predictor lack of a profile? | |
//! | [`predictor`] | what does every predictor answer? | III-B |
//! | [`capture`] | how much memory does a stage need that nobody ran, by the paper? | III-B, Description 2 |
//! | [`component`] | the same, from what each layer allocates and frees? | |
//! | [`table`] | the same, from another tool's per-layer table? | |
//! | [`predictors`] | which predictor does a profile have what it takes for? | |
//! | [`imported`] | which predictor does an imported profile have what it takes for? | |
//! | [`cores`] | what do seconds on CPU slots not contain? | |
//! | [`predict`] | what does each device of a stage or plan need, and does it fit? | |
//! | [`merger`] | which layers are too small to cut between? | III-A3 |
//! | [`fleet`] | which devices does a search see, and which ones are they? | |
//! | [`search`] | which plan is best, of all that there are? | III-C; AMP, 3.4 |
//! | [`time`] | how long does an iteration take, in closed form, and how long at least? | AMP, 3.3 |
//! | [`simulate`] | how long exactly, and who does what when? | |
//! | [`pricing`] | what does a stage cost a search: bytes and seconds? | |
//! | [`recommend`] | which plan is best by what was asked for, and what proves it? | III-C; AMP, 3 |
//! | [`baselines`] | what do well-known rules make of it? | |
//! | [`trial`] | which of the plans that were really trained did best? | AMP, 3.1 |
//! | [`correction`] | how right were predictions, and what should they be multiplied with? | |
//!
//! Layers and stages are numbered from 0, ranges of layers include both ends, and all bytes are of
//! the *allocated* ledger, but for imported tables, which name theirs.

pub mod baselines;
pub mod campaign;
pub mod capture;
pub mod component;
pub mod cores;
pub mod correction;
#[cfg(test)]
mod fixtures;
pub mod fleet;
pub mod follow_up;
pub mod imported;
pub mod layout;
mod memo;
pub mod merger;
pub mod metrics;
pub mod needs;
pub mod neighbours;
pub mod predict;
pub mod predictor;
pub mod predictors;
pub mod pricing;
pub mod recommend;
pub mod remaining;
pub mod result;
pub mod search;
pub mod simulate;
pub mod table;
pub mod time;
pub mod trial;
