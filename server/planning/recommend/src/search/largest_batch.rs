//! The largest micro-batch that fits.

use loadmaster_proto::plan::objective::Objective;

use super::any_subset::{first_fit, on_any_subset};
use super::effort::Effort;
use super::inquiry::Inquiry;
use super::ranking::{MOST_NAMED, Ranking, Solution, settle};
use crate::problem::Criteria;
use loadmaster_search::cost::{Batch, Market};

/// The first of these micro-batches, the largest first, that fits if all after one that fits do too: where to begin,
/// and no more.
fn fits_by_halves<M: Market>(inquiry: Inquiry<'_, M>, batches: &[Batch]) -> Option<usize> {
    let (mut low, mut high) = (0, batches.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let one = Criteria { batches: vec![*batches.get(middle)?], ..inquiry.criteria.clone() };
        match first_fit(inquiry.with(&one), true) {
            Some(_) => high = middle,
            None => low = middle + 1,
        }
    }
    (low < batches.len()).then_some(low)
}

/// The largest micro-batch that fits: from the largest listed one down, so that nothing is taken for granted of
/// sizes in between. Those above one that fits are passed over, and said to be open, once nothing is left to look at
/// them with.
pub(super) fn largest_batch<M: Market>(inquiry: Inquiry<'_, M>) -> Solution {
    let Inquiry { criteria, effort, .. } = inquiry;
    let timed = criteria.constraints.max_iteration_seconds.is_some();
    let objective = if timed { Objective::MinIterationTime } else { Objective::MinPeakMemory };
    let mut batches: Vec<Batch> = criteria.batches.clone();
    batches.sort_by_key(|batch| std::cmp::Reverse(batch.micro_batch_size));
    let (mut states, mut passed_over, mut open) = (0_u64, Vec::new(), Vec::new());
    let (mut is_stopped, mut is_bounded) = (false, false);
    // All sizes share it.
    let last = Effort::last_look();
    // The first size of which it is not proven that no plan fits.
    let mut doubtful = None;
    // Asked for where nothing is left to prove with, and not before.
    let mut known = None;
    let mut is_passed = |index: usize| {
        let halves = || fits_by_halves(inquiry.within(&effort.to_halve()), &batches);
        let known: Option<usize> = *known.get_or_insert_with(halves);
        known.is_some_and(|known| index < known)
    };
    for (index, &batch) in batches.iter().enumerate() {
        let size = f64::from(batch.micro_batch_size);
        if effort.is_blind() && !effort.is_requested() && is_passed(index) {
            is_bounded = true;
            doubtful = doubtful.or(Some(size));
            if open.len() < MOST_NAMED {
                open.push(format!("micro-batch {}", batch.micro_batch_size));
            }
            continue;
        }
        let one = Criteria { objective, batches: vec![batch], ..criteria.clone() };
        // Stopped, it still looks for anything that fits, and says from where on it proved nothing.
        let ranking = if effort.is_requested() {
            let plan = first_fit(inquiry.with(&one).within(&last), true);
            let mut ranking =
                Ranking { candidates: plan.into_iter().collect(), is_stopped: true, ..Ranking::default() };
            settle(&mut ranking, &one);
            ranking
        } else {
            on_any_subset(inquiry.with(&one))
        };
        states = states.saturating_add(ranking.states);
        is_stopped |= ranking.is_stopped;
        if !ranking.candidates.is_empty() {
            let found =
                Ranking { states, is_bounded, is_stopped: is_stopped && doubtful.is_some(), ..ranking };
            return Solution {
                passed_over,
                open,
                ..Solution::new(found, Some(size), doubtful.or(Some(size)))
            };
        }
        if ranking.is_bounded || ranking.is_stopped {
            is_bounded |= ranking.is_bounded;
            doubtful = doubtful.or(Some(size));
        }
        passed_over.push((format!("micro-batch {}", batch.micro_batch_size), size));
    }
    let nothing = Ranking { states, is_bounded, is_stopped, ..Ranking::default() };
    Solution { passed_over, open, ..Solution::new(nothing, None, doubtful) }
}
