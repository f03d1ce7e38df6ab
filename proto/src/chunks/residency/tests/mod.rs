//! Uses of small models by hand, and random ones against a second, naive implementation.

mod closed_form;
mod host;
mod intervals;
mod naive;
mod paged;
mod shared;
mod squeezed;
mod states;

use super::intervals::Intervals;
use crate::bytes::Bytes;
use crate::chunks::host::HostParameters;
use crate::chunks::stage::{ChunkResidency, ChunkedStage, Chunks};
use crate::model::Model;
use crate::training::chunk_order::ChunkOrder;
use crate::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};

fn stage(chunk_elements: u64, order: ChunkOrder, host_copy: HostParameters) -> ChunkedStage {
    ChunkedStage { order, host_copy, staging: 2, ..ChunkedStage::on_demand(chunk_elements, Bytes(1 << 40)) }
}

fn training(passes: (Schedule, u32), recompute: RecomputePolicy, precision: Precision) -> TrainingSpec {
    let optimizer =
        Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 };
    let (schedule, micro_batches) = passes;
    TrainingSpec { micro_batch_size: 1, micro_batches, schedule, recompute, optimizer, precision, seed: 0 }
}

fn chunks_of(
    model: &Model,
    stage: &ChunkedStage,
    passes: (Schedule, u32),
    recompute: RecomputePolicy,
    precision: Precision,
) -> Chunks {
    stage.lay_out(model, &training(passes, recompute, precision)).unwrap()
}

/// A tied weight's gradient from the head takes its space unless the embedding is recomputed. Where micro-batches pass
/// one after the other, gradients are apart of all that a backward pass reads: of everything but the chunk in which the
/// table of positions is alone, which is added and read no more.
#[test]
fn gradients_are_apart_where_parameters_are_read_behind_them() {
    let model = naive::gpt(2, false);
    let apart = |order, micro_batches, recompute| {
        let stage = stage(128, order, HostParameters::Cast);
        let passes = (Schedule::Gpipe, micro_batches);
        let chunks = chunks_of(&model, &stage, passes, recompute, Precision::Fp32);
        let all = 0..chunks.layout.chunks().len();
        all.filter(|&chunk| chunks.uses.are_apart(chunk)).collect::<Vec<_>>()
    };
    assert_eq!(apart(ChunkOrder::Layer, 3, RecomputePolicy::None), [0; 0]);
    assert_eq!(apart(ChunkOrder::MicroBatch, 1, RecomputePolicy::None), [0; 0]);
    assert_eq!(apart(ChunkOrder::Layer, 3, RecomputePolicy::Layer), [0]);
    let interleaved = apart(ChunkOrder::MicroBatch, 3, RecomputePolicy::None);
    let last = *interleaved.last().unwrap();
    assert_eq!(interleaved, (0..=last).filter(|&chunk| chunk != 1).collect::<Vec<_>>());
}

/// What is wrong with planned intervals is named in the list that they are in.
#[test]
fn planned_visits_are_named_in_their_list() {
    let model = naive::gpt(1, false);
    let passes = (Schedule::Gpipe, 1);
    let asked = stage(4_096, ChunkOrder::Layer, HostParameters::Cast);
    let chunks = chunks_of(&model, &asked, passes, RecomputePolicy::None, Precision::Fp32);
    let intervals = asked.intervals(&chunks, &vec![u64::MAX; chunks.uses.steps()]).unwrap();
    let field = |intervals| {
        let planned = ChunkedStage { residency: ChunkResidency::Planned(intervals), ..asked.clone() };
        let training = training(passes, RecomputePolicy::None, Precision::Fp32);
        planned.lay_out(&model, &training).err().map(|refused| refused.violations()[0].field.clone())
    };
    assert_eq!(field(intervals.clone()), None);
    let mut backwards = intervals.clone();
    backwards[1].at.leaves = 0;
    assert_eq!(field(backwards).unwrap(), "planned_residency.intervals[1]");
    assert_eq!(field(intervals[1..].to_vec()).unwrap(), "planned_residency.intervals");
}

/// What is always on the device takes its room first: payloads, and twelve bytes of state for each element.
#[test]
fn chunks_on_the_device_take_their_room_first() {
    let model = naive::gpt(1, true);
    let on_device = vec![0, 2];
    let asked = ChunkedStage { on_device, ..stage(512, ChunkOrder::Layer, HostParameters::Cast) };
    let chunks = chunks_of(&model, &asked, (Schedule::Gpipe, 2), RecomputePolicy::None, Precision::Bf16);
    let taken = 14 * [0, 2].map(|chunk: usize| chunks.layout.chunks()[chunk].capacity).iter().sum::<u64>();
    assert_eq!(chunks.on_device_bytes(), taken);
    let bare = asked.bare_intervals(&chunks).unwrap();
    let needed = Intervals::new(&chunks.uses, &bare, |_| true).unwrap();
    let room: Vec<u64> =
        needed.resident(|chunk| chunks.payload_bytes(chunk)).iter().map(|bytes| bytes + taken).collect();
    assert_eq!(asked.intervals(&chunks, &room).unwrap(), bare);
    // Steps that need nothing else lack it, too.
    for (step, lacks) in [(0, taken), (0, 1), (3, 1)] {
        let mut less = vec![u64::MAX; room.len()];
        less[step] = taken - lacks;
        let refused = asked.intervals(&chunks, &less).unwrap_err();
        let violation = &refused.violations()[0];
        let says = format!("step {step} needs {} more", Bytes(lacks));
        assert!(violation.field == "resident_chunks" && violation.description.contains(&says), "{refused}");
    }
}
