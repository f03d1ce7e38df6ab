//! Planning: from measurements to a partitioning. Values in, values out.
//!
//! Nothing here does I/O, reads a clock or logs, so every answer can be computed again from what
//! was stored. In the order in which a plan comes about (sections are CAPTURE's):
//!
//! | room | question | paper |
//! |---|---|---|
//! | [`campaign`] | which runs is a profile made of, and what is left to do of them? | III-A |
//! | [`predict`] | what does a stage need that nobody ran, and does it fit? | III-A1, III-A3, III-B |
//! | [`iteration`] | how long does an iteration take: in closed form, at least, and exactly? | AMP, 3.2, 3.3 |
//! | [`cost`] | what does a stage cost a search: bytes and seconds? | AMP, 3.3 |
//! | [`fleet`] | which devices does a search see, which ones are they, and which stage may be on which? | MPress, III-C |
//! | [`actions`] | what do stages do so that they hold less? | MPress, III |
//! | [`chunks`] | what is where, step by step, in a training whose state is larger than its device? | PatrickStar |
//! | [`search`] | which plan is best, of all that there are? | III-C; AMP, 3.4 |
//! | [`recommend`] | which plan is best by what was asked for, and what proves it? | III-C; AMP, 3 |
//! | [`learn`] | how right were predictions, and which plan did best when it was trained? | AMP, 3.1 |
//!
//! Layers and stages are numbered from 0, ranges of layers include both ends, and all bytes are of
//! the *allocated* ledger, but for imported tables, which name theirs.

pub mod campaign;
pub mod predict;

pub mod actions;
pub mod chunks;
pub mod cost;
pub mod fleet;
pub mod iteration;
pub mod search;

pub mod recommend;

pub mod learn;

#[cfg(test)]
mod testing;
