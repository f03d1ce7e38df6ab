//! The bytes that Megatron's pipelines, its vocabulary and its parameters hold besides a plan's.
//!
//! Source of bytes per parameter: Megatron-LM's `report_theoretical_memory` (18 bytes, or 6 + 12/d with the distributed optimizer).

use loadmaster_proto::training::Precision;

use crate::grid::Grid;
use crate::memory::{EdgeTensors, Held, MAIN_WEIGHTS, MicroBatches, PaddedVocabulary, TrainingWay, padding};
use crate::question::ExportQuestion;
use crate::rules::Rules;
use crate::transformer::Transformer;

const MIXED: &[TrainingWay] = &[
    TrainingWay::new("by default", 2, 4).copying(MAIN_WEIGHTS),
    TrainingWay::new("with its distributed optimizer", 2, 4).sharing(MAIN_WEIGHTS),
];

/// As exported: gradients are added up in bf16, and its optimizer copies all of them to fp32 for each step
/// (`_copy_model_grads_to_main_grads`), and lets go of the copies before the next iteration.
const BF16_GRADIENTS: &[TrainingWay] = &[
    TrainingWay {
        in_step: 4,
        ..TrainingWay::new("with `--grad-reduce-in-bf16`", 2, 2).copying(MAIN_WEIGHTS)
    },
    TrainingWay::new("without `--grad-reduce-in-bf16`", 2, 4).copying(MAIN_WEIGHTS),
    TrainingWay {
        in_step: 4,
        ..TrainingWay::new("with `--grad-reduce-in-bf16` and the distributed optimizer", 2, 2)
            .sharing(MAIN_WEIGHTS)
    },
];

/// Returns Megatron's ways to train.
pub(super) fn ways(precision: Precision) -> &'static [TrainingWay] {
    if precision == Precision::Bf16 { BF16_GRADIENTS } else { bridge_ways(precision) }
}

/// Returns Megatron-Bridge's ways to train, whose recipes in bf16 always add gradients up in fp32.
pub(super) fn bridge_ways(precision: Precision) -> &'static [TrainingWay] {
    const FP32: &[TrainingWay] = &[
        TrainingWay::new("by default", 4, 4),
        TrainingWay::new("with its distributed optimizer", 4, 4).sharing(&[]),
    ];
    if precision == Precision::Fp32 { FP32 } else { MIXED }
}

/// Rows of the vocabulary that Megatron pads to, for each shard.
const PADDED_TO: u64 = 128;

/// Returns the bytes that Megatron's pipelines, its vocabulary and its parameters hold under these rules, which are those of its
/// family. Outputs that were sent are deallocated.
///
/// Where stages take turns, they send while they compute. An output goes in front of the next forward pass, whose input has come by
/// then, and the gradient that was sent last goes behind the next backward pass. And its schedule names the input that came last before
/// the first backward pass to the end of the iteration, so that this stays with its gradient.
pub(in crate::framework) fn held(
    rules: &Rules,
    question: &ExportQuestion<'_>,
    transformer: &Transformer,
    grid: &Grid,
) -> Held {
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
        ..Held::per_parameter(rules, question.plan)
    }
}

/// Returns the note on the vocabulary's rows.
pub(super) fn note() -> String {
    format!(
        "Megatron {}. Predictions do not count the padded rows on the first and the last stage",
        padding(PADDED_TO)
    )
}

/// Returns the note of Megatron-Bridge on a model in fp32.
pub(super) fn bridge_note() -> String {
    format!(
        "Megatron-Bridge sends bf16 activations between stages, so a model in fp32 can have only one stage. \
         Megatron-Bridge {}. Predictions do not count the padded rows",
        padding(PADDED_TO)
    )
}
