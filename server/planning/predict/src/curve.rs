//! The bytes of a stage by the micro-batches that it holds, and step by step where it is in chunks.

use loadmaster_proto::bytes::Bytes;

use super::{Away, Margin, Origin, Pool, StepBytes};

/// Bytes on the device with the highest peak of a stage, whatever its place in a pipeline: a line over the micro-batches in
/// flight that never falls below a constant. A search reads it for every place that a stage can be at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeakCurve {
    /// What is held at the highest moment that no micro-batch in flight adds to: the step, say.
    pub least: u64,
    /// With one micro-batch in flight and others to come.
    pub one: u64,
    /// With one micro-batch in flight where no more come in this iteration than are in flight already.
    pub one_of_last: u64,
    /// For each further micro-batch in flight.
    pub each: u64,
    /// Micro-batches of an iteration.
    pub micro_batches: u32,
    /// The least [`Prediction::margin`](super::Prediction::margin).
    pub margin: Option<f64>,
    /// `least`, `one` and `one_of_last` with as much scratch memory as kernels may take; none where that is
    /// known.
    pub most: Option<[u64; 3]>,
}

impl PeakCurve {
    /// Bytes with this many micro-batches in flight: the same as [`stage`](super::Predictor::stage) says.
    pub fn bytes(&self, in_flight: u32) -> u64 {
        self.with([self.least, self.one, self.one_of_last], in_flight)
    }

    /// The margin of these bytes, wide enough for as much scratch memory as kernels may take.
    pub fn margin(&self, in_flight: u32) -> Option<f64> {
        let margin = self.margin?;
        let Some(most) = self.most else { return Some(margin) };
        Some(margin.max(margin_up_to(self.bytes(in_flight), self.with(most, in_flight))))
    }

    fn with(&self, [least, one, one_of_last]: [u64; 3], in_flight: u32) -> u64 {
        let one = if in_flight < self.micro_batches { one } else { one_of_last };
        let further = u64::from(in_flight.saturating_sub(1));
        one.saturating_add(further.saturating_mul(self.each)).max(least)
    }
}

/// The margin whose upper end is `most`.
pub fn margin_up_to(bytes: u64, most: u64) -> f64 {
    most.saturating_sub(bytes) as f64 / bytes.max(1) as f64
}

/// What a device holds in each step of [`loadmaster_proto::chunks::stage::Chunks`] besides payloads: `N(t)` of
/// `N(t) + R(t)` (PatrickStar, its memory tracer's *non-model data*). Gradients count until they are in their chunk;
/// parameters and the optimizer's state are the chunks', and so is what an update of chunks on the device takes besides. What
/// micro-batches keep on the host counts until it is gone and from where it is fetched.
#[derive(Debug, Clone, PartialEq)]
pub struct Moments {
    /// Bytes of each step.
    pub curve: Vec<StepBytes>,
    /// The most bytes of each step, with as much scratch memory as kernels may take; those of the curve where that is known.
    pub upper: Vec<u64>,
    /// The real bytes of a step are expected within this share of those of the curve, what kernels may take apart. None where
    /// no one has measured that.
    pub margin: Option<f64>,
    /// How far from the profile.
    pub origin: Origin,
    /// What is away when, in the order of [`loadmaster_proto::training::actions::StageActions::absences`].
    pub away: Vec<Away>,
    /// What of it is on the host at once; none where nothing is away.
    pub pool: Option<Pool>,
}

impl Moments {
    /// The most bytes that are away on the host at once.
    pub fn pool_bytes(&self) -> Bytes {
        Bytes(self.pool.as_ref().map_or(0, |pool| pool.peak))
    }

    /// Bytes of each step that a device must have beside payloads.
    pub fn needed(&self, margin: Margin) -> Vec<u64> {
        let of = |(step, &upper): (&StepBytes, &u64)| {
            let needed = margin.needed_for(Bytes(step.most.total()), self.margin).0;
            match margin {
                Margin::Known => needed.max(upper),
                Margin::Share(_) => needed,
            }
        };
        self.curve.iter().zip(&self.upper).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line with a floor, lower where nothing more is to come.
    #[test]
    fn further_micro_batches_add_the_same_until_no_more_come() {
        let curve = PeakCurve {
            least: 25,
            one: 20,
            one_of_last: 15,
            each: 10,
            micro_batches: 4,
            margin: None,
            most: None,
        };
        let bytes: Vec<u64> = (1..=4).map(|in_flight| curve.bytes(in_flight)).collect();
        assert_eq!(bytes, [25, 30, 40, 45]);
        assert_eq!(PeakCurve { each: u64::MAX, ..curve }.bytes(3), u64::MAX);
    }

    /// The margin covers what kernels may take, which weighs less the more micro-batches are in flight.
    #[test]
    fn a_margin_reaches_the_most_that_kernels_may_take() {
        let curve = PeakCurve {
            least: 25,
            one: 20,
            one_of_last: 15,
            each: 80,
            micro_batches: 4,
            margin: Some(0.1),
            most: Some([35, 40, 40]),
        };
        let margins: Vec<f64> = [1, 2, 3].iter().filter_map(|&in_flight| curve.margin(in_flight)).collect();
        assert_eq!(margins, [15.0 / 25.0, 20.0 / 100.0, 20.0 / 180.0]);
        assert_eq!(PeakCurve { most: None, ..curve }.margin(1), Some(0.1));
        assert_eq!(PeakCurve { margin: None, ..curve }.margin(1), None);
    }
}
