//! What a rank is doing.

use serde::{Deserialize, Serialize};

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

impl Phase {
    /// Its name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Step => "step",
            Self::Exchange => "exchange",
        }
    }
}
