//! A plan with interleaved stages as it is told and kept: its certificate, the plans that came next, and its comparison with a plan
//! that has a single stage on each device.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::findings::Certificate;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::StageActions;

use super::best::EQUAL;
use super::interleaving::Interleaving;
use super::pipeline::{Pipeline, on_device};
use super::{InterleavedQuestion, SOLVER};
use crate::context::Context;
use crate::memory_optimizations::{
    ActionsQuestion, Choice, Chooser, CopyLinks, LayerMinima, Timed, TimedStage, all_layer_seconds, baseline,
    check_acts_on, has_no_sense, tell_saved, used,
};
use crate::objectives::FamilyContext;
use crate::plan::PlanBuilder;
use crate::problem::Criteria;
use crate::result::{QuestionError, certified, recommend};
use crate::search::Candidate;
use loadmaster_predict::{ActionsError, ActionsPrediction, PipelineActions};
use loadmaster_search::{StageCosts, Unit};
use loadmaster_simulate::copies::Copied;

/// A plan as it is written, and by how much the first device lacks memory.
pub(super) struct BuiltPlan {
    pub(super) plan: Plan,
    /// The first of the devices that lack bytes, by its place along the pipeline, and how many it needs.
    pub(super) lacks: Option<(usize, u64)>,
}

/// What the stages of a plan do about their memory, and how fast that copies; none where nobody asks for any actions.
pub(super) type WithActions<'a> = Option<(&'a [StageActions], &'a CopyLinks)>;

impl<C: StageCosts> Pipeline<'_, C> {
    /// The plan of a candidate whose stages take turns and do this.
    ///
    /// # Errors
    /// Actions that make no sense, by their path in the request, or what the profile lacks.
    pub(super) fn plan(
        &self,
        candidate: &Candidate,
        with: WithActions<'_>,
        solver: &str,
    ) -> Result<BuiltPlan, QuestionError> {
        let (context, interleaving) = (self.context, &self.interleaving);
        let builder = PlanBuilder { context };
        let mut plan = builder.plan(candidate, solver)?;
        let given = with.map_or(&[][..], |(actions, _)| actions);
        for (stage, actions) in given.iter().enumerate() {
            interleaving
                .check(stage, actions)
                .map_err(|why| Invalid::field(format!("stage_actions[{}]", why.stage()), why.to_string()))?;
        }
        let (untouched, offload);
        let acted: Vec<&ActionsPrediction> = if given.iter().all(StageActions::is_empty) {
            (untouched, offload) = (self.with_actions(candidate, false)?, None);
            untouched.iter().map(|acted| &**acted).collect()
        } else {
            let (predictor, model) = (&*context.chain.predictor, context.chain.model.as_ref());
            let steps = |setting: &_, actions: &_| interleaving.steps(model, setting, actions);
            let settings = context.settings(candidate);
            let stages = PipelineActions::in_steps(predictor, model, &settings, given, &steps)?;
            if solver == super::GIVEN {
                stages.check_points().map_err(ActionsError::from)?;
            }
            let devices: Vec<&[u32]> = candidate.stages.iter().map(|stage| &*stage.devices).collect();
            check_acts_on(context, &devices, &stages)?;
            offload = Some(stages);
            offload.iter().flat_map(|stages| &stages.acted).collect()
        };
        let mut lacks = None;
        for (device, held) in interleaving.held(&acted).iter().enumerate() {
            let Some(prediction) = on_device(held, &acted) else { continue };
            for &stage in &held.stages {
                builder.rewrite(&mut plan.stages[stage], &prediction);
            }
            let needed = context.needed(&prediction);
            if lacks.is_none() && needed > plan.stages[device].capacity {
                lacks = Some((device, needed));
            }
        }
        for (stage, actions) in plan.stages.iter_mut().zip(offload.iter().flat_map(|stages| &stages.actions))
        {
            stage.actions = actions.clone();
        }
        if let Some((_, copies)) = with {
            let Some(timed) = timed_in_turn(context, candidate, interleaving, (&acted, given), copies)?
            else {
                return Ok(BuiltPlan { plan, lacks });
            };
            if let Some(stages) = &offload {
                for (index, stage) in plan.stages.iter_mut().enumerate() {
                    let waited = |peer| waited(interleaving, &acted, &timed.copied, index, peer);
                    stage.offload = stages.offload(index, waited);
                }
            }
            timed.tell(&mut plan);
        }
        tell_saved(context, &mut plan)?;
        Ok(BuiltPlan { plan, lacks })
    }
}

/// An iteration of a candidate whose stages take turns and do this; none where the profile has no times.
///
/// # Errors
/// Actions of which no iteration can be simulated.
pub(crate) fn timed_in_turn(
    context: &Context<'_>,
    candidate: &Candidate,
    interleaving: &Interleaving,
    (acted, actions): (&[&ActionsPrediction], &[StageActions]),
    copies: &CopyLinks,
) -> Result<Option<Timed>, Invalid> {
    let Some(layers) = all_layer_seconds(context, candidate) else { return Ok(None) };
    let stages = TimedStage::all(candidate, acted.iter().copied(), &layers);
    let used = used(&stages);
    let copied = interleaving.iteration(candidate, &stages, copies.links(&used)).map_err(has_no_sense)?;
    Ok(Some(Timed::new(candidate, copied, (&stages, actions), (copies, &used))))
}

/// Seconds for which a stage's device waits for the stage's copies to another one, or to the host.
fn waited(
    interleaving: &Interleaving,
    acted: &[&ActionsPrediction],
    copied: &Copied,
    stage: usize,
    peer: Option<u32>,
) -> f64 {
    let devices = interleaving.devices().max(1);
    // Trips of a device are those of its stages, one stage after another.
    let before: usize = interleaving
        .own(stage % devices)
        .iter()
        .filter(|&&of| of < stage)
        .map(|&of| acted[of].away.len())
        .sum();
    let own = &acted[stage].away;
    let is_own = |trip: u32| {
        let of = (trip as usize).checked_sub(before).and_then(|trip| own.get(trip));
        of.is_some_and(|of| match peer {
            None => of.stripes.is_empty(),
            Some(peer) => of.stripes.iter().any(|(stage, _)| *stage == peer),
        })
    };
    let waits =
        copied.waits.iter().filter(|wait| wait.device as usize == stage % devices && is_own(wait.trip));
    waits.map(|wait| wait.end - wait.start).sum()
}

impl InterleavedQuestion<'_> {
    /// How good a plan is by the criteria's seconds or peak, and what no plan is below, where that is known.
    pub(super) fn certificate(&self, value: f64, bound: Option<f64>, states: u64) -> Certificate {
        let is_timed = self.family.criteria.objective == Objective::MinIterationTime;
        let is_closed = bound.is_some_and(|bound| (value - bound).abs() <= EQUAL * bound.abs());
        // 0 bounds nothing: a search that was stopped early has it.
        let bound = bound.filter(|&bound| bound > 0.0);
        let is_share = self.family.criteria.unit == Unit::Share && !is_timed;
        let unit = if is_share { "share" } else { self.family.criteria.objective.unit() };
        Certificate {
            proven: is_closed,
            stopped: self.family.stop.is_requested(),
            states,
            ..certified(value, bound, unit)
        }
    }

    /// Says so where another order of the devices might be better.
    pub(super) fn annotate_order(&self, plan: &mut Plan) {
        if !self.is_any_order() {
            plan.warnings
                .push("stages are on the devices in their order: others were not looked at".to_owned());
        }
    }

    /// Says what the best plan by criteria is whose devices have one stage each, with the same actions to choose from.
    pub(super) fn annotate_comparison(
        &self,
        plan: &mut Plan,
        criteria: &Criteria,
    ) -> Result<(), QuestionError> {
        // Stages that are given are beside no others.
        if self.family.criteria.brief || self.family.given.is_some() {
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
        let Self { family, request, .. } = *self;
        let FamilyContext { context, job, stop, .. } = family;
        let criteria = &Criteria { alternatives: 0, brief: true, ..criteria.clone() };
        let Some(allowed) = self.allowed else {
            let best = recommend(context.prices, job, criteria, stop)?.best;
            return PlanBuilder { context }.plan(&best, SOLVER);
        };
        let choice = Choice {
            chooser: Chooser::Fastest,
            allowed,
            pace: request.copy_pace,
            framework_rules: self.framework_rules,
        };
        let known = LayerMinima::default();
        let family = FamilyContext { given: None, ..family.with(criteria, &known) };
        ActionsQuestion { family, choice }.answer().map(|(plan, _)| plan)
    }
}
