//! Every pipeline on the devices of a subproblem, where they are few enough to be listed, and the bytes that each of them needs
//! whatever is done.
//!
//! Of each, `optimizer::bound` says whether anything that is allowed can bring away as many bytes as must be absent at the
//! moment of the highest peak, and how many seconds that takes at least. A block that may be recomputed and away counts as both
//! there. What layers need during their own passes (`impossible`) is a second floor, and the only one of what never flushes.
//! Plain ways to hold little then reach a peak from above.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::objective::PlanShape;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::stage::{Partitioning, StageConfig};

use super::ActionsQuestion;
use super::impossible::LayerSetting;
use super::subproblem::{at_least, named_by};
use crate::fixed_partition::untouched;
use crate::memory_optimizations::Chooser;
use crate::memory_optimizations::problem::ActionProblem;
use crate::objectives::{FamilyContext, FamilySolution, PlanFamily as _, Subproblem};
use crate::problem::{Criteria, Variant, variants};
use crate::result::RecommendError;
use crate::search::{Candidate, CandidateStage, Job};
use loadmaster_memory::actions::optimizer::Known;
use loadmaster_memory::actions::{NodeDevices, StageBlocks, optimizer};
use loadmaster_search::fleet::Subset;
use loadmaster_search::{Cuts, Stop};

/// Most pipelines that are listed.
const MOST_LISTED: usize = 300;
/// Most stages that are looked at for them.
const MOST_LOOKS: usize = 100_000;

/// Pipelines as they are untouched.
pub(super) struct Every {
    pub(super) candidates: Vec<Candidate>,
    /// Whether every one is listed that a plan within the subproblem may be.
    pub(super) is_complete: bool,
}

impl Every {
    const UNKNOWN: Self = Self { candidates: Vec::new(), is_complete: false };

    /// Every pipeline, whatever memory it takes.
    pub(super) fn new(question: &ActionsQuestion<'_>, subproblem: &Subproblem) -> Self {
        let FamilyContext { context, criteria, job, given, .. } = question.family;
        if let Some(given) = given {
            let asked = Criteria { batches: subproblem.batches.clone(), ..criteria.clone() };
            let one = untouched(context.prices, job, &asked, given);
            return one.map_or(Self::UNKNOWN, |one| Self { candidates: vec![one], is_complete: true });
        }
        // Of devices that are all alike it does not matter which ones are taken in which order.
        let fleet = &subproblem.devices.fleet;
        let Ok(cuts) = criteria.cuts_for(job.model) else { return Self::UNKNOWN };
        if fleet.nodes.len() != 1 {
            return Self::UNKNOWN;
        }
        let criteria = Criteria {
            batches: subproblem.batches.clone(),
            recompute: vec![RecomputePolicy::None],
            ..criteria.clone()
        };
        let (layers, devices) = (job.names.len(), subproblem.devices.devices());
        let least = if subproblem.may_idle { 1 } else { devices };
        let is_single = criteria.shape == PlanShape::SinglePipeline;
        let devices =
            if is_single { devices.min(u32::try_from(layers).unwrap_or(u32::MAX)) } else { devices };
        if devices.saturating_sub(least) as usize > MOST_LISTED {
            return Self::UNKNOWN;
        }
        let (mut listed, mut count, mut looks) = (Vec::new(), 0, MOST_LOOKS);
        for taken in least..=devices {
            let subset = Subset::of(fleet, &[taken], &[]);
            for variant in variants(&criteria, &subset, layers) {
                let mut list = List { cuts: &cuts, variant: &variant, layers, all: Vec::new(), looks };
                list.extend(taken, &mut Vec::new());
                let List { all, looks: left, .. } = list;
                (count, looks) = (count + all.len(), left);
                if count > MOST_LISTED || looks == 0 {
                    return Self::UNKNOWN;
                }
                listed.push((subset.clone(), variant, all));
            }
        }
        let mut every = Self { candidates: Vec::new(), is_complete: true };
        for (subset, variant, stages) in listed {
            let one = Criteria {
                batches: vec![variant.batch],
                schedules: vec![variant.schedule],
                ..criteria.clone()
            };
            let job = Job { fleet: &subset.fleet, ..*job };
            for stages in stages {
                let is_alone = stages.iter().all(|stage| stage.devices() == 1);
                let Ok(of) = Partitioning::new(stages) else { continue };
                let mut candidate = match untouched(context.prices, &job, &one, &of) {
                    Ok(candidate) => candidate,
                    // Degrees that the profile knows nothing of are no plan's.
                    Err(RecommendError::Unpredictable(_)) if !is_alone => continue,
                    Err(_) => {
                        every.is_complete = false;
                        continue;
                    }
                };
                for stage in &mut candidate.stages {
                    let devices = named_by(&subset, &stage.devices);
                    stage.devices = named_by(&subproblem.devices, &devices);
                }
                every.candidates.push(candidate);
            }
        }
        every
    }
}

/// Pipelines of a variant, as far as they are few.
struct List<'a> {
    cuts: &'a Cuts,
    variant: &'a Variant,
    layers: usize,
    all: Vec<Vec<StageConfig>>,
    /// How many stages may still be looked at.
    looks: usize,
}

impl List<'_> {
    /// Lists those that go on behind these stages with so many devices.
    fn extend(&mut self, devices: u32, stages: &mut Vec<StageConfig>) {
        let variant = self.variant;
        let first = stages.last().map_or(0, |stage| stage.last_layer + 1);
        if first == self.layers {
            if variant.stages.contains(&stages.len()) {
                self.all.push(stages.clone());
            }
            return;
        }
        let largest = variant.choices.iter().map(|choice| choice.devices()).max().unwrap_or(0);
        for last in (first..self.layers).filter(|&last| self.cuts.may_be_stage(first, last)) {
            let to_come = self.layers - last - 1;
            for choice in &variant.choices {
                let Some(left) = devices.checked_sub(choice.devices()) else { continue };
                // Each stage to come has a layer and a device.
                let may_end = (left == 0) == (to_come == 0) && left as usize <= to_come * largest as usize;
                let is_over = self.all.len() > MOST_LISTED || self.looks == 0;
                if is_over || !may_end || stages.len() >= *variant.stages.end() {
                    continue;
                }
                self.looks -= 1;
                stages.push(choice.stage(first, last));
                self.extend(left, stages);
                stages.pop();
            }
        }
    }
}

/// By what part of itself a limit may be exceeded by rounding.
const SAME: f64 = 1e-9;

/// Seconds within which links may move anything: a limit on time counts by the bound alone, which holds whichever links the
/// devices have.
const LONG: f64 = 1e12;

/// What each of some pipelines needs at least.
pub(super) struct Floor<'a> {
    question: &'a ActionsQuestion<'a>,
    problems: Vec<ActionProblem<'a>>,
    /// By pipeline and stage: bytes that it needs whatever is done.
    least: Vec<Vec<u64>>,
    is_complete: bool,
}

impl<'a> Floor<'a> {
    /// That of all pipelines that are listed.
    pub(super) fn of(question: &'a ActionsQuestion<'a>, every: &'a Every) -> Self {
        let mut floor =
            Self { question, problems: Vec::new(), least: Vec::new(), is_complete: every.is_complete };
        for candidate in every.candidates.iter().filter(|_| every.is_complete) {
            if question.family.stop.is_requested() {
                floor.is_complete = false;
                break;
            }
            match question.search().problem(candidate) {
                Ok(problem) => {
                    let Candidate { batch, schedule, .. } = *candidate;
                    let of_stage = |(stage, run): (&StageBlocks, &CandidateStage)| {
                        let way = LayerSetting { batch, schedule, choice: run.choice };
                        let own: Vec<u64> =
                            stage.range().map(|layer| question.layer_minimum(layer, way)).collect();
                        question.least_of_stage(&stage.layers, &own)
                    };
                    floor.least.push(problem.stages.iter().zip(&candidate.stages).map(of_stage).collect());
                    floor.problems.push(problem);
                }
                Err(_) => floor.is_complete = false,
            }
        }
        floor
    }

    /// Whether anything may fit where a device of some capacity may hold as many predicted bytes; always where that is not
    /// known.
    pub(super) fn may_fit(&self, most: &impl Fn(u64) -> u64) -> bool {
        !self.is_complete || (0..self.problems.len()).any(|index| self.may_fit_one(index, most))
    }

    /// Pipelines that may fit so, those first of which it is proven the least that they do not; none where it is not known
    /// whether others do.
    pub(super) fn that_may_fit(&self, most: &impl Fn(u64) -> u64) -> Option<Vec<Candidate>> {
        if !self.is_complete {
            return None;
        }
        let fit = self.problems.iter().enumerate().filter(|(index, _)| self.may_fit_one(*index, most));
        let mut fit: Vec<(u64, &Candidate)> = fit
            .map(|(index, problem)| {
                let high = problem.node.capacity.iter().map(|&own| most(own)).max().unwrap_or(0);
                let within = |of: u64| self.may_fit_one(index, &|capacity| most(capacity).min(of));
                (lowest(1, high, within), problem.candidate)
            })
            .collect();
        fit.sort_by_key(|(least, _)| *least);
        Some(fit.into_iter().map(|(_, candidate)| candidate.clone()).collect())
    }

    /// The least from `low` to `high` with which anything may fit, where `most` says what a device may hold; `low` where
    /// that is not known.
    pub(super) fn least(&self, low: u64, high: u64, most: &impl Fn(u64, u64) -> u64) -> u64 {
        if !self.is_complete {
            return low;
        }
        let mut least = high;
        for index in 0..self.problems.len() {
            let may_fit = |of: u64| self.may_fit_one(index, &|capacity| most(of, capacity));
            if least <= low || !may_fit(least - 1) {
                continue;
            }
            least = lowest(low, least - 1, may_fit);
        }
        least
    }

    fn may_fit_one(&self, index: usize, most: &impl Fn(u64) -> u64) -> bool {
        let (Some(problem), Some(least)) = (self.problems.get(index), self.least.get(index)) else {
            return true;
        };
        let ActionsQuestion { family: FamilyContext { criteria, stop, .. }, choice } = *self.question;
        let limit = criteria.constraints.max_iteration_seconds.map(|limit| limit * (1.0 + SAME));
        if limit.zip(problem.least_seconds()).is_some_and(|(limit, seconds)| seconds > limit) {
            return false;
        }
        let capacity: Vec<u64> = problem.node.capacity.iter().map(|&own| most(own)).collect();
        if least.iter().zip(&capacity).any(|(least, &capacity)| *least > problem.predicted(capacity)) {
            return false;
        }
        if problem.candidate.schedule.updates_always() {
            return true;
        }
        let needs = problem.needs_within(&capacity);
        let node = NodeDevices { capacity, ..problem.node_within(choice.allowed) };
        // Where no time is asked for, one round says whether there is anything.
        let at_once = Stop::default();
        at_once.request();
        let stop = if limit.is_some() { stop } else { &at_once };
        let question = problem.question(&node, &[], choice.allowed, stop);
        let edges = problem.least_edges();
        let known = Known { edges: Some(&edges), ..problem.known_within(&needs) };
        match optimizer::bound(&question, known, LONG) {
            Ok(None) => false,
            Ok(Some(seconds)) => limit.is_none_or(|limit| seconds <= limit),
            Err(_) => true,
        }
    }
}

/// The least number from `low` on that is enough, where `high` is, and so is all above one that is.
fn lowest(mut low: u64, mut high: u64, is_enough: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = low + (high - low) / 2;
        if is_enough(middle) { high = middle } else { low = middle + 1 }
    }
    low
}

/// Most pipelines of which plain ways to hold little are looked at.
const MOST_PLAIN: usize = 48;

impl ActionsQuestion<'_> {
    /// A peak that no plan within a subproblem gets below, where one reaches `known`.
    pub(super) fn least_peak(&self, subproblem: &Subproblem, known: u64) -> u64 {
        let every = Every::new(self, subproblem);
        let most = |most: u64, capacity: u64| self.most_bytes(&subproblem.within(most), Bytes(capacity));
        let largest = self.family.job.fleet.kinds.iter().map(|kind| kind.capacity).max().unwrap_or(Bytes(0));
        let low = self.family.criteria.unit.of(self.least_anyhow(subproblem), largest).min(known);
        Floor::of(self, &every).least(low, known, &most)
    }

    /// The lowest peak that plain ways reach, within the limit on time: where to begin, and what is left where nothing else fits.
    pub(super) fn plain(
        &self,
        subproblem: &Subproblem,
        first: Option<&FamilySolution>,
    ) -> Option<FamilySolution> {
        let (search, choice) = (self.search(), self.choice);
        if choice.chooser == Chooser::Mpress {
            return None;
        }
        let mut candidates = self.that_may_fit(subproblem, MOST_PLAIN).unwrap_or_default();
        if self.family.given.is_some() || !self.family.criteria.cuts.pins().is_empty() {
            candidates.clear();
        }
        match first {
            Some(first) => candidates.extend(first.candidate.clone()),
            None => candidates.extend(self.stages(subproblem).ok()?.candidates),
        }
        // What the fastest of all does not get below, these do not.
        let known = first.map(|first| &first.certificate);
        let bound = known.and_then(|known| known.bound);
        let (stopped, states) = known.map_or((false, 0), |known| (known.stopped, known.states));
        let found = candidates.into_iter().filter_map(|candidate| {
            if self.family.stop.is_requested() {
                return None;
            }
            let problem = search.problem(&candidate).ok()?;
            let actions = match choice.framework_rules {
                Some(framework_rules) => search.least_expressible(&problem, framework_rules)?,
                None => search.least(&problem)?,
            };
            let plan = search.plan(&candidate, &actions).ok()?;
            drop(problem);
            let certificate = at_least(&plan, bound, (stopped, states));
            Some(FamilySolution { candidate: Some(candidate), ..FamilySolution::new(plan, certificate) })
        });
        let limit = self.family.criteria.constraints.max_iteration_seconds.unwrap_or(f64::INFINITY);
        let most = self.family.criteria.constraints.max_peak_bytes.unwrap_or(u64::MAX);
        let keeps = |found: &FamilySolution| {
            found.plan.peak() <= most
                && found.plan.iteration_seconds().is_some_and(|seconds| seconds <= limit)
        };
        found.filter(keeps).min_by_key(|found| self.peak(&found.plan))
    }
}
