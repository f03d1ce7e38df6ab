//! Uses of small models by hand.

use super::paged::Paging;
use crate::bytes::Bytes;
use crate::chunks::host::HostCopy;
use crate::chunks::order::ChunkOrder;
use crate::chunks::packing::ChunkLayout;
use crate::chunks::stage::{ChunkedStage, Chunks, Residency, StepKernel, UpdateTime};
use crate::model::Model;
use crate::model::zoo::{Gpt2, Zoo};
use crate::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};

fn gpt(blocks: i64) -> Model {
    let gpt = Gpt2 {
        blocks,
        hidden_size: 16,
        heads: 2,
        vocabulary_size: 50,
        sequence_length: 8,
        ..Gpt2::default()
    };
    Zoo::Gpt2(gpt).build().unwrap()
}

fn stage(chunk_elements: u64, order: ChunkOrder, host_copy: HostCopy) -> ChunkedStage {
    ChunkedStage {
        layout: ChunkLayout::Aligned,
        chunk_elements,
        order,
        host_copy,
        staging: 2,
        update: UpdateTime::OnArrival,
        kernel: StepKernel::OnePass,
        on_device: Vec::new(),
        residency: Residency::Paged(Paging::AT_NEED),
        host_memory: Bytes(1 << 40),
    }
}

fn chunks(model: &Model, stage: &ChunkedStage, micro_batches: u32, recompute: RecomputePolicy) -> Chunks {
    let training = TrainingSpec {
        micro_batch_size: 1,
        micro_batches,
        schedule: Schedule::Gpipe,
        recompute,
        optimizer: Optimizer::default(),
        precision: Precision::Fp32,
        seed: 0,
    };
    stage.lay_out(model, &training).unwrap()
}

/// A tied weight's gradient from the head takes its space unless the embedding is computed again. Where micro-batches pass
/// one after the other, gradients are apart of all that a backward pass reads: of everything but the chunk in which the
/// table of positions is alone, which is added and read no more.
#[test]
fn gradients_are_apart_where_parameters_are_read_behind_them() {
    let model = gpt(2);
    let apart = |order, micro_batches, recompute| {
        let chunks = chunks(&model, &stage(128, order, HostCopy::Made), micro_batches, recompute);
        let all = 0..chunks.layout.chunks().len();
        all.filter(|&chunk| chunks.uses.are_apart(chunk)).collect::<Vec<_>>()
    };
    assert_eq!(apart(ChunkOrder::Layer, 3, RecomputePolicy::None), [0; 0]);
    assert_eq!(apart(ChunkOrder::MicroBatch, 1, RecomputePolicy::None), [0; 0]);
    assert_eq!(apart(ChunkOrder::Layer, 3, RecomputePolicy::Layer), [0]);
    let chunks = chunks(&model, &stage(128, ChunkOrder::Layer, HostCopy::Made), 1, RecomputePolicy::None);
    let all: Vec<usize> = (0..chunks.layout.chunks().len()).filter(|&chunk| chunk != 1).collect();
    assert_eq!(apart(ChunkOrder::MicroBatch, 3, RecomputePolicy::None), all);
}
