//! The tapes of a profile, and reading them at any micro-batch size and tensor degree.

use std::collections::BTreeMap;
use std::sync::Arc;

use loadmaster_proto::measurement::{LayerTimes, Measurement};
use loadmaster_proto::tape::LayerTape;

use super::blend::{Blended, OverDegree, OverSize, blend};
use super::times::{origin, over_degree, over_size};
use crate::planning::predictor::Origin;

/// A recording, or what was put together from several.
#[derive(Debug, Clone)]
pub(super) struct Tape {
    pub(super) tape: Arc<LayerTape>,
    pub(super) seconds: LayerSeconds,
    /// How far from the recordings.
    pub(super) origin: Origin,
    /// The recordings that it was put together from have the same events.
    pub(super) is_aligned: bool,
    /// Positions in the profile's list of measurements.
    pub(super) sources: Vec<usize>,
}

/// Seconds of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct LayerSeconds {
    /// A forward pass of a micro-batch.
    pub(super) forward: f64,
    /// A backward pass of a micro-batch, without recomputation.
    pub(super) backward: f64,
    /// Its part of the end of an iteration.
    pub(super) step: f64,
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
    /// Adds the tape of a measurement, if it has one. Of several at the same setting (shards, repeated
    /// runs) the one with most bytes counts. Replicas have nothing of their own: they train as one replica
    /// does at a part of the micro-batch.
    pub(super) fn add(&mut self, source: usize, measurement: &Measurement) {
        let Some(tape) = &measurement.tape else { return };
        let stage = measurement.stage;
        if stage.data_degree > 1 {
            return;
        }
        let (degree, size) = (stage.tensor_degree.max(1), measurement.micro_batch_size);
        let times = measurement.layers.iter().find(|times| times.layer == stage.first_layer);
        let LayerTimes { forward_seconds, backward_seconds, .. } = times.copied().unwrap_or_default();
        let new = Tape {
            tape: Arc::new(LayerTape::clone(tape)),
            seconds: LayerSeconds {
                forward: forward_seconds,
                backward: backward_seconds,
                step: measurement.step_seconds,
            },
            origin: Origin::Profiled,
            is_aligned: true,
            sources: vec![source],
        };
        let degrees = self.0.entry(tape.content.clone()).or_default();
        let sizes = degrees.entry(degree).or_default();
        let bytes =
            |tape: &LayerTape| tape.later.blocks.iter().fold(0_u64, |sum, &bytes| sum.saturating_add(bytes));
        match sizes.get(&size) {
            Some(old) if bytes(&old.tape) >= bytes(&new.tape) => {}
            _ => drop(sizes.insert(size, new)),
        }
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
        let blended = blend(&low.tape, &high.tape, &OverDegree { recorded, target: degree });
        Ok(low.and(&high, blended, origin(recorded, degree), over_degree(recorded, degree)))
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
        Some((low.and(&high, over_degree(recorded, degree)), read))
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
    let mut blended = blend(&low.tape, &high.tape, &OverSize { recorded, target });
    // Kernels choose other algorithms for one sample than for several, on whichever side the recordings are.
    blended.is_aligned &= target > 1 && recorded[0] > 1;
    Ok(low.and(high, blended, origin(recorded, target), over_size(recorded, target)))
}

fn seconds_at(sizes: &BTreeMap<u32, Tape>, target: u32) -> Option<(LayerSeconds, Origin)> {
    if let Some(tape) = sizes.get(&target) {
        return Some((tape.seconds, tape.origin));
    }
    let recorded = around(&sizes.keys().copied().collect::<Vec<u32>>(), target)?;
    let [low, high] = recorded.map(|size| sizes.get(&size));
    Some((low?.seconds.and(&high?.seconds, over_size(recorded, target)), origin(recorded, target)))
}

/// The two recorded values, in order, that a target is read from: those around it, else the nearest two.
fn around(ascending: &[u32], target: u32) -> Option<[u32; 2]> {
    let above = ascending.partition_point(|&value| value < target);
    let first = above.saturating_sub(1).min(ascending.len().checked_sub(2)?);
    Some([ascending[first], ascending[first + 1]])
}

impl Tape {
    /// This one and a larger one, blended.
    fn and(&self, other: &Self, blended: Blended, origin: Origin, read: impl Fn(f64, f64) -> f64) -> Self {
        let is_aligned = blended.is_aligned && self.is_aligned && other.is_aligned;
        let mut sources = [self.sources.as_slice(), &other.sources].concat();
        sources.sort_unstable();
        sources.dedup();
        Self {
            tape: Arc::new(blended.tape),
            seconds: self.seconds.and(&other.seconds, read),
            // Scratch of another algorithm cannot be foreseen.
            origin: if is_aligned { origin } else { Origin::Extrapolated },
            is_aligned,
            sources,
        }
    }
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
