//! A stage from the allocation traces of its layers: everything that does not depend on its place in a pipeline.

use std::sync::Arc;

use loadmaster_proto::measure::trace::LayerTrace;
use loadmaster_proto::training::actions::Run;
use loadmaster_proto::training::gradient_buckets::{BUCKET_BYTES, Bucket, buckets};
use loadmaster_proto::training::shard::{Shard, ShardParameter};
use loadmaster_proto::training::sharding::{StateSharding, buffer_scalars};
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{RecomputePolicy, Schedule, StaticBytes};

use super::Component;
use super::library::{ShardTraces, TracedLayer};
use super::machine::{BlockClass, ClassBytes};
use super::schedule::StageBytes;
use super::stage::{ReplayStage, StageLayer, runs_of};
use super::tied_weights::TiedEnds;
use crate::{MOST_BYTES, Origin, PredictionError, StageSeconds};

/// What the bytes of a stage depend on, apart from its place in the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PlayedKey {
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) tensor_degree: u32,
    /// Replicas among which optimizer states are divided.
    pub(super) parts: u32,
    /// Samples of a device.
    pub(super) size: u32,
    pub(super) recompute: RecomputePolicy,
}

impl PlayedKey {
    /// A stage of these layers.
    fn config(&self) -> StageConfig {
        StageConfig {
            data_degree: self.parts,
            tensor_degree: self.tensor_degree,
            sharding: if self.parts > 1 { StateSharding::Optimizer } else { StateSharding::None },
            ..StageConfig::single(self.first, self.last)
        }
    }
}

/// A stage whose passes were played.
#[derive(Debug, Clone)]
pub(super) struct Played {
    pub(super) bytes: StageBytes,
    /// With as much scratch memory as kernels may take; none where that is known.
    pub(super) most: Option<StageBytes>,
    /// Scratch memory that comes on top of those.
    pub(super) unseen: u64,
    /// What its parameters take on the device with the highest peak, gradients apart.
    pub(super) fixed: StaticBytes,
    /// What layers compute with: so much takes each older version of the weights that a micro-batch in flight holds.
    pub(super) version: u64,
    /// The largest buffer in which gradients of replicas are summed.
    pub(super) largest_bucket: u64,
    pub(super) overhead: u64,
    pub(super) seconds: StageSeconds,
    pub(super) origin: Origin,
    pub(super) is_aligned: bool,
    pub(super) sources: Vec<usize>,
    /// Layers whose recordings at two sizes have different events, counted from the stage's first.
    pub(super) unaligned: Vec<usize>,
}

impl Component {
    /// # Errors
    /// A layer was not recorded at this setting.
    pub(super) fn play(&self, key: PlayedKey) -> Result<Played, PredictionError> {
        let traces = self.traces(key)?;
        let shards = different_shards(key.tensor_degree, &traces);
        let runs = runs_of(key.recompute, traces.len());
        let play = |trace| self.passes(key, &shards, &runs, trace);
        let all = || shards.iter().flat_map(|(_, shards)| shards);
        let is_known = all().all(|shard| Arc::ptr_eq(&shard.trace, &shard.most) && shard.unseen == 0);
        // Kernels of one layer at a time.
        let unseen = all().map(|shard| shard.unseen).max().unwrap_or_default();
        let mut sources: Vec<usize> = traces.iter().flat_map(|trace| trace.sources.iter().copied()).collect();
        sources.sort_unstable();
        sources.dedup();
        let unaligned: Vec<usize> =
            (0..).zip(&traces).filter(|(_, trace)| !trace.is_aligned).map(|(layer, _)| layer).collect();
        let config = key.config();
        Ok(Played {
            bytes: play(|shard| &shard.trace),
            most: (!is_known).then(|| play(|shard| &shard.most)),
            unseen,
            fixed: self.model.rank_static_bytes(&config, 0, &self.training),
            version: self.version(&config),
            largest_bucket: self.largest_bucket(&config),
            // Workspaces are shared by the layers of a device.
            overhead: all().map(|shard| shard.trace.overhead).max().unwrap_or_default(),
            seconds: seconds(&traces, key.recompute).sharded(key.parts),
            origin: traces.iter().map(|trace| trace.origin).max().unwrap_or(Origin::Profiled),
            is_aligned: unaligned.is_empty(),
            sources,
            unaligned,
        })
    }

    /// The bytes of its kinds of passes on the shard with the highest peak, where layers are recomputed in these runs.
    pub(super) fn passes(
        &self,
        key: PlayedKey,
        shards: &[(u32, Vec<&ShardTraces>)],
        runs: &[Vec<Run>],
        trace: fn(&ShardTraces) -> &LayerTrace,
    ) -> StageBytes {
        let of_shard = |(index, shards): &(u32, Vec<&ShardTraces>)| {
            let traces: Vec<&LayerTrace> = shards.iter().map(|shard| trace(shard)).collect();
            let shared = self.added_to_shared(&traces, key, *index);
            let stage = self.replay_stage(key, *index, &traces, shared.as_ref());
            StageBytes::of(&ReplayStage { runs: runs.to_vec(), ..stage })
        };
        shards.iter().map(of_shard).reduce(StageBytes::fullest).unwrap_or_default()
    }

    /// The allocation traces of its layers.
    pub(super) fn traces(&self, key: PlayedKey) -> Result<Vec<Arc<TracedLayer>>, PredictionError> {
        (key.first..=key.last).map(|layer| self.trace(layer, key.tensor_degree, key.size)).collect()
    }

    pub(super) fn replay_stage<'a>(
        &self,
        key: PlayedKey,
        shard: u32,
        traces: &[&'a LayerTrace],
        shared: Option<&'a TiedEnds>,
    ) -> ReplayStage<'a> {
        let mut divided = self.divided(&key.config(), shard).into_iter();
        let mut untrained = self.model.layers().iter().map(|layer| layer.kind.parameter_count() == 0);
        let first_trained = untrained.position(|untrained| !untrained).unwrap_or(self.contents.len());
        let layers = (key.first..)
            .zip(traces)
            .map(|(layer, &trace)| {
                let (divided, gather) = divided.next().unwrap_or_default();
                StageLayer {
                    trace,
                    untrained_input: key.first == 0 && (1..=first_trained).contains(&layer),
                    first: shared.filter(|_| layer == 0).map(|ends| &ends.embedding_first),
                    later_with_first: shared.filter(|_| layer == key.last).map(|ends| &ends.head_later),
                    updates: shared.is_none() || layer < key.last,
                    divided,
                    gather,
                }
            })
            .collect();
        ReplayStage {
            layers,
            runs: runs_of(key.recompute, traces.len()),
            wants_gradient: key.first > 0,
            exchanges: (key.first == 0) != (key.last + 1 == self.contents.len()),
            parts: key.parts,
        }
    }

    /// What is played of the ends of a stage that share a weight, on a shard.
    pub(super) fn added_to_shared(
        &self,
        traces: &[&LayerTrace],
        key: PlayedKey,
        shard: u32,
    ) -> Option<TiedEnds> {
        let has_both_ends = key.first == 0 && key.last + 1 == self.contents.len();
        let [embedding, .., head] = traces else { return None };
        if !has_both_ends || !self.model.has_tied_head() {
            return None;
        }
        let part = Shard { index: shard, degree: key.tensor_degree };
        let shared = self.model.layers().last()?.kind.shard_shared_parameter(part)?;
        let bytes = shared.elements().saturating_mul(self.training.precision.gradient_bytes());
        Some(TiedEnds::of(embedding, head, bytes))
    }

    /// What the layers of a device compute with; copies that the optimizer updates are none of it.
    fn version(&self, stage: &StageConfig) -> u64 {
        let parameters = self.model.rank_parameters(stage, 0);
        let scalars = parameters.iter().fold(0, |sum: u64, of| sum.saturating_add(of.elements()));
        scalars.saturating_mul(self.training.precision.scalar_bytes())
    }

    /// The largest buffer in which the gradients of replicas are summed: each shard's of its own.
    fn largest_bucket(&self, stage: &StageConfig) -> u64 {
        let scalar = self.training.precision.gradient_bytes();
        let parameters = self.model.rank_parameters(stage, 0);
        let scalars: Vec<u64> = parameters.iter().map(ShardParameter::elements).collect();
        if !stage.sharding.is_none() {
            return self.largest_buffer(&scalars, stage.optimizer_parts()).saturating_mul(scalar);
        }
        self.gradient_buckets(&scalars).iter().map(Bucket::buffer_bytes).max().unwrap_or_default()
    }

    /// Scalars of the largest buffer in which replicas that divide tensors of so many scalars exchange them.
    fn largest_buffer(&self, scalars: &[u64], parts: u32) -> u64 {
        let buckets = self.gradient_buckets(scalars);
        buckets.iter().map(|bucket| buffer_scalars(scalars, bucket, parts)).max().unwrap_or_default()
    }

    /// Returns the buckets in which gradients of so many scalars each are exchanged.
    fn gradient_buckets(&self, scalars: &[u64]) -> Vec<Bucket> {
        let bytes = self.training.precision.gradient_bytes();
        let sizes: Vec<u64> = scalars.iter().map(|of| of.saturating_mul(bytes)).collect();
        buckets(&sizes, BUCKET_BYTES)
    }

    /// Returns, for each layer of a stage whose replicas divide its parameters, the scalars of these, and the bytes of the largest
    /// buffer in which the replicas exchange them after an update.
    fn divided(&self, stage: &StageConfig, shard: u32) -> Vec<(Vec<u64>, u64)> {
        if stage.sharding.is_none() {
            return Vec::new();
        }
        let mut layers: Vec<Vec<ShardParameter>> = self.model.rank_layers(stage, shard).collect();
        // The copy of a tied weight is updated with the head.
        let copy = if layers.len() > stage.layer_count() { layers.pop() } else { None };
        layers.last_mut().into_iter().for_each(|head| head.extend(copy.iter().flatten().cloned()));
        let of_layer = |parameters: &Vec<ShardParameter>| {
            let scalars: Vec<u64> = parameters.iter().map(ShardParameter::elements).collect();
            let largest = self.largest_buffer(&scalars, stage.optimizer_parts());
            let bytes = largest.saturating_mul(self.training.precision.scalar_bytes());
            (scalars, bytes)
        };
        layers.iter().map(of_layer).collect()
    }
}

impl Played {
    /// What is there at any moment.
    pub(super) fn constant(&self) -> u64 {
        let StaticBytes { parameters, buffers, optimizer, .. } = self.fixed;
        [parameters, buffers, optimizer, self.overhead].into_iter().map(|bytes| bytes.min(MOST_BYTES)).sum()
    }

    /// What older versions of its weights take under a schedule with so many micro-batches in flight.
    pub(super) fn older_versions(&self, schedule: Schedule, in_flight: u32) -> u64 {
        u64::from(schedule.weight_versions(in_flight) - 1).saturating_mul(self.version)
    }

    /// Buffers that a device of a stage of this many replicas holds while gradients are summed.
    pub(super) fn synchronisation(&self, data_degree: u32) -> ClassBytes {
        let mut bytes = ClassBytes::default();
        bytes.add(BlockClass::Communication, if data_degree > 1 { self.largest_bucket } else { 0 });
        bytes
    }
}

/// The allocation traces of the stage's layers on each shard, by the shard's number, without those that are the same as those
/// of an earlier one.
pub(super) fn different_shards(degree: u32, traces: &[Arc<TracedLayer>]) -> Vec<(u32, Vec<&ShardTraces>)> {
    let mut different: Vec<(u32, Vec<&ShardTraces>)> = Vec::new();
    for index in 0..degree.max(1) {
        let shards: Vec<&ShardTraces> = traces.iter().filter_map(|trace| trace.shard(index)).collect();
        let is_known =
            different.iter().any(|(_, known)| known.iter().zip(&shards).all(|(one, other)| one.is(other)));
        if !is_known {
            different.push((index, shards));
        }
    }
    different
}

fn seconds(traces: &[Arc<TracedLayer>], recompute: RecomputePolicy) -> StageSeconds {
    let sum = |of: fn(&StageSeconds) -> f64| traces.iter().map(|trace| of(&trace.seconds)).sum::<f64>();
    let forward = sum(|of| of.forward);
    let again = if recompute == RecomputePolicy::None { 0.0 } else { forward };
    StageSeconds { forward, backward: sum(|of| of.backward) + again, step: sum(|of| of.step) }
}
