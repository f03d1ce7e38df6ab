//! The best plan with interleaved stages of all that may be chosen: micro-batches, degrees, recomputation, cuts and memory actions.

use std::cell::RefCell;

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::Allowed;

use super::cutting::{Cut, Cutting, Patience, Worth, cut};
use super::evaluation::MemoryWeight;
use super::pipeline::Pipeline;
use super::plan_builder::BuiltPlan;
use super::variants::Variants;
use super::{InterleavedQuestion, SOLVER, solution};
use crate::objectives::FamilySolution;
use crate::result::{QuestionError, RecommendError};
use crate::search::{Candidate, Inquiry, Job};
use loadmaster_search::StageCosts;
use loadmaster_search::cost::{Market, Prices};

/// Within which share of the bound a value is as good: sums in another order.
pub(super) const EQUAL: f64 = 1e-9;
/// Candidates for which memory actions are looked for, of all variants, and of each of them.
const MOST_LIGHTENED: usize = 8;
const FEWEST_LIGHTENED: usize = 2;

/// A way to cut a variant that is one of the best of it so far.
struct CutCandidate {
    cut: Cut,
    candidate: Candidate,
}

/// What no plan of the variants gets below, and how that is known.
struct SearchBound {
    /// Seconds; none where stages may be faster than their layers.
    bound: Option<f64>,
    /// Whether every way to cut every variant that could be better was looked at.
    is_complete: bool,
    looked_at: u64,
}

impl InterleavedQuestion<'_> {
    /// The best plan of all variants.
    pub(super) fn best(&self, inquiry: Inquiry<'_, Prices<'_>>) -> Result<FamilySolution, QuestionError> {
        let is_timed = self.criteria.objective == Objective::MinIterationTime
            || self.criteria.constraints.max_iteration_seconds.is_some();
        if is_timed && !self.prices.has_times() {
            return Err(RecommendError::NoTimes { objective: self.criteria.objective }.into());
        }
        let asked = Variants::of(self, inquiry)?;
        match self.allowed {
            None => self.plain(&asked),
            Some(allowed) => self.with_actions(&asked, allowed),
        }
    }

    /// The best plan whose stages do nothing about their memory.
    fn plain(&self, asked: &Variants<'_>) -> Result<FamilySolution, QuestionError> {
        let is_timed = self.criteria.objective == Objective::MinIterationTime;
        let next = self.criteria.alternatives;
        // The best one of all variants, and those that come next.
        let mut ways: Vec<(usize, CutCandidate)> = Vec::new();
        let (bound, is_complete) = (asked.least_unsearched(), asked.are_searched());
        let mut known = SearchBound { bound, is_complete, looked_at: 0 };
        let mut error: Option<QuestionError> = None;
        for &index in &asked.order {
            if !ways.is_empty() && self.stop.is_requested() {
                (known.bound, known.is_complete) = (None, false);
                break;
            }
            let fits = ways.first().filter(|(_, best)| self.is_within_limits(best));
            let seconds = fits.and_then(|(_, best)| best.candidate.simulated).unwrap_or(f64::INFINITY);
            if is_timed && asked.least[index].is_some_and(|least| least >= seconds) {
                continue;
            }
            let pipeline = asked.pipeline(self, index)?;
            let weighed = (MemoryWeight::Untouched, Patience { next, ..Patience::ALL });
            // Another variant may be known where this one is not.
            let found = self.cut(&pipeline, weighed, &mut known).unwrap_or_else(|failed| {
                error.get_or_insert(failed);
                Vec::new()
            });
            if !known.is_complete || found.is_empty() {
                known.bound = known.bound.zip(asked.least[index].or(Some(0.0))).map(|(a, b)| a.min(b));
            }
            ways.extend(found.into_iter().map(|way| (index, way)));
            // Of equal ones the first.
            ways.sort_by(|(_, one), (_, other)| one.cut.worth.by(&other.cut.worth));
            ways.truncate(next + 1);
        }
        let mut ways = ways.into_iter();
        let Some((variant, CutCandidate { cut, candidate })) = ways.next() else {
            return Err(error.unwrap_or_else(|| self.nothing()));
        };
        self.check_limits(&cut.worth, &candidate, known.is_complete)?;
        let written = |variant: usize, candidate: &Candidate| {
            let pipeline = asked.pipeline(self, variant)?;
            let BuiltPlan { plan, .. } = self.builder.interleaved(&pipeline, candidate, None, SOLVER)?;
            let value = self.value(&plan);
            Ok::<_, QuestionError>((plan, value))
        };
        let (mut plan, value) = written(variant, &candidate)?;
        self.annotate_order(&mut plan);
        let bound = match (known.is_complete, is_timed) {
            (true, true) if !self.is_any_order() => asked.least_in_any_order().map(|bound| bound.min(value)),
            // Devices are alike: what they hold is the same in any order, and what that takes is not.
            (true, false) if !self.is_any_order() && self.limit().is_finite() => None,
            (true, _) => Some(value),
            (false, true) if self.is_any_order() => known.bound.map(|bound| bound.min(value)),
            (false, true) => asked.least_in_any_order().map(|bound| bound.min(value)),
            (false, false) => None,
        };
        let next = ways.filter(|(_, way)| self.is_within_limits(way));
        let next = next.map(|(variant, way)| written(variant, &way.candidate));
        Ok(solution(plan, self.certificate(value, bound, known.looked_at), next.collect::<Result<_, _>>()?))
    }

    fn is_within_limits(&self, way: &CutCandidate) -> bool {
        way.cut.worth.lacks == 0.0 && self.is_in_time(&way.candidate)
    }

    /// The fastest plan whose stages do what is allowed, of the fastest ways to cut if memory did not matter, and of those that lack
    /// least, untouched and with all computed again: of one variant after another, until none of the others can be faster.
    fn with_actions(&self, asked: &Variants<'_>, allowed: &Allowed) -> Result<FamilySolution, QuestionError> {
        let mut known = SearchBound { bound: None, is_complete: asked.are_searched(), looked_at: 0 };
        let of_each = (MOST_LIGHTENED / asked.order.len().max(1)).max(FEWEST_LIGHTENED);
        // The fastest one, and those that were found besides.
        let mut plans: Vec<(Plan, f64)> = Vec::new();
        let mut error: Option<QuestionError> = None;
        for &index in &asked.order {
            let fastest = plans.first().map_or(f64::INFINITY, |(_, seconds)| *seconds);
            let is_no_faster = asked.least[index].is_some_and(|least| least >= fastest);
            if !plans.is_empty() && (is_no_faster || self.stop.is_requested()) {
                continue;
            }
            let pipeline = asked.pipeline(self, index)?;
            let mut candidates: Vec<CutCandidate> = Vec::new();
            for memory in [MemoryWeight::BySeconds, MemoryWeight::Untouched, MemoryWeight::WithAllAgain] {
                match self.cut(&pipeline, (memory, Patience::SOME), &mut known) {
                    Ok(found) => candidates.extend(found),
                    Err(failed) => error = error.or(Some(failed)),
                }
            }
            let seconds = |way: &CutCandidate| way.candidate.simulated.unwrap_or(f64::INFINITY);
            candidates.sort_by(|one, other| seconds(one).total_cmp(&seconds(other)));
            candidates.dedup_by(|one, other| one.candidate.is_same(&other.candidate));
            let mut lightened = 0;
            for way in &candidates {
                let fastest = plans.first().map_or(f64::INFINITY, |(_, seconds)| *seconds);
                let is_enough = lightened >= of_each || self.stop.is_requested();
                // Actions only add to what stages do.
                if !plans.is_empty() && (is_enough || seconds(way) >= fastest) {
                    continue;
                }
                lightened += 1;
                let links = self.builder.copy_links(&way.candidate, self.request.copy_pace);
                match self.greedy_fit(&pipeline, &way.candidate, allowed, &links) {
                    Ok(plan) => {
                        let seconds = plan.iteration_seconds().unwrap_or(f64::INFINITY);
                        let at = plans.partition_point(|(_, known)| *known <= seconds);
                        plans.insert(at, (plan, seconds));
                    }
                    Err(failed) => error = error.or(Some(failed)),
                }
                if plans.is_empty() && self.stop.is_requested() {
                    break;
                }
            }
        }
        let limit = self.limit();
        let mut plans = plans.into_iter();
        let Some((mut plan, value)) = plans.next() else {
            return Err(error.unwrap_or_else(|| self.nothing()));
        };
        self.check_seconds(plan.iteration_seconds(), false)?;
        self.annotate_order(&mut plan);
        // What is computed is spread over the cores that slots share.
        let job = Job { fleet: &self.devices.fleet, ..*self.job };
        let on_cores = || self.builder.least_on_cores(&job, self.criteria).unwrap_or(0.0);
        let bound = asked.least_in_any_order().map(|bound| bound.max(on_cores()).min(value));
        let next = plans.filter(|(_, seconds)| *seconds <= limit).take(self.criteria.alternatives);
        Ok(solution(plan, self.certificate(value, bound, known.looked_at), next.collect()))
    }

    /// The best ways to cut a variant, best first.
    fn cut<C: StageCosts>(
        &self,
        pipeline: &Pipeline<'_, C>,
        (memory, patience): (MemoryWeight, Patience),
        known: &mut SearchBound,
    ) -> Result<Vec<CutCandidate>, QuestionError> {
        let weights = match pipeline.layer_seconds() {
            Some(seconds) => seconds,
            None => vec![1.0; self.builder.chain.layer_names.len()],
        };
        let failed: RefCell<Option<QuestionError>> = RefCell::new(None);
        let mut weigh = |ends: &[usize], best: Option<&Worth>| {
            let worth = self.worth(pipeline, ends, best, memory);
            worth.unwrap_or_else(|error| {
                failed.borrow_mut().get_or_insert(error);
                None
            })
        };
        let Cutting { found, is_complete, looked_at } =
            cut(self.cuts, &weights, pipeline.stages(), (patience, self.stop), &mut weigh);
        let failed = failed.into_inner();
        // What cannot be predicted might have been better.
        known.is_complete &= is_complete && failed.is_none();
        known.looked_at = known.looked_at.saturating_add(looked_at);
        if let Some(error) = failed.filter(|_| found.is_empty()) {
            return Err(error);
        }
        let priced = |cut: Cut| Some(CutCandidate { candidate: pipeline.candidate(&cut.ends)?, cut });
        Ok(found.into_iter().filter_map(priced).collect())
    }

    /// No way to cut is allowed, or none can be priced.
    fn nothing(&self) -> QuestionError {
        if self.stop.is_requested() {
            return RecommendError::Stopped.into();
        }
        let why = format!(
            "no way to cut the model into {} stages for each place along the pipeline keeps to what must be cut and kept together, or \
             can be predicted from this profile",
            self.request.virtual_stages
        );
        RecommendError::no_plan(&why).into()
    }
}
