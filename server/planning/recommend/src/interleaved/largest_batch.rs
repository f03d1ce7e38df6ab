//! The largest micro-batch that fits.

use std::collections::BTreeMap;

use loadmaster_proto::plan::Plan;

use super::InterleavedQuestion;
use super::subproblem::{InterleavedSolution, InterleavedSubproblem};
use crate::memory_optimizations::{LayerMinima, Progress, nothing_found, seconds_note};
use crate::plan::NamedPlan;
use crate::result::{QuestionError, RecommendError};
use loadmaster_search::cost::Batch;

/// Most sizes of which it is asked whether they are proven impossible.
const MOST_PROVEN: usize = 512;
/// Most of them that are searched for that.
const MOST_SEARCHED: usize = 128;

/// Micro-batches from the smallest to the largest, and what is known of them.
struct Sizes<'a, 'q> {
    question: &'a InterleavedQuestion<'q>,
    batches: Vec<Batch>,
    known: LayerMinima,
    /// By place: whether it is proven that nothing fits.
    empty: BTreeMap<usize, bool>,
    states: u64,
    /// Of the smallest one of which nothing was found.
    error: Option<(usize, RecommendError)>,
}

impl Sizes<'_, '_> {
    fn subproblem(&self, index: usize) -> InterleavedSubproblem {
        let batches = self.batches.get(index).copied().into_iter().collect();
        InterleavedSubproblem { batches, ..InterleavedSubproblem::whole(self.question) }
    }

    /// The fastest plan of a size; none where none was found.
    fn ask(&mut self, index: usize) -> Result<Option<InterleavedSolution>, QuestionError> {
        let subproblem = self.subproblem(index);
        let hopeless = self.question.hopeless(&subproblem, &self.known);
        let found = match hopeless {
            Some(error) => Err(error.into()),
            None => self.question.fastest(&subproblem),
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
    fn first(&mut self) -> Result<Option<(usize, InterleavedSolution)>, QuestionError> {
        let mut best = None;
        // Below it something fits, from it on nothing was found to.
        let (mut low, mut high, mut step) = (0, self.batches.len(), 1);
        while low < high && !self.question.stop.is_requested() {
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
            if asked >= MOST_PROVEN || self.question.stop.is_requested() {
                return Ok(Above::Open(index));
            }
            let subproblem = self.subproblem(index);
            if self.question.hopeless(&subproblem, &self.known).is_some() {
                self.empty.insert(index, true);
                continue;
            }
            // Where actions are chosen a search proves nothing.
            let is_searched =
                is_known.is_none() && self.question.allowed.is_none() && searched < MOST_SEARCHED;
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

/// What there is of sizes above one.
enum Above {
    Nothing,
    Open(usize),
    Fits(usize, Box<InterleavedSolution>),
}

impl InterleavedQuestion<'_> {
    /// The fastest plan of the largest micro-batch for which one was found. Nothing is taken for granted of those above.
    pub(super) fn largest_batch(&self) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        let mut batches: Vec<Batch> = self.criteria.batches.clone();
        batches.sort_by_key(|batch| batch.micro_batch_size);
        // Others are no plan's, or too long to be looked at.
        let (mut may_be, mut too_long) = (Vec::new(), None);
        for batch in batches {
            match self.may_be(batch)? {
                Some(true) => may_be.push(batch),
                Some(false) => too_long = Some(batch),
                None => {}
            }
        }
        if may_be.is_empty() {
            // What is wrong with all of them.
            return self
                .fastest(&InterleavedSubproblem::whole(self))
                .and_then(|_| Err(RecommendError::Stopped.into()));
        }
        let mut sizes = Sizes {
            question: self,
            batches: may_be,
            known: LayerMinima::default(),
            empty: BTreeMap::new(),
            states: 0,
            error: None,
        };
        let mut best = sizes.first()?;
        let mut doubtful = match sizes.above(best.as_ref().map(|(index, _)| *index))? {
            Above::Nothing => None,
            Above::Open(index) => sizes.batches.get(index).copied(),
            Above::Fits(index, found) => {
                best = Some((index, *found));
                None
            }
        };
        let Some((index, found)) = best else {
            let error = sizes.error.filter(|_| !self.stop.is_requested()).map(|(_, error)| error);
            // A larger one may be split over replicas.
            let is_proven = doubtful.is_none() && too_long.is_none();
            let error = error.map(|error| if is_proven { error } else { error.unproven() });
            return Err(error.unwrap_or(RecommendError::Stopped).into());
        };
        let size = |batch: Batch| f64::from(batch.micro_batch_size);
        let value = sizes.batches.get(index).copied().map_or(0.0, size);
        let larger = |batch: &Batch| size(*batch) > value;
        doubtful =
            [doubtful, too_long.filter(larger)].into_iter().flatten().max_by_key(|of| of.micro_batch_size);
        let mut tried = Progress { states: sizes.states, ..Progress::default() };
        if let Some(&next) = sizes.batches.get(index + 1) {
            let is_proven = sizes.empty.get(&(index + 1)) == Some(&true);
            tried.pass_over(format!("micro-batch {}", next.micro_batch_size), size(next), is_proven);
        }
        (tried.doubtful, tried.is_stopped) = (doubtful.map(size), self.stop.is_requested());
        let criteria = self.criteria_within(&sizes.subproblem(index));
        let InterleavedSolution { mut plan, certificate: of_seconds, mut next } = found;
        self.tell_looked_at(&mut plan);
        if criteria.objective.is_timed() {
            plan.warnings.push(seconds_note("of this micro-batch", &of_seconds));
        }
        plan.found.certificate = Some(tried.certificate(value, self.criteria.objective.unit()));
        self.annotate_comparison(&mut plan, &criteria)?;
        next.iter_mut().for_each(|(_, worth)| *worth = value);
        let others = self.annotate_next(&mut plan, next)?;
        Ok((plan, others))
    }

    /// Whether plans of a micro-batch may be searched; none where there are none.
    fn may_be(&self, batch: Batch) -> Result<Option<bool>, QuestionError> {
        self.within(
            &InterleavedSubproblem { batches: vec![batch], ..InterleavedSubproblem::whole(self) },
            |one| {
                let Some(given) = &one.request.partitioning else {
                    let possible = one.possible();
                    return Ok((!possible.is_empty()).then(|| one.is_any_short(&possible)));
                };
                let (stages, each) = (given.stages().len(), one.request.virtual_stages.max(1) as usize);
                let is_possible = (batch.micro_batches as usize).is_multiple_of((stages / each).max(1));
                let layers = one.builder.chain.layer_names.len();
                Ok(is_possible.then(|| super::check_length(layers, batch.micro_batches).is_ok()))
            },
        )
    }
}
