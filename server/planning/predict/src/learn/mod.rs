//! Errors of predictions, and the calibration factors that follow from them.
//!
//! A trial or a report of a plan gives *pairs* of a predicted and a measured figure. [`errors()`] summarizes their
//! differences. [`Corrections`] computes one factor for each kind of device, predictor and quantity that a factor may correct:
//! the median ratio, from three plans on. A request must ask for factors. A plan that uses them stores their version and reasons.
//! Bytes of different memory accountings (allocated, reserved, device) are different quantities, and are never compared.
//!
//! A pair holds the prediction as the predictor made it. The factor of a calibrated plan is removed first: a factor that was
//! computed from calibrated figures would cancel itself. Seconds of trials that other processes disturbed are shown and flagged,
//! but give no factor.

pub mod best_trial;
mod factor;
mod of_copies;
mod of_plan;
mod pairs;
#[cfg(test)]
mod tests;

use pairs::{by_subject, quantile};

pub use factor::{Correction, Corrections, LEAST_PLANS, METHOD};
pub use of_plan::{error_ratio, pairs};
pub use pairs::{Link, Pair, Quantity, Subject};

/// The errors of the predictions of one quantity by one predictor on one kind of device. An error is
/// predicted / measured − 1, or of what may be 0 predicted − measured, in bytes or seconds
/// ([`Quantity::may_be_zero`]): negative where the prediction was too low.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorStatistics {
    /// Of what.
    pub subject: Subject,
    /// Pairs.
    pub count: usize,
    /// Distinct plans that they are of.
    pub plans: usize,
    /// Mean error.
    pub mean: f64,
    /// Mean of the errors' sizes.
    pub mean_absolute: f64,
    /// 90th percentile of the errors' sizes, on a straight line between neighbours.
    pub p90_absolute: f64,
    /// The largest size.
    pub max_absolute: f64,
}

/// Statistics by kind of device, predictor and quantity, in this order. Pairs that hold no number above 0, or none
/// that is 0 where the quantity may be, are left out.
pub fn errors(pairs: &[Pair]) -> Vec<ErrorStatistics> {
    by_subject(pairs).into_iter().map(|(subject, pairs)| statistics(subject, &pairs)).collect()
}

/// Number of distinct plans of pairs that are sorted by plan.
fn plans(pairs: &[&Pair]) -> usize {
    pairs.chunk_by(|a, b| a.plan == b.plan).count()
}

fn statistics(subject: &Subject, pairs: &[&Pair]) -> ErrorStatistics {
    let errors: Vec<f64> = pairs.iter().filter_map(|pair| pair.error()).collect();
    let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    ErrorStatistics {
        subject: subject.clone(),
        count: pairs.len(),
        plans: plans(pairs),
        mean: mean(&errors),
        mean_absolute: mean(&sizes),
        p90_absolute: quantile(&sizes, 0.9),
        max_absolute: sizes.last().copied().unwrap_or(0.0),
    }
}
