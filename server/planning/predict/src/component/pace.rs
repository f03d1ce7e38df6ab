//! How sure predicted seconds are.
//!
//! No one can say so before stages of several layers were trained whose seconds nothing was learnt from: the
//! profile's checks. Their largest error and half as much once more is the least margin. Of three like draws from a
//! bell curve the largest is 1.3 standard deviations off on average, and two of these hold 95 of 100. The margins
//! below are for what no check shows, because all of them are trained at recorded sizes, on one device, minutes
//! after the recordings. Without checks no margin is known.

use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::plan::prediction::UNUSABLE_MARGIN;
use loadmaster_proto::training::TrainingSpec;

use crate::{Origin, StageSeconds};

/// Least margin where everything was recorded: fed with the times of a run's own layers, simulations of that run
/// were up to 3.5 % off.
pub const PROFILED: f64 = 0.05;
/// Least margin between recorded sizes or degrees.
pub const INTERPOLATED: f64 = 0.1;
/// Least margin beyond recorded sizes or degrees.
pub const EXTRAPOLATED: f64 = 0.25;
/// Least margin of replicas, which wait for each other.
pub const REPLICATED: f64 = 0.1;
/// Share of its passes that each of two replicas on CPU slots waits for the other before gradients are summed.
const WAITING_OF_TWO: f64 = 0.04;
/// What the largest error of the checks is multiplied by.
pub const ALLOWANCE: f64 = 1.5;

/// How a stage was predicted, as far as its seconds depend on it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SecondsOrigin {
    pub(super) origin: Origin,
    /// Replicas of the stage.
    pub(super) data_degree: u32,
    /// Samples of a device's pass.
    pub(super) size: u32,
    /// The smallest such size that was recorded.
    pub(super) smallest: Option<u32>,
}

/// The margin of predicted seconds; `largest_error` is that of the checks, `disturbed` the share of recorded seconds by which quiet
/// ones may differ from them. Checks that were as disturbed as the recordings agree with them and show nothing of that.
pub(super) fn margin(of: SecondsOrigin, largest_error: Option<f64>, disturbed: f64) -> Option<f64> {
    let Some(largest_error) = largest_error else {
        return (disturbed > UNUSABLE_MARGIN).then_some(disturbed);
    };
    let base = match of.origin {
        Origin::Profiled | Origin::Imported => PROFILED,
        Origin::Interpolated => INTERPOLATED,
        Origin::Extrapolated => EXTRAPOLATED,
    };
    let replicated = if of.data_degree > 1 { REPLICATED } else { 0.0 };
    // What the smallest recorded size takes was read; fewer samples take that share of it at least.
    let below = of.smallest.map_or(0.0, |smallest| 1.0 - f64::from(of.size) / f64::from(smallest.max(1)));
    Some(base.max(replicated).max(below).max(ALLOWANCE * largest_error).max(disturbed))
}

/// The share of its passes that a replica on a CPU slot waits for the slowest of so many. No pass takes as long as the next one,
/// and the largest of n draws from a bell curve grows as the root of log n.
pub(super) fn waiting(replicas: u32) -> f64 {
    WAITING_OF_TWO * f64::from(replicas.max(1)).log2().sqrt()
}

/// Seconds of an iteration of a check.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checked {
    pub(super) predicted: f64,
    pub(super) measured: f64,
}

/// What a check shows; none where its iterations were not timed, or no time was predicted. `training` is that of its run.
pub(super) fn checked(
    predicted: StageSeconds,
    training: &TrainingSpec,
    measured: &Measurement,
) -> Option<Checked> {
    let StageSeconds { forward, backward, step } = predicted;
    let predicted = f64::from(training.micro_batches) * (forward + backward) + step;
    let measured = measured.iteration_seconds;
    let error = (measured - predicted).abs() / predicted;
    (measured > 0.0 && error.is_finite()).then_some(Checked { predicted, measured })
}

/// The largest part of the prediction by which a check took longer or shorter. A check that is shorter than the mean counts as
/// a part of that: a millisecond more or less of a stage that takes hardly any matters to no plan.
pub(super) fn largest_error(checks: &[Checked]) -> Option<f64> {
    let mean = checks.iter().map(|of| of.predicted).sum::<f64>() / checks.len() as f64;
    let errors = checks.iter().map(|of| (of.measured - of.predicted).abs() / of.predicted.max(mean));
    errors.reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: SecondsOrigin =
        SecondsOrigin { origin: Origin::Profiled, data_degree: 1, size: 4, smallest: Some(4) };

    /// No check, no margin; else never less than what checks cannot show.
    #[test]
    fn a_margin_is_learnt_and_has_a_floor() {
        assert_eq!(margin(RECORDED, None, 0.0), None);
        let known = |of: SecondsOrigin| margin(of, Some(0.02), 0.0).unwrap();
        assert_eq!(known(RECORDED), PROFILED);
        assert_eq!(known(SecondsOrigin { data_degree: 2, ..RECORDED }), REPLICATED);
        assert_eq!(known(SecondsOrigin { origin: Origin::Interpolated, size: 6, ..RECORDED }), INTERPOLATED);
        assert_eq!(known(SecondsOrigin { origin: Origin::Extrapolated, size: 16, ..RECORDED }), EXTRAPOLATED);
        assert_eq!(margin(RECORDED, Some(0.4), 0.0), Some(0.4 * ALLOWANCE));
    }

    /// What others took of the cores while layers were recorded is in no check's error.
    #[test]
    fn disturbed_recordings_have_as_wide_an_interval_as_they_were_disturbed() {
        assert_eq!(margin(RECORDED, Some(0.02), 0.25), Some(0.25));
        assert_eq!(margin(RECORDED, Some(0.4), 0.25), Some(0.4 * ALLOWANCE));
        assert_eq!((margin(RECORDED, None, 0.25), margin(RECORDED, None, 1.5)), (None, Some(1.5)));
    }

    /// A stage that takes hardly any time says nothing of those that do.
    #[test]
    fn errors_of_checks_weigh_what_they_matter() {
        let error = |all: &[(f64, f64)]| {
            let all = all.iter().map(|&(predicted, measured)| Checked { predicted, measured });
            largest_error(&all.collect::<Vec<_>>())
        };
        assert_eq!(
            (error(&[]), error(&[(2.0, 2.5)]), error(&[(2.0, 1.5), (2.0, 2.2)])),
            (None, Some(0.25), Some(0.25))
        );
        let short = error(&[(1.0, 1.04), (0.001, 0.0013)]).unwrap();
        assert!((short - 0.04).abs() < 1e-9, "{short}");
    }

    /// None waits alone, two as measured, and more of them longer, but far from in proportion.
    #[test]
    fn the_more_replicas_the_longer_they_wait() {
        assert_eq!((waiting(1), waiting(2)), (0.0, WAITING_OF_TWO));
        assert!((2..64).all(|replicas| waiting(replicas) < waiting(replicas + 1)));
        assert!(waiting(16) <= 2.0 * WAITING_OF_TWO);
    }

    /// One of four samples may take a quarter of the seconds that four take.
    #[test]
    fn below_the_smallest_size_the_interval_reaches_down_to_its_share() {
        let one = SecondsOrigin { origin: Origin::Extrapolated, size: 1, ..RECORDED };
        assert_eq!(margin(one, Some(0.02), 0.0), Some(0.75));
    }
}
