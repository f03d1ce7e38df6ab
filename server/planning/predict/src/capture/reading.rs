//! The profiled settings of one scenario, read at a target along straight lines (III-B2).
//!
//! The first line runs over the micro-batch size, the second one over the micro-batches in flight.
//!
//! # Batch scaling by the pipeline's slopes (III-A3)
//!
//! A parallel scenario may be profiled at one micro-batch size. The paper then scales it "based on the
//! pipeline-parallel profiling data" without saying how. Its models of memory divide what grows with the
//! batch by the degree n, for data and for tensor parallelism alike (III-B3). So here a device of such
//! a stage grows by the n-th part of what the same layers grow by on one device.
//!
//! # Straight lines through profiled values (CAPTURE, III-B2 and Description 2)
//!
//! * A profiled value is returned as it is.
//! * Between and beyond profiled values: the line through the two nearest ones, in whole bytes, rounded
//!   up, so that rounding never hides a byte.
//! * Beyond the largest profiled value a figure is never below a measured one: with the paper's half
//!   and quarter of the target every figure is an extrapolation, and noise may tilt a flat line down.

use std::collections::BTreeMap;

use loadmaster_proto::training::scenario::Scenario;

use super::metrics::{LayerMetrics, Setting};
use crate::{Origin, PredictionError};

/// Sums by micro-batches in flight, then by micro-batch size, both ascending.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    scenario: Scenario,
    by_in_flight: BTreeMap<u32, BTreeMap<u32, MetricSums>>,
}

/// Where and what to read: layers `first..=last`, checked to be the model's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) first: usize,
    pub(super) last: usize,
    pub(super) micro_batch_size: u32,
    pub(super) in_flight: u32,
}

/// The pipeline scenario that lends its slopes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slopes<'a>(pub(super) &'a Reading);

impl Reading {
    /// From the metrics of one scenario; all of their layers are below `layers`.
    pub(super) fn new(scenario: Scenario, layers: usize, metrics: &[&LayerMetrics]) -> Self {
        let mut by_setting: BTreeMap<Setting, Vec<&LayerMetrics>> = BTreeMap::new();
        for &layer in metrics {
            by_setting.entry(layer.setting).or_default().push(layer);
        }
        let mut by_in_flight: BTreeMap<u32, BTreeMap<u32, MetricSums>> = BTreeMap::new();
        for (setting, metrics) in by_setting {
            let sums = MetricSums::new(setting, layers, &metrics);
            by_in_flight.entry(setting.in_flight).or_default().insert(setting.micro_batch_size, sums);
        }
        Self { scenario, by_in_flight }
    }

    /// The peak of a stage at a target, bytes; may be negative.
    ///
    /// # Errors
    /// A metric or a second point of a line is missing.
    pub(super) fn read(
        &self,
        target: Target,
        slopes: Option<Slopes<'_>>,
    ) -> Result<(i128, Origin), PredictionError> {
        if let Some(by_size) = self.by_in_flight.get(&target.in_flight)
            && let Ok(read) = self.at_size(by_size, target, slopes)
        {
            return Ok(read);
        }
        let mut points = Vec::with_capacity(self.by_in_flight.len());
        let mut worst = Origin::Profiled;
        let mut gap = None;
        for (&in_flight, by_size) in &self.by_in_flight {
            match self.at_size(by_size, Target { in_flight, ..target }, slopes) {
                Ok((bytes, origin)) => {
                    worst = worst.max(origin);
                    points.push(ProfiledPoint { at: in_flight, bytes });
                }
                Err(error) => gap = Some(gap.unwrap_or(error)),
            }
        }
        let (bytes, origin) =
            read_at(&points, target.in_flight).ok_or_else(|| match (gap, points.first()) {
                (Some(error), _) => error,
                (None, Some(point)) => {
                    PredictionError::OneInFlight { profiled: point.at, target: target.in_flight }
                }
                (None, None) => PredictionError::NothingProfiled { scenario: self.scenario },
            })?;
        Ok((bytes, origin.max(worst)))
    }

    /// The peak at one profiled number of micro-batches in flight, read at a micro-batch size.
    fn at_size(
        &self,
        by_size: &BTreeMap<u32, MetricSums>,
        target: Target,
        slopes: Option<Slopes<'_>>,
    ) -> Result<(i128, Origin), PredictionError> {
        let mut points = Vec::with_capacity(by_size.len());
        let mut gap = None;
        for (&size, sums) in by_size {
            match sums.peak(target.first, target.last) {
                Ok(bytes) => points.push(ProfiledPoint { at: size, bytes }),
                Err(error) => gap = Some(gap.unwrap_or(error)),
            }
        }
        if let Some(read) = read_at(&points, target.micro_batch_size) {
            return Ok(read);
        }
        if let (&[point], Some(slopes)) = (points.as_slice(), slopes) {
            return slopes.scaled(point, self.scenario.degree, target);
        }
        Err(match (gap, points.first()) {
            (Some(error), _) => error,
            (None, Some(point)) => PredictionError::OneMicroBatchSize {
                scenario: self.scenario,
                profiled: point.at,
                target: target.micro_batch_size,
            },
            (None, None) => PredictionError::NothingProfiled { scenario: self.scenario },
        })
    }

    /// The least and the largest profiled micro-batch size, if they differ.
    fn sizes(&self) -> Option<(u32, u32)> {
        let sizes = || self.by_in_flight.values().flat_map(BTreeMap::keys).copied();
        let (least, largest) = (sizes().min()?, sizes().max()?);
        (least < largest).then_some((least, largest))
    }
}

impl Slopes<'_> {
    fn scaled(
        self,
        profiled: ProfiledPoint,
        degree: u32,
        target: Target,
    ) -> Result<(i128, Origin), PredictionError> {
        let Self(pipeline) = self;
        let Some((least, largest)) = pipeline.sizes() else {
            let size = pipeline.by_in_flight.values().flat_map(BTreeMap::keys).next();
            return Err(PredictionError::OneMicroBatchSize {
                scenario: pipeline.scenario,
                profiled: size.copied().unwrap_or(profiled.at),
                target: target.micro_batch_size,
            });
        };
        let at = |micro_batch_size| pipeline.read(Target { micro_batch_size, ..target }, None);
        let ((low, _), (high, _)) = (at(least)?, at(largest)?);
        let samples = i128::from(target.micro_batch_size) - i128::from(profiled.at);
        let rise = (high - low) * samples;
        let run = i128::from(largest - least) * i128::from(degree.max(1));
        // Rounded towards more bytes, for either sign.
        let bytes = profiled.bytes - (-rise).div_euclid(run);
        let bytes = if samples > 0 { bytes.max(profiled.bytes) } else { bytes };
        Ok((bytes, Origin::Extrapolated))
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct MetricSums {
    setting: Setting,
    isolated: Vec<Option<u64>>,
    /// `added[k]`: sum over the layers below k that have the metric.
    added: Vec<i128>,
    /// `complete_since[k]`: the first layer s ≤ k such that all of s+1..=k have added memory.
    complete_since: Vec<usize>,
}

impl MetricSums {
    /// From the metrics of one setting; all of their layers are below `layers`.
    pub(super) fn new(setting: Setting, layers: usize, metrics: &[&LayerMetrics]) -> Self {
        let mut isolated = vec![None; layers];
        let mut each = vec![None; layers];
        for metrics in metrics {
            isolated[metrics.layer] = metrics.isolated.map(|bytes| bytes.0);
            each[metrics.layer] = metrics.added.map(|added| i128::from(added.bytes));
        }
        let mut added = vec![0];
        let mut complete_since = Vec::with_capacity(layers);
        let (mut sum, mut since) = (0, 0);
        for (layer, bytes) in each.into_iter().enumerate() {
            match bytes {
                Some(bytes) => sum += bytes,
                None => since = layer,
            }
            added.push(sum);
            complete_since.push(since);
        }
        Self { setting, isolated, added, complete_since }
    }

    /// `M_i(first) + Σ M_a`, bytes; may be negative.
    pub(super) fn peak(&self, first: usize, last: usize) -> Result<i128, PredictionError> {
        let missing = |metric, layer| PredictionError::MetricMissing { metric, layer, setting: self.setting };
        let isolated = self.isolated[first].ok_or_else(|| missing("isolated", first))?;
        let since = self.complete_since[last];
        if since > first {
            return Err(missing("added", since));
        }
        Ok(i128::from(isolated) + self.added[last + 1] - self.added[first + 1])
    }
}

/// A value at a profiled micro-batch size or number of micro-batches in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProfiledPoint {
    /// Where.
    pub(super) at: u32,
    /// The value there.
    pub(super) bytes: i128,
}

/// Reads the value at `target`. None when that takes a line and there are not two points, which must
/// ascend.
fn read_at(points: &[ProfiledPoint], target: u32) -> Option<(i128, Origin)> {
    let above = points.partition_point(|point| point.at < target);
    if let Some(point) = points.get(above).filter(|point| point.at == target) {
        return Some((point.bytes, Origin::Profiled));
    }
    let low = above.clamp(1, points.len().checked_sub(1).filter(|&last| last > 0)?) - 1;
    let bytes = through(points[low], points[low + 1], target);
    if above == points.len() {
        let measured = points.iter().map(|point| point.bytes).max()?;
        return Some((bytes.max(measured), Origin::Extrapolated));
    }
    Some((bytes, if above == 0 { Origin::Extrapolated } else { Origin::Interpolated }))
}

fn through(low: ProfiledPoint, high: ProfiledPoint, target: u32) -> i128 {
    let run = i128::from(high.at) - i128::from(low.at);
    let rise = (high.bytes - low.bytes) * (i128::from(target) - i128::from(low.at));
    // Rounded towards more bytes, for either sign.
    low.bytes - (-rise).div_euclid(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_points(points: &[(u32, i128)], target: u32) -> Option<(i128, Origin)> {
        let points: Vec<ProfiledPoint> =
            points.iter().map(|&(at, bytes)| ProfiledPoint { at, bytes }).collect();
        read_at(&points, target)
    }

    #[test]
    fn profiled_values_are_returned_and_others_lie_on_the_line() {
        let points = [(2, 100), (4, 160)];
        assert_eq!(read_points(&points, 4), Some((160, Origin::Profiled)));
        assert_eq!(read_points(&points, 3), Some((130, Origin::Interpolated)));
        assert_eq!(read_points(&points, 8), Some((280, Origin::Extrapolated)));
        assert_eq!(read_points(&points, 1), Some((70, Origin::Extrapolated)));
    }

    /// Noise must not predict that a larger micro-batch needs less than a smaller one did.
    #[test]
    fn extrapolation_upwards_never_falls_below_a_measured_value() {
        assert_eq!(read_points(&[(2, 100), (4, 90)], 8), Some((100, Origin::Extrapolated)));
        assert_eq!(read_points(&[(2, 100), (4, 90)], 3), Some((95, Origin::Interpolated)));
    }

    #[test]
    fn a_line_needs_two_points() {
        assert_eq!(read_points(&[(2, 100)], 2), Some((100, Origin::Profiled)));
        assert_eq!(read_points(&[(2, 100)], 4), None);
        assert_eq!(read_points(&[], 4), None);
    }

    #[test]
    fn rounding_never_hides_a_byte() {
        assert_eq!(read_points(&[(1, 0), (4, 1)], 2), Some((1, Origin::Interpolated)));
        assert_eq!(read_points(&[(1, 1), (4, 0)], 2), Some((1, Origin::Interpolated)));
        assert_eq!(read_points(&[(1, 1), (4, 0)], 3), Some((1, Origin::Interpolated)));
    }

    /// With more than two points the two nearest ones count.
    #[test]
    fn the_nearest_two_of_many_points_make_the_line() {
        let points = [(1, 0), (2, 10), (4, 100)];
        assert_eq!(read_points(&points, 3), Some((55, Origin::Interpolated)));
        assert_eq!(read_points(&points, 6), Some((190, Origin::Extrapolated)));
        assert_eq!(read_points(&[(2, 10), (4, 100), (8, 100)], 1), Some((-35, Origin::Extrapolated)));
    }
}
