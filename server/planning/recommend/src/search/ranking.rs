//! Plans in the order of what was asked for, what each is worth by the objective, and what is known of those that are not among them.

use std::cmp::Ordering;

use loadmaster_proto::plan::objective::{Objective, SearchMode};

use super::candidate::Candidate;
use super::solve::Solved;
use crate::problem::{Criteria, Variant};
use loadmaster_search::{Ended, Unit};
use loadmaster_simulate::MAX_PASSES;

/// Points of a front whose seconds differ by no more than this part of them differ by rounding.
const ROUNDING: f64 = 1e-9;

/// What criteria come to on one set of devices.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranking {
    /// Plans, best first; one for each variant that has any, and of a front all.
    pub candidates: Vec<Candidate>,
    /// No plan is worth less: peak in the criteria's unit, or simulated seconds. Infinite where there is none; unset where
    /// nothing is known.
    pub bound: Option<f64>,
    /// States weighed.
    pub states: u64,
    /// Whether it was stopped from outside.
    pub is_stopped: bool,
    /// Whether part of the space was too large to look at whole.
    pub is_bounded: bool,
    /// Variants of which no plan fits.
    pub unfit: Vec<Variant>,
}

impl Ranking {
    /// Nothing yet, and no plan known to be possible.
    pub(super) fn none() -> Self {
        Self { bound: Some(f64::INFINITY), ..Self::default() }
    }

    pub(super) fn ended(&mut self, ended: Ended) {
        match ended {
            Ended::Proven => {}
            Ended::Stopped => self.is_stopped = true,
            Ended::Bounded => self.is_bounded = true,
        }
    }

    /// Takes in what a search by a formula, or of peaks alone, came to.
    pub(super) fn add(&mut self, variant: &Variant, solved: Solved) {
        self.states = self.states.saturating_add(solved.states);
        self.ended(solved.ended);
        self.bound = self.bound.zip(solved.bound).map(|(a, b)| a.min(b));
        match solved.best {
            Some(best) => self.candidates.push(best),
            None if solved.ended == Ended::Proven => self.unfit.push(variant.clone()),
            None => {}
        }
    }

    /// What was not asked about any more may hold anything.
    pub(super) fn stop(&mut self) {
        self.is_stopped = true;
        self.bound = None;
    }
}

/// Drops what the criteria does not allow, simulates what is shown, and puts all in order.
pub(crate) fn settle(ranking: &mut Ranking, criteria: &Criteria) {
    let Ranking { candidates, is_bounded, .. } = ranking;
    if let Some(most) = criteria.constraints.max_peak_bytes {
        candidates.retain(|candidate| candidate.peak_bytes() <= most);
    }
    if !criteria.objective.is_timed() {
        candidates.sort_by(|a, b| a.by_peaks(b, criteria.unit));
        let limited = criteria.constraints.max_iteration_seconds.is_some();
        let simulated = if limited { candidates.len() } else { criteria.alternatives + 1 };
        candidates.iter_mut().take(simulated).for_each(Candidate::simulate);
    }
    if let Some(limit) = criteria.constraints.max_iteration_seconds {
        candidates.iter_mut().for_each(Candidate::simulate);
        let found = candidates.len();
        candidates.retain(|candidate| candidate.seconds().is_some_and(|seconds| seconds <= limit));
        // A program of a paper looks at one plan of many.
        *is_bounded |= candidates.len() < found && criteria.mode != SearchMode::Exact;
    }
    if criteria.objective == Objective::Pareto {
        keep_front(candidates, criteria.unit);
    } else {
        candidates.sort_by(|a, b| order(criteria, a, b));
    }
    // A plan without replicas was found for each state sharding.
    if criteria.constraints.shardings.len() > 1 {
        let mut distinct: Vec<Candidate> = Vec::with_capacity(candidates.len());
        for candidate in candidates.drain(..) {
            if !distinct.iter().any(|known| known.is_same(&candidate)) {
                distinct.push(candidate);
            }
        }
        *candidates = distinct;
    }
}

/// Simulates all plans that may be the fastest: those that take no longer at least than the fastest of them. The
/// others are not ranked by simulation.
pub(crate) fn simulate_best(plans: &mut [Candidate]) {
    plans.sort_by(|a, b| {
        a.closed_form.unwrap_or(f64::INFINITY).total_cmp(&b.closed_form.unwrap_or(f64::INFINITY))
    });
    let mut least = f64::INFINITY;
    for plan in plans {
        if plan.at_least().is_none_or(|seconds| seconds < least) {
            plan.simulate();
            least = least.min(plan.simulated.unwrap_or(f64::INFINITY));
        }
    }
}

/// The order of criteria's objective.
pub(crate) fn order(criteria: &Criteria, one: &Candidate, other: &Candidate) -> Ordering {
    if !criteria.objective.is_timed() {
        return one.by_peaks(other, criteria.unit);
    }
    // What was not simulated takes longer than what was.
    let rank = |candidate: &Candidate| candidate.simulated.is_none();
    rank(one).cmp(&rank(other)).then_with(|| one.by_seconds(other, criteria.unit))
}

/// Keeps the plans that no other one beats in both, the fastest first: the highest peak, and simulated seconds.
/// Plans whose seconds differ by rounding are equally fast.
pub(super) fn keep_front(candidates: &mut Vec<Candidate>, unit: Unit) {
    candidates.iter_mut().for_each(Candidate::simulate);
    let peak = |candidate: &Candidate| candidate.peaks(unit).highest().unwrap_or(0);
    let seconds = |candidate: &Candidate| candidate.seconds().unwrap_or(f64::INFINITY);
    candidates.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)).then(peak(a).cmp(&peak(b))));
    let mut front: Vec<Candidate> = Vec::new();
    for candidate in candidates.drain(..) {
        let Some(last) = front.last() else {
            front.push(candidate);
            continue;
        };
        if peak(&candidate) >= peak(last) {
            continue;
        }
        if seconds(&candidate) <= seconds(last) * (1.0 + ROUNDING) {
            front.pop();
        }
        front.push(candidate);
    }
    *candidates = front;
}

/// Returns a plan's value in the objective's terms.
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

/// Returns the best value of any of these plans.
pub(crate) fn best_value(criteria: &Criteria, plans: &[Candidate]) -> Option<f64> {
    let values = plans.iter().filter_map(|plan| value(criteria, plan));
    if criteria.objective.is_maximum() { values.reduce(f64::max) } else { values.reduce(f64::min) }
}

/// Returns a value in the unit of a certificate: shares are stored as whole parts.
pub(crate) fn counted(criteria: &Criteria, value: f64) -> f64 {
    match (criteria.objective, criteria.unit) {
        (Objective::MinPeakMemory | Objective::MaxModel, Unit::Share) => value / Unit::WHOLE as f64,
        _ => value,
    }
}

/// Most devices or micro-batches that are named as not looked at whole.
pub(crate) const MOST_NAMED: usize = 8;

/// The result of a search for criteria.
#[derive(Debug, Clone)]
pub(crate) struct Solution {
    /// Plans, best first.
    pub candidates: Vec<Candidate>,
    /// The best one's value in the objective's terms; none without a plan.
    pub value: Option<f64>,
    /// No plan has a better value; none where nothing is known.
    pub bound: Option<f64>,
    /// States weighed.
    pub states: u64,
    /// Whether it was stopped from outside.
    pub is_stopped: bool,
    /// Whether part of the space was too large to look at whole.
    pub is_bounded: bool,
    /// What was looked at before the best and has no plan: human-readable, with the value that it would have had.
    pub passed_over: Vec<(String, f64)>,
    /// What was not looked at whole, and may have a better plan: human-readable.
    pub open: Vec<String>,
    /// Variants of which no plan fits, of the devices and the batch that the best plan is on.
    pub unfit: Vec<Variant>,
}

impl Solution {
    pub(crate) fn new(ranking: Ranking, value: Option<f64>, bound: Option<f64>) -> Self {
        Self {
            candidates: ranking.candidates,
            value,
            bound,
            states: ranking.states,
            is_stopped: ranking.is_stopped,
            is_bounded: ranking.is_bounded,
            passed_over: Vec::new(),
            open: Vec::new(),
            unfit: ranking.unfit,
        }
    }

    /// Returns whether the best plan is proven best.
    pub(crate) fn is_proven(&self) -> bool {
        !self.is_stopped && !self.is_bounded && self.value.is_some()
    }
}
