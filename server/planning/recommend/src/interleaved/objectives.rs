//! Which search answers which objective.
//!
//! All of them ask `subproblem`. What that looks at whole is proven; of what it does not, a value is proven only where what layers need
//! alone rules out every better one, and else leaves a gap.

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::objective::Objective;

use super::InterleavedQuestion;
use super::subproblem::{InterleavedSolution, InterleavedSubproblem};
use crate::plan::NamedPlan;
use crate::problem::Criteria;
use crate::result::QuestionError;

impl InterleavedQuestion<'_> {
    /// The best plan by the criteria's objective, or that of the stages that are given, and the plans that it names.
    pub(super) fn best_at_objective(&self) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        if !self.is_searched() {
            return Ok((self.found()?.plan, Vec::new()));
        }
        match self.criteria.objective {
            Objective::MinIterationTime => self.at_once(self.criteria),
            Objective::MinPeakMemory if self.allowed.is_none() => self.at_once(self.criteria),
            // Of several models the caller asks for one after another.
            Objective::MaxModel => self.at_once(&self.criteria_within(&InterleavedSubproblem::whole(self))),
            Objective::MinPeakMemory => self.lowest_peak().map(|plan| (plan, Vec::new())),
            Objective::MaxBatch => self.largest_batch(),
            Objective::MinDevices | Objective::MinCost => self.fewest(),
            Objective::Pareto => self.front(),
        }
    }

    /// What one search answers, on all devices.
    fn at_once(&self, criteria: &Criteria) -> Result<(Plan, Vec<NamedPlan>), QuestionError> {
        let InterleavedSolution { mut plan, certificate, next } =
            InterleavedQuestion { criteria, ..*self }.found()?;
        // Of stages that are given nobody looked at others.
        if self.request.partitioning.is_some() {
            return Ok((plan, Vec::new()));
        }
        if certificate.bound.is_some() && !certificate.proven {
            plan.warnings.push(
                "the bound is of any cuts, whatever they hold: all layers' seconds spread over the devices, and the way to each \
                 one's first stage and back"
                    .to_owned(),
            );
        }
        plan.found.certificate = Some(certificate);
        self.annotate_comparison(&mut plan, criteria)?;
        let others = self.annotate_next(&mut plan, next)?;
        Ok((plan, others))
    }

    /// What was looked at where actions were chosen: not every way to cut.
    pub(super) fn tell_looked_at(&self, plan: &mut Plan) {
        if self.allowed.is_some() && self.request.partitioning.is_none() {
            plan.warnings.push(
                "memory actions were chosen for the fastest ways to cut, and for those that lack least: other plans were not looked at"
                    .to_owned(),
            );
        }
    }
}
