//! What plans are worth, in the terms of an objective.

use loadmaster_proto::plan::objective::Objective;

use super::candidate::Candidate;
use crate::problem::Criteria;
use loadmaster_search::Unit;
use loadmaster_simulate::MAX_PASSES;

/// A plan's value in the objective's terms.
pub(crate) fn value(criteria: &Criteria, candidate: &Candidate) -> Option<f64> {
    match criteria.objective {
        // The formula stands in for what is too large to be simulated, and for nothing else.
        Objective::MinIterationTime | Objective::Pareto => {
            let is_too_large = candidate.passes() > MAX_PASSES;
            candidate.simulated.or_else(|| candidate.closed_form.filter(|_| is_too_large))
        }
        Objective::MinDevices => Some(f64::from(candidate.devices())),
        Objective::MinCost => candidate.hourly_price,
        Objective::MaxBatch => Some(f64::from(candidate.batch.micro_batch_size)),
        Objective::MinPeakMemory | Objective::MaxModel => {
            candidate.peaks(criteria.unit).highest().map(|peak| peak as f64)
        }
    }
}

/// The best value of any of these plans.
pub(crate) fn best_value(criteria: &Criteria, plans: &[Candidate]) -> Option<f64> {
    let values = plans.iter().filter_map(|plan| value(criteria, plan));
    if criteria.objective.is_maximum() { values.reduce(f64::max) } else { values.reduce(f64::min) }
}

/// A value in what a certificate counts: shares are stored as whole parts.
pub(crate) fn counted(criteria: &Criteria, value: f64) -> f64 {
    match (criteria.objective, criteria.unit) {
        (Objective::MinPeakMemory | Objective::MaxModel, Unit::Share) => value / Unit::WHOLE as f64,
        _ => value,
    }
}
