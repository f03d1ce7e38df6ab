//! Trained in chunks, a model becomes the same, to the bit, whatever is where and when.

mod activations;
mod cuda;
mod embedding;
mod shared;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::host::HostParameters;
use loadmaster_proto::chunks::layout::{List, Lists};
use loadmaster_proto::chunks::packing::{ChunkLayout, Packing};
use loadmaster_proto::chunks::residency::Payload;
use loadmaster_proto::chunks::residency::intervals::{Moved, ResidencyInterval};
use loadmaster_proto::chunks::residency::paging_intervals::Paging;
use loadmaster_proto::chunks::residency::uses::PayloadUses;
use loadmaster_proto::chunks::sequence::Sequence;
use loadmaster_proto::chunks::stage::{
    ChunkEviction, ChunkResidency, ChunkedStage, Chunks, StepKernel, UpdateTime,
};
use loadmaster_proto::measure::chunked::ChunkRun;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::rank::{EXIT_BAD_SPEC, RankEvent, RankSpec};
use loadmaster_proto::model::Model;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::boundaries::BoundaryInterval;
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule, TrainingSpec};
use tch::Tensor;

use crate::actions::random::Random;
use crate::actions::{Trained, assert_same_bits, train};
use crate::correctness::{ADAM, SGD};
use crate::models::{small_amoebanet, small_bert, small_llama, small_qwen3, small_transgan};
use crate::processes::{connected, cpu, positions, small_gpt, small_vgg, solo, training};

/// Chunks of a few layers, in the order that a test names, with the step of plain training.
fn in_chunks(chunk_elements: u64, order: ChunkOrder) -> ChunkedStage {
    let every = ChunkedStage::on_demand(chunk_elements, Bytes(4 << 30));
    ChunkedStage { order, staging: 2, kernel: StepKernel::TensorWise, ..every }
}

fn whole(model: &Model, training: TrainingSpec) -> RankSpec {
    RankSpec { iterations: 4, ..solo(model, training, positions(&[model.layers().len()])[0]) }
}

fn run(spec: &RankSpec, chunks: Option<ChunkedStage>) -> (Trained, Measurement) {
    let folder = tempfile::tempdir().unwrap();
    let spec = RankSpec { chunks: chunks.map(Box::new), ..spec.clone() };
    let (trained, mut measured) = train(vec![spec], folder.path());
    (trained, measured.remove(0))
}

/// Losses, gradients and weights of five iterations are those of plain training, for every order, copy and moment of updating, with
/// and without recomputation, in both formats; tied weights are in one chunk here, where sums are
/// of two.
#[test]
#[ignore = "slow: make test-slow"]
fn models_become_the_same_in_chunks() {
    let model = small_gpt(true);
    for (precision, recompute) in [
        (Precision::Fp32, RecomputePolicy::None),
        (Precision::Bf16, RecomputePolicy::Layer),
        (Precision::Bf16, RecomputePolicy::None),
    ] {
        let training = TrainingSpec { precision, recompute, optimizer: ADAM, ..training() };
        let spec = whole(&model, training);
        let (plain, _) = run(&spec, None);
        for order in ChunkOrder::ALL {
            for host_copy in HostParameters::ALL {
                // The state of some chunks is on the device.
                for on_device in [vec![], vec![0, 3], vec![1]] {
                    let chunks = ChunkedStage {
                        host_copy,
                        update: if on_device == [1] && host_copy == HostParameters::Stored {
                            UpdateTime::AfterBackward
                        } else {
                            UpdateTime::OnArrival
                        },
                        on_device,
                        ..in_chunks(1200, order)
                    };
                    let what = format!("{precision} {recompute} {order} {host_copy} {:?}", chunks.on_device);
                    let (chunked, _) = run(&spec, Some(chunks));
                    assert_same_bits(&chunked, &plain, &what);
                }
            }
        }
    }
}

/// A model of each family.
fn families() -> [Model; 7] {
    [
        small_gpt(true),
        small_bert(),
        small_llama(),
        small_qwen3(),
        small_amoebanet(),
        small_transgan(),
        small_vgg(),
    ]
}

/// All that a step does not need leaves at its boundaries: as many copies as there can be.
fn at_every_boundary(spec: &RankSpec, chunks: &ChunkedStage, random: &mut Random) -> ChunkResidency {
    let told = chunks.lay_out(&spec.model, &spec.training).unwrap();
    let of_payload = |of: &PayloadUses| {
        let payload = of.payload;
        let interval = |&step: &usize| ResidencyInterval {
            at: BoundaryInterval { fetched: step, needed: step, leaves: step + 1, freed: step + 1 },
            payload,
        };
        of.steps.iter().map(interval).collect::<Vec<_>>()
    };
    let intervals = told.uses.payloads().iter().flat_map(of_payload).collect();
    ChunkResidency::Planned(begun_before(chunks, intervals, &told, random))
}

/// Visits of which half of the first ones begin in the iteration before, as soon as their chunk's gradients are complete or later.
fn begun_before(
    stage: &ChunkedStage,
    mut intervals: Vec<ResidencyInterval>,
    chunks: &Chunks,
    random: &mut Random,
) -> Vec<ResidencyInterval> {
    if stage.update == UpdateTime::AfterBackward {
        return intervals;
    }
    for of in chunks.uses.payloads().iter().filter(|of| !of.payload.is_gradients) {
        let chunk = of.payload.chunk;
        if chunks.is_host_table(chunk) || chunks.uses.is_on_device(chunk) || random.below(2) == 0 {
            continue;
        }
        let gradients = &chunks.uses.payloads()[chunks.uses.gradients_of(chunk)].gradients;
        let complete = gradients.iter().max().map_or(0, |last| last + 1);
        let own = intervals.iter_mut().filter(|interval| interval.payload == of.payload);
        let earliest = own.map(|interval| interval.at.freed).max().unwrap_or(0).max(complete);
        let own = intervals.iter_mut().filter(|interval| interval.payload == of.payload);
        if let Some(first) = own.min_by_key(|interval| interval.at.needed) {
            first.at.fetched = earliest + random.below(chunks.uses.steps() + 1 - earliest);
        }
    }
    intervals
}

/// Every family, with chunks of any size, in either layout and order, evicted at every boundary and fetched again, for some before
/// the iteration that needs them: the same bits. What is counted is what was planned: bytes each way, and a peak that is the highest
/// sum of what a step needs and the chunks that are there.
#[test]
fn whatever_leaves_at_every_boundary_comes_back_the_same() {
    let mut random = Random::new(3);
    for model in families() {
        let training = TrainingSpec {
            schedule: random.of(&[Schedule::Gpipe, Schedule::OneFOneB]),
            precision: random.of(&[Precision::Fp32, Precision::Bf16]),
            recompute: random.of(&[RecomputePolicy::None, RecomputePolicy::Layer]),
            optimizer: random.of(&[ADAM, SGD]),
            micro_batches: 1 + random.below(4) as u32,
            ..training()
        };
        let spec = RankSpec { iterations: 2, ..whole(&model, training) };
        let (plain, _) = run(&spec, None);
        let layout = random.of(&ChunkLayout::ALL);
        let largest = largest_atom(&model, layout);
        let bare = ChunkedStage {
            layout,
            host_copy: HostParameters::Stored,
            moves: random.of(&ChunkEviction::ALL),
            ..in_chunks(largest + random.below(3) as u64 * largest / 2, random.of(&ChunkOrder::ALL))
        };
        let count = bare.lay_out(&model, &training).unwrap().layout.chunks().len();
        let on_device = (0..count).filter(|_| random.below(3) == 0).collect();
        let bare = ChunkedStage { on_device, ..bare };
        let chunks = ChunkedStage { residency: at_every_boundary(&spec, &bare, &mut random), ..bare };
        let ChunkedStage { order, chunk_elements, on_device, .. } = &chunks;
        let what = format!("{} {training:?} {layout} {order} {chunk_elements} {on_device:?}", model.family());
        let (chunked, measured) = run(&spec, Some(chunks.clone()));
        assert_same_bits(&chunked, &plain, &what);

        let told = measured.chunks.unwrap();
        let all = chunks.lay_out(&model, &training).unwrap();
        let intervals = chunks.intervals(&all, &vec![u64::MAX; all.uses.steps()]).unwrap();
        let moved = all.moved(&chunks.told(&all, &intervals).unwrap());
        assert_moved(&told, &moved, &what);
        let sums = told.other_bytes.iter().zip(&told.payload_bytes).map(|(other, payloads)| other + payloads);
        assert_eq!(measured.peak_allocated.0, sums.max().unwrap(), "{what}");
        assert_eq!(told.host_bytes.0, all.host.bytes, "{what}");
        assert!(!told.is_replanned, "{what}");
    }
}

/// That a rank moved what its visits say, for each cause.
fn assert_moved(told: &ChunkRun, moved: &Moved, what: &str) {
    let counted = ChunkRun {
        other_bytes: Vec::new(),
        payload_bytes: Vec::new(),
        host_bytes: Bytes(0),
        fetch_seconds: 0.0,
        leave_seconds: 0.0,
        step_seconds: 0.0,
        is_replanned: false,
        ..told.clone()
    };
    assert_eq!(counted, ChunkRun::moving(moved), "{what}");
}

/// Elements of the largest atom, with its padding.
fn largest_atom(model: &Model, layout: ChunkLayout) -> u64 {
    let lists = Lists::new(Precision::Bf16, &ADAM).unwrap();
    let sequence = Sequence::of_model(model);
    Packing::new(&sequence, layout, lists).unwrap().largest_atom()
}

/// The least device on which steps have what they need besides chunks, and the chunks that each needs at once.
fn least_capacity(chunks: &Chunks, other: &[u64]) -> u64 {
    let bytes = |&of: &usize| chunks.payload_bytes(chunks.uses.payloads()[of].payload.chunk);
    let needed = chunks.uses.by_step().into_iter().map(|payloads| payloads.iter().map(bytes).sum::<u64>());
    other.iter().zip(needed).map(|(other, needed)| other + needed).max().unwrap()
}

/// A rank never has more on the device than it may: with the least that its steps need it trains the same, and with a byte less it says where room lacks.
#[test]
fn the_least_capacity_is_enough_and_a_byte_less_is_not() {
    let model = small_gpt(true);
    let training = TrainingSpec { precision: Precision::Bf16, optimizer: ADAM, ..training() };
    let spec = whole(&model, training);
    let (plain, _) = run(&spec, None);
    for order in ChunkOrder::ALL {
        let chunks = in_chunks(1200, order);
        let (_, roomy) = run(&spec, Some(chunks.clone()));
        let other = roomy.chunks.unwrap().other_bytes;
        let all = chunks.lay_out(&model, &training).unwrap();
        let least = least_capacity(&all, &other);
        let with = |capacity| RankSpec { device: cpu(capacity), ..spec.clone() };
        let (tight, measured) = run(&with(least), Some(chunks.clone()));
        let what = format!("{order}");
        assert_same_bits(&tight, &plain, &what);
        assert_eq!(measured.peak_allocated.0, least, "{what}");
        assert_eq!(
            measured.chunks.unwrap().other_bytes,
            other,
            "{what}: what a step needs besides is its own"
        );

        let short = RankSpec { chunks: Some(Box::new(chunks)), ..with(least - 1) };
        let ended = crate::processes::run(&short);
        assert_ne!(ended.code, Some(0), "{what}");
        let out_of_memory = ended.events.iter().any(|event| matches!(event, RankEvent::OutOfMemory { .. }));
        assert!(out_of_memory, "{what}: {:?}", ended.events);
    }
}

/// Visits that were planned with more room than there is give up what is in the way after the first iteration, in which steps
/// need what they need, and that is told. Whether a byte lacks or all that is not needed at once, the rank trains the same within
/// its capacity, in the visits that everybody can tell are left; which fetch what a rule would in the same room, or less, where a
/// byte lacks.
#[test]
fn visits_that_lack_room_give_up_what_is_in_the_way_and_that_is_told() {
    let model = small_gpt(true);
    let training = TrainingSpec { precision: Precision::Bf16, optimizer: ADAM, ..training() };
    let spec = whole(&model, training);
    let (plain, _) = run(&spec, None);
    let mut random = Random::new(53);
    for order in ChunkOrder::ALL {
        let bare = in_chunks(1200, order);
        let all = bare.lay_out(&model, &training).unwrap();
        let plenty = vec![1 << 40; all.uses.steps()];
        let intervals = bare.paged(Paging { ahead: 2, behind: 1 }, &all, &plenty).unwrap();
        let intervals = begun_before(&bare, intervals, &all, &mut random);
        let planned = ChunkedStage { residency: ChunkResidency::Planned(intervals), ..bare };
        let (_, roomy) = run(&spec, Some(planned.clone()));
        let told = roomy.chunks.unwrap();
        assert!(!told.is_replanned, "{order}");
        let (least, most) = (least_capacity(&all, &told.other_bytes), roomy.peak_allocated.0);
        let mut is_less = false;
        for capacity in [most - 1, least.midpoint(most), least] {
            let tight = RankSpec { device: cpu(capacity), ..spec.clone() };
            let (trained, measured) = run(&tight, Some(planned.clone()));
            let what = format!("{order}: {capacity} of {least} to {most}");
            assert_same_bits(&trained, &plain, &what);
            let room: Vec<u64> = told.other_bytes.iter().map(|other| capacity - other).collect();
            let left = planned.intervals(&all, &room).unwrap();
            let left = planned.told(&all, &left).unwrap();
            let moved = all.moved(&left);
            let by_rule = planned.paged(Paging::AT_NEED, &all, &room).unwrap();
            let by_rule = all.moved(&planned.told(&all, &by_rule).unwrap());
            // Where much lacks, unfinished gradients may leave once more.
            assert!(moved.up <= by_rule.up || capacity < most - 1, "{what}: {moved:?} {by_rule:?}");
            is_less |= moved.up < by_rule.up;
            let told = measured.chunks.unwrap();
            assert!(measured.peak_allocated.0 <= capacity && told.is_replanned, "{what}");
            assert_eq!(told.payload_bytes, left.resident(|chunk| all.payload_bytes(chunk)), "{what}");
            assert_moved(&told, &moved, &what);
        }
        assert!(is_less, "{order}");
    }
}

/// That losses, and gradients and weights where both trainings tell them, differ by less than a millionth of the largest. Measured
/// were a part in 8 million of weights, in 14 million of gradients and in 30 million of losses: the last bit of fp32, or less.
fn assert_nearly_same(one: &Trained, other: &Trained, what: &str) {
    let largest = |tensor: Tensor| {
        let largest = tensor.abs().max().double_value(&[]);
        assert!(largest.is_finite(), "{what}");
        largest
    };
    for kind in ["gradient of", "parameter"] {
        let of_kind = |of: &Trained| of.tensors.keys().filter(|name| name.contains(kind)).cloned().collect();
        let (names, others): (Vec<_>, Vec<_>) = (of_kind(one), of_kind(other));
        assert!(names == others || names.is_empty() && kind == "gradient of", "{what}: {kind}");
        let differ = names.iter().map(|name| largest(&one.tensors[name] - &other.tensors[name]));
        let are = names.iter().map(|name| largest(other.tensors[name].shallow_clone()));
        let (differ, are) = (differ.fold(0.0, f64::max), are.fold(0.0, f64::max));
        assert!(differ <= 1e-6 * are, "{what}: {kind} differ by {differ}, and are up to {are}");
    }
    let differ = one.losses.iter().zip(&other.losses).map(|(one, other)| (one - other).abs() / other);
    let differ = differ.fold(0.0, f64::max);
    assert!(differ <= 1e-6, "{what}: {:?} {:?}", one.losses, other.losses);
}

/// Both ends of a tied weight add up their gradients in another order in chunks, so a sum differs in its last bits alone;
/// and one pass over a chunk rounds otherwise than a row of operations, by as little.
#[test]
fn sums_in_another_order_and_steps_in_one_pass_are_nearly_the_same() {
    for (untied_head, kernel) in
        [(false, StepKernel::TensorWise), (false, StepKernel::OnePass), (true, StepKernel::OnePass)]
    {
        for recompute in [RecomputePolicy::None, RecomputePolicy::Layer] {
            let model = small_gpt(untied_head);
            let training = TrainingSpec { recompute, optimizer: SGD, ..training() };
            let spec = whole(&model, training);
            let (plain, _) = run(&spec, None);
            for order in ChunkOrder::ALL {
                let (chunked, _) = run(&spec, Some(ChunkedStage { kernel, ..in_chunks(1200, order) }));
                assert_nearly_same(
                    &chunked,
                    &plain,
                    &format!("{untied_head} {kernel:?} {recompute} {order}"),
                );
            }
        }
    }
}

/// A static partition, as ZeRO-Offload has it: all parameters are there from the first boundary to the last, gradients leave when
/// they are complete, and the optimizer steps when the backward pass is over. Each chunk comes once and leaves once, and what is
/// trained is the same.
#[test]
fn what_is_always_there_comes_once_and_leaves_once() {
    let model = small_gpt(true);
    for precision in [Precision::Fp32, Precision::Bf16] {
        let training = TrainingSpec { precision, optimizer: ADAM, ..training() };
        let spec = whole(&model, training);
        let (plain, _) = run(&spec, None);
        for order in ChunkOrder::ALL {
            let bare = ChunkedStage {
                host_copy: HostParameters::Stored,
                update: UpdateTime::AfterBackward,
                ..in_chunks(1200, order)
            };
            let all = bare.lay_out(&model, &training).unwrap();
            let steps = all.uses.steps();
            let of_payload = |of: &PayloadUses| {
                let (&needed, &last) = of.steps.first().zip(of.steps.last())?;
                let fetched = if of.payload.is_gradients { needed } else { 0 };
                let freed = if of.payload.is_gradients { last + 1 } else { steps };
                Some(ResidencyInterval {
                    at: BoundaryInterval { fetched, needed, leaves: last + 1, freed },
                    payload: of.payload,
                })
            };
            let intervals: Vec<ResidencyInterval> =
                all.uses.payloads().iter().filter_map(of_payload).collect();
            let chunks = ChunkedStage { residency: ChunkResidency::Planned(intervals.clone()), ..bare };
            let (trained, measured) = run(&spec, Some(chunks.clone()));
            let what = format!("{precision} {order}");
            assert_same_bits(&trained, &plain, &what);

            let told = measured.chunks.unwrap();
            assert!(!told.is_replanned, "{what}");
            let count = all.layout.chunks().len();
            let once: u64 = (0..count).map(|chunk| all.copied_bytes(chunk, false)).sum();
            let once = Moved { up: once, down: once, fetches: count as u64, ..Moved::default() };
            assert_moved(&told, &once, &what);
            let parameters: u64 = (0..count).map(|chunk| all.payload_bytes(chunk)).sum();
            let gradients = |step: usize| {
                let there = intervals
                    .iter()
                    .filter(|of| of.payload.is_gradients && (of.at.fetched..of.at.freed).contains(&step));
                there.map(|of| all.payload_bytes(of.payload.chunk)).sum::<u64>()
            };
            let there: Vec<u64> = (0..steps).map(|step| parameters + gradients(step)).collect();
            assert_eq!(told.payload_bytes, there, "{what}");
        }
    }
}

/// State takes 12 bytes of the host for a parameter where parameters are made, 14 where they are kept, and on the device no
/// more than the chunks that are there.
#[test]
fn the_host_holds_what_it_must() {
    let model = small_vgg();
    let training = TrainingSpec { precision: Precision::Bf16, optimizer: ADAM, ..training() };
    let spec = RankSpec { iterations: 1, ..whole(&model, training) };
    let parameters = model.parameter_count() as f64;
    for (host_copy, bytes) in [(HostParameters::Cast, 12.0), (HostParameters::Stored, 14.0)] {
        let chunks = ChunkedStage { host_copy, staging: 1, ..in_chunks(1 << 19, ChunkOrder::Layer) };
        let told = run(&spec, Some(chunks.clone())).1.chunks.unwrap();
        let each = told.host_bytes.0 as f64 / parameters;
        // Beside a buffer for gradients on their way there is what the last chunks lack to be full.
        let chunk = 2.0 * largest_atom(&model, ChunkLayout::Aligned) as f64 / parameters;
        assert!((bytes..bytes + 14.0 * chunk).contains(&each), "{host_copy}: {each} bytes a parameter");

        let short = ChunkedStage { host_memory: Bytes(told.host_bytes.0 - 1), ..chunks };
        let ended = crate::processes::run(&RankSpec { chunks: Some(Box::new(short)), ..spec.clone() });
        assert_eq!(ended.code, Some(EXIT_BAD_SPEC), "{ended:?}");
        assert!(ended.message().contains("chunks.host_memory"), "{}", ended.message());
    }
}

/// What cannot be is refused by the name of its field.
#[test]
fn what_contradicts_itself_is_refused_by_name() {
    let model = small_gpt(true);
    let spec = whole(&model, training());
    let chunks = || in_chunks(1200, ChunkOrder::Layer);
    let interval = |chunk, fetched| ResidencyInterval {
        at: BoundaryInterval { fetched, needed: fetched, leaves: fetched + 1, freed: fetched + 1 },
        payload: Payload { chunk, is_gradients: false },
    };
    let planned = |intervals| ChunkedStage { residency: ChunkResidency::Planned(intervals), ..chunks() };
    let with = |training: TrainingSpec| RankSpec { training, ..spec.clone() };
    let cases: [(RankSpec, ChunkedStage, &str); 9] = [
        (spec.clone(), ChunkedStage { chunk_elements: 0, ..chunks() }, "chunks.chunk_elements"),
        (
            spec.clone(),
            ChunkedStage { layout: ChunkLayout::Patrickstar, chunk_elements: 100, ..chunks() },
            "chunks.chunk_elements",
        ),
        (spec.clone(), ChunkedStage { staging: 0, ..chunks() }, "chunks.staging_buffer_count"),
        (
            spec.clone(),
            ChunkedStage { update: UpdateTime::AfterBackward, ..chunks() },
            "chunks.cpu_optimizer_timing",
        ),
        (spec.clone(), ChunkedStage { moves: ChunkEviction::WriteBack, ..chunks() }, "chunks.eviction"),
        (
            with(TrainingSpec { recompute: RecomputePolicy::Stage, ..training() }),
            chunks(),
            "training.recompute",
        ),
        (
            with(TrainingSpec { precision: Precision::Bf16Fp32Gradients, ..training() }),
            chunks(),
            "training.precision",
        ),
        (spec.clone(), planned(vec![interval(99, 0)]), "chunks.planned_residency.intervals"),
        (spec.clone(), planned(vec![interval(0, 0)]), "chunks.planned_residency.intervals"),
    ];
    for (spec, chunks, field) in cases {
        let ended = crate::processes::run(&RankSpec { chunks: Some(Box::new(chunks)), ..spec });
        assert_eq!(ended.code, Some(EXIT_BAD_SPEC), "{field}: {ended:?}");
        assert!(ended.message().contains(field), "{field}: {}", ended.message());
    }
    let stage =
        RankSpec { chunks: Some(Box::new(chunks())), ..solo(&model, training(), positions(&[2, 4])[1]) };
    assert!(
        crate::processes::run(&stage).message().contains("Use one stage with data and tensor parallelism")
    );
}
