//! What is told of a plan with interleaved stages: what proves it, what came next, and what it is beside one with a single stage on
//! each device.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::certificate::Certificate;
use loadmaster_proto::plan::comparison::Alternative;
use loadmaster_proto::plan::objective::Objective;

use super::best::EQUAL;
use super::{InterleavedQuestion, SOLVER};
use crate::acted::{ActionsQuestion, Choice, Chooser, LayerMinima, baseline};
use crate::answer::{QuestionError, recommend};
use crate::ask::Wish;
use crate::plan::NamedPlan;
use loadmaster_search::Unit;

impl InterleavedQuestion<'_> {
    /// How good a plan is by the wish's seconds or peak, and what no plan is below, where that is known.
    pub(super) fn certificate(&self, value: f64, bound: Option<f64>, states: u64) -> Certificate {
        let is_timed = self.wish.objective == Objective::MinIterationTime;
        let is_closed = bound.is_some_and(|bound| (value - bound).abs() <= EQUAL * bound.abs());
        // 0 bounds nothing: a search that was stopped early has it.
        let bound = bound.filter(|&bound| bound > 0.0);
        let gap = bound.map(|bound| ((value - bound) / bound).max(0.0));
        let is_share = self.wish.unit == Unit::Share && !is_timed;
        Certificate {
            value,
            bound,
            gap,
            proven: is_closed,
            stopped: self.stop.is_requested(),
            unit: if is_share { "share" } else { self.wish.objective.unit() }.to_owned(),
            states,
            rejected: Vec::new(),
            fetches_fewest: false,
        }
    }

    /// Says so where another order of the devices might be better.
    pub(super) fn tell_order(&self, plan: &mut Plan) {
        if !self.is_any_order() {
            plan.warnings
                .push("stages are on the devices in their order: others were not looked at".to_owned());
        }
    }

    /// Tells the plans that came next with their values, and gives them names.
    pub(super) fn tell_next(
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

    /// Says what the best plan by a wish is whose devices have one stage each, with the same actions to choose from.
    pub(super) fn tell_beside(&self, plan: &mut Plan, wish: &Wish) -> Result<(), QuestionError> {
        // Stages that are given are beside no others.
        if self.wish.brief || self.request.partitioning.is_some() {
            return Ok(());
        }
        let (other, note) = match self.one_stage_each(wish) {
            Ok(other) => (Some(other), String::new()),
            Err(error) => (None, error.to_string()),
        };
        plan.found.baselines.push(baseline("one-stage-each", other.as_ref(), plan, note)?);
        Ok(())
    }

    fn one_stage_each(&self, wish: &Wish) -> Result<Plan, QuestionError> {
        let Self { writer, job, stop, request, prices, .. } = *self;
        let wish = &Wish { alternatives: 0, brief: true, ..wish.clone() };
        let Some(allowed) = self.allowed else {
            return writer.plan(&recommend(prices, job, wish, stop)?.best, SOLVER);
        };
        let choice =
            Choice { chooser: Chooser::Fastest, allowed, pace: request.copy_pace, launched: self.launched };
        let known = LayerMinima::default();
        let question = ActionsQuestion { writer, job, wish, given: None, choice, stop, known: &known };
        question.answer().map(|(plan, _)| plan)
    }
}
