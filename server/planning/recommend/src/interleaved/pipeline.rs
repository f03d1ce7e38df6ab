//! A variant of criteria on the devices as an interleaved pipeline comes by them: all of them in turn, as often as each has a stage.
//!
//! [`ReplayCache`] keeps what replays of its stages returned, as far as there is memory for it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::actions::StageActions;

use super::interleaving::{DeviceResidency, Interleaving};
use crate::context::Context;
use crate::memory_optimizations::recompute;
use crate::problem::Variant;
use crate::search::{Candidate, Inquiry, PricedVariant};
use loadmaster_predict::{ActionsPrediction, Prediction, PredictionError, StageSetting};
use loadmaster_search::StageCosts;
use loadmaster_search::cost::Market;
use loadmaster_search::fleet::Subset;

/// Places along the pipeline of a variant on all of these devices, of which each stage has equally many.
pub(super) fn places(variant: &Variant, whole: &Subset) -> usize {
    (whole.devices() / variant.choices.first().map_or(1, |choice| choice.devices()).max(1)) as usize
}

/// A stage that was replayed: its layers, which one it is, and whether each layer is computed again.
type Replayed = (usize, usize, u32, bool);

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
    replayed: RefCell<ReplayCache<Replayed>>,
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
            replayed: RefCell::default(),
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

    /// What the stages of a candidate hold that do nothing about their memory, or that compute each of their layers again.
    pub(super) fn with_actions(
        &self,
        candidate: &Candidate,
        again: bool,
    ) -> Result<Vec<Rc<ActionsPrediction>>, PredictionError> {
        let settings = self.context.settings(candidate);
        settings.iter().map(|setting| self.replayed(setting, again)).collect()
    }

    fn replayed(
        &self,
        setting: &StageSetting,
        again: bool,
    ) -> Result<Rc<ActionsPrediction>, PredictionError> {
        let key = (setting.stage.first_layer, setting.stage.last_layer, setting.stage_index, again);
        if let Some(known) = self.replayed.borrow().get(&key) {
            return Ok(known);
        }
        let layers = setting.stage.layers().filter(|_| again);
        let actions = StageActions { actions: layers.map(recompute).collect(), ..StageActions::default() };
        let acted = self.replay(setting, &actions)?;
        self.replayed.borrow_mut().keep(key, &acted);
        Ok(acted)
    }

    /// What a stage holds in its turns that does this.
    pub(super) fn replay(
        &self,
        setting: &StageSetting,
        actions: &StageActions,
    ) -> Result<Rc<ActionsPrediction>, PredictionError> {
        let chain = self.context.chain;
        let steps = self.interleaving.steps(chain.model.as_ref(), setting, actions);
        Ok(Rc::new(chain.predictor.acted_in(setting, actions, steps)?))
    }
}

/// What a device is predicted to need: of its stages the least certain says how far that may be off.
pub(super) fn on_device(held: &DeviceResidency, stages: &[&ActionsPrediction]) -> Option<Prediction> {
    let own = held.stages.iter().filter_map(|&stage| stages.get(stage)).map(|acted| acted.prediction(0));
    let most = own.reduce(|one, other| Prediction {
        margin: one.margin.zip(other.margin).map(|(one, other)| one.max(other)),
        origin: one.origin.max(other.origin),
        ..one
    })?;
    // Nobody knows what of each kind is there at the fullest moment.
    Some(Prediction { bytes: Bytes(held.peak), breakdown: None, ..most })
}

/// Most steps of all replays that are kept: some 100 bytes each.
const MOST_STEPS: usize = 1_000_000;

/// Replays by what they are of.
#[derive(Debug)]
pub(super) struct ReplayCache<K> {
    known: BTreeMap<K, Rc<ActionsPrediction>>,
    steps: usize,
}

impl<K> Default for ReplayCache<K> {
    fn default() -> Self {
        Self { known: BTreeMap::new(), steps: 0 }
    }
}

impl<K: Ord> ReplayCache<K> {
    pub(super) fn get(&self, key: &K) -> Option<Rc<ActionsPrediction>> {
        self.known.get(key).map(Rc::clone)
    }

    /// Keeps one; where it would be too many, in place of all others.
    pub(super) fn keep(&mut self, key: K, acted: &Rc<ActionsPrediction>) {
        let steps = acted.curve.len();
        if self.steps.saturating_add(steps) > MOST_STEPS {
            self.known.clear();
            self.steps = 0;
        }
        self.steps += steps;
        self.known.insert(key, Rc::clone(acted));
    }
}
