//! The bytes that DeepSpeed's pipelines hold besides a plan's.
//!
//! Sources of bytes per parameter: `BF16_Optimizer` (fp32 gradients of the whole stage, main weights and states of a d-th),
//! `DeepSpeedZeroOptimizer` of stage 1. The latter in fp32 holds a copy of its part of the weights, and of its gradients in the step.

use loadmaster_proto::training::Precision;
use loadmaster_proto::training::shard::{Shard, ShardParameter};

use super::RULES;
use crate::grid::Grid;
use crate::memory::{EdgeTensors, Held, MAIN_WEIGHTS, MicroBatches, MoreParameters, TrainingWay};
use crate::question::ExportQuestion;

/// Returns DeepSpeed's ways to train.
pub(super) fn ways(precision: Precision) -> &'static [TrainingWay] {
    const BF16: &[TrainingWay] = &[TrainingWay {
        besides: "; bf16 gradients take 2 bytes more unless DeepSpeed adds them to the fp32 gradients immediately",
        ..TrainingWay::new("with its bf16 optimizer", 2, 4).sharing(MAIN_WEIGHTS)
    }];
    const FP32: &[TrainingWay] = &[
        TrainingWay::new("without ZeRO", 4, 4),
        TrainingWay::new("with ZeRO 1", 4, 4)
            .sharing(&[("copy of the weights", 4), ("copy of the gradients", 4)]),
    ];
    if precision == Precision::Fp32 { FP32 } else { BF16 }
}

/// The tensors that its pipelines hold. A stage computes with a clone of each input that it has received into a buffer of its own, and
/// the last one has the outputs of two micro-batches, for no stage has fewer buffers.
pub(super) const PIPELINE: EdgeTensors = EdgeTensors {
    outputs: MicroBatches::InFlightAnd(0),
    last_outputs: MicroBatches::Some(2),
    gradients: MicroBatches::Some(1),
    inputs: MicroBatches::InFlightAnd(1),
    ..EdgeTensors::NONE
};

/// Returns the bytes that its pipelines hold.
pub(super) fn held(question: &ExportQuestion<'_>, grid: &Grid) -> Held {
    Held {
        tensors: PIPELINE,
        parameters: copied_with_table(question, grid).into_iter().collect(),
        ..Held::per_parameter(&RULES, question.plan)
    }
}

/// Returns the parameters that a tied head brings to the last stage besides the table: the rest of the embedding.
fn copied_with_table(question: &ExportQuestion<'_>, grid: &Grid) -> Option<MoreParameters> {
    let model = question.model.filter(|model| grid.stages > 1 && model.has_tied_head())?;
    let first = Shard { index: 0, degree: grid.shards };
    let embedding = model.layers().first()?.kind.shard_parameters(first);
    let table = model.layers().last()?.kind.shard_shared_parameter(first)?.elements();
    let scalars: u64 = embedding.iter().map(ShardParameter::elements).sum();
    let stage = question.plan.stages.len().checked_sub(1)?;
    Some(MoreParameters {
        stage,
        scalars: scalars.saturating_sub(table),
        what: "the embedding besides its table",
    })
}
