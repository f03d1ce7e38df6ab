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

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate as it was stored before anybody asked what visits fetch is read, and written, as it was.
    #[test]
    fn what_was_stored_before_is_read_and_written_as_it_was() {
        let stored = serde_json::json!({
            "value": 1.5, "bound": 1.25, "gap": 0.2, "unit": "seconds", "proven": false, "stopped": false, "states": 7,
            "rejected": [],
        });
        let read: Certificate = serde_json::from_value(stored.clone()).unwrap();
        assert!(!read.fetches_fewest);
        assert_eq!(serde_json::to_value(&read).unwrap(), stored);
        let known = Certificate { fetches_fewest: true, ..read };
        let written = serde_json::to_value(&known).unwrap();
        assert_eq!(written["fetches_fewest"], true);
        assert_eq!(serde_json::from_value::<Certificate>(written).unwrap(), known);
    }
}
