//! The best plan with interleaved stages of all that may be chosen: micro-batches, degrees, recomputation, cuts and
//! memory optimizations.
//!
//! `Variants` lists these choices except the cuts, with the seconds that no plan of each is faster than. Each way to cut is compared
//! by the bytes that its devices lack, then by seconds. The limits of the request are checked last.

use std::cell::RefCell;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::Allowed;

use super::cutting::{Cut, Cutting, Patience, Worth, cut};
use super::pipeline::{BuiltPlan, Pipeline, on_device, places};
use super::{InterleavedQuestion, SOLVER, check_length, in_no_groups};
use crate::memory_optimizations::{CopyLinks, least_on_cores};
use crate::objectives::FamilySolution;
use crate::problem::{Variant, variants};
use crate::result::{QuestionError, RecommendError};
use crate::search::{Candidate, Inquiry, Job};
use loadmaster_predict::ActionsPrediction;
use loadmaster_search::cost::{Market, Prices};
use loadmaster_search::{StageCosts, Unit};

/// Within which share of the bound a value is as good: sums in another order.
pub(super) const EQUAL: f64 = 1e-9;
/// Candidates for which memory optimizations are looked for, of all variants, and of each of them.
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
        let is_timed = self.family.criteria.objective == Objective::MinIterationTime
            || self.family.criteria.constraints.max_iteration_seconds.is_some();
        if is_timed && !self.family.context.prices.has_times() {
            return Err(RecommendError::NoTimes { objective: self.family.criteria.objective }.into());
        }
        let asked = Variants::new(self, inquiry)?;
        match self.allowed {
            None => self.plain(&asked),
            Some(allowed) => self.with_actions(&asked, allowed),
        }
    }

    /// The best plan whose stages do nothing about their memory.
    fn plain(&self, asked: &Variants<'_>) -> Result<FamilySolution, QuestionError> {
        let is_timed = self.family.criteria.objective == Objective::MinIterationTime;
        let next = self.family.criteria.alternatives;
        // The best one of all variants, and those that come next.
        let mut ways: Vec<(usize, CutCandidate)> = Vec::new();
        let (bound, is_complete) = (asked.least_unsearched(), asked.are_searched());
        let mut known = SearchBound { bound, is_complete, looked_at: 0 };
        let mut error: Option<QuestionError> = None;
        for &index in &asked.order {
            if !ways.is_empty() && self.family.stop.is_requested() {
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
            let BuiltPlan { plan, .. } = pipeline.plan(candidate, None, SOLVER)?;
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
        let certificate = self.certificate(value, bound, known.looked_at);
        Ok(FamilySolution { next: next.collect::<Result<_, _>>()?, ..FamilySolution::new(plan, certificate) })
    }

    fn is_within_limits(&self, way: &CutCandidate) -> bool {
        way.cut.worth.lacks == 0.0 && self.is_in_time(&way.candidate)
    }

    /// The fastest plan whose stages do what is allowed, of the fastest ways to cut if memory did not matter, and of those that lack
    /// least, untouched and with all recomputed. Of one variant after another, until none of the others can be faster.
    fn with_actions(&self, asked: &Variants<'_>, allowed: &Allowed) -> Result<FamilySolution, QuestionError> {
        let mut known = SearchBound { bound: None, is_complete: asked.are_searched(), looked_at: 0 };
        let of_each = (MOST_LIGHTENED / asked.order.len().max(1)).max(FEWEST_LIGHTENED);
        // The fastest one, and those that were found besides.
        let mut plans: Vec<(Plan, f64)> = Vec::new();
        let mut error: Option<QuestionError> = None;
        for &index in &asked.order {
            let fastest = plans.first().map_or(f64::INFINITY, |(_, seconds)| *seconds);
            let is_no_faster = asked.least[index].is_some_and(|least| least >= fastest);
            if !plans.is_empty() && (is_no_faster || self.family.stop.is_requested()) {
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
                let is_enough = lightened >= of_each || self.family.stop.is_requested();
                // Actions only add to what stages do.
                if !plans.is_empty() && (is_enough || seconds(way) >= fastest) {
                    continue;
                }
                lightened += 1;
                let links = CopyLinks::between(self.family.context, &way.candidate, self.request.copy_pace);
                match self.greedy_fit(&pipeline, &way.candidate, allowed, &links) {
                    Ok(plan) => {
                        let seconds = plan.iteration_seconds().unwrap_or(f64::INFINITY);
                        let at = plans.partition_point(|(_, known)| *known <= seconds);
                        plans.insert(at, (plan, seconds));
                    }
                    Err(failed) => error = error.or(Some(failed)),
                }
                if plans.is_empty() && self.family.stop.is_requested() {
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
        let job = Job { fleet: &self.devices.fleet, ..*self.family.job };
        let on_cores = || least_on_cores(self.family.context, &job, self.family.criteria).unwrap_or(0.0);
        let bound = asked.least_in_any_order().map(|bound| bound.max(on_cores()).min(value));
        let next = plans.filter(|(_, seconds)| *seconds <= limit).take(self.family.criteria.alternatives);
        let certificate = self.certificate(value, bound, known.looked_at);
        Ok(FamilySolution { next: next.collect(), ..FamilySolution::new(plan, certificate) })
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
            None => vec![1.0; self.family.context.chain.layer_names.len()],
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
            cut(self.cuts, &weights, pipeline.stages(), (patience, self.family.stop), &mut weigh);
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
        if self.family.stop.is_requested() {
            return RecommendError::Stopped.into();
        }
        let why = format!(
            "no pipeline layout with {} virtual pipeline stages per device meets the constraints on stage boundaries \
             and can be predicted from this profile. Relax these constraints, or use another \
             `problem.virtual_stage_count`",
            self.request.virtual_stages
        );
        RecommendError::no_plan(&why).into()
    }
}

/// The bytes by which a way to cut is compared before seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MemoryWeight {
    /// Nothing: seconds alone count.
    BySeconds,
    /// The bytes that its devices lack.
    Untouched,
    /// The bytes that its devices lack where each layer is recomputed.
    WithAllAgain,
}

impl InterleavedQuestion<'_> {
    /// Returns the worth of a way to cut; none where it is no better than the best so far, or cannot be priced.
    fn worth<C: StageCosts>(
        &self,
        pipeline: &Pipeline<'_, C>,
        ends: &[usize],
        best: Option<&Worth>,
        memory: MemoryWeight,
    ) -> Result<Option<Worth>, QuestionError> {
        let Some(candidate) = pipeline.candidate(ends) else { return Ok(None) };
        let seconds = candidate.simulated.unwrap_or(f64::INFINITY);
        let late = (seconds - self.limit()).max(0.0);
        let late = if late.is_nan() { 0.0 } else { late };
        let is_timed = self.family.criteria.objective == Objective::MinIterationTime;
        let of_time = Worth { lacks: 0.0, values: vec![late, seconds] };
        let is_free = memory == MemoryWeight::BySeconds;
        if is_timed && (is_free || best.is_some_and(|best| of_time.by(best).is_ge())) {
            // Where it fits, too, it is worth no more.
            return Ok(is_free.then_some(of_time));
        }
        let acted = pipeline.with_actions(&candidate, memory == MemoryWeight::WithAllAgain)?;
        let acted: Vec<&ActionsPrediction> = acted.iter().map(|acted| &**acted).collect();
        let held = pipeline.interleaving.held(&acted);
        let most = self.family.criteria.constraints.max_peak_bytes.unwrap_or(u64::MAX);
        let (mut lacks, mut peaks) = (0.0, Vec::with_capacity(held.len()));
        for (held, stage) in held.iter().zip(&candidate.stages) {
            let Some(prediction) = on_device(held, &acted) else { continue };
            let (needed, peak) =
                (self.family.context.needed(&prediction), self.family.context.corrected(prediction.bytes.0));
            lacks += needed.saturating_sub(stage.capacity.0).max(peak.saturating_sub(most)) as f64;
            peaks.push(self.family.criteria.unit.of(peak, stage.capacity) as f64);
        }
        if is_timed {
            return Ok(Some(Worth { lacks, ..of_time }));
        }
        peaks.sort_by(|one, other| other.total_cmp(one));
        let values = [vec![late], peaks, vec![seconds]].concat();
        Ok(Some(Worth { lacks, values }))
    }

    /// Returns whether it takes no longer than the limit.
    fn is_in_time(&self, candidate: &Candidate) -> bool {
        let limit = self.family.criteria.constraints.max_iteration_seconds;
        limit.is_none_or(|limit| candidate.simulated.is_some_and(|seconds| seconds <= limit))
    }

    /// Says what the best plan lacks, if anything.
    fn check_limits(
        &self,
        worth: &Worth,
        candidate: &Candidate,
        is_complete: bool,
    ) -> Result<(), QuestionError> {
        if worth.lacks > 0.0 {
            let missing = Bytes(worth.lacks as u64);
            let why = format!(
                "with {} virtual pipeline stages per device the best layout needs {missing} more memory in all ({}). Allow \
                 memory optimizations or recompute, use smaller or fewer micro-batches, or use more devices",
                candidate.virtual_stages,
                candidate.describe()
            );
            let error = RecommendError::no_actions(why, missing, String::new());
            return Err(if is_complete { error.proven() } else { error }.into());
        }
        self.check_seconds(candidate.simulated, is_complete && self.is_any_order())
    }

    /// Says so where the fastest plan, or what was found of it, takes longer than it may.
    pub(super) fn check_seconds(&self, seconds: Option<f64>, is_proof: bool) -> Result<(), QuestionError> {
        let limit = self.limit();
        let Some(seconds) = seconds.filter(|seconds| *seconds > limit) else { return Ok(()) };
        let reason = format!(
            "the fastest plan {} with {} virtual pipeline stages per device takes {seconds:.4} s per \
             iteration, {:.1} % above the limit (`constraints.max_iteration_time`)",
            if is_proof { "there is" } else { "that was found" },
            self.request.virtual_stages,
            100.0 * (seconds / limit - 1.0)
        );
        Err(RecommendError::Limits { reason, is_proof, remedies: Vec::new() }.into())
    }

    /// Returns the value of a plan: seconds, or its peak.
    fn value(&self, plan: &Plan) -> f64 {
        match self.family.criteria.objective {
            Objective::MinIterationTime => plan.iteration_seconds().unwrap_or(f64::INFINITY),
            _ => self.peak(plan),
        }
    }

    /// The peak as the objective counts it.
    fn peak(&self, plan: &Plan) -> f64 {
        let peaks = plan.stages.iter().map(|stage| {
            let share = self.family.criteria.unit.of(stage.predicted_peak, Bytes(stage.capacity)) as f64;
            match self.family.criteria.unit {
                Unit::Bytes => share,
                Unit::Share => stage.predicted_peak as f64 / stage.capacity.max(1) as f64,
            }
        });
        peaks.fold(0.0, f64::max)
    }
}

/// The variants that may be chosen. Each is priced when it is looked at: together they are too large to keep.
struct Variants<'a> {
    inquiry: Inquiry<'a, Prices<'a>>,
    all: Vec<Variant>,
    /// By variant: seconds that no plan of it is faster than, with its devices in their order.
    least: Vec<Option<f64>>,
    /// Those that are searched, which are not too long to be simulated; that may be fastest first: what they have leaves out the
    /// more of the others.
    order: Vec<usize>,
}

impl<'a> Variants<'a> {
    fn new(
        question: &InterleavedQuestion<'_>,
        inquiry: Inquiry<'a, Prices<'a>>,
    ) -> Result<Self, QuestionError> {
        let all = question.variants()?;
        let mut asked = Self { inquiry, all, least: Vec::new(), order: Vec::new() };
        for index in 0..asked.all.len() {
            let least = question.least_seconds(&asked.pipeline(question, index)?);
            asked.least.push(least);
        }
        let layers = question.family.context.chain.layer_names.len();
        let is_searched = |index: &usize| check_length(layers, asked.all[*index].batch.micro_batches).is_ok();
        asked.order = (0..asked.all.len()).filter(is_searched).collect();
        let least = |index: usize| asked.least[index].unwrap_or(0.0);
        asked.order.sort_by(|&one, &other| least(one).total_cmp(&least(other)));
        Ok(asked)
    }

    fn pipeline<'p>(
        &'p self,
        question: &'p InterleavedQuestion<'p>,
        index: usize,
    ) -> Result<Pipeline<'p, <Prices<'p> as Market>::Costs>, QuestionError> {
        question.pipeline(self.inquiry, &self.all[index])
    }

    /// Returns whether all are searched.
    fn are_searched(&self) -> bool {
        self.order.len() == self.all.len()
    }

    /// Seconds that no plan of those that are not searched is faster than, with its devices in their order.
    fn least_unsearched(&self) -> Option<f64> {
        let mut unsearched = (0..self.all.len()).filter(|index| !self.order.contains(index));
        unsearched.try_fold(f64::INFINITY, |least, index| Some(least.min(self.least[index]?)))
    }

    /// Seconds that no plan is faster than, in whatever order devices are; none where that is not known: shards of a stage may be
    /// nearer to each other in another one.
    fn least_in_any_order(&self) -> Option<f64> {
        let is_known = self.all.iter().flat_map(|variant| &variant.choices).all(|choice| choice.tensor == 1);
        let least = self.least.iter().copied().reduce(|a, b| Some(a?.min(b?))).flatten();
        least.filter(|_| is_known)
    }
}

impl InterleavedQuestion<'_> {
    /// The variants whose devices are two or more places with several stages each, and whose micro-batches go in groups of these: none
    /// where there is no such plan at all.
    pub(super) fn possible(&self) -> Vec<Variant> {
        let mut all = self.in_places();
        all.retain(|variant| {
            (variant.batch.micro_batches as usize).is_multiple_of(places(variant, self.devices))
        });
        all
    }

    /// Returns the variants whose devices are as many places.
    fn in_places(&self) -> Vec<Variant> {
        let (layers, each) =
            (self.family.context.chain.layer_names.len(), self.request.virtual_stages as usize);
        let mut all = variants(self.family.criteria, self.devices, layers);
        all.retain(|variant| (2..=layers / each.max(1)).contains(&places(variant, self.devices)));
        all
    }

    /// Returns whether an iteration of some of them is short enough to be searched.
    pub(super) fn is_any_short(&self, all: &[Variant]) -> bool {
        let layers = self.family.context.chain.layer_names.len();
        all.iter().any(|variant| check_length(layers, variant.batch.micro_batches).is_ok())
    }

    /// The variants that are possible.
    ///
    /// # Errors
    /// There are none, or all are too long to be searched.
    fn variants(&self) -> Result<Vec<Variant>, QuestionError> {
        let (layers, each) =
            (self.family.context.chain.layer_names.len(), self.request.virtual_stages as usize);
        let possible = self.possible();
        let Some(fewest) = possible.iter().map(|variant| variant.batch.micro_batches).min() else {
            return Err(match self.in_places().first() {
                Some(first) => in_no_groups(first.batch.micro_batches, places(first, self.devices)).into(),
                None => {
                    let why = format!(
                        "{each} needs at least 2 pipeline ranks with at least {each} layers each. {layers} layers on \
                         {} devices are too few for this parallelism layout. Use fewer virtual stages, other parallel \
                         sizes, or other devices",
                        self.devices.devices()
                    );
                    Invalid::field("problem.virtual_stage_count", why).into()
                }
            });
        };
        check_length(layers, fewest)?;
        Ok(possible)
    }

    /// Seconds that no plan of a variant is faster than, wherever it is cut and whatever it holds; none where stages may be faster
    /// than their layers.
    ///
    /// A device begins when the stages below its first one have passed the first micro-batch on, and after its last pass they still
    /// have that of the last one. With `x_k` both passes of stage k, `m · Σ x_k of device d + Σ x_k of the first d stages`. Its mean over
    /// all devices is below the slowest one's, and a stage has a layer at least. And the first micro-batch goes through all of them.
    fn least_seconds<C: StageCosts>(&self, pipeline: &Pipeline<'_, C>) -> Option<f64> {
        let layers = pipeline.layer_seconds()?;
        let all: f64 = layers.iter().sum();
        let shortest = layers.iter().copied().fold(f64::INFINITY, f64::min);
        let devices = pipeline.interleaving.devices() as f64;
        let micro_batches = f64::from(pipeline.variant.batch.micro_batches);
        let filled = micro_batches * all / devices + (devices - 1.0) / 2.0 * shortest;
        Some(filled.max(all) * (1.0 - EQUAL))
    }
}
