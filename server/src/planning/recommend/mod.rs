//! From a predictor and devices to a recommended partitioning (CAPTURE, III-C, one device per stage).

mod peaks;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::TrainingSpec;

use super::leximax::{self, Infeasible};
use super::predictor::{Prediction, PredictionError, Predictor, StageSetting};
use peaks::Peaks;

/// Most stages that a search weighs, over all positions. Beyond it an answer takes longer than a call
/// may; 1,000 layers on 64 devices stay below.
pub const MAX_STAGES_WEIGHED: u64 = 1 << 25;

/// The partitioning with the leximax-smallest predicted peaks.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommendation {
    /// One device per stage.
    pub partitioning: Partitioning,
    /// The stages in order.
    pub stages: Vec<PlannedStage>,
    /// Name and version of the search.
    pub solver: &'static str,
}

/// A stage on its device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlannedStage {
    /// Its layers.
    pub config: StageConfig,
    /// The most micro-batches between forward and backward at once.
    pub in_flight: u32,
    /// Bytes that its device allows.
    pub capacity: Bytes,
    /// Predicted peak (allocated ledger).
    pub prediction: Prediction,
}

impl Recommendation {
    /// The stage with the highest predicted peak, the first of several.
    pub fn highest(&self) -> Option<&PlannedStage> {
        self.stages.iter().rev().max_by_key(|stage| stage.prediction.bytes)
    }
}

/// Why nothing is recommended.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RecommendError {
    /// No device.
    #[error("a plan needs at least 1 device")]
    NoDevices,
    /// A device would have no layer.
    #[error("more stages than layers: {devices} devices for {layers} layers")]
    MoreStagesThanLayers {
        /// Devices, one per stage.
        devices: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// The names are not those of the profiled model.
    #[error("the profile is of {profiled} layers, the model has {layers}")]
    OtherModel {
        /// Layers of the profile.
        profiled: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// The search would take too long.
    #[error(
        "{layers} layers on {devices} devices are too many to search exactly: {weighed} stages, the most \
         is {MAX_STAGES_WEIGHED}"
    )]
    TooLarge {
        /// Layers of the model.
        layers: usize,
        /// Devices.
        devices: usize,
        /// Stages over all positions.
        weighed: u64,
    },
    /// A stage cannot be predicted.
    #[error(transparent)]
    Prediction(#[from] PredictionError),
    /// Nothing fits.
    #[error("{reason}{}", layer_note(.layer_name.as_deref()))]
    DoesNotFit {
        /// The smallest violation.
        reason: Infeasible,
        /// Name of the layer that it is about, if it is about one.
        layer_name: Option<String>,
    },
}

fn layer_note(name: Option<&str>) -> String {
    name.map(|name| format!(" (the layer is {name})")).unwrap_or_default()
}

/// Recommends the partitioning with the leximax-smallest predicted peaks over devices of the given
/// capacities, in pipeline order.
///
/// Micro-batch size, micro-batches and schedule are those of `training`.
///
/// # Errors
/// Too few layers, a model too large to search, a stage that cannot be predicted, or the smallest
/// reason why nothing fits.
pub fn recommend(
    predictor: &impl Predictor,
    layer_names: &[String],
    training: &TrainingSpec,
    capacities: &[Bytes],
) -> Result<Recommendation, RecommendError> {
    let (layers, devices) = (layer_names.len(), capacities.len());
    check_size(predictor.layers(), layers, devices)?;
    let peaks = Peaks::predict(predictor, training, devices)?;
    let limits: Vec<u64> = capacities.iter().map(|capacity| capacity.0).collect();
    let best = leximax::balance(layers, &limits, |stage, first, last| peaks.of(stage, first, last));
    let best = best.map_err(|reason| {
        let layer_name = match &reason {
            Infeasible::LayerTooLarge { layer, .. } => layer_names.get(*layer).cloned(),
            Infeasible::MoreStagesThanLayers { .. } | Infeasible::NoPartitioning { .. } => None,
        };
        RecommendError::DoesNotFit { reason, layer_name }
    })?;
    let predictions = predict(predictor, training, &best.partitioning)?;
    let settings = settings(training, &best.partitioning);
    let stages = settings.iter().zip(capacities).zip(predictions);
    let stages = stages
        .map(|((setting, &capacity), prediction)| PlannedStage {
            config: setting.stage,
            in_flight: setting.in_flight(),
            capacity,
            prediction,
        })
        .collect();
    Ok(Recommendation { partitioning: best.partitioning, stages, solver: leximax::SOLVER })
}

/// Predicts the peak of each stage of a given partitioning, in order.
///
/// # Errors
/// A stage cannot be predicted.
pub fn predict(
    predictor: &impl Predictor,
    training: &TrainingSpec,
    partitioning: &Partitioning,
) -> Result<Vec<Prediction>, PredictionError> {
    settings(training, partitioning).iter().map(|setting| predictor.stage(setting)).collect()
}

/// The stages of a partitioning as they will be trained.
pub fn settings(training: &TrainingSpec, partitioning: &Partitioning) -> Vec<StageSetting> {
    let stage_count = number(partitioning.stages().len());
    (0..stage_count)
        .zip(partitioning.stages())
        .map(|(stage_index, &stage)| StageSetting { stage, stage_index, stage_count, training: *training })
        .collect()
}

fn check_size(profiled: usize, layers: usize, devices: usize) -> Result<(), RecommendError> {
    if devices == 0 {
        return Err(RecommendError::NoDevices);
    }
    if devices > layers {
        return Err(RecommendError::MoreStagesThanLayers { devices, layers });
    }
    if profiled != layers {
        return Err(RecommendError::OtherModel { profiled, layers });
    }
    // Each stage leaves a layer to every other one; one end of the first and of the last is fixed.
    let widest = (layers - devices + 1) as u64;
    let inner = devices.saturating_sub(2) as u64;
    let weighed = inner.saturating_mul(widest * (widest + 1) / 2) + 2 * widest;
    if weighed > MAX_STAGES_WEIGHED {
        return Err(RecommendError::TooLarge { layers, devices, weighed });
    }
    Ok(())
}

fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
