//! The best plan with interleaved stages of all that may be chosen: micro-batches, degrees, recomputation, cuts and memory actions.

use std::cell::RefCell;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::Allowed;

use super::cutting::{Cut, Cutting, Worth, cut};
use super::pipeline::{Pipeline, places};
use super::weighed::Weighed;
use super::written::Written;
use super::{InterleavedQuestion, SOLVER, in_no_groups};
use crate::cost::{Market as _, Prices};
use crate::fleet::Subset;
use crate::recommend::answer::{QuestionError, RecommendError};
use crate::recommend::ask::{Variant, variants};
use crate::recommend::find::{Candidate, Inquiry};
use crate::search::StageCosts;

/// Within which share of the bound a value is as good: sums in another order.
pub(super) const EQUAL: f64 = 1e-9;
/// Most candidates for which memory actions are looked for.
const MOST_LIGHTENED: usize = 8;

/// A way to cut a variant that is the best of it so far.
struct Found {
    variant: usize,
    cut: Cut,
    candidate: Candidate,
}

/// What no plan of the variants gets below, and how that is known.
struct Known {
    /// Seconds; none where stages may be faster than their layers.
    bound: Option<f64>,
    /// Whether every way to cut every variant that could be better was looked at.
    is_complete: bool,
    looked_at: u64,
}

impl InterleavedQuestion<'_> {
    /// The best plan of all variants.
    pub(super) fn best(
        &self,
        inquiry: Inquiry<'_, Prices<'_>>,
        whole: &Subset,
    ) -> Result<Plan, QuestionError> {
        let is_timed = self.wish.objective == Objective::MinIterationTime
            || self.wish.constraints.max_iteration_seconds.is_some();
        if is_timed && !self.prices.has_times() {
            return Err(RecommendError::NoTimes { objective: self.wish.objective }.into());
        }
        let variants = self.variants(whole)?;
        let pipelines: Vec<_> = variants
            .iter()
            .map(|variant| self.pipeline(inquiry, variant, whole))
            .collect::<Result<_, _>>()?;
        let least: Vec<Option<f64>> = pipelines.iter().map(|pipeline| self.least_seconds(pipeline)).collect();
        // Those that may be fastest first: what they have leaves out the more of the others.
        let mut order: Vec<usize> = (0..pipelines.len()).collect();
        order.sort_by(|&one, &other| least[one].unwrap_or(0.0).total_cmp(&least[other].unwrap_or(0.0)));
        match self.allowed {
            None => self.plain(&pipelines, &least, &order),
            Some(allowed) => self.with_actions(&pipelines, &least, &order, allowed),
        }
    }

    /// The best plan whose stages do nothing about their memory.
    fn plain<C: StageCosts>(
        &self,
        pipelines: &[Pipeline<'_, C>],
        least: &[Option<f64>],
        order: &[usize],
    ) -> Result<Plan, QuestionError> {
        let is_timed = self.wish.objective == Objective::MinIterationTime;
        let mut best: Option<Found> = None;
        let mut known = Known { bound: Some(f64::INFINITY), is_complete: true, looked_at: 0 };
        for &index in order {
            if best.is_some() && self.stop.is_requested() {
                (known.bound, known.is_complete) = (None, false);
                break;
            }
            let fits =
                best.as_ref().filter(|best| best.cut.worth.lacks == 0.0 && self.is_in_time(&best.candidate));
            let seconds = fits.and_then(|best| best.candidate.simulated).unwrap_or(f64::INFINITY);
            if is_timed && least[index].is_some_and(|least| least >= seconds) {
                continue;
            }
            let found =
                self.cut(&pipelines[index], index, Weighed::Untouched, &mut known)?.into_iter().next();
            if !known.is_complete || found.is_none() {
                known.bound = known.bound.zip(least[index].or(Some(0.0))).map(|(a, b)| a.min(b));
            }
            let Some(found) = found else { continue };
            if best.as_ref().is_none_or(|best| found.cut.worth.by(&best.cut.worth).is_lt()) {
                best = Some(found);
            }
        }
        let Some(Found { variant, cut, candidate }) = best else { return Err(self.nothing()) };
        self.check_limits(&cut.worth, &candidate, known.is_complete)?;
        let Written { mut plan, .. } =
            self.writer.interleaved(&pipelines[variant], &candidate, None, SOLVER)?;
        let value = match is_timed {
            true => plan.iteration_seconds().unwrap_or(f64::INFINITY),
            false => self.peak(&plan),
        };
        let bound = match (known.is_complete, is_timed) {
            (true, _) => Some(value),
            (false, true) => known.bound.map(|bound| bound.min(value)),
            (false, false) => None,
        };
        self.tell(&mut plan, value, bound, known.looked_at)?;
        Ok(plan)
    }

    /// The fastest plan whose stages do what is allowed, of the fastest ways to cut if memory did not matter, and of those that lack
    /// least, untouched and with all computed again.
    fn with_actions<C: StageCosts>(
        &self,
        pipelines: &[Pipeline<'_, C>],
        least: &[Option<f64>],
        order: &[usize],
        allowed: &Allowed,
    ) -> Result<Plan, QuestionError> {
        let mut known = Known { bound: None, is_complete: true, looked_at: 0 };
        let mut candidates: Vec<Found> = Vec::new();
        for &index in order {
            if !candidates.is_empty() && self.stop.is_requested() {
                break;
            }
            for memory in [Weighed::BySeconds, Weighed::Untouched, Weighed::WithAllAgain] {
                let found = self.cut(&pipelines[index], index, memory, &mut known)?;
                candidates.extend(found);
            }
        }
        let seconds = |found: &Found| found.candidate.simulated.unwrap_or(f64::INFINITY);
        candidates.sort_by(|one, other| seconds(one).total_cmp(&seconds(other)));
        candidates.dedup_by(|one, other| one.candidate.is_same(&other.candidate));
        let (mut best, mut error): (Option<Plan>, Option<QuestionError>) = (None, None);
        let mut lightened = 0;
        for found in &candidates {
            let fastest = best.as_ref().and_then(Plan::iteration_seconds).unwrap_or(f64::INFINITY);
            let is_enough = lightened >= MOST_LIGHTENED || self.stop.is_requested();
            // Actions only add to what stages do.
            if best.is_some() && (is_enough || seconds(found) >= fastest) {
                continue;
            }
            lightened += 1;
            let links = self.writer.copy_links(&found.candidate, self.request.copy_pace);
            match self.lightened(&pipelines[found.variant], &found.candidate, allowed, &links) {
                Ok(plan) if plan.iteration_seconds().is_some_and(|seconds| seconds < fastest) => {
                    best = Some(plan);
                }
                Ok(_) => {}
                Err(failed) => error = error.or(Some(failed)),
            }
        }
        let Some(mut plan) = best else { return Err(error.unwrap_or_else(|| self.nothing())) };
        let value = plan.iteration_seconds().unwrap_or(f64::INFINITY);
        let limit = self.wish.constraints.max_iteration_seconds.unwrap_or(f64::INFINITY);
        if value > limit {
            return Err(self.too_slow(value, limit, false));
        }
        let all = least.iter().copied().reduce(|a, b| Some(a?.min(b?))).flatten();
        // What is computed is spread over the cores that slots share.
        let bound =
            all.map(|bound| bound.max(self.writer.least_on_cores(self.job, self.wish).unwrap_or(0.0)));
        let bound = bound.map(|bound| bound.min(value));
        self.tell(&mut plan, value, bound, known.looked_at)?;
        Ok(plan)
    }

    /// The variants whose devices are two or more places with several stages each, and whose micro-batches go in groups of these.
    fn variants(&self, whole: &Subset) -> Result<Vec<Variant>, QuestionError> {
        let (layers, each) = (self.writer.chain.layer_names.len(), self.request.virtual_stages as usize);
        let mut all = variants(self.wish, whole, layers);
        all.retain(|of| (2..=layers / each.max(1)).contains(&places(of, whole)));
        if all.is_empty() {
            let why = format!(
                "is {each}: {layers} layers on {} devices are not {each} or more for each of two or more places along a pipeline of \
                 this shape: name fewer virtual stages, other degrees, or other devices",
                whole.devices()
            );
            return Err(Invalid::field("virtual_stages", why).into());
        }
        let first = all.first().map(|of| (of.batch.micro_batches, places(of, whole)));
        all.retain(|of| (of.batch.micro_batches as usize).is_multiple_of(places(of, whole)));
        match first.filter(|_| all.is_empty()) {
            Some((micro_batches, places)) => Err(in_no_groups(micro_batches, places).into()),
            None => Ok(all),
        }
    }

    /// Seconds that no plan of a variant is faster than, wherever it is cut and whatever it holds; none where stages may be faster
    /// than their layers.
    ///
    /// A device begins when the stages below its first one have passed the first micro-batch on, and after its last pass they still
    /// have that of the last one: with `x_k` both passes of stage k, `m · Σ x_k of device d + Σ x_k of the first d stages`. Its mean over
    /// all devices is below the slowest one's, and a stage has a layer at least. And the first micro-batch goes through all of them.
    fn least_seconds<C: StageCosts>(&self, pipeline: &Pipeline<'_, C>) -> Option<f64> {
        let layers = pipeline.layer_seconds()?;
        let all: f64 = layers.iter().sum();
        let shortest = layers.iter().copied().fold(f64::INFINITY, f64::min);
        let devices = pipeline.turns.devices() as f64;
        let micro_batches = f64::from(pipeline.variant.batch.micro_batches);
        let filled = micro_batches * all / devices + (devices - 1.0) / 2.0 * shortest;
        Some(filled.max(all) * (1.0 - EQUAL))
    }

    /// The best ways to cut a variant, best first.
    fn cut<C: StageCosts>(
        &self,
        pipeline: &Pipeline<'_, C>,
        variant: usize,
        memory: Weighed,
        known: &mut Known,
    ) -> Result<Vec<Found>, QuestionError> {
        let weights = match pipeline.layer_seconds() {
            Some(seconds) => seconds,
            None => vec![1.0; self.writer.chain.layer_names.len()],
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
            cut(&self.wish.cuts, &weights, pipeline.stages(), self.stop, &mut weigh);
        known.is_complete &= is_complete;
        known.looked_at = known.looked_at.saturating_add(looked_at);
        if let Some(error) = failed.into_inner().filter(|_| found.is_empty()) {
            return Err(error);
        }
        let priced = |cut: Cut| Some(Found { variant, candidate: pipeline.candidate(&cut.ends)?, cut });
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
