//! Which plan does best when plans are really trained: the last step of a search that trusts its predictions
//! only to choose what to try (AMP, 3.1).

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::plan::report::Measured;

/// What trained plans are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Criterion {
    /// Seconds per sample: of an iteration, as long as the plans have the same global batch.
    Seconds,
    /// Bytes of the device with the highest peak.
    PeakBytes,
    /// The device with the highest peak's share of its capacity.
    PeakShare,
    /// What the objective counts is certain (devices, a price, samples, parameters), so a trial shows no more
    /// than whether the plan trains: those that do keep the order of the predictions.
    Trains,
}

impl Criterion {
    /// The criterion of an objective. Peaks are compared as shares where the plans were chosen so.
    pub fn of(objective: Objective, as_shares: bool) -> Self {
        match objective {
            Objective::MinIterationTime | Objective::Pareto => Self::Seconds,
            Objective::MinPeakMemory if as_shares => Self::PeakShare,
            Objective::MinPeakMemory => Self::PeakBytes,
            Objective::MinDevices | Objective::MinCost | Objective::MaxBatch | Objective::MaxModel => {
                Self::Trains
            }
        }
    }

    /// Human-readable.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Seconds => "measured seconds per sample",
            Self::PeakBytes => "measured peak bytes",
            Self::PeakShare => "measured share of the capacity",
            Self::Trains => "predicted order of the plans whose training succeeded",
        }
    }
}

/// A plan that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Tried<'a> {
    /// Samples of one iteration, above 0.
    pub samples: u64,
    /// Bytes that a device of each stage allows, in order.
    pub capacities: Vec<u64>,
    /// None where it did not succeed, or has not ended.
    pub measured: Option<&'a Measured>,
}

/// The place of each plan, from 1; `tried` are in the order of their predictions. Equal plans share a place;
/// one that measured nothing that can be compared has none.
pub fn places(criterion: Criterion, tried: &[Tried<'_>]) -> Vec<Option<u32>> {
    let criterion = if is_comparable(criterion, tried) { criterion } else { Criterion::Trains };
    let values: Vec<Option<f64>> =
        tried.iter().enumerate().map(|(place, plan)| value(criterion, place, plan, plan.measured?)).collect();
    let better = |than: f64| values.iter().flatten().filter(|&&value| value < than).count();
    values
        .iter()
        .map(|value| value.map(|value| u32::try_from(better(value) + 1).unwrap_or(u32::MAX)))
        .collect()
}

/// The position of the plan that did best; of equal ones the better predicted.
pub fn best(places: &[Option<u32>]) -> Option<usize> {
    places.iter().position(|&place| place == Some(1))
}

/// Bytes of different memory accountings have no order.
fn is_comparable(criterion: Criterion, tried: &[Tried<'_>]) -> bool {
    let ledgers: Vec<Option<Accounting>> = tried
        .iter()
        .filter_map(|plan| plan.measured)
        .map(|measured| measured.peak().map(|peak| peak.ledger))
        .collect();
    match criterion {
        Criterion::Seconds | Criterion::Trains => true,
        Criterion::PeakBytes | Criterion::PeakShare => {
            ledgers.windows(2).all(|pair| pair.first() == pair.last()) && !ledgers.contains(&None)
        }
    }
}

/// Smaller is better.
fn value(criterion: Criterion, place: usize, plan: &Tried<'_>, measured: &Measured) -> Option<f64> {
    match criterion {
        Criterion::Seconds => measured.iteration_seconds.map(|seconds| seconds / plan.samples.max(1) as f64),
        Criterion::PeakBytes => measured.peak().map(|peak| peak.bytes.0 as f64),
        Criterion::PeakShare => {
            let shares = measured.stage_peaks.iter().zip(&plan.capacities);
            let shares = shares.map(|(peak, &capacity)| peak.bytes.0 as f64 / capacity.max(1) as f64);
            shares.max_by(f64::total_cmp)
        }
        Criterion::Trains => Some(place as f64),
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::bytes::Bytes;
    use loadmaster_proto::plan::report::Peak;
    use proptest::prelude::*;

    use super::*;

    fn measured(seconds: f64, peaks: &[u64]) -> Measured {
        let ledger = Accounting::Allocated;
        let stage_peaks = peaks.iter().map(|&bytes| Peak { bytes: Bytes(bytes), ledger }).collect();
        Measured { iteration_seconds: Some(seconds), stage_peaks }
    }

    fn tried(measured: Option<&Measured>) -> Tried<'_> {
        Tried { samples: 8, capacities: vec![100, 400], measured }
    }

    proptest! {
        /// A plan's place is one more than the number of plans that did better, failed ones have none, and the
        /// best one is the first of those in the first place.
        #[test]
        fn places_count_the_better_plans(seconds in prop::collection::vec(prop::option::of(1_u8..6), 1..12)) {
            let measured: Vec<Option<Measured>> =
                seconds.iter().map(|of| of.map(|of| measured(f64::from(of), &[1]))).collect();
            let plans: Vec<Tried<'_>> = measured.iter().map(|of| tried(of.as_ref())).collect();
            let found = places(Criterion::Seconds, &plans);
            for (place, own) in found.iter().zip(&seconds) {
                let better = |than: u8| seconds.iter().flatten().filter(|&&other| other < than).count() as u32;
                prop_assert_eq!(*place, own.map(|own| better(own) + 1));
            }
            let least = seconds.iter().flatten().min();
            prop_assert_eq!(best(&found), seconds.iter().position(|of| of.is_some() && of.as_ref() == least));
        }
    }

    /// Each objective looks at its own figure.
    #[test]
    fn the_objective_decides_what_is_compared() {
        let (slow, fast) = (measured(2.0, &[60, 80]), measured(1.0, &[50, 90]));
        let plans = [tried(Some(&slow)), tried(Some(&fast))];
        let order = |objective, as_shares| places(Criterion::of(objective, as_shares), &plans);
        assert_eq!(order(Objective::MinIterationTime, false), [Some(2), Some(1)]);
        assert_eq!(order(Objective::MinPeakMemory, false), [Some(1), Some(2)]);
        assert_eq!(
            order(Objective::MinPeakMemory, true),
            [Some(2), Some(1)],
            "60 % and 50 % of the first device"
        );
        assert_eq!(order(Objective::MinDevices, false), [Some(1), Some(2)], "as predicted");
    }

    /// A plan that takes more samples at once is not slower because its iteration is longer.
    #[test]
    fn seconds_are_per_sample() {
        let (long, short) = (measured(3.0, &[1]), measured(2.0, &[1]));
        let long = Tried { samples: 16, ..tried(Some(&long)) };
        assert_eq!(places(Criterion::Seconds, &[tried(Some(&short)), long]), [Some(2), Some(1)]);
    }

    /// Bytes of two memory accountings are not ranked against each other: then the prediction's order stays.
    #[test]
    fn ledgers_are_not_compared() {
        let (high, mut low) = (measured(1.0, &[90]), measured(1.0, &[10]));
        low.stage_peaks[0].ledger = Accounting::Device;
        let plans = [tried(Some(&high)), tried(Some(&low))];
        assert_eq!(places(Criterion::PeakBytes, &plans), [Some(1), Some(2)]);
    }
}
