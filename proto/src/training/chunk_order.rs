//! In which order the micro-batches of an iteration pass the layers.

use crate::choice;
use crate::wire::v1;

/// In which order the micro-batches of an iteration pass the layers of a chunked stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkOrder {
    /// One after the other, as the schedule says. Gradients are added up while later micro-batches still read parameters,
    /// so they need chunks of their own where there is more than one micro-batch.
    MicroBatch,
    /// All of them through a layer before any goes through the next, so that a chunk comes once for all of them and
    /// gradients take the space of their parameters.
    #[default]
    Layer,
}

choice! { ChunkOrder = v1::MicroBatchOrder { MicroBatch, Layer } }
