//! The lowest highest peak that is reached with memory actions.

use loadmaster_proto::amounts::Seconds;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::certificate::Certificate;

use super::enumeration::Every;
use super::floor::Floor;
use super::peaks::{Point, by_halves};
use super::proof::{Progress, looked_at, seconds_note};
use super::subproblem::{ActionSolution, Subproblem, at_least};
use super::{ActionsQuestion, QuestionError};
use crate::memory_optimizations::Chooser;
use loadmaster_search::Unit;

/// Most peaks that are asked for.
const MOST_ASKED: u32 = 12;
/// Most pipelines of which plain ways to hold little are looked at.
const MOST_PLAIN: usize = 48;

/// What is told of the seconds of a plan that was chosen for its peak alone.
fn slow_note(of: &Certificate) -> String {
    let bound = of.bound.map_or_else(String::new, |bound| format!(", and none is below {}", Seconds(bound)));
    format!(
        "it was chosen for its peak alone, with {} for an iteration{bound}: no faster one within this peak was found",
        Seconds(of.value)
    )
}

impl ActionsQuestion<'_> {
    /// The fastest plan within the lowest peak for which one was found.
    pub(super) fn lowest_peak(&self) -> Result<Plan, QuestionError> {
        let subproblem = Subproblem::whole(self);
        let first = self.annotated(&subproblem).map_err(|error| self.explained(error, &subproblem))?;
        let floor = self.floor(&subproblem, self.peak(&first.plan));
        let bound = first.certificate.bound;
        let (found, asked) = self.lowest(&subproblem, first, floor, MOST_ASKED)?;
        let peak = self.peak(&found.plan);
        // With what it is compared with, within the same peak: of the fast pipelines, or of its own where none of them fits.
        let within = subproblem.within(peak);
        let keeps = |told: &ActionSolution| self.peak(&told.plan) <= peak;
        let of_its_own = || self.annotated_of(&found.candidate, bound, &within).ok().filter(keeps);
        let told = self.annotated(&within).ok().filter(keeps).or_else(of_its_own);
        let is_searched = told.is_some();
        let ActionSolution { mut plan, certificate: of_seconds, .. } = told.unwrap_or(found);
        let value = self.peak(&plan);
        let tried = Progress {
            states: of_seconds.states,
            is_stopped: of_seconds.stopped || self.stop.is_requested(),
            doubtful: Some(self.counted(floor.min(value))),
            passed_over: Vec::new(),
        };
        plan.warnings.push(looked_at(self.criteria.shape));
        plan.warnings.push(format!(
            "{asked} peaks were asked for: a lower one may be reached down to the bound; what it is compared with is held to \
             the same peak"
        ));
        plan.warnings.push(if is_searched {
            seconds_note("within this peak", &of_seconds)
        } else {
            slow_note(&of_seconds)
        });
        let unit = if self.criteria.unit == Unit::Share { "share" } else { self.criteria.objective.unit() };
        plan.found.certificate = Some(tried.certificate(self.counted(value), unit));
        Ok(plan)
    }

    /// A peak in the criteria's unit as a certificate counts it.
    fn counted(&self, peak: u64) -> f64 {
        match self.criteria.unit {
            Unit::Bytes => peak as f64,
            Unit::Share => peak as f64 / Unit::WHOLE as f64,
        }
    }

    /// A peak that no plan within a subproblem gets below, where one reaches `known`.
    pub(super) fn floor(&self, subproblem: &Subproblem, known: u64) -> u64 {
        let every = Every::of(self, subproblem);
        let most = |most: u64, capacity: u64| self.most_bytes(&subproblem.within(most), Bytes(capacity));
        let alone =
            (0..self.job.names.len()).map(|layer| self.least_alone(layer, subproblem)).max().unwrap_or(0);
        let largest = self.job.fleet.kinds.iter().map(|kind| kind.capacity).max().unwrap_or(Bytes(0));
        let low = self.criteria.unit.of(self.builder.corrected(alone), largest).min(known);
        Floor::of(self, &every).least(low, known, &most)
    }

    /// From a plan on, the one with the lowest peak above a floor that is found with so many asks, by halves; and the asks that
    /// it took.
    pub(super) fn lowest(
        &self,
        subproblem: &Subproblem,
        first: ActionSolution,
        floor: u64,
        most: u32,
    ) -> Result<(ActionSolution, u32), QuestionError> {
        let mut best = first;
        if let Some(plain) =
            self.plain(subproblem, Some(&best)).filter(|plain| self.peak(&plain.plan) < self.peak(&best.plan))
        {
            best = plain;
        }
        let first = Point { cap: u64::MAX, peak: self.peak(&best.plan), found: best };
        let (lowest, asked) = by_halves(first, (floor, most), self.stop, |cap| self.point(subproblem, cap))?;
        Ok((lowest.found, asked))
    }

    /// The fastest plan within a peak.
    pub(super) fn point(
        &self,
        subproblem: &Subproblem,
        cap: u64,
    ) -> Result<Point<ActionSolution>, QuestionError> {
        let found = self.ask(&subproblem.within(cap), false)?;
        Ok(Point { cap, peak: self.peak(&found.plan), found })
    }

    /// The lowest peak that plain ways reach, within the limit on time: where to begin, and what is left where nothing else fits.
    pub(super) fn plain(
        &self,
        subproblem: &Subproblem,
        first: Option<&ActionSolution>,
    ) -> Option<ActionSolution> {
        let ActionsQuestion { builder, choice, .. } = *self;
        if choice.chooser == Chooser::Mpress {
            return None;
        }
        let mut candidates = self.that_may_fit(subproblem, MOST_PLAIN).unwrap_or_default();
        if self.given.is_some() || !self.criteria.cuts.pins().is_empty() {
            candidates.clear();
        }
        match first {
            Some(first) => candidates.push(first.candidate.clone()),
            None => candidates.extend(self.stages(subproblem).ok()?.candidates),
        }
        // What the fastest of all does not get below, these do not.
        let known = first.map(|first| &first.certificate);
        let bound = known.and_then(|of| of.bound);
        let (stopped, states) = known.map_or((false, 0), |of| (of.stopped, of.states));
        let solver = choice.chooser.solver();
        let found = candidates.into_iter().filter_map(|candidate| {
            if self.stop.is_requested() {
                return None;
            }
            let asked = builder
                .action_problem(&candidate, builder.plan(&candidate, solver).ok()?, choice.pace)
                .ok()?;
            let actions = match choice.framework_rules {
                Some(framework_rules) => builder.least_expressible(&asked, framework_rules)?,
                None => builder.least(&asked, choice.allowed)?,
            };
            let plan = builder.with_actions(&candidate, &actions, choice.pace, solver).ok()?;
            drop(asked);
            let certificate = at_least(&plan, bound, (stopped, states));
            Some(ActionSolution { plan, candidate, certificate, bound_is: String::new() })
        });
        let limit = self.criteria.constraints.max_iteration_seconds.unwrap_or(f64::INFINITY);
        let most = self.criteria.constraints.max_peak_bytes.unwrap_or(u64::MAX);
        let keeps = |found: &ActionSolution| {
            found.plan.peak() <= most
                && found.plan.iteration_seconds().is_some_and(|seconds| seconds <= limit)
        };
        found.filter(keeps).min_by_key(|found| self.peak(&found.plan))
    }
}
