//! The allocation traces of a profile, and reading them at any micro-batch size and tensor-parallel size.

use std::collections::BTreeMap;
use std::sync::Arc;

use loadmaster_proto::measure::measurement::{LayerTimes, Measurement};
use loadmaster_proto::measure::trace::LayerTrace;
use loadmaster_proto::training::Precision;

use super::blend::{BlendRule, Blended, OverDegree, OverSize, Scratch, blend};
use super::layer_seconds::{origin, over_degree, over_size};
use super::scratch;
use crate::{Origin, StageSeconds};

/// The recordings of a layer on the devices that share it, or what was put together from several.
#[derive(Debug, Clone)]
pub(super) struct TracedLayer {
    /// By shard. They hold parts of an axis that are not always equal; equal allocation traces are one.
    pub(super) shards: BTreeMap<u32, ShardTraces>,
    pub(super) seconds: StageSeconds,
    /// How far from the recordings.
    pub(super) origin: Origin,
    /// The recordings that it was put together from have the same events.
    pub(super) is_aligned: bool,
    /// Scratch memory of kernels follows a line here.
    pub(super) is_steady: bool,
    /// The largest micro-batch size and tensor-parallel size of the recordings.
    pub(super) largest: [u32; 2],
    /// Positions in the profile's list of measurements.
    pub(super) sources: Vec<usize>,
}

/// What one shard allocates.
#[derive(Debug, Clone)]
pub(super) struct ShardTraces {
    pub(super) trace: Arc<LayerTrace>,
    /// With as much scratch as kernels may take; the same one where that is known.
    pub(super) most: Arc<LayerTrace>,
    /// Scratch that comes on top, in none of the blocks.
    pub(super) unseen: u64,
}

impl ShardTraces {
    fn recorded(trace: Arc<LayerTrace>) -> Self {
        Self { most: Arc::clone(&trace), trace, unseen: 0 }
    }

    /// Whether both are the same allocation traces.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.trace, &other.trace) && Arc::ptr_eq(&self.most, &other.most)
    }
}

impl TracedLayer {
    /// The allocation traces of this shard; where it was not recorded, those of the first one, which holds most.
    pub(super) fn shard(&self, index: u32) -> Option<&ShardTraces> {
        self.shards.get(&index).or_else(|| self.shards.values().next())
    }

    /// Allows for scratch that no recording shows.
    pub(super) fn allow_for(&mut self, unseen: impl Fn(u32) -> u64) {
        for (&index, shard) in &mut self.shards {
            shard.unseen = shard.unseen.max(unseen(index));
        }
    }

    /// Whether all shards allocate the same.
    fn is_even(&self) -> bool {
        let mut shards = self.shards.values();
        shards.next().is_none_or(|first| shards.all(|shard| shard.is(first)))
    }
}

/// What a library lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Gap {
    /// Nothing of this layer at all.
    Layer,
    /// Nothing at this tensor-parallel size, and not the two degrees above 1 that others can be read from.
    Degree {
        /// Recorded degrees.
        recorded: Vec<u32>,
    },
    /// One micro-batch size, which is not the one that is asked for.
    Size {
        /// The recorded size.
        recorded: u32,
    },
}

/// Recordings by content of the layer, tensor-parallel size and micro-batch size of a device.
#[derive(Debug, Clone, Default)]
pub(super) struct Library(BTreeMap<String, BTreeMap<u32, BTreeMap<u32, TracedLayer>>>);

impl Library {
    /// Adds the allocation trace of a measurement, if it has one. Each shard of a stage has its own; of several runs at the
    /// same setting the one with most bytes counts, among those that say what autograd saved if any does. Replicas
    /// have nothing of their own: they train as one replica does at a part of the micro-batch.
    pub(super) fn add(&mut self, source: usize, measurement: &Measurement, precision: Precision) {
        let Some(trace) = &measurement.trace else { return };
        let stage = measurement.stage;
        if stage.data_degree > 1 {
            return;
        }
        let (degree, size) = (stage.tensor_degree.max(1), measurement.micro_batch_size);
        let times = measurement.layers.iter().find(|times| times.layer == stage.first_layer);
        let LayerTimes { forward_seconds, backward_seconds, .. } = times.copied().unwrap_or_default();
        let degrees = self.0.entry(trace.content.clone()).or_default();
        let sizes = degrees.entry(degree).or_default();
        let kept = sizes.entry(size).or_insert_with(|| TracedLayer {
            shards: BTreeMap::new(),
            seconds: StageSeconds::default(),
            origin: Origin::Profiled,
            is_aligned: true,
            is_steady: true,
            largest: [size, degree],
            sources: Vec::new(),
        });
        kept.is_steady &= scratch::is_steady(precision, &measurement.environment);
        let new = match kept.shards.values().find(|known| is_same(&known.trace, trace)) {
            Some(known) => known.clone(),
            None => ShardTraces::recorded(Arc::new(LayerTrace::clone(trace))),
        };
        // One that says what autograd saved can answer for more.
        let counts = |trace: &LayerTrace| (trace.has_saved, bytes(trace));
        let most_so_far = kept.shards.values().map(|known| counts(&known.trace)).max();
        if most_so_far.is_none_or(|most| most < counts(trace)) {
            kept.seconds = StageSeconds {
                forward: forward_seconds,
                backward: backward_seconds,
                step: measurement.step_seconds,
            };
        }
        match kept.shards.get(&measurement.shard) {
            Some(old) if counts(&old.trace) >= counts(trace) => return,
            _ => drop(kept.shards.insert(measurement.shard, new)),
        }
        kept.sources.push(source);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest micro-batch size that layers of this content were recorded at, on one device or any number.
    pub(super) fn smallest_size(&self, content: &str) -> Option<u32> {
        self.0.get(content)?.values().filter_map(|sizes| sizes.keys().next().copied()).min()
    }

    /// The allocation trace of a layer of this content on a device that holds one of `degree` shards and takes `size`
    /// samples.
    pub(super) fn read(&self, content: &str, degree: u32, size: u32) -> Result<TracedLayer, Gap> {
        let degrees = self.0.get(content).ok_or(Gap::Layer)?;
        if let Some(sizes) = degrees.get(&degree) {
            return at_size(sizes, size);
        }
        // One device communicates with no one, so its events are others than a shard's.
        let shards: Vec<u32> = degrees.keys().copied().filter(|&recorded| recorded > 1).collect();
        let Some(recorded) = (if degree > 1 { around(&shards, degree) } else { None }) else {
            return Err(Gap::Degree { recorded: degrees.keys().copied().collect() });
        };
        let [low, high] = [at_size(&degrees[&recorded[0]], size)?, at_size(&degrees[&recorded[1]], size)?];
        let rule = OverDegree { recorded, target: degree };
        // Parts that are not all equal follow no curve over the degree.
        let parts = if low.is_even() && high.is_even() { Origin::Profiled } else { Origin::Extrapolated };
        let origin = origin(recorded, degree).max(low.origin).max(high.origin).max(parts);
        Ok(low.and(&high, degree, &rule, origin, over_degree(recorded, degree)))
    }

    /// The seconds alone; none where [`Self::read`] fails.
    pub(super) fn seconds(&self, content: &str, degree: u32, size: u32) -> Option<(StageSeconds, Origin)> {
        let degrees = self.0.get(content)?;
        if let Some(sizes) = degrees.get(&degree) {
            return seconds_at(sizes, size);
        }
        let shards: Vec<u32> = degrees.keys().copied().filter(|&recorded| recorded > 1).collect();
        let recorded = around(&shards, degree).filter(|_| degree > 1)?;
        let [low, high] = recorded.map(|recorded| seconds_at(degrees.get(&recorded)?, size));
        let ((low, low_origin), (high, high_origin)) = (low?, high?);
        let read = origin(recorded, degree).max(low_origin).max(high_origin);
        Some((over_degree(recorded, degree)(low, high), read))
    }
}

/// The allocation trace at a size. Its seconds are never read below those of the smallest recorded size.
fn at_size(sizes: &BTreeMap<u32, TracedLayer>, target: u32) -> Result<TracedLayer, Gap> {
    if let Some(trace) = sizes.get(&target) {
        return Ok(trace.clone());
    }
    let recorded: Vec<u32> = sizes.keys().copied().collect();
    let Some(recorded) = around(&recorded, target) else {
        return Err(recorded.first().map_or(Gap::Layer, |&recorded| Gap::Size { recorded }));
    };
    let [low, high] = recorded.map(|size| &sizes[&size]);
    let rule = OverSize { recorded, target };
    let shards = low.shards.len().max(high.shards.len()) as u32;
    let mut trace = low.and(high, shards, &rule, origin(recorded, target), over_size(recorded, target));
    // Kernels choose other algorithms for one sample than for several, on whichever side the recordings are.
    if target == 1 || recorded[0] == 1 {
        trace.not_aligned();
    }
    Ok(trace)
}

fn seconds_at(sizes: &BTreeMap<u32, TracedLayer>, target: u32) -> Option<(StageSeconds, Origin)> {
    if let Some(trace) = sizes.get(&target) {
        return Some((trace.seconds, trace.origin));
    }
    let recorded = around(&sizes.keys().copied().collect::<Vec<u32>>(), target)?;
    let [low, high] = recorded.map(|size| sizes.get(&size));
    Some((over_size(recorded, target)(low?.seconds, high?.seconds), origin(recorded, target)))
}

/// The two recorded values, in order, that a target is read from: those around it, else the nearest two.
fn around(ascending: &[u32], target: u32) -> Option<[u32; 2]> {
    let above = ascending.partition_point(|&value| value < target);
    let first = above.saturating_sub(1).min(ascending.len().checked_sub(2)?);
    Some([ascending[first], ascending[first + 1]])
}

impl TracedLayer {
    /// This one and a larger one, blended for each of so many shards.
    fn and(
        &self,
        other: &Self,
        shards: u32,
        rule: &impl BlendRule,
        origin: Origin,
        read: impl Fn(StageSeconds, StageSeconds) -> StageSeconds,
    ) -> Self {
        let is_steady = self.is_steady && other.is_steady;
        let mut is_aligned = self.is_aligned && other.is_aligned;
        let mut blended: BTreeMap<u32, ShardTraces> = BTreeMap::new();
        let mut pairs: Vec<(&ShardTraces, &ShardTraces, u32)> = Vec::new();
        for shard in 0..shards {
            let (Some(low), Some(high)) = (self.shard(shard), other.shard(shard)) else { continue };
            // Most shards are alike.
            let like = pairs.iter().find(|(first, second, _)| first.is(low) && second.is(high));
            let known = like.and_then(|(_, _, index)| blended.get(index)).cloned();
            let new = known.unwrap_or_else(|| {
                let (shard, aligned) = blend_shards(low, high, is_steady, rule);
                is_aligned &= aligned;
                shard
            });
            pairs.push((low, high, shard));
            blended.insert(shard, new);
        }
        let mut sources = [self.sources.as_slice(), &other.sources].concat();
        sources.sort_unstable();
        sources.dedup();
        let mut trace = Self {
            shards: blended,
            seconds: read(self.seconds, other.seconds),
            origin,
            is_aligned: true,
            is_steady,
            largest: std::array::from_fn(|of| self.largest[of].max(other.largest[of])),
            sources,
        };
        if !is_aligned {
            trace.not_aligned();
        }
        trace
    }

    fn not_aligned(&mut self) {
        self.is_aligned = false;
        // Scratch of another algorithm cannot be foreseen.
        self.origin = Origin::Extrapolated;
    }
}

/// Both allocation traces of a shard, and whether the recordings have the same events.
fn blend_shards(
    low: &ShardTraces,
    high: &ShardTraces,
    is_steady: bool,
    rule: &impl BlendRule,
) -> (ShardTraces, bool) {
    if is_steady {
        let Blended { trace, is_aligned, .. } = blend(&low.trace, &high.trace, rule, Scratch::Steady);
        return (ShardTraces::recorded(Arc::new(trace)), is_aligned);
    }
    let Blended { trace, is_aligned, .. } = blend(&low.trace, &high.trace, rule, Scratch::Expected);
    let most = blend(&low.most, &high.most, rule, Scratch::Most);
    let unseen = most.unseen.max(low.unseen).max(high.unseen);
    let trace = Arc::new(trace);
    // Without scratch both are the same.
    let most = if most.trace == *trace { Arc::clone(&trace) } else { Arc::new(most.trace) };
    (ShardTraces { trace, most, unseen }, is_aligned)
}

fn is_same(one: &LayerTrace, other: &LayerTrace) -> bool {
    let LayerTrace {
        layer: _,
        content: _,
        has_saved,
        first,
        later,
        without_graph,
        untrained_input,
        step,
        overhead,
    } = one;
    *has_saved == other.has_saved
        && (first, later, without_graph) == (&other.first, &other.later, &other.without_graph)
        && (untrained_input, step, overhead) == (&other.untrained_input, &other.step, &other.overhead)
}

fn bytes(trace: &LayerTrace) -> u64 {
    trace.later.blocks.iter().fold(0_u64, |sum, &bytes| sum.saturating_add(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_from_its_neighbours() {
        assert_eq!(around(&[2, 4, 8], 3), Some([2, 4]));
        assert_eq!(around(&[2, 4, 8], 5), Some([4, 8]));
        assert_eq!(around(&[2, 4, 8], 16), Some([4, 8]));
        assert_eq!(around(&[2, 4, 8], 1), Some([2, 4]));
        assert_eq!(around(&[2], 4), None);
        assert_eq!(around(&[], 4), None);
    }
}
