//! The bytes that Megatron's pipelines and its vocabulary hold besides a plan's.

use loadmaster_proto::training::Precision;

use crate::grid::Grid;
use crate::memory::{EdgeTensors, Held, MicroBatches, PaddedVocabulary, padding};
use crate::transformer::Transformer;

/// Rows of the vocabulary that Megatron pads to, for each shard.
const PADDED_TO: u64 = 128;

/// Bytes of a parameter that its optimizer's copy of the gradient has in fp32, where gradients are added up in bf16.
pub(in crate::framework) fn step_gradients(precision: Precision) -> u64 {
    if precision == Precision::Bf16 { 4 } else { 0 }
}

/// What Megatron's pipelines and its vocabulary hold. Outputs that were sent are deallocated.
///
/// Where stages take turns, they send while they compute: an output goes in front of the next forward pass, whose input has come by
/// then, and the gradient that was sent last goes behind the next backward pass. And its schedule names the input that came last before
/// the first backward pass to the end of the iteration, so that this stays with its gradient.
pub(in crate::framework) fn held(transformer: &Transformer, grid: &Grid) -> Held {
    let in_turn = |count: u32| match grid.is_interleaved() {
        true => MicroBatches::Some(count),
        false => MicroBatches::None,
    };
    let tensors = EdgeTensors {
        outputs: in_turn(1),
        inputs: in_turn(2),
        // Otherwise the gradient that was sent last keeps its name until the next backward pass is over.
        input_gradients: MicroBatches::Some(if grid.is_interleaved() { 2 } else { 1 }),
        gradients: MicroBatches::Some(1),
        ..EdgeTensors::NONE
    };
    Held {
        tensors,
        vocabulary: PaddedVocabulary::of(transformer, PADDED_TO * u64::from(grid.shards), grid.shards),
        ..Held::default()
    }
}

/// Returns the note on the vocabulary's rows.
pub(super) fn note() -> String {
    format!(
        "Megatron {}: the ends of the model need up to that many rows more than predicted",
        padding(PADDED_TO)
    )
}

/// Returns the note of Megatron-Bridge on a model in fp32.
pub(super) fn bridge_note() -> String {
    format!(
        "Megatron-Bridge passes bf16 between stages, so a model in fp32 is one; it {}: up to that many rows more than predicted",
        padding(PADDED_TO)
    )
}
