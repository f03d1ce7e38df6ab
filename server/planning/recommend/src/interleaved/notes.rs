//! What is told of a plan with interleaved stages: what proves it, what came next, and what it is beside one with a single stage on
//! each device.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::comparison::Alternative;
use loadmaster_proto::plan::findings::Certificate;
use loadmaster_proto::plan::objective::Objective;

use super::best::EQUAL;
use super::{InterleavedQuestion, SOLVER};
use crate::memory_optimizations::{ActionsQuestion, Choice, Chooser, LayerMinima, baseline};
use crate::plan::NamedPlan;
use crate::problem::Criteria;
use crate::result::{QuestionError, recommend};
use loadmaster_search::Unit;

impl InterleavedQuestion<'_> {
    /// How good a plan is by the criteria's seconds or peak, and what no plan is below, where that is known.
    pub(super) fn certificate(&self, value: f64, bound: Option<f64>, states: u64) -> Certificate {
        let is_timed = self.criteria.objective == Objective::MinIterationTime;
        let is_closed = bound.is_some_and(|bound| (value - bound).abs() <= EQUAL * bound.abs());
        // 0 bounds nothing: a search that was stopped early has it.
        let bound = bound.filter(|&bound| bound > 0.0);
        let gap = bound.map(|bound| ((value - bound) / bound).max(0.0));
        let is_share = self.criteria.unit == Unit::Share && !is_timed;
        Certificate {
            value,
            bound,
            gap,
            proven: is_closed,
            stopped: self.stop.is_requested(),
            unit: if is_share { "share" } else { self.criteria.objective.unit() }.to_owned(),
            states,
            rejected: Vec::new(),
            fetches_fewest: false,
        }
    }

    /// Says so where another order of the devices might be better.
    pub(super) fn annotate_order(&self, plan: &mut Plan) {
        if !self.is_any_order() {
            plan.warnings
                .push("stages are on the devices in their order: others were not looked at".to_owned());
        }
    }

    /// Tells the plans that came next with their values, and gives them names.
    pub(super) fn annotate_next(
        &self,
        plan: &mut Plan,
        next: Vec<(Plan, f64)>,
    ) -> Result<Vec<NamedPlan>, Invalid> {
        let mut others: Vec<NamedPlan> = Vec::with_capacity(next.len());
        for (other, value) in next {
            let name = other.name()?;
            plan.found.alternatives.push(Alternative {
                plan: Some(name.clone()),
                summary: other.outline()?,
                value,
            });
            if others.iter().all(|(known, _)| *known != name) {
                others.push((name, other));
            }
        }
        Ok(others)
    }

    /// Says what the best plan by criteria is whose devices have one stage each, with the same actions to choose from.
    pub(super) fn annotate_comparison(
        &self,
        plan: &mut Plan,
        criteria: &Criteria,
    ) -> Result<(), QuestionError> {
        // Stages that are given are beside no others.
        if self.criteria.brief || self.request.partitioning.is_some() {
            return Ok(());
        }
        let (other, note) = match self.one_stage_each(criteria) {
            Ok(other) => (Some(other), String::new()),
            Err(error) => (None, error.to_string()),
        };
        plan.found.baselines.push(baseline("one-stage-each", other.as_ref(), plan, note)?);
        Ok(())
    }

    fn one_stage_each(&self, criteria: &Criteria) -> Result<Plan, QuestionError> {
        let Self { builder, job, stop, request, prices, .. } = *self;
        let criteria = &Criteria { alternatives: 0, brief: true, ..criteria.clone() };
        let Some(allowed) = self.allowed else {
            return builder.plan(&recommend(prices, job, criteria, stop)?.best, SOLVER);
        };
        let choice = Choice {
            chooser: Chooser::Fastest,
            allowed,
            pace: request.copy_pace,
            framework_rules: self.framework_rules,
        };
        let known = LayerMinima::default();
        let question = ActionsQuestion { builder, job, criteria, given: None, choice, stop, known: &known };
        question.answer().map(|(plan, _)| plan)
    }
}
