//! The fastest plan within a subproblem: the one question that all objectives ask.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::comparison::Baseline;
use loadmaster_proto::plan::constraints::Constraints;
use loadmaster_proto::plan::findings::Certificate;

use super::ActionsQuestion;
use crate::fixed_partition::untouched;
use crate::memory_optimizations::certificate::{outlined, seconds};
use crate::memory_optimizations::choice::{Chooser, Chosen, Fastest};
use crate::memory_optimizations::{Stages, fits, least_on_cores};
use crate::objectives::{FamilySolution, Subproblem, rungs_around};
use crate::problem::Criteria;
use crate::result::{QuestionError, RecommendError, certified};
use crate::search::{Candidate, Job};
use loadmaster_search::fleet::Subset;

/// Most pipelines that are tried where the fast ones do not fit, and how many at once: the fastest of these is taken that fit.
const MOST_TRIED: usize = 32;
const AT_ONCE: usize = 4;

/// What parts of a subproblem less and more are asked for: a search gets lost with more, and a plan often needs less than it may take.
const PARTS: [f64; 2] = [0.125, 0.25];

/// What may be gained at most where nothing else is asked for, as a share of a plan's seconds.
const LITTLE_TO_GAIN: f64 = 1e-3;

/// What lacks no more than this part of a subproblem is little. Where little lacks, so many times half as much as before is asked for more.
const LITTLE: u64 = 8;
const NEAR: u32 = 8;

/// The same with the comparisons and the bound of a slower plan for the same room.
fn told_as(mut found: FamilySolution, slower: Option<FamilySolution>) -> FamilySolution {
    match slower {
        Some(FamilySolution { plan, certificate, bound_is, .. }) => {
            let beside =
                |Baseline { name, plan, fits, note, .. }| outlined(name, plan, fits, note, &found.plan);
            found.plan.found.baselines = plan.found.baselines.into_iter().map(beside).collect();
            found.certificate =
                at_least(&found.plan, certificate.bound, (certificate.stopped, certificate.states));
            found.bound_is = bound_is;
        }
        None => "the bound on the iteration time is computed without memory optimizations. They never make a stage \
            faster, so the bound is valid for all stages"
            .clone_into(&mut found.bound_is),
    }
    found
}

/// What lacks, where that is known.
fn missing(error: &QuestionError) -> Option<u64> {
    let QuestionError::Recommend(RecommendError::NoPlan { why_not, .. }) = error else { return None };
    why_not.missing().map(|missing| missing.0)
}

/// Whether a bound says that nothing is much faster.
fn is_best(certificate: &Certificate) -> bool {
    certificate.gap.is_some_and(|gap| gap <= LITTLE_TO_GAIN)
}

impl ActionsQuestion<'_> {
    /// What was found, or a faster plan that is found where there is a little more room and that keeps to this subproblem
    /// nevertheless.
    ///
    /// Fronts ask for the same peaks. The fastest plan within the peak of one of their points is therefore no slower than that
    /// point.
    pub(super) fn or_within_more(
        &self,
        subproblem: &Subproblem,
        mut found: Result<FamilySolution, QuestionError>,
    ) -> Result<FamilySolution, QuestionError> {
        // MPress's planner finds what it finds.
        let is_open = self.choice.chooser == Chooser::Fastest
            && match &found {
                Ok(found) => !is_best(&found.certificate),
                Err(QuestionError::Recommend(RecommendError::Stopped)) => false,
                Err(QuestionError::Recommend(error)) => !error.is_proof(),
                Err(_) => false,
            };
        let Some(peak) = self.highest(subproblem).filter(|_| is_open) else { return found };
        let lacks_little =
            found.as_ref().is_err_and(|error| missing(error).is_some_and(|of| of <= peak / LITTLE));
        let halves = if lacks_little { NEAR } else { 0 };
        let near = (0..halves).rev().map(|times| peak + ((peak / LITTLE) >> times));
        let mut better: Option<FamilySolution> = None;
        for other in near.chain(rungs_around(peak, PARTS)) {
            let known = better.as_ref().or_else(|| found.as_ref().ok());
            if self.family.stop.is_requested() || known.is_some_and(|known| is_best(&known.certificate)) {
                break;
            }
            let Ok(other) =
                self.ask(&Subproblem { beyond: Some((other, peak)), ..subproblem.clone() }, false)
            else {
                continue;
            };
            let is_faster = known.is_none_or(|known| seconds(&other.plan) < seconds(&known.plan));
            if is_faster && self.keeps(subproblem, &other.plan) {
                better = Some(other);
            }
        }
        if found.is_err() && better.is_none() {
            better = self.plain(subproblem, None).filter(|plain| self.keeps(subproblem, &plain.plan));
        }
        if let Some(better) = better {
            found = Ok(told_as(better, found.ok()));
        }
        if let Ok(found) = &mut found {
            found.certificate.stopped |= self.family.stop.is_requested();
        }
        found
    }

    /// Whether a plan fits its devices and keeps to a subproblem.
    fn keeps(&self, subproblem: &Subproblem, plan: &Plan) -> bool {
        plan.stages.iter().all(fits) && self.is_within(subproblem, plan)
    }

    /// Whether no predicted peak exceeds a subproblem.
    fn is_within(&self, subproblem: &Subproblem, plan: &Plan) -> bool {
        plan.stages
            .iter()
            .all(|stage| stage.predicted_peak <= self.most_bytes(subproblem, Bytes(stage.capacity)))
    }

    /// The fastest plan that a search within exactly this subproblem finds.
    ///
    /// # Errors
    /// Nothing was found that fits and keeps to the limits.
    pub(super) fn ask(
        &self,
        subproblem: &Subproblem,
        is_told: bool,
    ) -> Result<FamilySolution, QuestionError> {
        if let Some(hopeless) = self.lacks_room(subproblem) {
            return Err(hopeless.into());
        }
        let found = self.ask_within(subproblem, is_told, false)?;
        // What is kept free besides a peak is as much as without actions, or a little more.
        let found = if self.is_within(subproblem, &found.plan) {
            found
        } else {
            self.ask_within(subproblem, is_told, true)?
        };
        match self.check_seconds(&found) {
            Ok(()) => Ok(found),
            Err(error) if !error.is_proof() && self.is_proven_impossible(subproblem) => {
                Err(error.proven().into())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn ask_within(
        &self,
        subproblem: &Subproblem,
        is_told: bool,
        is_strict: bool,
    ) -> Result<FamilySolution, QuestionError> {
        let stages = self.stages(subproblem)?;
        let Stages { bound, stopped, states, .. } = stages;
        match self.ask_for(stages, subproblem, is_told, is_strict) {
            Err(QuestionError::Recommend(error @ RecommendError::NoPlan { .. })) => {
                if let Some(hopeless) = self.lacks_layer(subproblem) {
                    return Err(hopeless.into());
                }
                // Others may fit that are slower, where all can be listed.
                let Some(candidates) = self.that_may_fit(subproblem, MOST_TRIED) else {
                    return Err(error.into());
                };
                if candidates.is_empty() {
                    return Err(error.proven().into());
                }
                if self.family.given.is_some() || !self.family.criteria.cuts.pins().is_empty() {
                    return Err(error.into());
                }
                for some in candidates.chunks(AT_ONCE) {
                    let candidates = some.to_vec();
                    let others = Stages { candidates, mapped: Vec::new(), bound, stopped, states };
                    match self.ask_for(others, subproblem, is_told, is_strict) {
                        Err(QuestionError::Recommend(other)) if !matches!(other, RecommendError::Stopped) => {
                        }
                        found => return found,
                    }
                }
                Err(error.into())
            }
            other => other,
        }
    }

    /// The same of one pipeline alone, where no pipeline gets below this bound of seconds.
    ///
    /// # Errors
    /// As there.
    pub(super) fn annotated_of(
        &self,
        candidate: &Candidate,
        bound: Option<f64>,
        subproblem: &Subproblem,
    ) -> Result<FamilySolution, QuestionError> {
        let candidates = vec![candidate.clone()];
        let stages = Stages { candidates, mapped: Vec::new(), bound, stopped: false, states: 0 };
        let found = self.ask_for(stages, subproblem, true, false)?;
        self.check_seconds(&found)?;
        Ok(found)
    }

    /// The fastest plan of some stages.
    fn ask_for(
        &self,
        mut stages: Stages,
        subproblem: &Subproblem,
        is_told: bool,
        is_strict: bool,
    ) -> Result<FamilySolution, QuestionError> {
        let search = self.search();
        for stage in stages.candidates.iter_mut().flat_map(|of| &mut of.stages) {
            stage.capacity =
                self.capacity(subproblem, self.family.job.fleet.capacity(stage.kinds), stage.peak, is_strict);
        }
        if self.family.criteria.cuts.pins().is_empty() {
            stages.mapped = search.map_devices(&stages.candidates);
        }
        let mut found = if is_told {
            let Chosen { candidate, plan, certificate, bound_is } = search.chosen(&stages)?;
            let candidate = Some(candidate.clone());
            FamilySolution { candidate, bound_is, ..FamilySolution::new(plan, certificate) }
        } else {
            let Fastest { problem, plan, .. } = search.fastest(&stages)?;
            let candidate = problem.candidate.clone();
            let bound = stages.bound.or_else(|| problem.least_seconds());
            let certificate = at_least(&plan, bound, (stages.stopped, stages.states));
            FamilySolution { candidate: Some(candidate), ..FamilySolution::new(plan, certificate) }
        };
        for (stage, of) in
            found.plan.stages.iter_mut().zip(found.candidate.iter_mut().flat_map(|of| &mut of.stages))
        {
            of.capacity = self.family.job.fleet.capacity(of.kinds);
            stage.capacity = of.capacity.0;
        }
        Ok(found)
    }

    /// The stages that actions are chosen for: those that are named, or those of fast pipelines.
    pub(super) fn stages(&self, subproblem: &Subproblem) -> Result<Stages, RecommendError> {
        let market = self.family.context.prices;
        let mut fleet = subproblem.devices.fleet.clone();
        for kind in &mut fleet.kinds {
            kind.capacity = Bytes(self.most_bytes(subproblem, kind.capacity));
        }
        let devices: Vec<String> = subproblem
            .devices
            .origin
            .iter()
            .map(|&device| self.family.job.device(device).unwrap_or_default())
            .collect();
        let job = Job { fleet: &fleet, devices: &devices, ..*self.family.job };
        let Some(cuts) = subproblem.devices.cuts(&self.family.criteria.cuts) else {
            return Err(RecommendError::no_plan(
                "`constraints.layer_pins` pins a layer to a device that is not among the devices of the request",
            ));
        };
        // Limits are of plans with their actions.
        let constraints = Constraints {
            max_iteration_seconds: None,
            max_peak_bytes: None,
            allow_idle_devices: subproblem.may_idle,
            ..self.family.criteria.constraints.clone()
        };
        let criteria = Criteria {
            batches: subproblem.batches.clone(),
            cuts,
            constraints,
            ..self.family.criteria.clone()
        };
        let mut stages = match self.family.given {
            Some(partitioning) => Stages::named(untouched(market, &job, &criteria, partitioning)?),
            None => {
                let stages = Stages::fastest(market, &job, &criteria, self.family.stop)?;
                let on_cores = least_on_cores(self.family.context, &job, &criteria);
                Stages { bound: stages.bound.map(|bound| bound.max(on_cores.unwrap_or(0.0))), ..stages }
            }
        };
        for stage in stages.candidates.iter_mut().flat_map(|of| &mut of.stages) {
            stage.devices = named_by(&subproblem.devices, &stage.devices);
        }
        Ok(stages)
    }
}

/// Devices of a subset by their places in the whole fleet.
pub(super) fn named_by(subset: &Subset, devices: &[u32]) -> Vec<u32> {
    devices.iter().filter_map(|&device| subset.origin.get(device as usize).copied()).collect()
}

/// What is known of a plan's seconds without looking at any action.
/// `bound` is one of all plans.
pub(super) fn at_least(plan: &Plan, bound: Option<f64>, (stopped, states): (bool, u64)) -> Certificate {
    let value = plan.iteration_seconds().unwrap_or(f64::INFINITY);
    let bound = bound.map(|bound| bound.min(value));
    Certificate { proven: false, stopped, states, ..certified(value, bound, "seconds") }
}
