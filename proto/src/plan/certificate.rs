//! What proves a plan.

use serde::{Deserialize, Serialize};

/// What proves a plan; the time that the search took is no part of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// The plan's value.
    pub value: f64,
    /// No plan has a better one; none where nothing is known.
    pub bound: Option<f64>,
    /// |value − bound| / bound.
    pub gap: Option<f64>,
    /// What values are counted in.
    pub unit: String,
    /// Whether it is proven best.
    pub proven: bool,
    /// Whether the search was stopped.
    pub stopped: bool,
    /// States weighed.
    pub states: u64,
    /// The first alternatives that were rejected.
    pub rejected: Vec<Rejected>,
    /// Of a plan in chunks no visits of these in the room that there is fetch fewer bytes, each chunk counted whole; not set where
    /// that is not known. Plans that are older than this field read, and are named, as before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fetches_fewest: bool,
}

/// An alternative that was not chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    /// What it is.
    pub what: String,
    /// Its value.
    pub value: Option<f64>,
    /// Why.
    pub reason: String,
}
