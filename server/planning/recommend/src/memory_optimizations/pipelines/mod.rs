//! The family of pipelines with chosen memory actions.
//!
//! | module | question |
//! |---|---|
//! | here | what do objectives ask of it? |
//! | `subproblem` | which plan is the fastest on these devices, with these batches, within this peak? |
//! | `limits` | what may a plan need at most? |
//! | `enumeration` | which pipelines are there on them at all? |
//! | `layer_minimum` | what does a layer need alone, whatever is done? |
//! | `floor` | what does each of them need, whatever is done? |
//! | `impossible` | is it proven that nothing fits? |
//! | `plain_minimum` | how little do plain ways hold? |
//! | `remedies` | what would help where there is none? |
//! | `restriction` | what does the launcher cost? |
//!
//! `subproblem` looks at a few fast pipelines of the shape that is asked for. What it does not find need not be impossible: that says
//! `impossible`.

mod enumeration;
mod floor;
mod impossible;
mod layer_minimum;
mod limits;
mod plain_minimum;
mod remedies;
mod restriction;
mod subproblem;
#[cfg(test)]
mod tests;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::PlanShape;
use loadmaster_proto::training::stage::Partitioning;

use super::Choice;
use super::certificate::of_shape;
use crate::objectives::{Answer, FamilySolution, PlanFamily, Point, Subproblem, Verdict, best, seconds_note};
use crate::plan::PlanBuilder;
use crate::problem::Criteria;
use crate::result::{QuestionError, RecommendError};
use crate::search::Job;
pub(crate) use layer_minimum::LayerMinima;
use loadmaster_search::fleet::Subset;
use loadmaster_search::{Cuts, FleetNode, Stop, Unit};

/// A question for a plan whose memory actions are to be chosen.
#[derive(Clone, Copy)]
pub(crate) struct ActionsQuestion<'a> {
    pub(crate) builder: &'a PlanBuilder<'a>,
    pub(crate) job: &'a Job<'a>,
    pub(crate) criteria: &'a Criteria,
    /// The stages, where the request names them.
    pub(crate) given: Option<&'a Partitioning>,
    pub(crate) choice: Choice<'a>,
    pub(crate) stop: &'a Stop,
    pub(crate) known: &'a LayerMinima,
}

impl ActionsQuestion<'_> {
    /// The best plan by the criteria's objective, and the plans that it names.
    ///
    /// # Errors
    /// Nothing that is allowed makes one fit within the limits, as far as anything was found, or the search was stopped before.
    pub(crate) fn answer(&self) -> Answer {
        best(self).map_err(|error| match error {
            QuestionError::Recommend(error) => error.within(self.least_allowed()).into(),
            other => other,
        })
    }
}

/// What was looked at by a search of actions for plans of a shape.
fn looked_at(shape: PlanShape) -> String {
    let of = of_shape(shape);
    format!("memory actions were chosen for fast pipelines of {of}: other plans were not looked at")
}

impl PlanFamily for ActionsQuestion<'_> {
    fn builder(&self) -> &PlanBuilder<'_> {
        self.builder
    }

    fn job(&self) -> &Job<'_> {
        self.job
    }

    fn criteria(&self) -> &Criteria {
        self.criteria
    }

    fn cuts(&self) -> &Cuts {
        &self.criteria.cuts
    }

    fn stop(&self) -> &Stop {
        self.stop
    }

    fn whole(&self) -> Subproblem {
        let may_idle = self.criteria.constraints.allow_idle_devices;
        Subproblem { may_idle, ..Subproblem::on(&Subset::whole(self.job.fleet), &self.criteria.batches) }
    }

    fn fastest(&self, subproblem: &Subproblem) -> Result<FamilySolution, QuestionError> {
        self.fastest_within(subproblem)
    }

    fn compared(&self, subproblem: &Subproblem) -> Result<FamilySolution, QuestionError> {
        self.annotated(subproblem)
    }

    fn with_comparisons(&self, found: FamilySolution, subproblem: &Subproblem) -> FamilySolution {
        self.annotated(subproblem).unwrap_or(found)
    }

    /// Of the fast pipelines within the same peak, or of its own where none of them fits.
    fn of_lowest_peak(
        &self,
        found: FamilySolution,
        within: &Subproblem,
        bound: Option<f64>,
    ) -> (FamilySolution, bool) {
        let peak = self.peak(&found.plan);
        let keeps = |told: &FamilySolution| self.peak(&told.plan) <= peak;
        let of_its_own = || self.annotated_of(found.candidate.as_ref()?, bound, within).ok().filter(keeps);
        match self.annotated(within).ok().filter(keeps).or_else(of_its_own) {
            Some(told) => (told, true),
            None => (found, false),
        }
    }

    fn point(&self, subproblem: &Subproblem, cap: u64) -> Result<Point<FamilySolution>, QuestionError> {
        let found = self.ask(&subproblem.within(cap), false)?;
        Ok(Point { cap, peak: self.peak(&found.plan), found })
    }

    fn compares_points(&self) -> bool {
        false
    }

    fn lightest(&self, subproblem: &Subproblem, first: &FamilySolution) -> Option<FamilySolution> {
        self.plain(subproblem, Some(first))
    }

    fn may_take(&self, devices: u32) -> bool {
        self.criteria.shape != PlanShape::SinglePipeline || devices as usize <= self.job.names.len()
    }

    fn nowhere(&self) -> Option<RecommendError> {
        self.lacks_layer(&self.whole())
    }

    /// The fastest plan on all devices, or on those of the largest node.
    fn spare(&self) -> Option<FamilySolution> {
        let (fleet, pins) = (self.job.fleet, self.criteria.cuts.pins());
        let on = |devices: Subset| {
            self.fastest_within(&Subproblem { devices, may_idle: false, ..self.whole() }).ok()
        };
        let all = on(Subset::whole(fleet));
        let is_at = |node: &FleetNode, other: &FleetNode| fleet.is_one_node || node.name == other.name;
        let of_node = |node: &FleetNode| -> Vec<u32> {
            fleet.nodes.iter().map(|other| if is_at(node, other) { other.devices } else { 0 }).collect()
        };
        let largest = || fleet.nodes.iter().map(of_node).max_by_key(|taken| taken.iter().sum::<u32>());
        all.or_else(|| on(Subset::of(fleet, &largest()?, pins)))
    }

    fn is_impossible(&self, subproblem: &Subproblem) -> bool {
        self.is_proven_impossible(subproblem)
    }

    fn is_exact(&self) -> bool {
        false
    }

    fn floor(&self, subproblem: &Subproblem, known: u64) -> u64 {
        self.least_peak(subproblem, known)
    }

    fn peak(&self, plan: &Plan) -> u64 {
        self.peak_of(plan)
    }

    fn counted(&self, peak: u64) -> f64 {
        match self.criteria.unit {
            Unit::Bytes => peak as f64,
            Unit::Share => peak as f64 / Unit::WHOLE as f64,
        }
    }

    fn peak_text(&self, peak: u64) -> String {
        match self.criteria.unit {
            Unit::Bytes => Bytes(peak).to_string(),
            Unit::Share => format!("{:.1} %", 100.0 * peak as f64 / Unit::WHOLE as f64),
        }
    }

    fn explained(&self, error: QuestionError, subproblem: &Subproblem) -> QuestionError {
        self.with_remedies(error, subproblem)
    }

    fn told(&self, found: FamilySolution, verdict: Verdict<'_>) -> Answer {
        let FamilySolution { mut plan, certificate: of_seconds, .. } = found;
        plan.warnings.push(looked_at(self.criteria.shape));
        plan.warnings.extend(verdict.notes);
        plan.warnings.extend(verdict.among.map(|among| seconds_note(among, &of_seconds)));
        plan.found.certificate = Some(verdict.certificate);
        Ok((plan, Vec::new()))
    }

    /// On all devices.
    fn shortest(&self) -> Answer {
        let subproblem = self.whole();
        let FamilySolution { mut plan, certificate, bound_is, .. } =
            self.annotated(&subproblem).map_err(|error| self.explained(error, &subproblem))?;
        plan.found.certificate = Some(certificate);
        plan.warnings.push(bound_is);
        Ok((plan, Vec::new()))
    }
}
