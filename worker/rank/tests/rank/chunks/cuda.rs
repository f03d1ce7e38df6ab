//! The same on GPUs: chunks that leave through queues of copies and pinned memory, and are updated by the host or by the GPU.
//! Skipped, loudly, on machines without a CUDA device.
//!
//! Of models whose operators add up in one order, so that two plain trainings are the same to the bit. What the host updates is
//! near to what a GPU does, which multiplies and adds at once; so it is compared with other trainings that the host updates.

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::measure::rank::RankDevice;
use loadmaster_proto::model::zoo::{Gpt2, Zoo};

use super::activations::{ROOM, kept_on_host, with};
use super::embedding::on_host;
use super::shared::{OnDevice, Replicas, of_several_ranks};
use super::*;
use crate::actions::pools::out_of_memory;
use crate::cuda::gpu;

/// Less than so much is left of a block.
const LEFT: u64 = 1 << 20;

fn models() -> [Model; 4] {
    [small_gpt(true), small_bert(), small_llama(), small_qwen3()]
}

fn random_training(random: &mut Random) -> TrainingSpec {
    TrainingSpec {
        precision: random.of(&[Precision::Fp32, Precision::Bf16]),
        schedule: random.of(&[Schedule::Gpipe, Schedule::OneFOneB]),
        recompute: random.of(&[RecomputePolicy::None, RecomputePolicy::Layer]),
        optimizer: random.of(&[ADAM, SGD]),
        micro_batches: 1 + random.below(4) as u32,
        ..training()
    }
}

fn on(device: &RankDevice, model: &Model, training: TrainingSpec) -> RankSpec {
    RankSpec { device: device.clone(), iterations: 3, ..whole(model, training) }
}

fn planned(bare: ChunkedStage, spec: &RankSpec) -> ChunkedStage {
    let all = bare.lay_out(&spec.model, &spec.training).unwrap();
    let intervals = bare.bare_intervals(&all).unwrap();
    ChunkedStage { residency: ChunkResidency::Planned(intervals), ..bare }
}

/// Losses and weights that differ by no more than rounding does.
fn assert_near(one: &Trained, other: &Trained, what: &str) {
    let off = one.losses.iter().zip(&other.losses).map(|(one, other)| (one - other).abs());
    assert!(off.fold(0.0, f64::max) < 2e-2, "{what}: {:?} {:?}", one.losses, other.losses);
    for (name, one) in one.tensors.iter().filter(|(name, _)| name.contains("parameter")) {
        assert!(one.allclose(&other.tensors[name], 5e-2, 1e-2, false), "{what}: {name}");
    }
}

/// Bytes each way, and a peak that is the highest sum of what a step needs and the chunks that are there, but for what is left of
/// the blocks that the GPU's allocator hands out whole, which is not the same in all iterations.
fn assert_as_planned(measured: &Measurement, chunks: &ChunkedStage, spec: &RankSpec, what: &str) {
    let told = measured.chunks.as_ref().unwrap();
    let all = chunks.lay_out(&spec.model, &spec.training).unwrap();
    if let ChunkResidency::Planned(intervals) = &chunks.residency {
        let moved = all.moved(&chunks.told(&all, intervals).unwrap());
        assert_moved(told, &moved, what);
    }
    let sums = told.other_bytes.iter().zip(&told.payload_bytes).map(|(one, other)| one + other);
    let (most, peak) = (sums.max().unwrap(), measured.peak_allocated.0);
    assert!((peak..=peak + LEFT).contains(&most), "{what}: {most} {peak}");
    assert_eq!(told.host_bytes.0, all.host.bytes, "{what}");
    assert!(!told.is_replanned, "{what}");
    assert!(told.fetch_seconds.is_finite() && told.leave_seconds.is_finite(), "{what}");
}

/// What a GPU updates itself, tensor by tensor, it updates as in plain training, to the bit; in one pass nearly so.
#[test]
fn what_a_gpu_updates_is_what_plain_training_makes() {
    let Some(device) = gpu(4 << 30) else { return };
    let mut random = Random::new(61);
    for model in models() {
        let spec = on(&device, &model, random_training(&mut random));
        let (plain, _) = run(&spec, None);
        for order in ChunkOrder::ALL {
            let bare = in_chunks(700 + 600 * random.below(3) as u64, order);
            let count = bare.lay_out(&model, &spec.training).unwrap().layout.chunks().len();
            let chunks = ChunkedStage { on_device: (0..count).collect(), ..bare };
            let (chunked, measured) = run(&spec, Some(chunks.clone()));
            let what = format!("{} {:?} {chunks:?}", model.family(), spec.training);
            assert_same_bits(&chunked, &plain, &what);
            assert_as_planned(&measured, &chunks, &spec, &what);

            let one_pass = ChunkedStage { kernel: StepKernel::OnePass, ..chunks.clone() };
            let (in_one_pass, measured) = run(&spec, Some(one_pass.clone()));
            assert_near(&in_one_pass, &plain, &what);
            assert_as_planned(&measured, &one_pass, &spec, &what);
        }
    }
}

/// Whatever leaves a GPU comes back the same: copies kept or made, by any rule, at every boundary, in either order and with
/// some state on the device or none; and training is near to what it is without chunks.
#[test]
fn whatever_leaves_a_gpu_comes_back_the_same() {
    let Some(device) = gpu(4 << 30) else { return };
    let mut random = Random::new(62);
    for (model, precision) in models().into_iter().zip([Precision::Bf16, Precision::Fp32].into_iter().cycle())
    {
        let spec = on(&device, &model, TrainingSpec { precision, ..random_training(&mut random) });
        let (plain, _) = run(&spec, None);
        let mut first: Option<Trained> = None;
        for order in ChunkOrder::ALL {
            for host_copy in HostParameters::ALL {
                let bare = ChunkedStage { host_copy, ..in_chunks(700 + 600 * random.below(3) as u64, order) };
                let residency = match (host_copy, random.below(2)) {
                    (HostParameters::Stored, 0) => at_every_boundary(&spec, &bare, &mut random),
                    (HostParameters::Cast, 0) => planned(bare.clone(), &spec).residency,
                    _ => ChunkResidency::Paged,
                };
                let chunks = ChunkedStage { residency, ..bare };
                let what = format!("{} {:?} {chunks:?}", model.family(), spec.training);
                let (chunked, measured) = run(&spec, Some(chunks.clone()));
                assert_as_planned(&measured, &chunks, &spec, &what);
                assert_near(&chunked, &plain, &what);
                match &first {
                    Some(first) => assert_same_bits(&chunked, first, &what),
                    None => first = Some(chunked),
                }
            }
        }
    }
}

/// Activations that wait on the host beside chunks change nothing but what is there.
#[test]
fn activations_of_a_gpu_wait_on_the_host() {
    let Some(device) = gpu(4 << 30) else { return };
    let mut random = Random::new(63);
    for (model, recompute) in
        models().into_iter().zip([RecomputePolicy::None, RecomputePolicy::Layer].into_iter().cycle())
    {
        let training = TrainingSpec { recompute, micro_batches: 3, ..random_training(&mut random) };
        let spec = on(&device, &model, training);
        for order in ChunkOrder::ALL {
            let chunks = planned(in_chunks(1_300, order), &spec);
            let what = format!("{} {training:?} {order}", model.family());
            let (there, before) = run(&spec, Some(chunks.clone()));
            let points = [random.below(3) as u32, random.below(3) as u32];
            let (away, measured) = run(&with(&spec, kept_on_host(&spec, points, ROOM)), Some(chunks));
            assert_same_bits(&away, &there, &what);
            let [told, before] = [&measured, &before].map(|of| of.chunks.as_ref().unwrap());
            assert_eq!((told.up_bytes, told.down_bytes), (before.up_bytes, before.down_bytes), "{what}");
            let less = told.other_bytes.iter().zip(&before.other_bytes);
            assert!(less.clone().all(|(away, there)| away <= there), "{what}");
            assert!(
                less.clone().any(|(away, there)| away < there) || recompute == RecomputePolicy::Layer,
                "{what}"
            );
        }
    }
}

/// A table of tokens on the host trains near to what it is on the GPU, which adds up in another order, and the same whatever
/// else is where.
#[test]
fn a_table_of_a_gpu_is_on_the_host() {
    let Some(device) = gpu(4 << 30) else { return };
    let mut random = Random::new(64);
    for model in [small_gpt(true), small_llama(), small_gpt(false)] {
        let spec = on(&device, &model, random_training(&mut random));
        let (plain, _) = run(&spec, None);
        let mut first: Option<Trained> = None;
        for host_copy in HostParameters::ALL {
            let chunks =
                planned(on_host(ChunkedStage { host_copy, ..in_chunks(1_300, ChunkOrder::Layer) }), &spec);
            let what = format!("{} {:?} {host_copy}", model.family(), spec.training);
            let (chunked, measured) = run(&spec, Some(chunks.clone()));
            assert_as_planned(&measured, &chunks, &spec, &what);
            assert!(measured.chunks.unwrap().rows_up_bytes > 0, "{what}");
            assert_near(&chunked, &plain, &what);
            match &first {
                Some(first) => assert_same_bits(&chunked, first, &what),
                None => first = Some(chunked),
            }
        }
    }
}

/// Ranks on shares of one GPU that share chunks train near to what replicas do, and the same wherever their state is.
#[test]
fn ranks_on_a_gpu_share_chunks() {
    let Some(device) = gpu(4 << 30) else { return };
    let mut random = Random::new(65);
    for (model, ranks) in [(small_gpt(true), 2), (small_llama(), 3)] {
        let training = of_several_ranks(&mut random);
        let replicas = Replicas { device: device.clone(), ..Replicas::new(model, training, ranks) };
        let (plain, _) = replicas.train(None);
        for (embedding, on_device) in [
            (EmbeddingPlace::Chunk, OnDevice::None),
            (EmbeddingPlace::Chunk, OnDevice::Some),
            (EmbeddingPlace::Host, OnDevice::None),
        ] {
            let host_copy = random.of(&HostParameters::ALL);
            let bare = ChunkedStage { embedding, host_copy, ..in_chunks(1_300, ChunkOrder::Layer) };
            let count = replicas.lay_out(&bare).layout.chunks().len();
            let bare = ChunkedStage { on_device: on_device.of(count, &mut random), ..bare };
            let intervals = bare.bare_intervals(&replicas.lay_out(&bare)).unwrap();
            let chunks = ChunkedStage { residency: ChunkResidency::Planned(intervals), ..bare };
            let (shared, measured) = replicas.train(Some(&chunks));
            let what = format!("{} {ranks} {training:?} {chunks:?}", replicas.model.family());
            assert_near(&shared, &plain, &what);
            for measured in measured {
                let told = measured.chunks.as_ref().unwrap();
                assert!(told.scattered_bytes > 0, "{what}");
            }
        }
    }
}

/// A model whose state a share of a GPU cannot hold is out of memory without chunks, and trains in them.
#[test]
fn a_share_of_a_gpu_trains_what_it_cannot_hold() {
    let Some(device) = gpu(320 << 20) else { return };
    // 26 million parameters: 416 MiB of state in bf16.
    let model = Zoo::Gpt2(Gpt2 {
        blocks: 8,
        hidden_size: 512,
        heads: 8,
        sequence_length: 128,
        positions: 128,
        vocabulary_size: 1_024,
        untied_head: true,
        dropout: 0.1,
    })
    .build()
    .unwrap();
    let training = TrainingSpec { precision: Precision::Bf16, optimizer: ADAM, ..training() };
    let spec = on(&device, &model, training);
    assert_eq!(out_of_memory(&crate::processes::run(&spec)).ledger, Accounting::Reserved);
    let mut losses: Vec<Vec<f64>> = Vec::new();
    for (host_copy, kernel) in [
        (HostParameters::Stored, StepKernel::OnePass),
        (HostParameters::Cast, StepKernel::OnePass),
        (HostParameters::Cast, StepKernel::TensorWise),
    ] {
        let chunks = ChunkedStage { host_copy, kernel, ..in_chunks(1 << 20, ChunkOrder::Layer) };
        let (chunked, measured) = run(&spec, Some(chunks));
        assert!(measured.peak_reserved.unwrap() <= device.capacity, "{:?}", measured.peak_reserved);
        assert!(measured.chunks.unwrap().up_bytes > 0);
        losses.push(chunked.losses);
    }
    assert_eq!(losses[0], losses[1], "kept and made");
    let off = losses[1].iter().zip(&losses[2]).map(|(one, other)| (one - other).abs());
    assert!(off.fold(0.0, f64::max) < 1e-2, "{losses:?}");
}
