//! How long the passes of a layer take.

use serde::{Deserialize, Serialize};

/// Seconds of one pass of one micro-batch through a layer: of each micro-batch the median over the measured
/// iterations, of these the mean.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LayerTimes {
    /// Index in the model.
    pub layer: usize,
    /// Forward pass.
    pub forward_seconds: f64,
    /// Backward pass, without recomputation.
    pub backward_seconds: f64,
    /// Forward pass done again in the backward pass.
    pub recompute_seconds: f64,
}
