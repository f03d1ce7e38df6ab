//! What every predictor answers: the peak of a stage that nobody ran.

use loadmaster_proto::bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Turns a profile into peaks of stages (CAPTURE, III-B).
pub trait Predictor {
    /// Name and version, for example `additive/1`. A change that may change a figure changes it.
    fn name(&self) -> &'static str;

    /// Number of layers of the profiled model.
    fn layers(&self) -> usize;

    /// The peak of one device that holds layers `first..=last` (allocated ledger).
    ///
    /// # Errors
    /// What the profile lacks for this stage and setting.
    fn peak_bytes(
        &self,
        first: usize,
        last: usize,
        micro_batch_size: u32,
        in_flight: u32,
    ) -> Result<Prediction, PredictionError>;
}

/// A predicted peak and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Prediction {
    /// Highest bytes of live tensors (allocated ledger).
    pub bytes: Bytes,
    /// Name and version of the predictor.
    pub predictor: &'static str,
    /// How far from the profile.
    pub origin: Origin,
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
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PredictionError {
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
