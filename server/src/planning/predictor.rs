//! What every predictor answers: memory and time of a stage that nobody ran.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::stage::StageConfig;
use loadmaster_proto::training::TrainingSpec;
use serde::{Deserialize, Serialize};

/// Turns a profile into bytes and seconds of stages (CAPTURE, III-B).
pub trait Predictor {
    /// Name and version, for example `component/1`. A change that may change a figure changes it.
    fn name(&self) -> &'static str;

    /// Number of layers of the profiled model.
    fn layers(&self) -> usize;

    /// What each device of a stage needs.
    ///
    /// # Errors
    /// What the profile lacks for this stage and setting.
    fn stage(&self, setting: &StageSetting) -> Result<Prediction, PredictionError>;

    /// Names of the measurements that the prediction is made from (`runs/…/measurements/…`), in a fixed
    /// order and each once. Empty where the profile has no names.
    fn sources(&self, setting: &StageSetting) -> Vec<String>;
}

/// A stage as it will be trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StageSetting {
    /// Layers, parallelism and degree.
    pub stage: StageConfig,
    /// Position in its pipeline, from 0.
    pub stage_index: u32,
    /// Stages of that pipeline.
    pub stage_count: u32,
    /// Everything else. The micro-batch size is that of the whole stage: a device of a data-parallel
    /// stage of degree d takes one d-th of it.
    pub training: TrainingSpec,
}

impl StageSetting {
    /// The most micro-batches between forward and backward at once.
    pub fn in_flight(&self) -> u32 {
        self.training.schedule.in_flight(self.stage_count, self.stage_index, self.training.micro_batches)
    }
}

/// What a device of a stage is predicted to need.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// Highest bytes of live tensors on one device (allocated ledger): the fullest device of the stage.
    pub bytes: Bytes,
    /// What those bytes are; none where the predictor cannot tell.
    pub breakdown: Option<Breakdown>,
    /// How long the passes take; none where the profile has no times.
    pub seconds: Option<StageSeconds>,
    /// The real peak is expected between `bytes · (1 − margin)` and `bytes · (1 + margin)`, from the
    /// errors on stages that were held out. None where nobody has measured that.
    pub margin: Option<f64>,
    /// Name and version of the predictor.
    pub predictor: &'static str,
    /// How far from the profile.
    pub origin: Origin,
}

/// The bytes of a device at the moment of its peak (allocated ledger). They add up to the peak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Breakdown {
    /// Parameters, master weights included.
    pub weights: u64,
    /// Gradients of parameters.
    pub gradients: u64,
    /// State of the optimizer.
    pub optimizer: u64,
    /// What lies between forward and backward passes, edges apart.
    pub activations: u64,
    /// Inputs, outputs and their gradients at the stage's own edges.
    pub edges: u64,
    /// Buffers of collectives.
    pub communication: u64,
    /// What lives within one layer's pass or step.
    pub transient: u64,
    /// What the allocator or its libraries hold besides: rounding, workspaces.
    pub overhead: u64,
}

impl Breakdown {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights
            + self.gradients
            + self.optimizer
            + self.activations
            + self.edges
            + self.communication
            + self.transient
            + self.overhead
    }
}

/// Seconds on one device of a stage, waiting for other stages not included.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StageSeconds {
    /// Forward pass of one micro-batch.
    pub forward: f64,
    /// Backward pass of one micro-batch, recomputation included.
    pub backward: f64,
    /// Once per iteration: gradient synchronisation and optimizer step.
    pub step: f64,
}

/// How a figure was read from the profiled settings; later ones are less certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The stage's micro-batch size and micro-batches in flight were profiled.
    Profiled,
    /// At least one of the two lies between profiled values.
    Interpolated,
    /// At least one of the two lies outside the profiled values.
    Extrapolated,
}

/// Why a peak cannot be predicted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PredictionError {
    /// The profile has nothing of this kind.
    #[error("{0}")]
    NotProfiled(String),
    /// No such stage.
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
    #[error("the profile has no measurement")]
    NothingProfiled,
    /// A metric that the stage needs was not measured.
    #[error(
        "the {metric} memory of layer {layer} was not measured at micro-batch {micro_batch_size} with \
         {in_flight} in flight"
    )]
    MetricMissing {
        /// `isolated` or `added`.
        metric: &'static str,
        /// Index of the layer.
        layer: usize,
        /// Samples per stage pass.
        micro_batch_size: u32,
        /// Micro-batches in flight.
        in_flight: u32,
    },
    /// A line needs two micro-batch sizes.
    #[error(
        "profiled at micro-batch {profiled} alone, which cannot be scaled to {target}: profile a second \
         micro-batch size"
    )]
    OneMicroBatchSize {
        /// The profiled size.
        profiled: u32,
        /// The size asked for.
        target: u32,
    },
    /// A line needs two numbers of micro-batches in flight.
    #[error(
        "profiled with {profiled} micro-batches in flight alone, which cannot be scaled to {target}: \
         profile with {target} in flight, or under 1F1B with the `stages` campaign"
    )]
    OneInFlight {
        /// The profiled number.
        profiled: u32,
        /// The number asked for.
        target: u32,
    },
}
