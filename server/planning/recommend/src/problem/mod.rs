//! What is asked, with all defaults filled in.
//!
//! | file | question |
//! |---|---|
//! | here | of which profile? |
//! | `batches` | which micro-batches, schedules and degrees may be chosen? |
//! | `transfers` | do devices compute while they exchange with the stages next to them? |
//! | `criteria` | what is asked for, and does its search mode answer that? |
//! | `variant` | which questions is that to a search: batch, schedule, degrees? |

mod batches;
mod criteria;
mod transfers;
mod variant;

use std::sync::Arc;

use loadmaster_launchers::{PredictedStage, parameter_notes};
use loadmaster_proto::measure::host::Host;
use loadmaster_proto::model::Model;
use loadmaster_proto::name::{ModelName, ProfileName};
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::warning::Warning;

pub(super) use batches::Reach;
pub use batches::{batches, least_share, left_out, recompute, schedules};
pub use criteria::{Criteria, MAX_BATCHES};
pub(super) use criteria::{check_mode, restrict, solver};
use loadmaster_memory::chunks::ChunkCheck;
use loadmaster_predict::choose::AnyPredictor;
use loadmaster_predict::{Margin, Prediction, StageSetting};
use loadmaster_search::cost::{Factors, KindOfDevice, PriceCache, Prices};
pub use transfers::{Transfers, transfers};
pub(super) use variant::variants_of_any_size;
pub use variant::{Variant, divisors, variants};

/// A profile and its model, with the predictor of its stages.
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
    /// Trained scalars of the model; none where it is not known.
    pub parameters: Option<u64>,
    /// The framework that was profiled; empty where it was Loadmaster's own rank or no one says.
    pub framework: String,
    /// The predictor of its stages.
    pub predictor: AnyPredictor,
    /// The prices that it returned before.
    pub known: Arc<PriceCache>,
    /// The host that it was measured on; none where it is not known.
    pub host: Option<Host>,
    /// The check of a training in chunks; none where none was profiled.
    pub chunk_check: Option<ChunkCheck>,
}

impl ProfiledChain {
    /// Returns whether a layer shares its weight with another one.
    pub fn is_tied(&self, layer: usize) -> bool {
        self.model.as_ref().is_some_and(|model| model.is_tied(layer))
    }

    /// Returns the warnings about bytes per parameter of predictions for stages: for the framework that is to train them, and of the
    /// framework that the profile was made with.
    pub fn parameter_notes(
        &self,
        framework: Option<Framework>,
        settings: &[StageSetting],
        predictions: &[Prediction],
    ) -> Vec<Warning> {
        let Some(StageSetting { training, .. }) = settings.first() else { return Vec::new() };
        let stage = |(setting, prediction): (&StageSetting, &Prediction)| PredictedStage {
            data_degree: setting.stage.data_degree,
            sharding: setting.stage.sharding,
            bytes: prediction.bytes,
            weights: prediction.breakdown.map(|breakdown| breakdown.weights),
        };
        let stages: Vec<PredictedStage> = settings.iter().zip(predictions).map(stage).collect();
        let stated = self.predictor.copies_bytes_per_parameter();
        parameter_notes(framework, &self.framework, training, stated, &stages)
    }
}

/// Prices of a chain's stages on these kinds of devices, the predictions of which are multiplied with these factors.
pub(super) fn prices<'a>(
    kinds: &[(&'a ProfiledChain, Factors)],
    chain: &'a ProfiledChain,
    training: TrainingSpec,
    margin: Margin,
) -> Prices<'a> {
    let priced = kinds.iter().map(|&(chain, factors)| {
        let known = Arc::clone(&chain.known);
        (KindOfDevice { predictor: &*chain.predictor, known }, factors)
    });
    Prices::new(priced.collect(), training, margin, chain.model.as_ref())
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
