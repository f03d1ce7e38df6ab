//! "Will it fit?" of stages that do something about their memory.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::actions::StageActions;

use super::{Forecast, ForecastError, check_devices, of_predictions};
use crate::predict::pools::{hosted_bytes, set_aside};
use crate::predict::{Acted, Margin, Prediction, PredictionError, Predictor, StageSetting};

/// What given stages need that do something about their memory.
#[derive(Debug, Clone, PartialEq)]
pub struct ActedForecast {
    /// The devices, with what they set aside for other stages.
    pub forecast: Forecast,
    /// What each stage does, with its pools.
    pub actions: Vec<StageActions>,
    /// What comes of that, stage by stage.
    pub acted: Vec<Acted>,
}

/// As [`super::forecast`], of the stages of a pipeline that do these actions, one for each. Where none of them says what is
/// set aside, what they need is.
///
/// # Errors
/// As [`super::forecast`], or the predictor cannot tell about actions.
pub fn with_actions(
    predictor: &(impl Predictor + ?Sized),
    settings: &[StageSetting],
    actions: &[StageActions],
    capacities: &[Bytes],
    margin: Margin,
) -> Result<ActedForecast, ForecastError> {
    check_devices(settings, capacities)?;
    let mut actions = actions.to_vec();
    actions.resize(settings.len(), StageActions::default());
    let acted: Result<Vec<Acted>, PredictionError> =
        settings.iter().zip(&actions).map(|(setting, actions)| predictor.acted(setting, actions)).collect();
    let acted = acted?;
    if actions.iter().all(|of| of.host_pool.0 == 0 && of.hosted.is_empty()) {
        set_aside(&mut actions, &acted);
    }
    let devices: Vec<u32> = settings.iter().map(|setting| setting.stage.devices()).collect();
    // The first of a stage's devices hosts most.
    let hosted = |stage: u32, of: &StageActions| hosted_bytes(&of.hosted, &devices, stage, 0);
    let predictions: Vec<Prediction> = (0..)
        .zip(&actions)
        .zip(&acted)
        .map(|((stage, actions), acted)| acted.prediction(hosted(stage, actions)))
        .collect();
    let forecast = of_predictions(predictor, settings, predictions, capacities, margin);
    Ok(ActedForecast { forecast, actions, acted })
}
