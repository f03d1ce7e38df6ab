//! A plan with interleaved stages as it is told and kept: its certificate, the plans that came next, and its comparison with a plan
//! that has a single stage on each device.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::comparison::Alternative;
use loadmaster_proto::plan::findings::Certificate;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::actions::StageActions;

use super::best::EQUAL;
use super::interleaving::Interleaving;
use super::pipeline::{Pipeline, on_device, settings, simulated, used};
use super::{InterleavedQuestion, SOLVER};
use crate::memory_optimizations::{
    ActionsQuestion, Choice, Chooser, CopyLinks, LayerMinima, Timed, baseline, mean_backward, swaps,
};
use crate::plan::{NamedPlan, PlanBuilder};
use crate::problem::Criteria;
use crate::result::{QuestionError, recommend};
use crate::search::Candidate;
use loadmaster_predict::{ActionsError, ActionsPrediction, PipelineActions};
use loadmaster_search::{StageCosts, Unit};
use loadmaster_simulate::Edge;
use loadmaster_simulate::copies::Copied;

/// A plan as it is written, and by how much the first device lacks memory.
pub(super) struct BuiltPlan {
    pub(super) plan: Plan,
    /// The first of the devices that lack bytes, by its place along the pipeline, and how many it needs.
    pub(super) lacks: Option<(usize, u64)>,
}

/// What the stages of a plan do about their memory, and how fast that copies; none where nobody asks for any actions.
pub(super) type WithActions<'a> = Option<(&'a [StageActions], &'a CopyLinks)>;

impl PlanBuilder<'_> {
    /// The plan of a candidate whose stages take turns and do this.
    ///
    /// # Errors
    /// Actions that make no sense, by their path in the request, or what the profile lacks.
    pub(super) fn interleaved<C: StageCosts>(
        &self,
        pipeline: &Pipeline<'_, C>,
        candidate: &Candidate,
        with: WithActions<'_>,
        solver: &str,
    ) -> Result<BuiltPlan, QuestionError> {
        let interleaving = &pipeline.interleaving;
        let mut plan = self.plan(candidate, solver)?;
        let settings = settings(self, candidate);
        let given = with.map_or(&[][..], |(actions, _)| actions);
        for (stage, actions) in given.iter().enumerate() {
            interleaving
                .check(stage, actions)
                .map_err(|why| Invalid::field(format!("stage_actions[{}]", why.stage()), why.to_string()))?;
        }
        let devices: Vec<&[u32]> = candidate.stages.iter().map(|stage| &*stage.devices).collect();
        let (acted, actions, offload) = if given.iter().all(StageActions::is_empty) {
            let acted = pipeline.with_actions(candidate, false)?;
            (acted.iter().map(|acted| ActionsPrediction::clone(acted)).collect::<Vec<_>>(), Vec::new(), None)
        } else {
            let (predictor, model) = (&*self.chain.predictor, self.chain.model.as_ref());
            let steps = |setting: &_, actions: &_| interleaving.steps(model, setting, actions);
            let stages = PipelineActions::in_steps(predictor, model, &settings, given, &steps)?;
            if solver == super::GIVEN {
                stages.check_points().map_err(ActionsError::from)?;
            }
            self.check_acts_on(&devices, &stages)?;
            (stages.acted.clone(), stages.actions.clone(), Some(stages))
        };
        let acted: Vec<&ActionsPrediction> = acted.iter().collect();
        let mut lacks = None;
        for (device, held) in interleaving.held(&acted).iter().enumerate() {
            let Some(prediction) = on_device(held, &acted) else { continue };
            for &stage in &held.stages {
                self.rewrite(&mut plan.stages[stage], &prediction);
            }
            let needed = self.needed(&prediction).0;
            if lacks.is_none() && needed > plan.stages[device].capacity {
                lacks = Some((device, needed));
            }
        }
        for (stage, actions) in plan.stages.iter_mut().zip(actions) {
            stage.actions = actions;
        }
        if let Some((_, links)) = with {
            let Some(timed) = self.timed_in_turn(candidate, interleaving, (&acted, given), links)? else {
                return Ok(BuiltPlan { plan, lacks });
            };
            if let Some(stages) = &offload {
                for (index, stage) in plan.stages.iter_mut().enumerate() {
                    stage.offload =
                        stages.offload(index, |peer| waited(pipeline, &acted, &timed.copied, index, peer));
                }
            }
            timed.tell(&mut plan);
        }
        self.tell_saved(&mut plan)?;
        Ok(BuiltPlan { plan, lacks })
    }
}

impl PlanBuilder<'_> {
    /// An iteration of a candidate whose stages take turns and do this; none where the profile has no times.
    ///
    /// # Errors
    /// Actions of which no iteration can be simulated.
    pub(crate) fn timed_in_turn(
        &self,
        candidate: &Candidate,
        interleaving: &Interleaving,
        (acted, actions): (&[&ActionsPrediction], &[StageActions]),
        links: &CopyLinks,
    ) -> Result<Option<Timed>, QuestionError> {
        let seconds = candidate.stages.iter().map(|stage| self.layers(candidate, stage));
        let Some(seconds) = seconds.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let edges: Vec<Edge> = candidate.edges.iter().map(|&both| Edge::halves(both)).collect();
        let copied = simulated(interleaving, candidate, (acted, &seconds), (&edges, links))
            .map_err(|error| Invalid::field("stage_actions", error.to_string()))?;
        let backward = acted.iter().zip(&candidate.stages).zip(&seconds);
        let backward =
            backward.map(|((acted, stage), (layers, _))| mean_backward(acted, stage.first, layers));
        let used = used(acted);
        let of_copies = links.links(&used);
        let has_more = !used.is_empty() || !of_copies.cores.is_empty();
        Ok(Some(Timed {
            backward: backward.collect(),
            copy_rates: has_more.then(|| of_copies.rates_of(&used)),
            rates: if actions.iter().any(swaps) { links.told(&used) } else { String::new() },
            copied,
            edges,
        }))
    }
}

/// Seconds for which a stage's device waits for the stage's copies to another one, or to the host.
fn waited<C: StageCosts>(
    pipeline: &Pipeline<'_, C>,
    acted: &[&ActionsPrediction],
    copied: &Copied,
    stage: usize,
    peer: Option<u32>,
) -> f64 {
    let interleaving = &pipeline.interleaving;
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
