//! Models trained in chunks by real ranks: what each step needs besides chunks, and the device's peak, to the byte.

use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::host::HostParameters;
use loadmaster_proto::chunks::packing::ChunkLayout;
use loadmaster_proto::chunks::sequence::Sequence;
use loadmaster_proto::chunks::stage::{ChunkResidency, ChunkedStage};
use loadmaster_proto::training::actions::{Action, Block, Destination, Optimization, StageActions, Swap};
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_tests::Sampler;

use super::actions::pick;
use super::*;

const VGG: Vgg = Vgg { image_size: 32, classes: 10, classifier_width: 16 };

/// A language model of three blocks.
fn gpt(untied_head: bool) -> Zoo {
    Zoo::Gpt2(Gpt2 {
        blocks: 3,
        hidden_size: 16,
        heads: 2,
        sequence_length: 12,
        positions: 20,
        vocabulary_size: 50,
        untied_head,
        dropout: 0.1,
    })
}

/// Small chunks of any kind.
fn chunked(dice: &mut Sampler) -> ChunkedStage {
    ChunkedStage {
        order: pick(dice, &ChunkOrder::ALL),
        host_copy: pick(dice, &HostParameters::ALL),
        staging: 1 + dice.below(3),
        ..ChunkedStage::on_demand(500 << dice.below(6), Bytes(16 << 30))
    }
}

/// Replicas of a whole model, and shards of each.
fn whole(model: &Model, training: TrainingSpec, (data_degree, tensor_degree): Degrees) -> Run {
    let stage =
        StageConfig { data_degree, tensor_degree, ..StageConfig::single(0, model.layers().len() - 1) };
    Run { training, position: SoloStage { stage, stage_count: 1, stage_index: 0 }, pipeline: None }
}

/// What some layers keep is on the host, at points drawn by chance; nothing of half of all trainings.
fn kept_on_host(dice: &mut Sampler, model: &Model, recompute: RecomputePolicy) -> StageActions {
    let block = if recompute == RecomputePolicy::None { Block::Activations } else { Block::Inputs };
    let is_none = dice.below(2) == 0;
    let mut actions = Vec::new();
    for layer in 0..model.layers().len() {
        if is_none || dice.below(4) == 0 {
            continue;
        }
        let [release_after, fetch_before] = [dice.below(4), dice.below(4)].map(|steps| steps as u32);
        let swap = Swap { block, to: Destination::Host, release_after, fetch_before };
        let (first_layer, last_layer) = (layer, layer);
        actions.push(Action {
            first_layer,
            last_layer,
            slots: Vec::new(),
            optimization: Optimization::Swap(swap),
        });
    }
    StageActions { actions, ..StageActions::default() }
}

/// What each rank measured.
fn train(
    run: &Run,
    model: &Model,
    (chunks, actions): (&ChunkedStage, &StageActions),
    capacity: u64,
) -> Vec<Measurement> {
    let folder = tempfile::Builder::new().prefix("lmc").tempdir().unwrap();
    let spec = |shard| {
        let mut spec = run.spec(model, shard, folder.path());
        spec.chunks = Some(Box::new(chunks.clone()));
        spec.actions = actions.clone();
        (spec.device.capacity, spec.device.physical) = (Bytes(capacity), Bytes(capacity));
        spec
    };
    let ranks: Vec<Child> = (0..run.position.stage.devices()).map(|shard| start(&spec(shard))).collect();
    ranks.into_iter().map(end).collect()
}

/// Chunks drawn by chance are planned by what a component predicts, for devices that have next to no byte more, and trained:
/// every step of every rank needs what was predicted, and all that is counted is as planned.
fn assert_as_predicted(
    dice: &mut Sampler,
    model: &Model,
    component: &Component,
    training: TrainingSpec,
    degrees: Degrees,
) {
    let training = TrainingSpec {
        micro_batches: 1 + dice.below(4) as u32,
        recompute: pick(dice, &[RecomputePolicy::None, RecomputePolicy::Layer]),
        schedule: pick(dice, &[Schedule::Gpipe, Schedule::OneFOneB]),
        ..training
    };
    let run = whole(model, training, degrees);
    let SoloStage { stage: config, stage_count, stage_index } = run.position;
    let ranks = degrees.0;
    let lay_out = |stage: &ChunkedStage| stage.lay_out_split(model, &training, &config).unwrap();
    let mut stage = chunked(dice);
    let has_table = matches!(model.input(), ModelInput::Tokens { .. });
    if config.tensor_degree == 1 && has_table {
        stage.embedding = pick(dice, &EmbeddingPlace::ALL);
    }
    if ranks > 1 && stage.embedding == EmbeddingPlace::Chunk && dice.below(2) == 0 {
        // As PatrickStar shares them.
        stage.layout = ChunkLayout::Patrickstar;
        let largest =
            Sequence::of_stage(model, &config, 0).atoms().map(|atom| atom.iter().sum()).max().unwrap();
        stage.chunk_elements = stage.chunk_elements.max(largest);
    }
    let count = lay_out(&stage).layout.chunks().len();
    // A table on the host is the first chunk.
    let first = usize::from(stage.embedding == EmbeddingPlace::Host);
    stage.on_device = (first..count).filter(|_| dice.below(4) == 0).collect();
    let chunks = lay_out(&stage);
    let setting = StageSetting { stage: config, stage_index, stage_count, training };
    let actions = kept_on_host(dice, model, training.recompute);
    let moments = component.moments(&setting, &chunks, &actions).unwrap();
    let actions = StageActions { host_pool: moments.pool_bytes(), ..actions };
    let other: Vec<u64> = moments.curve.iter().map(|step| step.most.total()).collect();

    // What the steps need at once is what there must be; some of them have half as much again.
    let bare = stage.bare_intervals(&chunks).unwrap();
    let resident = |intervals: &[_]| {
        let intervals = stage.told(&chunks, intervals).unwrap();
        intervals.resident(|chunk| chunks.payload_bytes(chunk))
    };
    let stays = chunks.on_device_bytes();
    let peak = |resident: Vec<u64>| {
        other.iter().zip(resident).map(|(other, chunks)| other + chunks + stays).max().unwrap()
    };
    let least = peak(resident(&bare));
    let capacity = least + pick(dice, &[0, least / 2, 1 << 30]);
    let room: Vec<u64> = other.iter().map(|other| capacity - other).collect();
    let mut intervals = stage.intervals(&chunks, &room).unwrap();
    // Some begin in the iteration before, where they may and there is room.
    for index in 0..intervals.len() {
        let mut tried = intervals.clone();
        tried[index].at.fetched = room.len() - dice.below(room.len() / 2);
        let is_over_end =
            tried[index].at.fetched > tried[index].at.needed && stage.told(&chunks, &tried).is_ok();
        if dice.below(2) == 0 && is_over_end && peak(resident(&tried)) <= capacity {
            intervals = tried;
        }
    }
    let planned = ChunkedStage { residency: ChunkResidency::Planned(intervals.clone()), ..stage.clone() };
    let moved = chunks.moved(&stage.told(&chunks, &intervals).unwrap());
    for (rank, measured) in train(&run, model, (&planned, &actions), capacity).into_iter().enumerate() {
        let told = measured.chunks.as_ref().unwrap();
        let what =
            format!("{} rank {rank} of {degrees:?} {training:?} {stage:?} {actions:?}", model.family());
        let differing = told.other_bytes.iter().zip(&other).enumerate().filter(|(_, (told, of))| told != of);
        let differing: Vec<_> = differing.map(|(step, of)| (chunks.steps.all()[step], of)).take(5).collect();
        assert!(differing.is_empty(), "{what}: {differing:?}");
        assert_eq!(measured.peak_allocated.0, peak(resident(&intervals)), "{what}");
        assert_eq!(
            (told.up_bytes, told.down_bytes, told.fetches),
            (moved.up, moved.down, moved.fetches),
            "{what}"
        );
        assert_eq!((told.rows_up_bytes, told.rows_down_bytes), (moved.rows_up, moved.rows_down), "{what}");
        assert_eq!(
            (told.backward_up_bytes, told.unfinished_up_bytes, told.unfinished_down_bytes),
            (moved.backward_up, moved.unfinished_up, moved.unfinished_down),
            "{what}"
        );
        assert_eq!(told.unchanged_down_bytes, moved.unchanged_down, "{what}");
        assert_eq!((told.gathered_bytes, told.scattered_bytes), (moved.gathered, moved.scattered), "{what}");
        assert_eq!(told.host_bytes.0, chunks.host.bytes, "{what}");
        let offload = measured.offload.as_deref().cloned().unwrap_or_default();
        assert_eq!(offload.host_peak, moments.pool_bytes(), "{what}");
        let copies: Vec<[u64; 2]> = offload.copies.iter().map(|of| [of.out_bytes, of.in_bytes]).collect();
        let kept: u64 = moments.away.iter().map(|away| away.bytes).sum();
        assert_eq!(copies, if kept > 0 { vec![[kept; 2]] } else { Vec::new() }, "{what}");
        assert!(!told.is_replanned, "{what}");
    }
}

/// From recordings of single layers alone the planner knows what every step of a chunked training needs, in both orders,
/// with and without recomputation, tied weights or none; plans its chunks for a device that has next to no byte more; and the
/// rank needs exactly that, with what some layers keep on the host, or nothing.
#[test]
fn every_step_of_a_training_in_chunks_needs_what_was_predicted() {
    let mut dice = Sampler::new(5);
    let bert = Bert {
        blocks: 2,
        hidden_size: 16,
        heads: 2,
        sequence_length: 12,
        positions: 20,
        vocabulary_size: 50,
        classes: 3,
        dropout: 0.1,
    };
    let amoeba = AmoebaNet { cells: 3, filters: 16, image_size: 64, classes: 10 };
    let llama = |tied_head| {
        Zoo::Llama(Llama {
            blocks: 2,
            hidden_size: 16,
            heads: 2,
            key_value_heads: 1,
            feed_forward_size: 24,
            sequence_length: 12,
            vocabulary_size: 50,
            rotary_base: 10_000.0,
            tied_head,
        })
    };
    for zoo in [
        gpt(true),
        gpt(false),
        Zoo::Bert(bert),
        llama(true),
        llama(false),
        Zoo::Vgg11(VGG),
        Zoo::AmoebaNetD(amoeba),
    ] {
        let model = zoo.build().unwrap();
        let precision = pick(&mut dice, &[Precision::Fp32, Precision::Bf16]);
        let training = TrainingSpec { precision, optimizer: ADAM, micro_batch_size: 2, ..training() };
        let component = profile(&model, training, &[2], &[WHOLE]);
        for _ in 0..4 {
            assert_as_predicted(&mut dice, &model, &component, training, WHOLE);
        }
    }
}

/// Ranks that share chunks hold besides them what one holds that trains its share of the samples alone: what they exchange lies
/// in the payloads, and in their hosts' memory. Their parts of some chunks are on their devices.
#[test]
fn every_step_of_ranks_that_share_chunks_needs_what_was_predicted() {
    let mut dice = Sampler::new(11);
    for (zoo, precision) in
        [(gpt(true), Precision::Bf16), (gpt(false), Precision::Fp32), (Zoo::Vgg11(VGG), Precision::Fp32)]
    {
        let model = zoo.build().unwrap();
        let training = TrainingSpec { precision, optimizer: ADAM, micro_batch_size: 2, ..training() };
        let component = profile(&model, training, &[2], &[WHOLE]);
        for ranks in [2, 2, 3] {
            assert_as_predicted(
                &mut dice,
                &model,
                &component,
                training.with_micro_batch_size(2 * ranks),
                (ranks, 1),
            );
        }
    }
}

/// Shards in chunks need besides them what the recordings of shards say, whether replicas share the chunks or not.
#[test]
#[ignore = "slow: make test-slow"]
fn every_step_of_shards_in_chunks_needs_what_was_predicted() {
    let mut dice = Sampler::new(23);
    for (zoo, precision) in
        [(gpt(true), Precision::Bf16), (gpt(false), Precision::Fp32), (Zoo::Vgg11(VGG), Precision::Fp32)]
    {
        let model = zoo.build().unwrap();
        let training = TrainingSpec { precision, optimizer: ADAM, micro_batch_size: 2, ..training() };
        let component = profile(&model, training, &[2], &[WHOLE, (1, 2)]);
        for replicas in [1, 1, 2, 2] {
            let training = training.with_micro_batch_size(2 * replicas);
            assert_as_predicted(&mut dice, &model, &component, training, (replicas, 2));
        }
    }
}
