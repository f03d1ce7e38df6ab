//! The largest micro-batch that fits.
//!
//! A family of plans is asked for its fastest one with each size ([`largest_batch`]). Plans that are known by what their stages cost
//! alone are searched from the largest size down ([`exact_largest_batch`]).

use std::collections::BTreeMap;

use loadmaster_proto::plan::objective::Objective;

use super::{Answer, Availability, FamilySolution, PlanFamily, Progress, Subproblem, Verdict, nothing_found};
use crate::problem::Criteria;
use crate::result::{QuestionError, RecommendError};
use crate::search::{Effort, Inquiry, MOST_NAMED, Ranking, Solution, first_fit, on_any_subset, settle};
use loadmaster_search::cost::{Batch, Market};

/// Most sizes of which it is asked whether they are proven impossible.
const MOST_PROVEN: usize = 512;
/// Most of them that are searched for that.
const MOST_SEARCHED: usize = 128;

/// Micro-batches from the smallest to the largest, and what is known of them.
struct Sizes<'a, F> {
    family: &'a F,
    batches: Vec<Batch>,
    /// By place: whether it is proven that nothing fits.
    empty: BTreeMap<usize, bool>,
    states: u64,
    /// Of the smallest one of which nothing was found.
    error: Option<(usize, RecommendError)>,
}

/// What there is of sizes above one.
enum Above {
    Nothing,
    Open(usize),
    Fits(usize, Box<FamilySolution>),
}

impl<F: PlanFamily> Sizes<'_, F> {
    fn subproblem(&self, index: usize) -> Subproblem {
        let batches = self.batches.get(index).copied().into_iter().collect();
        Subproblem { batches, ..self.family.whole() }
    }

    /// The fastest plan of a size; none where none was found.
    fn ask(&mut self, index: usize) -> Result<Option<FamilySolution>, QuestionError> {
        let subproblem = self.subproblem(index);
        let found = match self.family.lacks(&subproblem) {
            Some(error) => Err(error.into()),
            None => self.family.fastest(&subproblem),
        };
        match found {
            Ok(found) => {
                self.states = self.states.saturating_add(found.certificate.states);
                Ok(Some(found))
            }
            Err(error) => {
                let error = nothing_found(error)?;
                self.empty.insert(index, error.is_proof());
                if self.error.as_ref().is_none_or(|(known, _)| index < *known) {
                    self.error = Some((index, error));
                }
                Ok(None)
            }
        }
    }

    /// The largest one of which a plan is found, as if all below one that fits fitted, too.
    fn first(&mut self) -> Result<Option<(usize, FamilySolution)>, QuestionError> {
        let mut best = None;
        // Below it something fits, from it on nothing was found to.
        let (mut low, mut high, mut step) = (0, self.batches.len(), 1);
        while low < high && !self.family.context().stop.is_requested() {
            // In longer and longer steps until nothing fits, then by halves.
            let is_open = high == self.batches.len();
            let index = if is_open { (low + step - 1).min(high - 1) } else { low + (high - low) / 2 };
            match self.ask(index)? {
                Some(found) => {
                    best = Some((index, found));
                    (low, step) = (index + 1, step * 2);
                }
                None => high = index,
            }
        }
        Ok(best)
    }

    /// From the largest down, the first size above that one that has a plan after all, or else of which it is not proven that it has
    /// none.
    fn above(&mut self, best: Option<usize>) -> Result<Above, QuestionError> {
        let (least, mut searched) = (best.map_or(0, |best| best + 1), 0);
        for (asked, index) in (least..self.batches.len()).rev().enumerate() {
            let is_known = self.empty.get(&index).copied();
            if is_known == Some(true) {
                continue;
            }
            if asked >= MOST_PROVEN || self.family.context().stop.is_requested() {
                return Ok(Above::Open(index));
            }
            if self.family.is_impossible(&self.subproblem(index)) {
                self.empty.insert(index, true);
                continue;
            }
            let is_searched = is_known.is_none() && self.family.is_exact() && searched < MOST_SEARCHED;
            if !is_searched {
                return Ok(Above::Open(index));
            }
            searched += 1;
            if let Some(found) = self.ask(index)? {
                return Ok(Above::Fits(index, Box::new(found)));
            }
            if self.empty.get(&index) != Some(&true) {
                return Ok(Above::Open(index));
            }
        }
        Ok(Above::Nothing)
    }
}

/// The fastest plan of the largest micro-batch for which one was found. Nothing is taken for granted of those above.
pub(super) fn largest_batch<F: PlanFamily>(family: &F) -> Answer {
    let mut batches: Vec<Batch> = family.context().criteria.batches.clone();
    batches.sort_by_key(|batch| batch.micro_batch_size);
    // Others are no plan's, or too long to be looked at.
    let (mut may_be, mut too_long) = (Vec::new(), None);
    let whole = family.whole();
    for batch in batches {
        match family.availability(&whole.devices, &[batch])? {
            Availability::Searched => may_be.push(batch),
            Availability::TooLong => too_long = Some(batch),
            Availability::Absent => {}
        }
    }
    if may_be.is_empty() {
        // What is wrong with all of them.
        return family.fastest(&whole).and_then(|_| Err(RecommendError::Stopped.into()));
    }
    let mut sizes = Sizes { family, batches: may_be, empty: BTreeMap::new(), states: 0, error: None };
    let mut best = sizes.first()?;
    let mut doubtful = match sizes.above(best.as_ref().map(|(index, _)| *index))? {
        Above::Nothing => None,
        Above::Open(index) => sizes.batches.get(index).copied(),
        Above::Fits(index, found) => {
            best = Some((index, *found));
            None
        }
    };
    let is_stopped = family.context().stop.is_requested();
    let Some((index, found)) = best else {
        let subproblem = sizes.subproblem(sizes.error.as_ref().map_or(0, |(index, _)| *index));
        let Some((_, error)) = sizes.error.filter(|_| !is_stopped) else {
            return Err(RecommendError::Stopped.into());
        };
        // A larger one may be split over replicas.
        let is_proven = doubtful.is_none() && too_long.is_none();
        let error = if is_proven { error } else { error.unproven() };
        return Err(family.explained(error.into(), &subproblem));
    };
    let size = |batch: Batch| f64::from(batch.micro_batch_size);
    let value = sizes.batches.get(index).copied().map_or(0.0, size);
    let larger = |batch: &Batch| size(*batch) > value;
    doubtful = [doubtful, too_long.filter(larger)].into_iter().flatten().max_by_key(|of| of.micro_batch_size);
    let mut tried = Progress { states: sizes.states, ..Progress::default() };
    if let Some(&next) = sizes.batches.get(index + 1) {
        let is_proven = sizes.empty.get(&(index + 1)) == Some(&true);
        tried.pass_over(format!("micro-batch {}", next.micro_batch_size), size(next), is_proven);
    }
    let subproblem = sizes.subproblem(index);
    let compared = (!family.compares_points()).then(|| family.compared(&subproblem).ok()).flatten();
    let found = compared.unwrap_or(found);
    tried.doubtful = doubtful.map(size);
    tried.is_stopped = family.context().stop.is_requested() || found.certificate.stopped;
    let verdict = Verdict {
        certificate: tried.certificate(value, family.context().criteria.objective.unit()),
        notes: Vec::new(),
        among: Some("for this micro-batch size"),
        beside: Some(&subproblem),
        next_worth: Some(value),
    };
    family.told(found, verdict)
}

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
pub(super) fn exact_largest_batch<M: Market>(inquiry: Inquiry<'_, M>) -> Solution {
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
