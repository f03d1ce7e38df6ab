//! A predictor whose layers are the groups that the merger left.

use std::ops::RangeInclusive;

use loadmaster_proto::run::Ledger;
use loadmaster_proto::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::TrainingSpec;

use super::Layer;
use crate::planning::predictor::{Prediction, PredictionError, Predictor, StageSetting};

/// Answers for stages of groups what another predictor answers for their layers.
#[derive(Debug)]
pub struct Merged<'a, P: ?Sized> {
    predictor: &'a P,
    groups: Vec<RangeInclusive<usize>>,
}

impl<'a, P: Predictor + ?Sized> Merged<'a, P> {
    /// `groups` cover the predictor's layers in order.
    pub fn new(predictor: &'a P, groups: Vec<RangeInclusive<usize>>) -> Self {
        Self { predictor, groups }
    }

    /// The stage of layers that a stage of groups is.
    ///
    /// # Errors
    /// When there are no such groups.
    pub fn of_layers(&self, stage: StageConfig) -> Result<StageConfig, PredictionError> {
        let (first, last) = (stage.first_layer, stage.last_layer);
        match (self.groups.get(first), self.groups.get(last)) {
            (Some(from), Some(to)) if first <= last => {
                Ok(StageConfig { first_layer: *from.start(), last_layer: *to.end(), ..stage })
            }
            _ => Err(PredictionError::NoSuchStage { first, last, layers: self.groups.len() }),
        }
    }

    /// The partitioning of layers that a partitioning of groups is.
    ///
    /// # Errors
    /// When it is of another number of groups.
    pub fn partitioning(&self, of_groups: &Partitioning) -> Result<Partitioning, PredictionError> {
        let stages = of_groups.stages().iter().map(|&stage| self.of_layers(stage));
        let stages = stages.collect::<Result<Vec<StageConfig>, PredictionError>>()?;
        Partitioning::new(stages).map_err(|invalid| PredictionError::NotProfiled(invalid.to_string()))
    }
}

impl<P: Predictor + ?Sized> Predictor for Merged<'_, P> {
    fn name(&self) -> &'static str {
        self.predictor.name()
    }

    fn layers(&self) -> usize {
        self.groups.len()
    }

    fn ledger(&self) -> Ledger {
        self.predictor.ledger()
    }

    fn stage(&self, setting: &StageSetting) -> Result<Prediction, PredictionError> {
        let stage = self.of_layers(setting.stage)?;
        self.predictor.stage(&StageSetting { stage, ..*setting })
    }

    fn sources(&self, setting: &StageSetting) -> Vec<String> {
        let stage = self.of_layers(setting.stage);
        stage.map_or_else(|_| Vec::new(), |stage| self.predictor.sources(&StageSetting { stage, ..*setting }))
    }

    fn warnings(&self, setting: &StageSetting) -> Vec<String> {
        let stage = self.of_layers(setting.stage);
        stage
            .map_or_else(|_| Vec::new(), |stage| self.predictor.warnings(&StageSetting { stage, ..*setting }))
    }
}

/// The two metrics of every layer as a predictor sees them, on one device at the head of a pipeline of
/// `stage_count` stages. For CAPTURE's predictor these are its own metrics at the target; for any other
/// one, those of a neighbour set of one layer.
///
/// # Errors
/// A layer or a pair of layers cannot be predicted.
pub fn metrics<P: Predictor + ?Sized>(
    predictor: &P,
    training: &TrainingSpec,
    stage_count: u32,
) -> Result<Vec<Layer>, PredictionError> {
    let peak = |first: usize, last: usize| -> Result<i128, PredictionError> {
        let stage = StageConfig::single(first, last);
        let setting = StageSetting { stage, stage_index: 0, stage_count, training: *training };
        Ok(i128::from(predictor.stage(&setting)?.bytes.0))
    };
    (0..predictor.layers())
        .map(|layer| {
            let isolated = peak(layer, layer)?;
            let added = match layer.checked_sub(1) {
                Some(before) => peak(before, layer)? - peak(before, before)?,
                None => 0,
            };
            Ok(Layer { isolated, added })
        })
        .collect()
}
