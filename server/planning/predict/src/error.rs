//! Why a stage has no prediction.

use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::{Parallelism, StageConfig};

use super::capture::metrics::Setting;

/// Why a peak cannot be predicted. Each text ends with what to do about it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PredictionError {
    /// The profile has nothing of this kind.
    #[error("{0}")]
    NotProfiled(String),
    #[error(
        "a stage with layers {first} to {last} is not possible: the model has {layers} layers, counted from 0"
    )]
    NoSuchStage {
        /// First layer asked for.
        first: usize,
        /// Last layer asked for.
        last: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// Nothing was measured.
    #[error("the profile has no measurements with {scenario}. Profile with {}", profiling_mode(scenario))]
    NothingProfiled {
        /// How the stage is shared among devices.
        scenario: Scenario,
    },
    /// A metric that the stage needs was not measured.
    #[error(
        "the {metric} memory of layer {layer} was not measured at {setting}. GetProfile lists the missing stages. \
         Resume the profile to measure them"
    )]
    MetricMissing {
        /// `isolated` or `added`.
        metric: &'static str,
        /// Index of the layer.
        layer: usize,
        /// Where it is missing.
        setting: Setting,
    },
    /// A line needs two micro-batch sizes.
    #[error(
        "the profile was measured with {scenario} only at micro-batch size {profiled}, which cannot be scaled to \
         {target}. Profile a second micro-batch size, or set `single_device_scaling`"
    )]
    OneMicroBatchSize {
        /// How the stage is shared among devices.
        scenario: Scenario,
        /// The profiled size.
        profiled: u32,
        /// The size asked for.
        target: u32,
    },
    /// A line needs two numbers of micro-batches in flight.
    #[error(
        "the profile was measured only with {profiled} micro-batches in flight, which cannot be scaled to {target}. \
         Profile with {target} in flight. Or profile with 1F1B and `profiling_mode` PROFILING_MODE_PER_STAGE, which \
         measures two numbers in flight"
    )]
    OneInFlight {
        /// The profiled number.
        profiled: u32,
        /// The number asked for.
        target: u32,
    },
    /// The paper's rules know replicas and shards, not replicas that consist of shards.
    #[error(
        "`{predictor}` cannot predict stages with data-parallel size {data_degree} and tensor-parallel size {tensor_degree}. \
         The `component` predictor can. To use it, profile with `profiling_mode` PROFILING_MODE_PER_LAYER, \
         `parallelisms` PARALLELISM_TENSOR and `parallel_sizes` 2 and 4"
    )]
    MixedStage {
        /// Replicas.
        data_degree: u32,
        /// Shards of each.
        tensor_degree: u32,
        /// Name and version of the predictor.
        predictor: &'static str,
    },
    /// Only recordings of single layers, and tables of layers, say what lies where between two of a stage's steps.
    #[error(
        "`{predictor}` does not predict memory step by step, which memory optimizations and virtual pipeline stages need. \
         The predictors `component` and `table` do. Profile with `profiling_mode` PROFILING_MODE_PER_LAYER, or import a \
         layer table with `bytes` rows"
    )]
    NoActions {
        /// Name and version of the predictor.
        predictor: &'static str,
    },
    /// Only tables of such a training tell.
    #[error(
        "`{predictor}` cannot predict sequence parallelism: the profile was measured without it. Remove s from the pipeline \
         layout, or import a layer table with sequence_parallel"
    )]
    NoSequence {
        /// Name and version of the predictor.
        predictor: &'static str,
    },
    /// Peaks of whole replicas say nothing of parts of their states.
    #[error(
        "`{predictor}` cannot predict state sharding. Use none, or a predictor that supports it: `component` (profile with \
         `profiling_mode` PROFILING_MODE_PER_LAYER) or `table` (import a layer table with `bytes` rows)"
    )]
    NoSharding {
        /// Name and version of the predictor.
        predictor: &'static str,
    },
    /// Recordings of single layers say what a device holds in each of a model's steps, and tables of layers about how much.
    #[error(
        "`{predictor}` cannot predict chunked training. The `component` predictor can. To use it, profile with \
         `profiling_mode` PROFILING_MODE_PER_LAYER and `host_memory_bytes`, without `custom_profiler`"
    )]
    NoChunks {
        /// Name and version of the predictor.
        predictor: &'static str,
    },
    /// In chunks each device trains all layers, or a shard of each.
    #[error(
        "layers {first} to {last} of {layers} are not the whole model. Chunked training needs one stage with all layers"
    )]
    PartInChunks {
        /// First layer asked for.
        first: usize,
        /// Last layer asked for.
        last: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// A curve needs two degrees.
    #[error(
        "the profile was measured only with {profiled}, which cannot be scaled to size {target}. Profile with \
         `parallel_sizes` 2 and 4"
    )]
    OneDegree {
        /// The profiled scenario.
        profiled: Scenario,
        /// The degree asked for.
        target: u32,
    },
    /// The figures of one training say nothing about another.
    #[error(
        "the profile was measured with {what} {profiled}, so `{predictor}` cannot predict {target}. Profile with \
         {what} {target}, or with `profiling_mode` PROFILING_MODE_PER_LAYER, which is valid for every schedule and \
         recompute policy"
    )]
    OtherTraining {
        /// What differs.
        what: &'static str,
        profiled: String,
        /// As it was asked for.
        target: String,
        /// Name and version of the predictor.
        predictor: &'static str,
    },
}

impl PredictionError {
    /// # Errors
    /// The stage has a part of so many layers, which are not trained in chunks.
    pub(super) fn check_whole(stage: &StageConfig, layers: usize) -> Result<(), Self> {
        let StageConfig { first_layer: first, last_layer: last, .. } = *stage;
        if first == 0 && last + 1 == layers {
            return Ok(());
        }
        Err(Self::PartInChunks { first, last, layers })
    }
}

/// The options of `loadmaster profile run` that measure a scenario.
fn profiling_mode(scenario: &Scenario) -> String {
    match scenario.parallelism {
        Parallelism::None => {
            "`profiling_mode` PROFILING_MODE_PER_STAGE or PROFILING_MODE_WHOLE_PIPELINE".to_owned()
        }
        Parallelism::Data => "`parallelisms` PARALLELISM_DATA and `parallel_sizes` 2 and 4".to_owned(),
        Parallelism::Tensor => "`parallelisms` PARALLELISM_TENSOR and `parallel_sizes` 2 and 4".to_owned(),
    }
}
