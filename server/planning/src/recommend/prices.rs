//! Prices from predictors.

use loadmaster_proto::model::Model;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};

use super::candidate::Candidate;
use super::corrected::{Corrected, Factors};
use super::market::{Batch, LayerFacts, Market};
use crate::predict::{Margin, Origin, Share, StageSetting};
use crate::pricing::{AnyPredictor, Pricing, Terms};
use crate::search::{Choice, KindSet, Link, StageAt};

/// The predictors of each kind of device, and the training that they are asked about.
pub struct Prices<'a> {
    predictors: Vec<AnyPredictor<'a>>,
    training: TrainingSpec,
    margin: Margin,
    model: Option<&'a Model>,
    factors: Vec<Factors>,
    facts: Vec<LayerFacts>,
    has_times: bool,
}

impl std::fmt::Debug for Prices<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.predictors.iter().map(|predictor| predictor.name()).collect();
        f.debug_struct("Prices").field("predictors", &names).field("training", &self.training).finish()
    }
}

impl<'a> Prices<'a> {
    /// From one predictor for each of the fleet's kinds, in its order, with what its predictions are multiplied
    /// with.
    pub fn new(
        predictors: Vec<(AnyPredictor<'a>, Factors)>,
        training: TrainingSpec,
        margin: Margin,
        model: Option<&'a Model>,
    ) -> Self {
        let (predictors, factors) = predictors.into_iter().unzip();
        let mut prices =
            Self { predictors, training, margin, model, factors, facts: Vec::new(), has_times: false };
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
            &self.predictors,
            Terms { training, choices, links, margin: self.margin, model: self.model },
        )
    }

    /// How far the seconds of a plan's stages are from what was profiled; none without times.
    pub fn origin(&self, plan: &Candidate) -> Option<Origin> {
        let origins: Option<Vec<Origin>> = plan
            .stages
            .iter()
            .map(|stage| {
                let priced = self.priced(plan.schedule, plan.batch, &[stage.choice], &[]);
                priced.origin(&StageAt::anywhere(stage.first, stage.last, stage.kinds))
            })
            .collect();
        origins?.into_iter().max()
    }

    fn facts_of_layers(&self) -> Vec<LayerFacts> {
        let Some(predictor) = self.predictors.first() else { return Vec::new() };
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

impl<'a> Market for Prices<'a> {
    type Costs = Corrected<Pricing<'a>>;

    fn layers(&self) -> usize {
        self.predictors.iter().map(|predictor| predictor.layers()).min().unwrap_or(0)
    }

    fn facts(&self) -> &[LayerFacts] {
        &self.facts
    }

    fn has_times(&self) -> bool {
        self.has_times
    }

    fn costs(&self, schedule: Schedule, batch: Batch, choices: &[Choice], links: &[Link]) -> Self::Costs {
        Corrected::new(self.priced(schedule, batch, choices, links), self.factors.clone())
    }

    fn obstacle(
        &self,
        schedule: Schedule,
        batch: Batch,
        choice: Choice,
        first: usize,
        last: usize,
    ) -> Option<String> {
        let kinds = (0..self.predictors.len()).map(KindSet::one).reduce(KindSet::with)?;
        let at = StageAt::anywhere(first, last, kinds);
        let priced = self.priced(schedule, batch, &[choice], &[]);
        // Without times memory can still be planned for: only what has no bytes is in the way.
        let has_bytes = crate::search::StageCosts::peak(&priced, &at, 1).is_some();
        (!has_bytes || self.has_times).then(|| priced.why_not(&at, 1)).flatten()
    }
}
