//! Tables that are on the host.

use proptest::prelude::*;

use crate::bytes::Bytes;
use crate::chunks::embedding::EmbeddingPlace;
use crate::chunks::host::{HostParameters, HostPart};
use crate::chunks::layout::Lists;
use crate::chunks::packing::{ChunkLayout, Packing};
use crate::chunks::sequence::Sequence;
use crate::chunks::stage::ChunkedStage;
use crate::model::Model;
use crate::model::zoo::{Gpt2, Vgg, Zoo};
use crate::training::chunk_order::ChunkOrder;
use crate::training::stage::StageConfig;
use crate::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};

fn gpt(untied_head: bool) -> Model {
    let gpt = Gpt2 {
        blocks: 2,
        hidden_size: 16,
        heads: 2,
        vocabulary_size: 50,
        sequence_length: 8,
        untied_head,
        ..Gpt2::default()
    };
    Zoo::Gpt2(gpt).build().unwrap()
}

fn training(recompute: RecomputePolicy) -> TrainingSpec {
    let optimizer =
        Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 };
    TrainingSpec {
        micro_batch_size: 3,
        micro_batches: 4,
        schedule: Schedule::Gpipe,
        recompute,
        optimizer,
        precision: Precision::Bf16,
        seed: 0,
    }
}

fn stage(embedding: EmbeddingPlace, order: ChunkOrder) -> ChunkedStage {
    ChunkedStage { order, staging: 2, embedding, ..ChunkedStage::on_demand(1 << 20, Bytes(1 << 30)) }
}

/// Rows of three samples of eight tokens come for each forward pass, and leave for each backward pass; the table itself comes to
/// the device for a tied head alone, and its gradient leaves from there without a payload of its own.
#[test]
fn rows_move_instead_of_the_table() {
    let rows = 3 * 8 * 16 * 2;
    for (untied, order, recompute, gathers) in [
        (true, ChunkOrder::Layer, RecomputePolicy::None, 4),
        (true, ChunkOrder::MicroBatch, RecomputePolicy::Layer, 8),
        (false, ChunkOrder::Layer, RecomputePolicy::Layer, 8),
    ] {
        let (model, training) = (gpt(untied), training(recompute));
        let stage = stage(EmbeddingPlace::Host, order);
        let chunks = stage.lay_out(&model, &training).unwrap();
        let intervals = stage.bare_intervals(&chunks).unwrap();
        let moved = chunks.moved(&stage.told(&chunks, &intervals).unwrap());
        assert_eq!((moved.rows_up, moved.rows_down), (gathers * rows, 4 * rows));
        let copies = |is_table: bool| {
            let of = |of: &&crate::chunks::residency::intervals::ResidencyInterval| {
                (of.payload.chunk == 0) == is_table
            };
            intervals.iter().filter(of).count()
        };
        assert!(copies(false) > 0);
        assert_eq!(copies(true) == 0, untied, "{intervals:?}");
        assert!(!chunks.uses.are_apart(0));
        assert_eq!(chunks.layout.chunks()[0].capacity, 50 * 16);
    }
}

/// Of a table that ranks share each host has the optimizer's part, and besides what one alone has all of the table and of its
/// gradient, and places for the rows of its own samples.
#[test]
fn every_host_has_all_of_a_table_that_ranks_share() {
    let stage = stage(EmbeddingPlace::Host, ChunkOrder::Layer);
    let lay_out = |ranks| {
        let chunks = stage.lay_out_shared(&gpt(true), &training(RecomputePolicy::None), ranks).unwrap();
        (chunks.host.chunks[0].clone(), chunks.host.table.unwrap())
    };
    let bytes = |place: &HostPart| place.bytes;
    let (alone, table) = lay_out(1);
    assert_eq!(alone.state.iter().map(bytes).collect::<Vec<_>>(), [4 * 50 * 16; 3]);
    assert_eq!(
        [table.gradients, table.up, table.down].map(|of| of.bytes),
        [2 * 50 * 16, 2 * 3 * 8 * 16, 2 * 3 * 8 * 16]
    );
    assert_eq!(table.whole, None);
    // A third of 800 elements, in lines of 32.
    let (shared, table) = lay_out(3);
    assert_eq!(shared.state.iter().map(bytes).collect::<Vec<_>>(), [4 * 288; 3]);
    assert_eq!(
        [table.gradients, table.up, table.down].map(|of| of.bytes),
        [2 * 3 * 288, 2 * 8 * 16, 2 * 8 * 16]
    );
    assert_eq!(table.whole.map(|of| of.bytes), Some(2 * 3 * 288));
    assert_eq!(shared.parameters, None, "rows need no more");
}

/// A host that is too small is given what chooses less of it, as long as there is such a choice.
#[test]
fn what_is_chosen_already_is_no_remedy() {
    let told = |host_copy| {
        let stage = stage(EmbeddingPlace::Chunk, ChunkOrder::Layer);
        let stage = ChunkedStage { host_copy, host_memory: Bytes(1), ..stage };
        stage.lay_out(&gpt(true), &training(RecomputePolicy::None)).unwrap_err().violations()[0].clone()
    };
    for (host_copy, helps) in [(HostParameters::Stored, true), (HostParameters::Cast, false)] {
        let violation = told(host_copy);
        assert_eq!(
            (violation.field.as_str(), violation.description.contains("`cast`")),
            ("host_memory_bytes", helps)
        );
        assert!(violation.description.contains("Increase the limit"), "{violation:?}");
    }
}

/// What cannot be is refused by the name of its field, with what can be.
#[test]
fn tables_that_are_not_there_are_refused() {
    let host = stage(EmbeddingPlace::Host, ChunkOrder::Layer);
    let training = training(RecomputePolicy::None);
    let field = |refused: crate::error::Invalid| {
        let violation = refused.violations()[0].clone();
        assert!(["Use", "Remove"].iter().any(|word| violation.description.contains(word)), "{violation:?}");
        violation.field
    };
    let vgg = Zoo::Vgg11(Vgg { image_size: 32, classes: 10, classifier_width: 16 }).build().unwrap();
    assert_eq!(field(host.lay_out(&vgg, &training).unwrap_err()), "embedding_place");
    let shards = StageConfig { tensor_degree: 2, ..StageConfig::single(0, gpt(true).layers().len() - 1) };
    assert_eq!(field(host.lay_out_split(&gpt(true), &training, &shards).unwrap_err()), "embedding_place");
    let on_device = ChunkedStage { on_device: vec![0], ..host };
    assert_eq!(field(on_device.lay_out(&gpt(true), &training).unwrap_err()), "resident_chunks");
    assert!(stage(EmbeddingPlace::Chunk, ChunkOrder::Layer).lay_out(&vgg, &training).is_ok());
}

proptest! {
    /// Behind a table of its own lies what would lie there without it.
    #[test]
    fn a_table_apart_changes_nothing_else(
        table in 1_u64..500,
        others in proptest::collection::vec(proptest::collection::vec(1_u64..60, 1..4), 1..12),
        size in 1_u64..400,
        layout in prop_oneof![Just(ChunkLayout::Aligned), Just(ChunkLayout::Patrickstar)],
    ) {
        let lists = Lists::new(Precision::Bf16, &training(RecomputePolicy::None).optimizer).unwrap();
        let all = Sequence::of_atoms(std::iter::once(vec![table]).chain(others.iter().cloned())).unwrap();
        let rest = Sequence::of_atoms(others).unwrap();
        let apart = Packing::new(&all, layout, lists).unwrap().with_table_apart().lay_out(size);
        let alone = Packing::new(&rest, layout, lists).unwrap().lay_out(size);
        prop_assert_eq!(apart.is_ok(), alone.is_ok());
        let (Ok(apart), Ok(alone)) = (apart, alone) else { return Ok(()) };
        let first = &apart.chunks()[0];
        let padding = if layout == ChunkLayout::Aligned { 31 } else { 0 };
        prop_assert!((table..=table + padding).contains(&first.capacity) && first.extent == first.capacity);
        prop_assert_eq!(&first.tensors, &(0..1));
        prop_assert_eq!(apart.chunks().len(), alone.chunks().len() + 1);
        for (one, other) in apart.chunks()[1..].iter().zip(alone.chunks()) {
            prop_assert_eq!((one.capacity, one.extent), (other.capacity, other.extent));
        }
        for (one, other) in apart.tensors()[1..].iter().zip(alone.tensors()) {
            prop_assert_eq!((one.chunk, one.range()), (other.chunk + 1, other.range()));
        }
    }
}
