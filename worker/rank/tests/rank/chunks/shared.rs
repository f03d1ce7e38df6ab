//! Ranks that share chunks, shards that each have their own, and both: what they train is what they train without.

use loadmaster_proto::measure::rank::RankDevice;

use super::*;

/// Ranks that share chunks train what replicas train that hold all: the same losses, gradients and weights, to the bit. Each of them holds
/// its part of the state, on its host or, of none, some or all chunks, on its device; and all-gathers twice and reduce-scatters
/// once of what the others own.
#[test]
fn ranks_that_share_chunks_train_the_same() {
    let mut random = Random::new(9);
    for (number, (model, ranks)) in
        [(small_gpt(true), 2), (small_bert(), 4), (small_llama(), 2), (small_gpt(true), 3)]
            .into_iter()
            .enumerate()
    {
        let training = of_several_ranks(&mut random);
        let replicas = Replicas::new(model, training, ranks);
        let (plain, _) = replicas.train(None);
        for order in ChunkOrder::ALL {
            let mut needed = None;
            for on_device in OnDevice::under(order, number) {
                let bare = ChunkedStage {
                    host_copy: random.of(&HostParameters::ALL),
                    ..in_chunks(700 + 600 * random.below(3) as u64, order)
                };
                let count = replicas.lay_out(&bare).layout.chunks().len();
                let bare = ChunkedStage { on_device: on_device.of(count, &mut random), ..bare };
                let chunks = match random.below(2) {
                    // Evicted at every boundary at which it may leave.
                    0 => {
                        let all = replicas.lay_out(&bare);
                        let intervals =
                            begun_before(&bare, bare.bare_intervals(&all).unwrap(), &all, &mut random);
                        ChunkedStage { residency: ChunkResidency::Planned(intervals), ..bare }
                    }
                    _ => bare,
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

/// Losses, gradients and weights of five iterations are those of plain replicas, of two and of four ranks, in either order, with
/// chunks on demand, and evicted at every boundary, for some fetched before the iteration that needs them.
#[test]
#[ignore = "slow: make test-slow"]
fn two_and_four_ranks_that_share_chunks_train_the_same() {
    let mut random = Random::new(61);
    for (ranks, precision, optimizer) in [(2, Precision::Bf16, ADAM), (4, Precision::Fp32, SGD)] {
        let training =
            TrainingSpec { precision, optimizer, micro_batch_size: 4, micro_batches: 3, ..training() };
        let replicas = Replicas { iterations: 4, ..Replicas::new(small_gpt(true), training, ranks) };
        let (plain, _) = replicas.train(None);
        for order in ChunkOrder::ALL {
            let bare = ChunkedStage { host_copy: random.of(&HostParameters::ALL), ..in_chunks(1_300, order) };
            let all = replicas.lay_out(&bare);
            let at_every_boundary =
                begun_before(&bare, bare.bare_intervals(&all).unwrap(), &all, &mut random);
            for residency in [ChunkResidency::Paged, ChunkResidency::Planned(at_every_boundary)] {
                let chunks = ChunkedStage { residency, ..bare.clone() };
                let (shared, measured) = replicas.train(Some(&chunks));
                let what = format!("{ranks} {training:?} {chunks:?}");
                assert_same_bits(&shared, &plain, &what);
                for measured in &measured {
                    replicas.assert_counted(&chunks, measured, &what);
                }
            }
        }
    }
}

/// Shards have chunks of their own tensors, and replicas of a shard share these: trained so, every device has what it has without
/// chunks, to the bit, on evenly split layers and with classes that the degree does not divide; all devices hold and move as
/// much, since shorter shards have the places of the first.
#[test]
#[ignore = "slow: make test-slow"]
fn shards_in_chunks_train_what_shards_train() {
    let mut random = Random::new(47);
    let models = [
        (small_gpt(true), 1, 2),
        (small_gpt(true), 2, 2),
        (small_bert(), 1, 2),
        (small_llama(), 2, 2),
        (small_vgg(), 1, 4),
    ];
    for (number, (model, replicas, shards)) in models.into_iter().enumerate() {
        let training = TrainingSpec { micro_batch_size: 4, ..of_several_ranks(&mut random) };
        let split = Replicas { shards, ..Replicas::new(model, training, replicas) };
        let (plain, _) = split.train(None);
        for order in ChunkOrder::ALL {
            for on_device in OnDevice::under(order, number) {
                let is_packed_bare = on_device == OnDevice::Some;
                let mut bare = ChunkedStage {
                    host_copy: random.of(&HostParameters::ALL),
                    ..in_chunks(700 + 600 * random.below(3) as u64, order)
                };
                if is_packed_bare {
                    let sequence = Sequence::of_stage(&split.model, &split.stage(), 0);
                    let largest = sequence.atoms().map(|atom| atom.iter().sum()).max().unwrap();
                    bare.layout = ChunkLayout::Patrickstar;
                    bare.chunk_elements = bare.chunk_elements.max(largest);
                }
                let count = split.lay_out(&bare).layout.chunks().len();
                let bare = ChunkedStage { on_device: on_device.of(count, &mut random), ..bare };
                let intervals = bare.bare_intervals(&split.lay_out(&bare)).unwrap();
                let chunks = ChunkedStage { residency: ChunkResidency::Planned(intervals), ..bare };
                let (trained, measured) = split.train(Some(&chunks));
                let what = format!("{} {replicas} x {shards} {training:?} {chunks:?}", split.model.family());
                assert_same_bits(&trained, &plain, &what);
                assert_eq!(measured.len() as u32, replicas * shards);
                // What no one shares stays whole, which other tests count.
                let is_counted = replicas > 1 || chunks.on_device.is_empty();
                for measured in measured.iter().filter(|_| is_counted) {
                    split.assert_counted(&chunks, measured, &what);
                }
            }
        }
    }
}

/// Ranks of which one has little room and the other much move the same chunks at the same boundaries, as exchanges of both need:
/// those of a rule, and what is left of visits that were planned with the room of the other.
#[test]
fn ranks_with_unlike_room_move_alike() {
    let training = TrainingSpec { micro_batch_size: 4, micro_batches: 3, optimizer: ADAM, ..training() };
    let replicas = Replicas::new(small_gpt(true), training, 2);
    let (plain, _) = replicas.train(None);
    let paging = Paging { ahead: 2, behind: 1 };
    for order in ChunkOrder::ALL {
        let bare = in_chunks(1_300, order);
        let all = replicas.lay_out(&bare);
        let intervals = bare.paged(paging, &all, &vec![u64::MAX; all.uses.steps()]).unwrap();
        for residency in [ChunkResidency::Paged, ChunkResidency::Planned(intervals)] {
            let is_planned = matches!(residency, ChunkResidency::Planned(_));
            let what = format!("{order} {is_planned}");
            let chunks = ChunkedStage { residency, ..bare.clone() };
            let (_, roomy) = replicas.train(Some(&chunks));
            let roomy = roomy[0].chunks.as_ref().unwrap();
            let least = least_capacity(&all, &roomy.other_bytes);
            let partitioning = Partitioning::new(vec![replicas.stage()]).unwrap();
            let folder = tempfile::tempdir().unwrap();
            let mut specs = connected(&replicas.model, training, &partitioning, folder.path());
            for (spec, capacity) in specs.iter_mut().zip([least, 8 << 30]) {
                spec.chunks = Some(Box::new(chunks.clone()));
                spec.device = cpu(capacity);
            }
            let (shared, measured) = train(specs, folder.path());
            assert_same_bits(&shared, &plain, &what);
            let moved = measured.iter().map(|of| {
                let told = of.chunks.as_ref().unwrap();
                assert_eq!((told.is_replanned, roomy.is_replanned), (is_planned, false), "{what}");
                (told.up_bytes, told.gathered_bytes, told.fetches)
            });
            let moved: Vec<_> = moved.collect();
            assert_eq!(moved[0], moved[1], "{what}");
            assert!(moved[0].2 > roomy.fetches, "{what}: with less room more is fetched");
            assert!(measured[0].peak_allocated.0 <= least, "{what}");
        }
    }
}

/// Of how many chunks the state is on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnDevice {
    None,
    Some,
    All,
}

impl OnDevice {
    /// Those that a model is trained with in this order: one model has each in one of the orders, the next in the other one.
    fn under(order: ChunkOrder, model: usize) -> impl Iterator<Item = Self> {
        let first = model + usize::from(order == ChunkOrder::Layer);
        [Self::None, Self::Some, Self::All].into_iter().skip(first % 2).step_by(2)
    }

    pub(super) fn of(self, count: usize, random: &mut Random) -> Vec<usize> {
        match self {
            Self::None => Vec::new(),
            Self::Some => (0..count).filter(|_| random.below(2) == 0).collect(),
            Self::All => (0..count).collect(),
        }
    }
}

/// Ranks that each train a model on their share of every micro-batch, or a shard of it.
pub(super) struct Replicas {
    pub(super) model: Model,
    pub(super) training: TrainingSpec,
    pub(super) ranks: u32,
    /// Of each of them.
    pub(super) shards: u32,
    /// Of each shard.
    pub(super) device: RankDevice,
    /// Behind the one that warms up.
    pub(super) iterations: u32,
}

impl Replicas {
    pub(super) fn new(model: Model, training: TrainingSpec, ranks: u32) -> Self {
        Self { model, training, ranks, shards: 1, device: cpu(8 << 30), iterations: 3 }
    }

    fn stage(&self) -> StageConfig {
        let whole = StageConfig::single(0, self.model.layers().len() - 1);
        StageConfig { data_degree: self.ranks, tensor_degree: self.shards, ..whole }
    }

    pub(super) fn lay_out(&self, stage: &ChunkedStage) -> Chunks {
        stage.lay_out_split(&self.model, &self.training, &self.stage()).unwrap()
    }

    pub(super) fn train(&self, chunks: Option<&ChunkedStage>) -> (Trained, Vec<Measurement>) {
        self.train_acting(chunks, &StageActions::default())
    }

    pub(super) fn train_acting(
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
            spec.device = self.device.clone();
            spec.iterations = self.iterations;
        }
        train(specs, folder.path())
    }

    /// That a rank held and moved what its chunks say. Returns what its steps needed besides.
    pub(super) fn assert_counted(
        &self,
        chunks: &ChunkedStage,
        measured: &Measurement,
        what: &str,
    ) -> Vec<u64> {
        let all = self.lay_out(chunks);
        let told = measured.chunks.as_ref().unwrap();
        let sums = told.other_bytes.iter().zip(&told.payload_bytes).map(|(one, other)| one + other);
        assert_eq!(measured.peak_allocated.0, sums.max().unwrap(), "{what}");
        assert_eq!(told.host_bytes.0, all.host.bytes, "{what}");
        // Gradients go once to the ranks that own their parameters, parameters come once to each visit.
        let others = |chunk| u64::from(self.ranks - 1) * all.copied_bytes(chunk, false);
        let count = all.layout.chunks().len();
        let each: u64 = (0..count).map(others).sum();
        // Of a table on the host those of its rows, and those of a tied weight's upper end.
        let has_two_ends = all.is_host_table(0) && !all.uses.payloads()[0].steps.is_empty();
        let each = each + if has_two_ends { others(0) } else { 0 };
        assert_eq!(told.scattered_bytes, each, "{what}");
        let is_on_device = |chunk: usize| chunks.on_device.contains(&chunk);
        if chunks.on_device.len() == count {
            assert_eq!(
                (told.up_bytes, told.down_bytes, told.host_bytes.0, told.fetches),
                (0, 0, 0, 0),
                "{what}"
            );
        }
        let ChunkResidency::Planned(intervals) = &chunks.residency else { return told.other_bytes.clone() };
        assert!(!told.is_replanned, "{what}");
        let moved = all.moved(&chunks.told(&all, intervals).unwrap());
        assert_moved(told, &moved, what);
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
            let is_here = |of: &&ResidencyInterval| match (step >= of.at.fetched, step < of.at.freed) {
                (comes, stays) if of.at.fetched > of.at.needed => comes || stays,
                (comes, stays) => comes && stays,
            };
            let here = intervals.iter().filter(is_here);
            let here: u64 = here.map(|interval| all.payload_bytes(interval.payload.chunk)).sum();
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
                let intervals = bare.bare_intervals(&replicas.lay_out(&bare)).unwrap();
                let chunks = ChunkedStage { residency: ChunkResidency::Planned(intervals), ..bare };
                let (shared, measured) = replicas.train(Some(&chunks));
                let what = format!("{recompute} {ranks} {order} {:?}", chunks.on_device);
                for measured in &measured {
                    replicas.assert_counted(&chunks, measured, &what);
                }
                assert_nearly_same(&shared, &plain, &what);
            }
        }
    }
}

/// Settings of a training that 2, 3 or 4 replicas share.
pub(super) fn of_several_ranks(random: &mut Random) -> TrainingSpec {
    TrainingSpec {
        precision: random.of(&[Precision::Fp32, Precision::Bf16]),
        optimizer: random.of(&[ADAM, SGD]),
        micro_batch_size: 12,
        micro_batches: 1 + random.below(3) as u32,
        recompute: random.of(&[RecomputePolicy::None, RecomputePolicy::Layer]),
        ..training()
    }
}
