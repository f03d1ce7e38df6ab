//! Trained in chunks, a model becomes the same, to the bit, whatever is where and when.

mod activations;
mod embedding;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::groups::ChunkOwners;
use loadmaster_proto::chunks::host::HostCopy;
use loadmaster_proto::chunks::lists::{List, Lists};
use loadmaster_proto::chunks::packing::{ChunkLayout, Packing};
use loadmaster_proto::chunks::paging::Eviction;
use loadmaster_proto::chunks::residency::Payload;
use loadmaster_proto::chunks::residency::paged::Paging;
use loadmaster_proto::chunks::residency::uses::PayloadUses;
use loadmaster_proto::chunks::residency::visits::Visit;
use loadmaster_proto::chunks::sequence::Sequence;
use loadmaster_proto::chunks::stage::{
    ChunkMoves, ChunkResidency, ChunkedStage, Chunks, StepKernel, UpdateTime,
};
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::rank::{EXIT_BAD_SPEC, RankEvent, RankSpec};
use loadmaster_proto::model::Model;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::chunk_order::ChunkOrder;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule, TrainingSpec};

use crate::actions::random::Random;
use crate::actions::{Trained, assert_same_bits, train};
use crate::correctness::{ADAM, SGD};
use crate::models::{small_amoebanet, small_bert, small_llama, small_qwen3, small_transgan};
use crate::processes::{connected, cpu, positions, small_gpt, small_vgg, solo, training};

/// Chunks of a few layers, in the order that a test names, with the step of plain training.
fn in_chunks(chunk_elements: u64, order: ChunkOrder) -> ChunkedStage {
    ChunkedStage {
        layout: ChunkLayout::Aligned,
        chunk_elements,
        owners: ChunkOwners::Parts,
        order,
        host_copy: HostCopy::Made,
        staging: 2,
        moves: ChunkMoves::Dropped,
        update: UpdateTime::OnArrival,
        kernel: StepKernel::TensorWise,
        embedding: EmbeddingPlace::Chunk,
        on_device: Vec::new(),
        residency: ChunkResidency::Paged(Paging::AT_NEED),
        host_memory: Bytes(4 << 30),
    }
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

/// Losses, gradients and weights of five iterations are those of plain training, for every order, copy, moment of updating
/// and rule of paging, with and without recomputation, in both formats; tied weights are in one chunk here, where sums are
/// of two.
#[test]
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
            for host_copy in HostCopy::ALL {
                for (eviction, ahead) in [(Eviction::Belady, 0), (Eviction::Lru, 2), (Eviction::Fifo, 1)] {
                    let paging = Paging { eviction, ahead, behind: ahead };
                    let chunks = ChunkedStage {
                        host_copy,
                        residency: ChunkResidency::Paged(paging),
                        // The state of some chunks is on the device.
                        on_device: [vec![], vec![0, 3], vec![1]][ahead].clone(),
                        update: if ahead == 1 && host_copy == HostCopy::Kept {
                            UpdateTime::AfterBackward
                        } else {
                            UpdateTime::OnArrival
                        },
                        ..in_chunks(1200, order)
                    };
                    let (chunked, _) = run(&spec, Some(chunks));
                    let what = format!("{precision} {recompute} {order} {host_copy} {eviction:?}");
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

/// Settings of a training that 2, 3 or 4 replicas share.
fn of_several_ranks(random: &mut Random) -> TrainingSpec {
    TrainingSpec {
        precision: random.of(&[Precision::Fp32, Precision::Bf16]),
        optimizer: random.of(&[ADAM, SGD]),
        micro_batch_size: 12,
        micro_batches: 1 + random.below(3) as u32,
        recompute: random.of(&[RecomputePolicy::None, RecomputePolicy::Layer]),
        ..training()
    }
}

/// All that a step does not need leaves at its boundaries: as many copies as there can be.
fn at_every_boundary(spec: &RankSpec, chunks: &ChunkedStage) -> ChunkResidency {
    let told = chunks.lay_out(&spec.model, &spec.training).unwrap();
    let of_payload = |of: &PayloadUses| {
        let payload = of.payload;
        let visit =
            |&step: &usize| Visit { fetched: step, needed: step, leaves: step + 1, freed: step + 1, payload };
        of.steps.iter().map(visit).collect::<Vec<_>>()
    };
    ChunkResidency::Planned(told.uses.payloads().iter().flat_map(of_payload).collect())
}

/// Every family, with chunks of any size, in either layout and order, evicted at every boundary and fetched again: the same
/// bits. What is counted is what was planned: bytes each way, and a peak that is the highest sum of what a step needs and the
/// chunks that are there.
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
            host_copy: HostCopy::Kept,
            moves: random.of(&ChunkMoves::ALL),
            ..in_chunks(largest + random.below(3) as u64 * largest / 2, random.of(&ChunkOrder::ALL))
        };
        let count = bare.lay_out(&model, &training).unwrap().layout.chunks().len();
        let on_device = (0..count).filter(|_| random.below(3) == 0).collect();
        let bare = ChunkedStage { on_device, ..bare };
        let chunks = ChunkedStage { residency: at_every_boundary(&spec, &bare), ..bare };
        let ChunkedStage { order, chunk_elements, on_device, .. } = &chunks;
        let what = format!("{} {training:?} {layout} {order} {chunk_elements} {on_device:?}", model.family());
        let (chunked, measured) = run(&spec, Some(chunks.clone()));
        assert_same_bits(&chunked, &plain, &what);

        let told = measured.chunks.unwrap();
        let all = chunks.lay_out(&model, &training).unwrap();
        let visits = chunks.visits(&all, &[]).unwrap();
        let moved = all.moved(&chunks.told(&all, &visits).unwrap());
        assert_eq!((told.up_bytes, told.down_bytes), (moved.up, moved.down), "{what}");
        let sums = told.other_bytes.iter().zip(&told.payload_bytes).map(|(other, payloads)| other + payloads);
        assert_eq!(measured.peak_allocated.0, sums.max().unwrap(), "{what}");
        assert_eq!(told.host_bytes.0, all.host.bytes, "{what}");
        assert!(!told.is_replanned, "{what}");
    }
}

/// Ranks that share chunks train what replicas train that hold all: the same losses and weights, to the bit. Each of them holds
/// its part of the state, on its host or, of none, some or all chunks, on its device; and all-gathers twice and reduce-scatters
/// once of what the others own.
#[test]
fn ranks_that_share_chunks_train_the_same() {
    let mut random = Random::new(9);
    for (model, ranks) in [(small_gpt(true), 2), (small_bert(), 4), (small_llama(), 2), (small_gpt(true), 3)]
    {
        let training = of_several_ranks(&mut random);
        let replicas = Replicas::new(model, training, ranks);
        let (mut plain, _) = replicas.train(None);
        // Nobody has whole gradients in chunks.
        plain.tensors.retain(|name, _| !name.contains("gradient of"));
        for order in ChunkOrder::ALL {
            let mut needed = None;
            for on_device in [OnDevice::None, OnDevice::Some, OnDevice::All] {
                let bare = ChunkedStage {
                    host_copy: random.of(&HostCopy::ALL),
                    ..in_chunks(700 + 600 * random.below(3) as u64, order)
                };
                let count = replicas.lay_out(&bare).layout.chunks().len();
                let bare = ChunkedStage { on_device: on_device.of(count, &mut random), ..bare };
                let chunks = match random.below(2) {
                    // Evicted at every boundary at which it may leave.
                    0 => {
                        let visits = bare.bare_visits(&replicas.lay_out(&bare)).unwrap();
                        ChunkedStage { residency: ChunkResidency::Planned(visits), ..bare }
                    }
                    _ => {
                        let paging = Paging { eviction: Eviction::Lru, ahead: 1, behind: 1 };
                        ChunkedStage { residency: ChunkResidency::Paged(paging), ..bare }
                    }
                };
                let (shared, measured) = replicas.train(Some(&chunks));
                let what = format!("{} {ranks} {training:?} {chunks:?}", replicas.model.family());
                assert_same_bits(&shared, &plain, &what);
                for measured in measured {
                    let other = replicas.assert_counted(&chunks, &measured, &what);
                    let needed = needed.get_or_insert_with(|| other.clone());
                    assert_eq!(&other, needed, "{what}: what a step needs besides is its own");
                }
            }
        }
    }
}

/// Ranks of which each owns whole chunks, as PatrickStar shares them: groups of as many as there are ranks, the last filled up with
/// dummies, train what replicas train that hold all, to the bit, and each holds its chunk of every group, dummies too.
#[test]
fn ranks_that_own_whole_chunks_train_the_same() {
    let mut random = Random::new(31);
    for (model, ranks) in [(small_gpt(true), 2), (small_llama(), 3), (small_bert(), 4)] {
        let training = of_several_ranks(&mut random);
        let largest = largest_atom(&model, ChunkLayout::Patrickstar);
        let replicas = Replicas::new(model, training, ranks);
        let (mut plain, _) = replicas.train(None);
        plain.tensors.retain(|name, _| !name.contains("gradient of"));
        for order in ChunkOrder::ALL {
            for on_device in [OnDevice::None, OnDevice::Some, OnDevice::All] {
                let bare = ChunkedStage {
                    layout: ChunkLayout::Patrickstar,
                    owners: ChunkOwners::Whole,
                    host_copy: random.of(&HostCopy::ALL),
                    ..in_chunks(largest + random.below(700) as u64, order)
                };
                let groups = replicas.lay_out(&bare);
                let elements = bare.chunk_elements;
                assert!(
                    groups.layout.chunks().iter().all(|group| group.capacity == elements * u64::from(ranks)),
                    "dummies fill up the last"
                );
                let bare = ChunkedStage {
                    on_device: on_device.of(groups.layout.chunks().len(), &mut random),
                    ..bare
                };
                let visits = bare.bare_visits(&replicas.lay_out(&bare)).unwrap();
                let chunks = ChunkedStage { residency: ChunkResidency::Planned(visits), ..bare };
                let (shared, measured) = replicas.train(Some(&chunks));
                let what = format!("{} {ranks} {training:?} {chunks:?}", replicas.model.family());
                assert_same_bits(&shared, &plain, &what);
                let all = replicas.lay_out(&chunks);
                for measured in measured {
                    replicas.assert_counted(&chunks, &measured, &what);
                    // One chunk of each group in all lists, on the host or on the device, and besides what gradients pass through.
                    let lists = Lists::new(training.precision, &training.optimizer).unwrap();
                    let scalar = lists.scalar_bytes(List::Parameters);
                    let on_host = all.layout.chunks().len() - chunks.on_device.len();
                    let state = on_host as u64 * elements * (lists.parameter_bytes() - scalar);
                    assert!(measured.chunks.as_ref().unwrap().host_bytes.0 >= state, "{what}");
                }
            }
        }
    }
}

/// Shards have chunks of their own tensors, and replicas of a shard share these: trained so, every device has what it has without
/// chunks, to the bit, on evenly split layers and with classes that the degree does not divide; all devices hold and move as
/// much, since shorter shards have the places of the first.
#[test]
fn shards_in_chunks_train_what_shards_train() {
    let mut random = Random::new(47);
    for (model, replicas, shards) in [
        (small_gpt(true), 1, 2),
        (small_gpt(true), 2, 2),
        (small_bert(), 1, 2),
        (small_llama(), 2, 2),
        (small_vgg(), 1, 4),
    ] {
        let training = TrainingSpec { micro_batch_size: 4, ..of_several_ranks(&mut random) };
        let split = Replicas { shards, ..Replicas::new(model, training, replicas) };
        let (mut plain, _) = split.train(None);
        if replicas > 1 {
            // Nobody has whole gradients in chunks.
            plain.tensors.retain(|name, _| !name.contains("gradient of"));
        }
        for order in ChunkOrder::ALL {
            for (on_device, is_whole) in
                [(OnDevice::None, false), (OnDevice::Some, true), (OnDevice::All, false)]
            {
                let mut bare = ChunkedStage {
                    host_copy: random.of(&HostCopy::ALL),
                    ..in_chunks(700 + 600 * random.below(3) as u64, order)
                };
                if is_whole {
                    let sequence = Sequence::of_stage(&split.model, &split.stage(), 0);
                    let largest = sequence.atoms().map(|atom| atom.iter().sum()).max().unwrap();
                    (bare.layout, bare.owners) = (ChunkLayout::Patrickstar, ChunkOwners::Whole);
                    bare.chunk_elements = bare.chunk_elements.max(largest);
                }
                let count = split.lay_out(&bare).layout.chunks().len();
                let bare = ChunkedStage { on_device: on_device.of(count, &mut random), ..bare };
                let visits = bare.bare_visits(&split.lay_out(&bare)).unwrap();
                let chunks = ChunkedStage { residency: ChunkResidency::Planned(visits), ..bare };
                let (trained, measured) = split.train(Some(&chunks));
                let what = format!("{} {replicas} x {shards} {training:?} {chunks:?}", split.model.family());
                assert_same_bits(&trained, &plain, &what);
                assert_eq!(measured.len() as u32, replicas * shards);
                // What nobody shares stays whole, which other tests count.
                let is_counted = replicas > 1 || chunks.on_device.is_empty();
                for measured in measured.iter().filter(|_| is_counted) {
                    split.assert_counted(&chunks, measured, &what);
                }
            }
        }
    }
}

/// Of how many chunks the state is on the device.
#[derive(Debug, Clone, Copy)]
enum OnDevice {
    None,
    Some,
    All,
}

impl OnDevice {
    fn of(self, count: usize, random: &mut Random) -> Vec<usize> {
        match self {
            Self::None => Vec::new(),
            Self::Some => (0..count).filter(|_| random.below(2) == 0).collect(),
            Self::All => (0..count).collect(),
        }
    }
}

/// Ranks that each train a model on their share of every micro-batch, or a shard of it.
struct Replicas {
    model: Model,
    training: TrainingSpec,
    ranks: u32,
    /// Of each of them.
    shards: u32,
}

impl Replicas {
    fn new(model: Model, training: TrainingSpec, ranks: u32) -> Self {
        Self { model, training, ranks, shards: 1 }
    }

    fn stage(&self) -> StageConfig {
        let whole = StageConfig::single(0, self.model.layers().len() - 1);
        StageConfig { data_degree: self.ranks, tensor_degree: self.shards, ..whole }
    }

    fn lay_out(&self, stage: &ChunkedStage) -> Chunks {
        stage.lay_out_split(&self.model, &self.training, &self.stage()).unwrap()
    }

    fn train(&self, chunks: Option<&ChunkedStage>) -> (Trained, Vec<Measurement>) {
        self.train_acting(chunks, &StageActions::default())
    }

    fn train_acting(
        &self,
        chunks: Option<&ChunkedStage>,
        actions: &StageActions,
    ) -> (Trained, Vec<Measurement>) {
        let partitioning = Partitioning::new(vec![self.stage()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut specs = connected(&self.model, self.training, &partitioning, folder.path());
        for spec in &mut specs {
            spec.chunks = chunks.map(|chunks| Box::new(chunks.clone()));
            spec.actions = actions.clone();
        }
        train(specs, folder.path())
    }

    /// That a rank held and moved what its chunks say. Returns what its steps needed besides.
    fn assert_counted(&self, chunks: &ChunkedStage, measured: &Measurement, what: &str) -> Vec<u64> {
        let all = self.lay_out(chunks);
        let told = measured.chunks.as_ref().unwrap();
        let sums = told.other_bytes.iter().zip(&told.payload_bytes).map(|(one, other)| one + other);
        assert_eq!(measured.peak_allocated.0, sums.max().unwrap(), "{what}");
        assert_eq!(told.host_bytes.0, all.host.bytes, "{what}");
        // Gradients go once to the ranks that own their parameters, parameters come once to each visit.
        let others = |chunk| u64::from(self.ranks - 1) * all.copied_bytes(chunk, false);
        let count = all.layout.chunks().len();
        let each: u64 = (0..count).map(others).sum();
        assert_eq!(told.scattered_bytes, each, "{what}");
        let is_on_device = |chunk: usize| chunks.on_device.contains(&chunk);
        if chunks.on_device.len() == count {
            assert_eq!(
                (told.up_bytes, told.down_bytes, told.host_bytes.0, told.fetches),
                (0, 0, 0, 0),
                "{what}"
            );
        }
        let ChunkResidency::Planned(visits) = &chunks.residency else { return told.other_bytes.clone() };
        assert!(!told.is_replanned, "{what}");
        let moved = all.moved(&chunks.told(&all, visits).unwrap());
        assert_eq!(
            (told.up_bytes, told.down_bytes, told.fetches),
            (moved.up, moved.down, moved.fetches),
            "{what}"
        );
        assert_eq!(told.gathered_bytes, moved.gathered, "{what}");
        // Twice at most in `layer` order: with the gradients 6 (W - 1)/W bytes a parameter in bf16. Tables that are computed with
        // again leave in these visits between their micro-batches.
        let comes_twice =
            chunks.order == ChunkOrder::Layer && self.training.recompute == RecomputePolicy::None;
        assert!(!comes_twice || moved.gathered <= 2 * each, "{what}");
        // A rank's part of all lists is there always, and wholes while they visit.
        let lists = Lists::new(self.training.precision, &self.training.optimizer).unwrap();
        let part = |chunk: usize| all.copied_bytes(chunk, false) / lists.scalar_bytes(List::Parameters);
        let always =
            (0..count).filter(|&chunk| is_on_device(chunk)).map(part).sum::<u64>() * lists.parameter_bytes();
        for (step, &payloads) in told.payload_bytes.iter().enumerate() {
            let here = visits.iter().filter(|visit| (visit.fetched..visit.freed).contains(&step));
            let here: u64 = here.map(|visit| all.payload_bytes(visit.payload.chunk)).sum();
            assert_eq!(payloads, always + here, "{what}: step {step}");
        }
        told.other_bytes.clone()
    }
}

/// Ranks that share a tied weight add up the gradients of both its ends in another order, wherever its state is: sums differ in
/// their last bits alone.
#[test]
fn tied_weights_that_ranks_share_are_nearly_the_same() {
    for (recompute, ranks) in [(RecomputePolicy::None, 2), (RecomputePolicy::Layer, 3)] {
        let training =
            TrainingSpec { recompute, optimizer: SGD, micro_batch_size: 12, micro_batches: 3, ..training() };
        let replicas = Replicas::new(small_gpt(false), training, ranks);
        let (plain, _) = replicas.train(None);
        for order in ChunkOrder::ALL {
            for on_device in [vec![0], vec![0, 1, 2]] {
                let bare = ChunkedStage { on_device, ..in_chunks(1200, order) };
                let visits = bare.bare_visits(&replicas.lay_out(&bare)).unwrap();
                let chunks = ChunkedStage { residency: ChunkResidency::Planned(visits), ..bare };
                let (shared, measured) = replicas.train(Some(&chunks));
                let what = format!("{recompute} {ranks} {order} {:?}", chunks.on_device);
                for measured in &measured {
                    replicas.assert_counted(&chunks, measured, &what);
                }
                for (name, shared) in &shared.tensors {
                    assert!(shared.allclose(&plain.tensors[name], 1e-4, 1e-6, false), "{what}: {name}");
                }
                let off = shared.losses.iter().zip(&plain.losses).map(|(of, plain)| (of - plain).abs());
                assert!(off.fold(0.0, f64::max) < 1e-5, "{what}: {:?} {:?}", shared.losses, plain.losses);
            }
        }
    }
}

/// Elements of the largest atom, with its padding.
fn largest_atom(model: &Model, layout: ChunkLayout) -> u64 {
    let lists = Lists::new(Precision::Bf16, &ADAM).unwrap();
    let sequence = Sequence::of_model(model);
    Packing::new(&sequence, layout, lists).unwrap().largest_atom()
}

/// A rank never has more on the device than it may: with the least that its steps need it trains the same, whatever rule
/// evicts, and with a byte less it says where room lacks.
#[test]
fn the_least_capacity_is_enough_and_a_byte_less_is_not() {
    let model = small_gpt(true);
    let training = TrainingSpec { precision: Precision::Bf16, optimizer: ADAM, ..training() };
    let spec = whole(&model, training);
    let (plain, _) = run(&spec, None);
    for order in ChunkOrder::ALL {
        for eviction in [Eviction::Belady, Eviction::Lru, Eviction::Fifo] {
            let paging = Paging { eviction, ahead: 2, behind: 1 };
            let chunks = ChunkedStage { residency: ChunkResidency::Paged(paging), ..in_chunks(1200, order) };
            let (_, roomy) = run(&spec, Some(chunks.clone()));
            let other = roomy.chunks.unwrap().other_bytes;
            let all = chunks.lay_out(&model, &training).unwrap();
            let needed = all.uses.by_step().into_iter().map(|payloads| {
                payloads
                    .iter()
                    .map(|&of| all.payload_bytes(all.uses.payloads()[of].payload.chunk))
                    .sum::<u64>()
            });
            let least = other.iter().zip(needed).map(|(other, needed)| other + needed).max().unwrap();
            let with = |capacity| RankSpec { device: cpu(capacity), ..spec.clone() };
            let (tight, measured) = run(&with(least), Some(chunks.clone()));
            let what = format!("{order} {eviction:?}");
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
            let out_of_memory =
                ended.events.iter().any(|event| matches!(event, RankEvent::OutOfMemory { .. }));
            assert!(out_of_memory, "{what}: {:?}", ended.events);
        }
    }
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
                let what = format!("{untied_head} {kernel} {recompute} {order}");
                for ((name, chunked), (expected_name, plain)) in chunked.tensors.iter().zip(&plain.tensors) {
                    assert_eq!(name, expected_name, "{what}");
                    assert!(chunked.allclose(plain, 1e-4, 1e-6, false), "{what}: {name}");
                }
                let off = chunked.losses.iter().zip(&plain.losses).map(|(of, plain)| (of - plain).abs());
                assert!(off.fold(0.0, f64::max) < 1e-5, "{what}: {:?} {:?}", chunked.losses, plain.losses);
            }
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
    for (host_copy, bytes) in [(HostCopy::Made, 12.0), (HostCopy::Kept, 14.0)] {
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
    let visit = |chunk, fetched| Visit {
        fetched,
        needed: fetched,
        leaves: fetched + 1,
        freed: fetched + 1,
        payload: Payload { chunk, is_gradients: false },
    };
    let planned = |visits| ChunkedStage { residency: ChunkResidency::Planned(visits), ..chunks() };
    let with = |training: TrainingSpec| RankSpec { training, ..spec.clone() };
    let cases: [(RankSpec, ChunkedStage, &str); 9] = [
        (spec.clone(), ChunkedStage { chunk_elements: 0, ..chunks() }, "chunks.chunk_elements"),
        (
            spec.clone(),
            ChunkedStage { layout: ChunkLayout::Patrickstar, chunk_elements: 100, ..chunks() },
            "chunks.chunk_elements",
        ),
        (spec.clone(), ChunkedStage { staging: 0, ..chunks() }, "chunks.staging"),
        (spec.clone(), ChunkedStage { update: UpdateTime::AfterBackward, ..chunks() }, "chunks.update"),
        (spec.clone(), ChunkedStage { moves: ChunkMoves::Exclusive, ..chunks() }, "chunks.moves"),
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
        (spec.clone(), planned(vec![visit(99, 0)]), "chunks.residency.planned"),
        (spec.clone(), planned(vec![visit(0, 0)]), "chunks.residency.planned"),
    ];
    for (spec, chunks, field) in cases {
        let ended = crate::processes::run(&RankSpec { chunks: Some(Box::new(chunks)), ..spec });
        assert_eq!(ended.code, Some(EXIT_BAD_SPEC), "{field}: {ended:?}");
        assert!(ended.message().contains(field), "{field}: {}", ended.message());
    }
    let stage =
        RankSpec { chunks: Some(Box::new(chunks())), ..solo(&model, training(), positions(&[2, 4])[1]) };
    assert!(crate::processes::run(&stage).message().contains("choose one stage of replicas"));
}
