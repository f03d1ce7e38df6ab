//! "Will it fit?" of stages that do something about their memory.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::model::Model;
use loadmaster_proto::training::actions::StageActions;

use super::{Forecast, ForecastError, check_devices, of_predictions};
use crate::{Margin, PipelineActions, Prediction, Predictor, StageSetting};

/// What given stages need that do something about their memory.
#[derive(Debug, Clone)]
pub struct ActionsForecast {
    /// The devices, with what they set aside for other stages.
    pub forecast: Forecast,
    /// What each stage does, with its pools, and what comes of that.
    pub stages: PipelineActions,
}

/// As [`super::forecast`], of the stages of a pipeline that do these actions, in their order. Pools that are left out are
/// as large as needed.
///
/// # Errors
/// As [`super::forecast`], or actions that make no sense or cannot be predicted.
pub fn with_actions(
    predictor: &(impl Predictor + ?Sized),
    model: Option<&Model>,
    settings: &[StageSetting],
    actions: &[StageActions],
    capacities: &[Bytes],
    margin: Margin,
) -> Result<ActionsForecast, ForecastError> {
    check_devices(settings, capacities)?;
    let stages = PipelineActions::of(predictor, model, settings, actions)?;
    let predictions: Vec<Prediction> =
        (0..settings.len()).filter_map(|stage| stages.prediction(stage)).collect();
    let forecast = of_predictions(predictor, settings, predictions, capacities, margin);
    Ok(ActionsForecast { forecast, stages })
}
