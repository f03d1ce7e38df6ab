//! The tapes of a profile, and reading them at any micro-batch size and tensor degree.

use std::collections::BTreeMap;
use std::sync::Arc;

use loadmaster_proto::measure::measurement::{LayerTimes, Measurement};
use loadmaster_proto::measure::tape::LayerTape;
use loadmaster_proto::training::Precision;

use super::blend::{BlendRule, Blended, OverDegree, OverSize, Scratch, blend};
use super::layer_seconds::{LayerSeconds, origin, over_degree, over_size};
use super::scratch;
use crate::Origin;

/// The recordings of a layer on the devices that share it, or what was put together from several.
#[derive(Debug, Clone)]
pub(super) struct Tape {
    /// By shard. They hold parts of an axis that are not always equal; equal tapes are one.
    pub(super) shards: BTreeMap<u32, ShardTapes>,
    pub(super) seconds: LayerSeconds,
    /// How far from the recordings.
    pub(super) origin: Origin,
    /// The recordings that it was put together from have the same events.
    pub(super) is_aligned: bool,
    /// Scratch memory of kernels follows a line here.
    pub(super) is_steady: bool,
    /// The largest micro-batch size and tensor degree of the recordings.
    pub(super) largest: [u32; 2],
    /// Positions in the profile's list of measurements.
    pub(super) sources: Vec<usize>,
}

/// What one shard allocates.
#[derive(Debug, Clone)]
pub(super) struct ShardTapes {
    pub(super) tape: Arc<LayerTape>,
    /// With as much scratch as kernels may take; the same one where that is known.
    pub(super) most: Arc<LayerTape>,
    /// Scratch that comes on top, in none of the blocks.
    pub(super) unseen: u64,
}

impl ShardTapes {
    fn recorded(tape: Arc<LayerTape>) -> Self {
        Self { most: Arc::clone(&tape), tape, unseen: 0 }
    }

    /// Whether both are the same tapes.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tape, &other.tape) && Arc::ptr_eq(&self.most, &other.most)
    }
}

impl Tape {
    /// The tapes of this shard; where it was not recorded, those of the first one, which holds most.
    pub(super) fn shard(&self, index: u32) -> Option<&ShardTapes> {
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
    /// Nothing at this tensor degree, and not the two degrees above 1 that others can be read from.
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

/// Recordings by content of the layer, tensor degree and micro-batch size of a device.
#[derive(Debug, Clone, Default)]
pub(super) struct Library(BTreeMap<String, BTreeMap<u32, BTreeMap<u32, Tape>>>);

impl Library {
    /// Adds the tape of a measurement, if it has one. Each shard of a stage has its own; of several runs at the
    /// same setting the one with most bytes counts, among those that say what autograd saved if any does. Replicas
    /// have nothing of their own: they train as one replica does at a part of the micro-batch.
    pub(super) fn add(&mut self, source: usize, measurement: &Measurement, precision: Precision) {
        let Some(tape) = &measurement.tape else { return };
        let stage = measurement.stage;
        if stage.data_degree > 1 {
            return;
        }
        let (degree, size) = (stage.tensor_degree.max(1), measurement.micro_batch_size);
        let times = measurement.layers.iter().find(|times| times.layer == stage.first_layer);
        let LayerTimes { forward_seconds, backward_seconds, .. } = times.copied().unwrap_or_default();
        let degrees = self.0.entry(tape.content.clone()).or_default();
        let sizes = degrees.entry(degree).or_default();
        let kept = sizes.entry(size).or_insert_with(|| Tape {
            shards: BTreeMap::new(),
            seconds: LayerSeconds::default(),
            origin: Origin::Profiled,
            is_aligned: true,
            is_steady: true,
            largest: [size, degree],
            sources: Vec::new(),
        });
        kept.is_steady &= scratch::is_steady(precision, &measurement.environment);
        let new = match kept.shards.values().find(|known| is_same(&known.tape, tape)) {
            Some(known) => known.clone(),
            None => ShardTapes::recorded(Arc::new(LayerTape::clone(tape))),
        };
        // One that says what autograd saved can answer for more.
        let counts = |tape: &LayerTape| (tape.has_saved, bytes(tape));
        let most_so_far = kept.shards.values().map(|known| counts(&known.tape)).max();
        if most_so_far.is_none_or(|most| most < counts(tape)) {
            kept.seconds = LayerSeconds {
                forward: forward_seconds,
                backward: backward_seconds,
                step: measurement.step_seconds,
            };
        }
        match kept.shards.get(&measurement.shard) {
            Some(old) if counts(&old.tape) >= counts(tape) => return,
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

    /// The tape of a layer of this content on a device that holds one of `degree` shards and takes `size`
    /// samples.
    pub(super) fn read(&self, content: &str, degree: u32, size: u32) -> Result<Tape, Gap> {
        let degrees = self.0.get(content).ok_or(Gap::Layer)?;
        if let Some(sizes) = degrees.get(&degree) {
            return at_size(sizes, size);
        }
        // One device communicates with nobody, so its events are others than a shard's.
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
    pub(super) fn seconds(&self, content: &str, degree: u32, size: u32) -> Option<(LayerSeconds, Origin)> {
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

/// The tape at a size. Its seconds are never read below those of the smallest recorded size.
fn at_size(sizes: &BTreeMap<u32, Tape>, target: u32) -> Result<Tape, Gap> {
    if let Some(tape) = sizes.get(&target) {
        return Ok(tape.clone());
    }
    let recorded: Vec<u32> = sizes.keys().copied().collect();
    let Some(recorded) = around(&recorded, target) else {
        return Err(recorded.first().map_or(Gap::Layer, |&recorded| Gap::Size { recorded }));
    };
    let [low, high] = recorded.map(|size| &sizes[&size]);
    let rule = OverSize { recorded, target };
    let shards = low.shards.len().max(high.shards.len()) as u32;
    let mut tape = low.and(high, shards, &rule, origin(recorded, target), over_size(recorded, target));
    // Kernels choose other algorithms for one sample than for several, on whichever side the recordings are.
    if target == 1 || recorded[0] == 1 {
        tape.not_aligned();
    }
    Ok(tape)
}

fn seconds_at(sizes: &BTreeMap<u32, Tape>, target: u32) -> Option<(LayerSeconds, Origin)> {
    if let Some(tape) = sizes.get(&target) {
        return Some((tape.seconds, tape.origin));
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

impl Tape {
    /// This one and a larger one, blended for each of so many shards.
    fn and(
        &self,
        other: &Self,
        shards: u32,
        rule: &impl BlendRule,
        origin: Origin,
        read: impl Fn(LayerSeconds, LayerSeconds) -> LayerSeconds,
    ) -> Self {
        let is_steady = self.is_steady && other.is_steady;
        let mut is_aligned = self.is_aligned && other.is_aligned;
        let mut blended: BTreeMap<u32, ShardTapes> = BTreeMap::new();
        let mut pairs: Vec<(&ShardTapes, &ShardTapes, u32)> = Vec::new();
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
        let mut tape = Self {
            shards: blended,
            seconds: read(self.seconds, other.seconds),
            origin,
            is_aligned: true,
            is_steady,
            largest: std::array::from_fn(|of| self.largest[of].max(other.largest[of])),
            sources,
        };
        if !is_aligned {
            tape.not_aligned();
        }
        tape
    }

    fn not_aligned(&mut self) {
        self.is_aligned = false;
        // Scratch of another algorithm cannot be foreseen.
        self.origin = Origin::Extrapolated;
    }
}

/// Both tapes of a shard, and whether the recordings have the same events.
fn blend_shards(
    low: &ShardTapes,
    high: &ShardTapes,
    is_steady: bool,
    rule: &impl BlendRule,
) -> (ShardTapes, bool) {
    if is_steady {
        let Blended { tape, is_aligned, .. } = blend(&low.tape, &high.tape, rule, Scratch::Steady);
        return (ShardTapes::recorded(Arc::new(tape)), is_aligned);
    }
    let Blended { tape, is_aligned, .. } = blend(&low.tape, &high.tape, rule, Scratch::Expected);
    let most = blend(&low.most, &high.most, rule, Scratch::Most);
    let unseen = most.unseen.max(low.unseen).max(high.unseen);
    let tape = Arc::new(tape);
    // Without scratch both are the same.
    let most = if most.tape == *tape { Arc::clone(&tape) } else { Arc::new(most.tape) };
    (ShardTapes { tape, most, unseen }, is_aligned)
}

fn is_same(one: &LayerTape, other: &LayerTape) -> bool {
    let LayerTape {
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

fn bytes(tape: &LayerTape) -> u64 {
    tape.later.blocks.iter().fold(0_u64, |sum, &bytes| sum.saturating_add(bytes))
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
