//! Whether a device computes while it exchanges with its neighbours.

use serde::{Deserialize, Serialize};

use crate::choice;
use crate::wire::v1;

/// Whether a device computes while it exchanges with its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It does: a transfer costs the pass that waits for it, and no one else.
    #[default]
    Computing,
    /// It does not: sender and receiver spend the time of each transfer on it, as where messages go through the
    /// stream that computes (DeepSpeed's pipeline engine, Megatron-LM without its overlap options).
    Nothing,
}

choice! {
    Overlap = v1::CommunicationOverlap {
        Computing = "overlapping" as On,
        Nothing = "blocking" as Off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::field;

    /// Each value survives the conversion to the wire and back. An unset value is none, and an unknown value is rejected.
    #[test]
    fn both_ways_survive_the_wire() {
        for overlap in Overlap::ALL {
            let wire: i32 = v1::CommunicationOverlap::from(overlap).into();
            assert_eq!(field("transfers", wire), Ok(Some(overlap)));
        }
        assert_eq!(field::<Option<Overlap>, _>("transfers", 0), Ok(None));
        let refused = field::<Option<Overlap>, _>("transfers", 3).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "transfers: 3 is not a known value. If the client is newer than the planner, update the planner"
        );
    }
}
