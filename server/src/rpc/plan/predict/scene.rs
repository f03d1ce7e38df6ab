//! A question for a prediction with all that its answer depends on, and the answer where nothing is to be chosen.

use std::sync::Arc;

use loadmaster_memory::chunks::in_chunks;
use loadmaster_predict::cores;
use loadmaster_predict::forecast::{ActionsForecast, devices, excluded, forecast, with_actions};
use loadmaster_predict::{Margin, Prediction, StageSetting};
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::ChunkedStage;
use loadmaster_proto::error::{Invalid, required};
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::warning::WarningCode;
use loadmaster_proto::wire::v1;
use loadmaster_recommend::ProfiledChain;

use crate::rpc::error::ApiError;
use crate::rpc::plan::message;

/// What seconds of stages with replicas lack here, unlike those of a plan.
const NO_LINKS: &str = "the seconds of an optimizer step exclude the communication between data-parallel replicas, because \
                        this request has no links. The seconds of a recommended plan include it.";

/// Stages of a training on devices.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) chain: Arc<ProfiledChain>,
    pub(super) stages: Vec<StageSetting>,
    /// Of each device, in pipeline order; empty where no one said.
    pub(super) capacities: Vec<Bytes>,
    pub(super) training: TrainingSpec,
    pub(super) margin: Margin,
    /// What is to train this.
    pub(super) framework: Option<Framework>,
}

/// What stages do so that they hold less.
#[derive(Clone)]
pub(super) struct AskedActions {
    pub(super) stages: Vec<StageActions>,
    /// The request names them.
    pub(super) are_given: bool,
}

impl Scene {
    /// What the stages need whose parameters and state are on their devices, all the time.
    ///
    /// # Errors
    /// What is wrong with the actions or the devices, or what the profile lacks.
    pub(super) fn plain(&self, actions: &AskedActions) -> Result<v1::PredictPlanResponse, ApiError> {
        let Self { chain, stages, capacities, margin, .. } = self;
        let ProfiledChain { device_kind, layer_names, predictor, host, .. } = &**chain;
        let (mut found, acted) = if actions.stages.is_empty() {
            (forecast(&**predictor, stages, capacities, *margin)?, None)
        } else {
            let model = chain.model.as_ref();
            let found = with_actions(&**predictor, model, stages, &actions.stages, capacities, *margin)?;
            let ActionsForecast { forecast, stages } = found;
            if actions.are_given {
                stages.check_points()?;
            }
            (forecast, Some(stages))
        };
        if found.stages.iter().any(|of| of.prediction.seconds.is_some()) {
            let count = stages.iter().map(|of| of.stage_count).max().unwrap_or(0);
            found.warnings.extend(cores::of_stages(device_kind, devices(stages), count, *host));
            if stages.iter().any(|of| of.stage.data_degree > 1) {
                found.warnings.push(WarningCode::LinksNotCounted.says(NO_LINKS));
            }
        }
        let predictions: Vec<Prediction> = found.stages.iter().map(|stage| stage.prediction).collect();
        found.warnings.extend(chain.parameter_notes(self.framework, stages, &predictions));
        let communicates = stages.iter().any(|of| of.stage_count > 1 || of.stage.devices() > 1);
        let excluded = excluded(predictor.ledger(), device_kind, communicates);
        let mut answer = self.headed(message::forecast(
            &found,
            predictor.name(),
            predictor.ledger(),
            layer_names,
            excluded,
        ));
        if let Some(acted) = acted {
            for (index, stage) in answer.stages.iter_mut().enumerate() {
                // Seconds are of whole iterations, which a recommendation simulates.
                stage.offload_traffic = acted.offload(index, |_| 0.0).map(Into::into);
                stage.memory_optimizations =
                    stage.offload_traffic.as_ref().and_then(|_| acted.actions.get(index)).map(Into::into);
            }
        }
        Ok(answer)
    }

    /// What the one stage of a training needs in these chunks, with these actions.
    ///
    /// # Errors
    /// Several stages, what is wrong with the chunks or the actions, or what the profile lacks.
    pub(super) fn in_given_chunks(
        &self,
        stage: &ChunkedStage,
        actions: &[StageActions],
    ) -> Result<v1::PredictPlanResponse, ApiError> {
        let is_pipeline = self.stages.len() > 1;
        Settings::default().when(is_pipeline, Setting::Pipeline).when(true, Setting::GivenChunks).check()?;
        let setting = required("pipeline_layout", self.stages.first())?;
        let actions = match actions {
            [] => &StageActions::default(),
            [actions] => actions,
            several => {
                let named = several.len() - 1;
                let why = format!(
                    "names stage {named}, but training in chunks has only stage 0. Remove the other stages."
                );
                return Err(Invalid::field("memory.stage_memory_optimizations", why).into());
            }
        };
        let ProfiledChain { device_kind, layer_names, predictor, model, .. } = &*self.chain;
        let capacities = &self.capacities;
        let found =
            in_chunks(&**predictor, model.as_ref(), setting, (stage, actions), capacities, self.margin)?;
        let ledger = predictor.ledger();
        let mut answer = self.headed(message::forecast(
            &found.forecast,
            predictor.name(),
            ledger,
            layer_names,
            excluded(ledger, device_kind, false),
        ));
        for answered in &mut answer.stages {
            answered.chunked_training = Some(stage.into());
            answered.chunk_traffic = Some((&found.run).into());
            answered.offload_traffic = found.offload.clone().map(Into::into);
            answered.memory_optimizations = found.offload.as_ref().map(|_| (&found.actions).into());
        }
        Ok(answer)
    }

    /// An answer that says what it is about.
    pub(super) fn headed(&self, answer: v1::PredictPlanResponse) -> v1::PredictPlanResponse {
        let ProfiledChain { profile, model_name, device_kind, .. } = &*self.chain;
        v1::PredictPlanResponse {
            profile: profile.to_string(),
            model: model_name.to_string(),
            training: Some(self.training.into()),
            device_kind: device_kind.clone(),
            ..answer
        }
    }
}
