//! From a predictor and devices to a recommended partitioning (CAPTURE, III-C, one device per stage), or to
//! what a given one costs.

mod peaks;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::stage::{Partitioning, StageConfig};
use loadmaster_proto::training::TrainingSpec;

use super::leximax::{self, Infeasible};
use super::merger::{self, Merged};
use super::predict::{Forecast, ForecastError, StageForecast, forecast, settings};
use super::predictor::{Margin, PredictionError, Predictor};
use peaks::Peaks;

/// Most stages that a search weighs, over all positions. Beyond it an answer takes longer than a call
/// may; 1,000 layers on 64 devices stay below.
pub const MAX_STAGES_WEIGHED: u64 = 1 << 25;

/// Solver of plans whose partitioning was named by their caller.
pub const GIVEN: &str = "given";

/// A partitioning on devices that hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommendation {
    /// How the model is cut.
    pub partitioning: Partitioning,
    /// The stages in order.
    pub stages: Vec<StageForecast>,
    /// What to know before trusting the numbers.
    pub warnings: Vec<String>,
    /// Name and version of the search, or [`GIVEN`].
    pub solver: &'static str,
}

impl Recommendation {
    /// The stage with the highest predicted peak, the first of several.
    pub fn highest(&self) -> Option<&StageForecast> {
        self.stages.iter().rev().max_by_key(|stage| stage.prediction.bytes)
    }
}

/// What restricts a search besides the devices.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// What has to stay free on every device.
    pub margin: Margin,
    /// Cut only between the groups that the merger leaves, this many of them. None cuts everywhere.
    pub merge_layers_to: Option<usize>,
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
         is {MAX_STAGES_WEIGHED}; merge layers with `--merge-layers-to`"
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
    /// The devices are not those of the partitioning that was given.
    #[error("{0}")]
    Devices(String),
    /// The partitioning that was given covers another number of layers.
    #[error("the partitioning covers {covered} layers, the model has {layers}")]
    CoversOther {
        /// Layers of the partitioning.
        covered: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// The partitioning that was given does not fit.
    #[error(
        "{partitioning} does not fit: device {device} needs {needed} of {capacity}, {} too much",
        Bytes(needed.0.saturating_sub(capacity.0))
    )]
    GivenDoesNotFit {
        /// The partitioning.
        partitioning: Partitioning,
        /// Position of the first device that is too small.
        device: usize,
        /// What it must hold, the margin included.
        needed: Bytes,
        /// What it allows.
        capacity: Bytes,
    },
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
/// Micro-batch size, micro-batches and schedule are those of `training`. Peaks are compared as they are
/// predicted; what has to fit is the upper end of their interval.
///
/// # Errors
/// Too few layers, a model too large to search, a stage that cannot be predicted, or the smallest
/// reason why nothing fits.
pub fn recommend(
    predictor: &(impl Predictor + ?Sized),
    layer_names: &[String],
    training: &TrainingSpec,
    capacities: &[Bytes],
    limits: Limits,
) -> Result<Recommendation, RecommendError> {
    let (layers, devices) = (layer_names.len(), capacities.len());
    if predictor.layers() != layers {
        return Err(RecommendError::OtherModel { profiled: predictor.layers(), layers });
    }
    let partitioning = match limits.merge_layers_to.filter(|&left| left < layers) {
        None => search(predictor, layer_names, training, capacities, limits.margin)?,
        Some(left) => {
            check_size(left, devices)?;
            let metrics = merger::metrics(predictor, training, number(devices))?;
            let groups = merger::merge(&metrics, left);
            let names: Vec<String> = groups
                .iter()
                .map(|group| group.clone().map(|layer| layer_names[layer].as_str()).collect())
                .map(|names: Vec<&str>| names.join("+"))
                .collect();
            let merged = Merged::new(predictor, groups);
            let found = search(&merged, &names, training, capacities, limits.margin);
            merged.partitioning(&found.map_err(|error| in_layers(error, &merged))?)?
        }
    };
    let forecast = forecast(predictor, &settings(training, &partitioning), capacities, limits.margin)?;
    let Forecast { stages, warnings, .. } = forecast;
    Ok(Recommendation { partitioning, stages, warnings, solver: leximax::SOLVER })
}

/// A given partitioning on devices of the given capacities, one for each device that its degrees add up
/// to.
///
/// # Errors
/// Another number of layers or devices, a stage that cannot be predicted, or the first device that
/// cannot hold the upper end of its interval.
pub fn given(
    predictor: &(impl Predictor + ?Sized),
    training: &TrainingSpec,
    partitioning: Partitioning,
    capacities: &[Bytes],
    margin: Margin,
) -> Result<Recommendation, RecommendError> {
    let (covered, layers) = (partitioning.layer_count(), predictor.layers());
    if covered != layers {
        return Err(RecommendError::CoversOther { covered, layers });
    }
    if capacities.is_empty() {
        return Err(RecommendError::NoDevices);
    }
    let forecast = forecast(predictor, &settings(training, &partitioning), capacities, margin)?;
    let too_small = forecast.stages.iter().filter(|stage| stage.slack().is_some_and(|slack| slack < 0));
    if let Some((stage, device)) = too_small.filter_map(|stage| Some((stage, stage.smallest?))).next() {
        let (device, capacity, needed) = (device.index, device.capacity, stage.needed());
        return Err(RecommendError::GivenDoesNotFit { partitioning, device, needed, capacity });
    }
    let Forecast { stages, warnings, .. } = forecast;
    Ok(Recommendation { partitioning, stages, warnings, solver: GIVEN })
}

impl From<ForecastError> for RecommendError {
    fn from(error: ForecastError) -> Self {
        match error {
            ForecastError::Prediction(error) => Self::Prediction(error),
            ForecastError::DeviceCount { .. } => Self::Devices(error.to_string()),
        }
    }
}

/// An error about groups of layers as one about the layers.
fn in_layers<P: Predictor + ?Sized>(error: RecommendError, merged: &Merged<'_, P>) -> RecommendError {
    let RecommendError::DoesNotFit { mut reason, layer_name } = error else { return error };
    match &mut reason {
        Infeasible::LayerTooLarge { layer, first, last, .. } => {
            if let Ok(stage) = merged.of_layers(StageConfig::single(*first, *last)) {
                (*first, *last) = (stage.first_layer, stage.last_layer);
            }
            if let Ok(group) = merged.of_layers(StageConfig::single(*layer, *layer)) {
                *layer = group.first_layer;
            }
        }
        Infeasible::NoPartitioning { best, .. } => {
            if let Ok(partitioning) = merged.partitioning(best) {
                *best = partitioning;
            }
        }
        Infeasible::MoreStagesThanLayers { .. } => {}
    }
    RecommendError::DoesNotFit { reason, layer_name }
}

/// The best partitioning of a predictor's layers, merged or not.
fn search(
    predictor: &(impl Predictor + ?Sized),
    layer_names: &[String],
    training: &TrainingSpec,
    capacities: &[Bytes],
    margin: Margin,
) -> Result<Partitioning, RecommendError> {
    let (layers, devices) = (layer_names.len(), capacities.len());
    check_size(layers, devices)?;
    let peaks = Peaks::predict(predictor, training, devices, margin)?;
    let limits: Vec<u64> = capacities.iter().map(|capacity| capacity.0).collect();
    let best = leximax::balance_within(
        layers,
        &limits,
        |stage, first, last| peaks.of(stage, first, last).bytes,
        |stage, first, last| peaks.of(stage, first, last).needed,
    );
    let best = best.map_err(|reason| {
        let layer_name = match &reason {
            Infeasible::LayerTooLarge { layer, .. } => layer_names.get(*layer).cloned(),
            Infeasible::MoreStagesThanLayers { .. } | Infeasible::NoPartitioning { .. } => None,
        };
        RecommendError::DoesNotFit { reason, layer_name }
    })?;
    Ok(best.partitioning)
}

fn check_size(layers: usize, devices: usize) -> Result<(), RecommendError> {
    if devices == 0 {
        return Err(RecommendError::NoDevices);
    }
    if devices > layers {
        return Err(RecommendError::MoreStagesThanLayers { devices, layers });
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
