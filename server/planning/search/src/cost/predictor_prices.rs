//! The prices that searches ask for, and those that predictors give.

use std::fmt;

use loadmaster_predict::{Margin, Origin, Share, StageSetting};
use loadmaster_proto::model::Model;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};

use super::calibration::{CalibratedCosts, Factors};
use super::pricing::{KindOfDevice, PriceTerms, Pricing};
use crate::{Choice, KindSet, Link, StageAt, StageCosts};

/// The predictors of each kind of device, and the training that they are asked about.
pub struct Prices<'a> {
    kinds: Vec<KindOfDevice<'a>>,
    training: TrainingSpec,
    margin: Margin,
    model: Option<&'a Model>,
    factors: Vec<Factors>,
    facts: Vec<LayerFacts>,
    has_times: bool,
}

impl std::fmt::Debug for Prices<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.kinds.iter().map(|kind| kind.predictor.name()).collect();
        f.debug_struct("Prices").field("predictors", &names).field("training", &self.training).finish()
    }
}

impl<'a> Prices<'a> {
    /// For each of the fleet's kinds, in its order, with what its predictions are multiplied
    /// with.
    pub fn new(
        kinds: Vec<(KindOfDevice<'a>, Factors)>,
        training: TrainingSpec,
        margin: Margin,
        model: Option<&'a Model>,
    ) -> Self {
        let (kinds, factors): (Vec<KindOfDevice<'a>>, _) = kinds.into_iter().unzip();
        kinds.iter().for_each(|kind| kind.known.make_room());
        let mut prices =
            Self { kinds, training, margin, model, factors, facts: Vec::new(), has_times: false };
        let batch =
            Batch { micro_batch_size: training.micro_batch_size, micro_batches: training.micro_batches };
        // A profile may tell times at some degrees or sizes alone; one is enough to plan with them.
        prices.has_times = prices.priced(training.schedule, batch, &[Choice::SINGLE], &[]).has_seconds();
        prices.facts = prices.facts_of_layers();
        prices
    }

    fn priced(&self, schedule: Schedule, batch: Batch, choices: &[Choice], links: &[Link]) -> Pricing<'a> {
        let training = TrainingSpec {
            schedule,
            micro_batch_size: batch.micro_batch_size,
            micro_batches: batch.micro_batches,
            ..self.training
        };
        Pricing::new(
            &self.kinds,
            PriceTerms { training, choices, links, margin: self.margin, model: self.model },
        )
    }

    /// How far the seconds of a stage of this choice are from what was profiled; none without times.
    pub fn origin(
        &self,
        schedule: Schedule,
        batch: Batch,
        choice: Choice,
        stage: &StageAt,
    ) -> Option<Origin> {
        self.priced(schedule, batch, &[choice], &[]).origin(stage)
    }

    fn facts_of_layers(&self) -> Vec<LayerFacts> {
        let Some(KindOfDevice { predictor, .. }) = self.kinds.first() else { return Vec::new() };
        let share = Share { micro_batch_size: self.training.micro_batch_size, tensor_degree: 1 };
        let costs = predictor.layer_costs(share);
        let training = TrainingSpec { micro_batches: 1, recompute: RecomputePolicy::None, ..self.training };
        (0..predictor.layers())
            .map(|layer| {
                let cost = costs.get(layer).copied().flatten();
                let setting = StageSetting {
                    stage: StageConfig::single(layer, layer),
                    stage_index: u32::from(layer > 0),
                    stage_count: 1 + u32::from(layer > 0),
                    training,
                };
                let breakdown = predictor.stage(&setting).ok().and_then(|predicted| predicted.breakdown);
                let scalars = training.precision.scalar_bytes();
                let model = self.model.and_then(|model| model.layers().get(layer));
                let parameters = model.map(|layer| layer.kind.parameter_count().saturating_mul(scalars));
                LayerFacts {
                    seconds: cost.map(|cost| cost.seconds.forward + cost.seconds.backward),
                    parameter_bytes: parameters
                        .or_else(|| cost.map(|cost| cost.gradient_bytes))
                        .or_else(|| breakdown.map(|breakdown| breakdown.gradients)),
                    activation_bytes: breakdown.map(|breakdown| breakdown.activations),
                }
            })
            .collect()
    }
}

/// Prices that grew beyond what is kept go with the question that grew them.
impl Drop for Prices<'_> {
    fn drop(&mut self) {
        self.kinds.iter().for_each(|kind| kind.known.make_room());
    }
}

impl<'a> Market for Prices<'a> {
    type Costs = CalibratedCosts<Pricing<'a>>;

    fn layers(&self) -> usize {
        self.kinds.iter().map(|kind| kind.predictor.layers()).min().unwrap_or(0)
    }

    fn facts(&self) -> &[LayerFacts] {
        &self.facts
    }

    fn has_times(&self) -> bool {
        self.has_times
    }

    fn costs(&self, schedule: Schedule, batch: Batch, choices: &[Choice], links: &[Link]) -> Self::Costs {
        CalibratedCosts::new(self.priced(schedule, batch, choices, links), self.factors.clone())
    }

    fn obstacle(
        &self,
        schedule: Schedule,
        batch: Batch,
        choice: Choice,
        first: usize,
        last: usize,
    ) -> Option<String> {
        let kinds = (0..self.kinds.len()).map(KindSet::one).reduce(KindSet::with)?;
        let at = StageAt::anywhere(first, last, kinds);
        let priced = self.priced(schedule, batch, &[choice], &[]);
        // Without times memory can still be planned for: only what has no bytes is in the way.
        let has_bytes = crate::StageCosts::peak(&priced, &at, 1).is_some();
        (!has_bytes || self.has_times).then(|| priced.why_not(&at, 1)).flatten()
    }
}

/// How the samples of an iteration come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Batch {
    /// Samples of one pass of a whole stage; a device of a stage with d replicas takes a d-th of them.
    pub micro_batch_size: u32,
    /// Stage passes per iteration.
    pub micro_batches: u32,
}

impl Batch {
    /// Samples per iteration.
    pub fn samples(self) -> u64 {
        u64::from(self.micro_batch_size) * u64::from(self.micro_batches)
    }
}

/// `8 × 4`: micro-batch size times micro-batches.
impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} × {}", self.micro_batch_size, self.micro_batches)
    }
}

/// What is known of one layer alone, at the request's micro-batch size on one device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LayerFacts {
    /// Both passes of one micro-batch, seconds; none where the profile has no times.
    pub seconds: Option<f64>,
    /// Bytes of its parameters; none where it is not known.
    pub parameter_bytes: Option<u64>,
    /// Bytes that one micro-batch keeps for its backward pass; none where it is not known.
    pub activation_bytes: Option<u64>,
}

/// Prices of the stages of one model on some kinds of devices.
pub trait Market {
    /// Prices at one micro-batch size.
    type Costs: StageCosts;

    /// Layers of the chain.
    fn layers(&self) -> usize;

    /// What is known of each layer alone.
    fn facts(&self) -> &[LayerFacts];

    /// Whether times are known at all; without them only memory can be planned for.
    fn has_times(&self) -> bool;

    /// The prices of stages that make one of `choices`, over `links`: both are named by their index.
    fn costs(&self, schedule: Schedule, batch: Batch, choices: &[Choice], links: &[Link]) -> Self::Costs;

    /// Why layers `first..=last` cannot be run with this choice at this micro-batch size, human-readable; none
    /// where they can, or it is not known why not.
    fn obstacle(
        &self,
        schedule: Schedule,
        batch: Batch,
        choice: Choice,
        first: usize,
        last: usize,
    ) -> Option<String>;
}
