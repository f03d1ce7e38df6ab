//! The bytes of a stage by the micro-batches that it holds.

/// Bytes on the fullest device of a stage, whatever its place in a pipeline: a line over the micro-batches in
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
    /// As [`Prediction::margin`](super::Prediction::margin).
    pub margin: Option<f64>,
}

impl PeakCurve {
    /// Bytes with this many micro-batches in flight: the same as [`stage`](super::Predictor::stage) says.
    pub fn bytes(&self, in_flight: u32) -> u64 {
        let one = if in_flight < self.micro_batches { self.one } else { self.one_of_last };
        let further = u64::from(in_flight.saturating_sub(1));
        one.saturating_add(further.saturating_mul(self.each)).max(self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line with a floor, lower where nothing more is to come.
    #[test]
    fn further_micro_batches_add_the_same_until_no_more_come() {
        let curve =
            PeakCurve { least: 25, one: 20, one_of_last: 15, each: 10, micro_batches: 4, margin: None };
        let bytes: Vec<u64> = (1..=4).map(|in_flight| curve.bytes(in_flight)).collect();
        assert_eq!(bytes, [25, 30, 40, 45]);
        assert_eq!(PeakCurve { each: u64::MAX, ..curve }.bytes(3), u64::MAX);
    }
}
