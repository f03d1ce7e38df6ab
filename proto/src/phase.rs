//! What a rank is doing.

use serde::{Deserialize, Serialize};

use crate::choice;

/// What a rank is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Making parameters and connecting.
    Setup,
    /// Forward pass.
    Forward,
    /// Backward pass.
    Backward,
    /// Optimizer step.
    Step,
    /// Exchanging tensors for nothing but their speed.
    Exchange,
}

choice! {
    Phase {
        Setup = "setup",
        Forward = "forward",
        Backward = "backward",
        Step = "step",
        Exchange = "exchange",
    }
}
