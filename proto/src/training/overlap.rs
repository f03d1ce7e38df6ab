//! Whether a device computes while it exchanges with its neighbours.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whether a device computes while it exchanges with its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// It does: a transfer costs the pass that waits for it, and nobody else.
    #[default]
    Computing,
    /// It does not: sender and receiver spend the time of each transfer on it, as where messages go through the
    /// stream that computes (DeepSpeed's pipeline engine, Megatron-LM without its overlap options).
    Nothing,
}

/// As the command line spells it.
impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Computing => "overlapping",
            Self::Nothing => "blocking",
        })
    }
}
