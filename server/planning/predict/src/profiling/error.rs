//! Why a profiling cannot be laid out.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::training::scenario::Scenario;

/// Why no profiling could be laid out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfilingError {
    #[error("profiling needs at least 1 device")]
    NoDevices,
    /// A device would have no layer.
    #[error(
        "{devices} devices are more than {layers} layers, so some stage would have no layer. Use fewer devices"
    )]
    MoreStagesThanLayers {
        /// Devices asked for.
        devices: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// One or two devices cannot hold an inner layer alone while something holds the rest.
    #[error(
        "in pipelines over {devices} device{}, no layer from {first_layer} to {last_layer} is a stage of its own. The \
         memory of these layers alone cannot be measured. Use the profiling mode `per-stage`, or at least 3 devices",
        if *devices == 1 { "" } else { "s" }
    )]
    CannotIsolate {
        /// Devices asked for.
        devices: usize,
        /// First layer that is never alone.
        first_layer: usize,
        /// Last layer that is never alone.
        last_layer: usize,
    },
    /// Stages cannot be shared among so many devices.
    #[error(
        "{devices} devices cannot be divided into groups of {degree} for {scenario}. Use a multiple of {degree}",
        degree = scenario.degree
    )]
    NotDivisible {
        /// Devices asked for.
        devices: usize,
        scenario: Scenario,
    },
    /// A layer cannot be split so often.
    #[error("{scenario}: layer {layer} ({name}) cannot be split: {why}")]
    NotSplit {
        scenario: Scenario,
        /// Index of the layer.
        layer: usize,
        name: String,
        /// What does not divide.
        why: String,
    },
    /// More than anybody would train.
    #[error(
        "the profile needs {runs} runs, which are too many for a model of {layers} layers. Use the profiling mode \
         `per-layer`, or fewer parallel sizes"
    )]
    TooLarge {
        /// Runs of the profiling.
        runs: usize,
        /// Layers of the model.
        layers: usize,
    },
    /// A scenario of several devices cannot be laid out.
    #[error("{scenario}: {reason}")]
    Scenario {
        scenario: Scenario,
        /// Why.
        reason: Box<ProfilingError>,
    },
    /// Under 1F1B the stages of a partitioning hold different numbers of micro-batches.
    #[error(
        "with 1F1B and PipeDream the stages of one pipeline have different numbers of micro-batches in flight. The \
         memory of a layer cannot be computed from their peaks. Use the profiling mode `per-stage`, or GPipe"
    )]
    InFlightVaries,
    /// The model cannot be trained in chunks as the profile asks: names the field.
    #[error(transparent)]
    NotInChunks(#[from] Invalid),
}

/// Checks the number of devices against the number of layers.
pub(super) fn check_counts(layers: usize, devices: usize) -> Result<(), ProfilingError> {
    if devices == 0 {
        return Err(ProfilingError::NoDevices);
    }
    if devices > layers {
        return Err(ProfilingError::MoreStagesThanLayers { devices, layers });
    }
    Ok(())
}
