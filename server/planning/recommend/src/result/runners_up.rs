//! The plans that come next to the best.

use loadmaster_proto::plan::objective::{Objective, SearchMode};

use crate::problem::Criteria;
use crate::search::{
    Candidate, Effort, Inquiry, Solution, counted, order, rank_by_formula, simulate_best, value,
};
use loadmaster_search::cost::Market;

/// Most cuts of the best plan that are forbidden, one at a time, to find the plans that come next.
const MOST_FORBIDDEN: usize = 8;

/// The plans of a search and those that come next, best first: the best of each variant, and those that differ from
/// the best one in a cut.
pub(super) fn pool<M: Market>(inquiry: Inquiry<'_, M>, found: &Solution) -> Vec<Candidate> {
    let criteria = inquiry.criteria;
    let mut pool = found.candidates.clone();
    let is_timed = criteria.objective == Objective::MinIterationTime;
    let is_ranked = is_timed || criteria.objective == Objective::MinPeakMemory;
    // Others are in the order of what counts besides, or are a front.
    let Some(best) = pool.first().cloned().filter(|_| is_ranked) else { return pool };
    let is_asked = criteria.alternatives > 0 && criteria.mode == SearchMode::Exact;
    // What other cuts there are on the same devices, with the same batch and schedule.
    if is_asked && best.devices() == inquiry.subset.devices() {
        let one = Criteria {
            batches: vec![best.batch],
            schedules: vec![best.schedule],
            alternatives: 0,
            ..criteria.clone()
        };
        let inner = best.stages.iter().take(best.stages.len().saturating_sub(1)).map(|stage| stage.last);
        let effort = Effort::besides(&inquiry.effort.stop);
        for layer in inner.take(MOST_FORBIDDEN) {
            if effort.is_requested() {
                break;
            }
            let mut without = inquiry.cuts.clone();
            without.keep_together(layer..=layer + 1);
            let others = rank_by_formula(inquiry.with(&one).on(inquiry.subset, &without).within(&effort));
            pool.extend(others.into_iter().take(1));
        }
    }
    if is_timed {
        simulate_best(&mut pool);
    }
    best_first(criteria, pool)
}

/// These plans, the best first, and each once.
pub(super) fn best_first(criteria: &Criteria, mut pool: Vec<Candidate>) -> Vec<Candidate> {
    pool.sort_by(|a, b| order(criteria, a, b));
    let mut distinct: Vec<Candidate> = Vec::with_capacity(pool.len());
    for plan in pool {
        if !distinct.iter().any(|known| known.is_same(&plan)) {
            distinct.push(plan);
        }
    }
    distinct
}

/// The plans that come next, with their values as a certificate counts them.
pub(super) fn alternatives(criteria: &Criteria, pool: &[Candidate]) -> Vec<(Candidate, f64)> {
    let mut next: Vec<Candidate> = pool.iter().skip(1).take(criteria.alternatives).cloned().collect();
    next.iter_mut().for_each(Candidate::simulate);
    next.sort_by(|a, b| order(criteria, a, b));
    next.into_iter()
        .filter_map(|plan| {
            let value = value(criteria, &plan).map(|value| counted(criteria, value))?;
            Some((plan, value))
        })
        .collect()
}
