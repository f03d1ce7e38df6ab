//! A profiled chain of layers, as recommendations ask about it.

use std::sync::Arc;

use loadmaster_launchers::{PredictedStage, parameter_notes};
use loadmaster_proto::measure::host::Host;
use loadmaster_proto::model::Model;
use loadmaster_proto::name::{ModelName, ProfileName};
use loadmaster_proto::plan::objective::Launcher;
use loadmaster_proto::training::TrainingSpec;

use loadmaster_memory::chunks::ChunkCheck;
use loadmaster_predict::choose::AnyPredictor;
use loadmaster_predict::{Prediction, StageSetting};
use loadmaster_search::cost::PriceCache;

/// What is known of a profile and its model, with the predictor that answers for it.
pub struct ProfiledChain {
    pub profile: ProfileName,
    pub model_name: ModelName,
    /// Kind of the devices that were profiled.
    pub device_kind: String,
    /// The training that was profiled.
    pub training: TrainingSpec,
    /// The model itself; none where the chain is known by name alone.
    pub model: Option<Model>,
    /// Names of the layers in order.
    pub layer_names: Vec<String>,
    /// Trained scalars of the model; none where nobody knows.
    pub parameters: Option<u64>,
    /// The framework that was profiled; empty where it was Loadmaster's own rank or nobody says.
    pub framework: String,
    /// What answers for stages of it.
    pub predictor: AnyPredictor,
    /// What it answered before.
    pub known: Arc<PriceCache>,
    /// The host that it was measured on; none where nobody knows.
    pub host: Option<Host>,
    /// What a training in chunks taught; none where none was profiled.
    pub chunk_check: Option<ChunkCheck>,
}

impl ProfiledChain {
    /// Whether a layer's weight is another one's, too.
    pub fn is_tied(&self, layer: usize) -> bool {
        self.model.as_ref().is_some_and(|model| model.is_tied(layer))
    }

    /// Returns the warnings about bytes per parameter of predictions for stages: for the launcher that is to train them, and of the
    /// framework that the profile was made with.
    pub fn parameter_notes(
        &self,
        launcher: Option<Launcher>,
        settings: &[StageSetting],
        predictions: &[Prediction],
    ) -> Vec<String> {
        let Some(StageSetting { training, .. }) = settings.first() else { return Vec::new() };
        let stage = |(setting, prediction): (&StageSetting, &Prediction)| PredictedStage {
            data_degree: setting.stage.data_degree,
            bytes: prediction.bytes,
            weights: prediction.breakdown.map(|breakdown| breakdown.weights),
        };
        let stages: Vec<PredictedStage> = settings.iter().zip(predictions).map(stage).collect();
        let stated = self.predictor.copies_bytes_per_parameter();
        parameter_notes(launcher, &self.framework, training, stated, &stages)
    }
}

impl std::fmt::Debug for ProfiledChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProfiledChain")
            .field("profile", &self.profile)
            .field("device_kind", &self.device_kind)
            .field("predictor", &self.predictor.name())
            .finish_non_exhaustive()
    }
}
