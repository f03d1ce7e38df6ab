//! The tapes of a profile, and reading them at any micro-batch size and tensor degree.

use std::collections::BTreeMap;
use std::sync::Arc;

use loadmaster_proto::measurement::{LayerTimes, Measurement};
use loadmaster_proto::stage::Parallelism;
use loadmaster_proto::tape::LayerTape;

use super::blend::{Blended, OverDegree, OverSize, blend};
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
    /// runs) the one with most bytes counts. Replicas have nothing of their own: they train as a single
    /// device does at a part of the micro-batch.
    pub(super) fn add(&mut self, source: usize, measurement: &Measurement) {
        let Some(tape) = &measurement.tape else { return };
        let stage = measurement.stage;
        let (degree, size) = match stage.parallelism {
            Parallelism::None => (1, measurement.micro_batch_size),
            Parallelism::Tensor => (stage.degree, measurement.micro_batch_size),
            Parallelism::Data => return,
        };
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
        let shares = |low: f64, high: f64| {
            let [n, m] = recorded.map(f64::from);
            let shrinking = (low - high) * n * m / (m - n);
            // Times are noisy: more shards never save more than their share of the work.
            let least = if degree > recorded[1] { high * m / f64::from(degree) } else { 0.0 };
            (low - shrinking / n + shrinking / f64::from(degree)).max(least)
        };
        let between = recorded[0] < degree && degree < recorded[1];
        Ok(low.and(
            &high,
            blend(&low.tape, &high.tape, &OverDegree { recorded, target: degree }),
            between,
            shares,
        ))
    }
}

fn at_size(sizes: &BTreeMap<u32, Tape>, target: u32) -> Result<Tape, Gap> {
    if let Some(tape) = sizes.get(&target) {
        return Ok(tape.clone());
    }
    let recorded: Vec<u32> = sizes.keys().copied().collect();
    let Some(recorded) = around(&recorded, target) else {
        return Err(recorded.first().map_or(Gap::Layer, |&recorded| Gap::Size { recorded }));
    };
    let [low, high] = recorded.map(|size| &sizes[&size]);
    let line = |at_low: f64, at_high: f64| {
        let [n, m] = recorded.map(f64::from);
        // Times are noisy: a larger micro-batch never takes less than a smaller one took.
        let least = if target > recorded[1] { at_high } else { 0.0 };
        (at_low + (at_high - at_low) * (f64::from(target) - n) / (m - n)).max(least)
    };
    let between = recorded[0] < target && target < recorded[1];
    let mut blended = blend(&low.tape, &high.tape, &OverSize { recorded, target });
    // Kernels choose other algorithms for one sample than for several, on whichever side the recordings are.
    blended.is_aligned &= target > 1 && recorded[0] > 1;
    Ok(low.and(high, blended, between, line))
}

/// The two recorded values, in order, that a target is read from: those around it, else the nearest two.
fn around(ascending: &[u32], target: u32) -> Option<[u32; 2]> {
    let above = ascending.partition_point(|&value| value < target);
    let first = above.saturating_sub(1).min(ascending.len().checked_sub(2)?);
    Some([ascending[first], ascending[first + 1]])
}

impl Tape {
    /// This one and a larger one, blended.
    fn and(&self, other: &Self, blended: Blended, between: bool, read: impl Fn(f64, f64) -> f64) -> Self {
        let seconds = |of: fn(&LayerSeconds) -> f64| read(of(&self.seconds), of(&other.seconds));
        let origin = if between { Origin::Interpolated } else { Origin::Extrapolated };
        let is_aligned = blended.is_aligned && self.is_aligned && other.is_aligned;
        let mut sources = [self.sources.as_slice(), &other.sources].concat();
        sources.sort_unstable();
        sources.dedup();
        Self {
            tape: Arc::new(blended.tape),
            seconds: LayerSeconds {
                forward: seconds(|of| of.forward),
                backward: seconds(|of| of.backward),
                step: seconds(|of| of.step),
            },
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
