//! What a stage needed in a run.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::stage::StageConfig;
use crate::training::StaticBytes;

/// What one stage needed in one run. Bytes are of the allocated ledger but for `peak_reserved`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What was measured.
    pub stage: StageConfig,
    /// Position in its pipeline.
    pub stage_index: u32,
    /// Stages of that pipeline.
    pub stage_count: u32,
    /// The neighbours were synthetic.
    pub solo: bool,
    /// Samples per pass.
    pub micro_batch_size: u32,
    /// The most micro-batches between forward and backward at once.
    pub in_flight: u32,
    /// Highest bytes of live tensors.
    pub peak_allocated: Bytes,
    /// Highest bytes that the caching allocator held (reserved ledger); none on CPU slots.
    pub peak_reserved: Option<Bytes>,
    /// Parameters, gradients and optimizer state.
    pub static_bytes: StaticBytes,
    /// Capacity of the device.
    pub capacity: Bytes,
    /// Mean seconds of one iteration, waiting included.
    pub iteration_seconds: f64,
    /// Times of each layer, in order.
    pub layers: Vec<LayerTimes>,
    /// Losses of the measured iterations; last stage only.
    pub losses: Vec<f64>,
    /// Software and device.
    pub environment: Environment,
}

/// Mean seconds of one pass of one micro-batch through a layer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LayerTimes {
    /// Index in the model.
    pub layer: usize,
    /// Forward pass.
    pub forward_seconds: f64,
    /// Backward pass, without recomputation.
    pub backward_seconds: f64,
    /// Forward pass done again in the backward pass.
    pub recompute_seconds: f64,
}

/// The software and device behind a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Kind of device.
    pub device_kind: String,
    /// libtorch version.
    pub libtorch_version: String,
    /// CUDA version, or empty.
    pub cuda_version: String,
    /// Driver version, or empty.
    pub driver_version: String,
    /// Loadmaster version.
    pub loadmaster_version: String,
    /// Threads that libtorch computed with.
    pub threads: u32,
}
