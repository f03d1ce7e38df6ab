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
    #[error("stage {first}..{last} is not part of a model of {layers} layers")]
    NoSuchStage {
        /// First layer asked for.
        first: usize,
        /// Last layer asked for.
        last: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// Nothing was measured.
    #[error("the profile has no measurement of stages on {scenario}: profile with {}", campaign(scenario))]
    NothingProfiled {
        /// How the stage is shared among devices.
        scenario: Scenario,
    },
    /// A metric that the stage needs was not measured.
    #[error(
        "the {metric} memory of layer {layer} was not measured at {setting}: `loadmaster profile show` says \
         which stages are missing"
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
        "profiled at micro-batch {profiled} alone on {scenario}, which cannot be scaled to {target}: profile \
         a second micro-batch size, or parallel stages with `--scale-by-pipeline`"
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
        "profiled with {profiled} micro-batches in flight alone, which cannot be scaled to {target}: \
         profile with {target} in flight, or under 1F1B with the profiling mode `per-stage`"
    )]
    OneInFlight {
        /// The profiled number.
        profiled: u32,
        /// The number asked for.
        target: u32,
    },
    /// The paper's rules know replicas and shards, not replicas that consist of shards.
    #[error(
        "`{predictor}` cannot tell about stages of {data_degree} replicas of {tensor_degree} shards each: \
         profile with `profiling_mode` PROFILING_MODE_PER_LAYER, `parallelisms` PARALLELISM_TENSOR and `parallel_sizes` 2 and 4, whose predictor can"
    )]
    MixedStage {
        /// Replicas.
        data_degree: u32,
        /// Shards of each.
        tensor_degree: u32,
        /// Name and version of the predictor.
        predictor: &'static str,
    },
    /// Only recordings of single layers say what lies where between two of a stage's steps.
    #[error(
        "`{predictor}` does not predict memory step by step, which memory optimizations and virtual pipeline stages need. Profile \
         with `profiling_mode` PROFILING_MODE_PER_LAYER, whose predictor does."
    )]
    NoActions {
        /// Name and version of the predictor.
        predictor: &'static str,
    },
    /// Recordings of single layers say what a device holds in each of a model's steps, and tables of layers about how much.
    #[error(
        "`{predictor}` cannot tell about training in chunks: profile with `PROFILING_MODE_PER_LAYER --host-memory BYTES` and without a \
         command, whose predictor can"
    )]
    NoChunks {
        /// Name and version of the predictor.
        predictor: &'static str,
    },
    /// In chunks each device trains all layers, or a shard of each.
    #[error(
        "layers {first}..{last} of {layers} are not trained in chunks: ask for the whole model in one stage of replicas and \
         shards"
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
        "profiled on {profiled} alone, which cannot be scaled to degree {target}: profile with \
         `--degrees 2,4`"
    )]
    OneDegree {
        /// The profiled scenario.
        profiled: Scenario,
        /// The degree asked for.
        target: u32,
    },
    /// The figures of one training say nothing about another.
    #[error(
        "profiled with {what} {profiled}, and `{predictor}` cannot tell about {target}: profile with it, or \
         with `profiling_mode` PROFILING_MODE_PER_LAYER, whose predictor answers for every schedule and recompute policy"
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
fn campaign(scenario: &Scenario) -> String {
    match scenario.parallelism {
        Parallelism::None => {
            "`profiling_mode` PROFILING_MODE_PER_STAGE or `profiling_mode` PROFILING_MODE_WHOLE_PIPELINE"
                .to_owned()
        }
        Parallelism::Data => "`parallelisms` PARALLELISM_DATA and `parallel_sizes` 2 and 4".to_owned(),
        Parallelism::Tensor => "`parallelisms` PARALLELISM_TENSOR and `parallel_sizes` 2 and 4".to_owned(),
    }
}
