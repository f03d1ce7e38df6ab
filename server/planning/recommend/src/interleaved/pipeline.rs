//! A variant of the criteria on the devices of an interleaved pipeline, and the plans of that variant. The pipeline passes
//! all devices in their order, once for each stage of a device.
//!
//! [`ReplayCache`] keeps what replays of its stages returned, as far as there is memory for it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::stage::StageConfig;

use super::interleaving::{DeviceResidency, Interleaving};
use crate::context::Context;
use crate::memory_optimizations::{
    CopyLinks, Timed, TimedStage, all_layer_seconds, check_acts_on, has_no_sense, recompute, tell_saved, used,
};
use crate::plan::PlanBuilder;
use crate::problem::Variant;
use crate::result::QuestionError;
use crate::search::{Candidate, Inquiry, PricedVariant};
use loadmaster_predict::{
    ActionsError, ActionsPrediction, PipelineActions, Prediction, PredictionError, StageSetting,
};
use loadmaster_search::StageCosts;
use loadmaster_search::cost::Market;
use loadmaster_search::fleet::Subset;
use loadmaster_simulate::copies::Copied;

/// Places along the pipeline of a variant on all of these devices, of which each stage has equally many.
pub(super) fn places(variant: &Variant, whole: &Subset) -> usize {
    (whole.devices() / variant.choices.first().map_or(1, |choice| choice.devices()).max(1)) as usize
}

/// A stage that was replayed: its layers, which one it is, and what it does.
type Replayed = (StageConfig, u32, StageActions);

/// A variant with its prices.
pub(super) struct Pipeline<'a, C> {
    pub(super) context: &'a Context<'a>,
    asked: PricedVariant<'a, C>,
    pub(super) variant: &'a Variant,
    /// The devices, once.
    whole: &'a Subset,
    pub(super) interleaving: Interleaving,
    each: u32,
    /// What stages hold that were replayed.
    replays: RefCell<ReplayCache>,
}

impl<'a, C: StageCosts> Pipeline<'a, C> {
    /// Prices a variant, of equal devices of so many places; none where its micro-batches are no multiple of these.
    pub(super) fn new<M: Market<Costs = C>>(
        context: &'a Context<'a>,
        inquiry: Inquiry<'a, M>,
        variant: &'a Variant,
        whole: &'a Subset,
        each: u32,
    ) -> Option<Self> {
        let size = variant.choices.first()?.devices();
        let places = places(variant, whole);
        let stages = places * each as usize;
        Some(Self {
            context,
            asked: PricedVariant::along(inquiry, variant, &vec![size; stages]),
            variant,
            whole,
            interleaving: Interleaving::of(stages, places, variant.batch.micro_batches)?,
            each,
            replays: RefCell::default(),
        })
    }

    pub(super) fn stages(&self) -> usize {
        self.interleaving.devices() * self.each as usize
    }

    /// Seconds of both passes of each layer at least, wherever it is; none where stages may be faster than their layers.
    pub(super) fn layer_seconds(&self) -> Option<Vec<f64>> {
        self.asked.layer_seconds()
    }

    /// The plan of stages that end with these layers, whether it fits or not; none where one of them cannot be priced.
    pub(super) fn candidate(&self, ends: &[usize]) -> Option<Candidate> {
        let mut first = 0;
        let stages = ends.iter().map(|&last| (std::mem::replace(&mut first, last + 1), last, 0));
        let candidate = self.asked.given(&stages.collect::<Vec<_>>())?;
        let mut candidate = self.asked.interleaved(candidate, self.each, self.whole);
        for (stage, of) in (0..).zip(&mut candidate.stages) {
            of.in_flight = self.interleaving.in_flight(stage);
        }
        Some(candidate)
    }

    /// What the stages of a candidate hold that do nothing about their memory, or that compute each of their layers once more.
    pub(super) fn with_actions(
        &self,
        candidate: &Candidate,
        again: bool,
    ) -> Result<Vec<Rc<ActionsPrediction>>, PredictionError> {
        let actions = |setting: &StageSetting| {
            let layers = setting.stage.layers().filter(|_| again);
            StageActions { actions: layers.map(recompute).collect(), ..StageActions::default() }
        };
        let settings = self.context.settings(candidate);
        settings.iter().map(|setting| self.replay(setting, actions(setting))).collect()
    }

    /// What a stage holds in its turns that does this.
    pub(super) fn replay(
        &self,
        setting: &StageSetting,
        actions: StageActions,
    ) -> Result<Rc<ActionsPrediction>, PredictionError> {
        let key = (setting.stage, setting.stage_index, actions);
        if let Some(known) = self.replays.borrow().known.get(&key) {
            return Ok(Rc::clone(known));
        }
        let chain = self.context.chain;
        let steps = self.interleaving.steps(chain.model.as_ref(), setting, &key.2);
        let acted = Rc::new(chain.predictor.acted_in(setting, &key.2, steps)?);
        self.replays.borrow_mut().keep(key, &acted);
        Ok(acted)
    }
}

/// A plan as it is written, and by how much the first device lacks memory.
pub(super) struct BuiltPlan {
    pub(super) plan: Plan,
    /// The first of the devices that lack bytes, by its place along the pipeline, and how many it needs.
    pub(super) lacks: Option<(usize, u64)>,
}

/// What the stages of a plan do about their memory, and how fast that copies; none where no one asks for any actions.
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
            interleaving.check(stage, actions).map_err(|why| {
                Invalid::field(format!("memory.stage_memory_optimizations[{}]", why.stage()), why.to_string())
            })?;
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
    let links = copies.links(&used);
    let copied = interleaving.iteration(candidate, &stages, links.clone()).map_err(has_no_sense)?;
    Ok(Some(Timed::new(candidate, copied, (&stages, actions), (copies, &links, &used))))
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

/// What a device is predicted to need: of its stages the least certain says how far that may be off.
pub(super) fn on_device(held: &DeviceResidency, stages: &[&ActionsPrediction]) -> Option<Prediction> {
    let own = held.stages.iter().filter_map(|&stage| stages.get(stage)).map(|acted| acted.prediction(0));
    let most = own.reduce(|one, other| Prediction {
        margin: one.margin.zip(other.margin).map(|(one, other)| one.max(other)),
        origin: one.origin.max(other.origin),
        ..one
    })?;
    // It is not known what of each kind is there at the moment of the highest peak.
    Some(Prediction { bytes: Bytes(held.peak), breakdown: None, ..most })
}

/// Most steps of all replays that are kept: some 100 bytes each.
const MOST_STEPS: usize = 1_000_000;

/// Replays by what they are of.
#[derive(Debug, Default)]
struct ReplayCache {
    known: HashMap<Replayed, Rc<ActionsPrediction>>,
    steps: usize,
}

impl ReplayCache {
    /// Keeps one; where it would be too many, in place of all others.
    fn keep(&mut self, key: Replayed, acted: &Rc<ActionsPrediction>) {
        let steps = acted.curve.len();
        if self.steps.saturating_add(steps) > MOST_STEPS {
            self.known.clear();
            self.steps = 0;
        }
        self.steps += steps;
        self.known.insert(key, Rc::clone(acted));
    }
}
