//! What is told of a plan with interleaved stages: what proves it, and what it is beside one with a single stage on each device.

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::certificate::Certificate;
use loadmaster_proto::plan::objective::Objective;

use super::best::EQUAL;
use super::{InterleavedQuestion, SOLVER};
use crate::recommend::acted::{ActionsQuestion, Choice, Chooser, KnownAlone, baseline};
use crate::recommend::answer::{QuestionError, recommend};
use crate::recommend::ask::Wish;
use crate::search::Unit;

impl InterleavedQuestion<'_> {
    /// Says what proves a plan, and what it is beside one with one stage on each device.
    pub(super) fn tell(
        &self,
        plan: &mut Plan,
        value: f64,
        bound: Option<f64>,
        states: u64,
    ) -> Result<(), QuestionError> {
        let is_timed = self.wish.objective == Objective::MinIterationTime;
        let is_closed = bound.is_some_and(|bound| (value - bound).abs() <= EQUAL * bound.abs());
        let gap = bound.filter(|&bound| bound > 0.0).map(|bound| ((value - bound) / bound).max(0.0));
        let is_share = self.wish.unit == Unit::Share && !is_timed;
        plan.found.certificate = Some(Certificate {
            value,
            bound,
            gap,
            proven: is_closed,
            stopped: self.stop.is_requested(),
            unit: if is_share { "share" } else { self.wish.objective.unit() }.to_owned(),
            states,
            rejected: Vec::new(),
            fetches_fewest: false,
        });
        if !self.is_any_order() {
            plan.warnings
                .push("stages are on the devices in their order: others were not looked at".to_owned());
        }
        if bound.is_some() && !is_closed {
            plan.warnings.push(
                "the bound is of any cuts, whatever they hold: all layers' seconds spread over the devices, and the way to each \
                 one's first stage and back"
                    .to_owned(),
            );
        }
        if !self.wish.brief {
            let (other, note) = match self.one_stage_each() {
                Ok(other) => (Some(other), String::new()),
                Err(error) => (None, error.to_string()),
            };
            plan.found.baselines.push(baseline("one-stage-each", other.as_ref(), plan, note)?);
        }
        Ok(())
    }

    /// The best plan with one stage on each device, with the same actions to choose from.
    fn one_stage_each(&self) -> Result<Plan, QuestionError> {
        let Self { writer, job, stop, request, prices, .. } = *self;
        let wish = &Wish { alternatives: 0, brief: true, ..self.wish.clone() };
        let Some(allowed) = self.allowed else {
            return writer.plan(&recommend(prices, job, wish, stop)?.best, SOLVER);
        };
        let choice =
            Choice { chooser: Chooser::Fastest, allowed, pace: request.copy_pace, launched: self.launched };
        let known = KnownAlone::default();
        let question = ActionsQuestion { writer, job, wish, given: None, choice, stop, known: &known };
        question.answer().map(|(plan, _)| plan)
    }
}
