//! A stage that some tool ran and measured.

use serde::{Deserialize, Serialize};

use super::parse::{bytes, seconds};
use crate::accounting::{Accounting, perhaps_of_device};
use crate::error::{Invalid, in_range};
use crate::training::scenario::Scenario;
use crate::training::stage::{Parallelism, StageConfig};
use crate::training::{RecomputePolicy, Schedule, TrainingSpec};

/// Peak and times of one device of a stage in a real run. What is not known is left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredStage {
    /// Index of the first layer, from 0.
    pub first_layer: usize,
    /// Index of the last layer, inclusive.
    pub last_layer: usize,
    /// How its devices shared the work.
    #[serde(default)]
    pub parallelism: Parallelism,
    /// Devices; 1 without parallelism.
    #[serde(default = "one")]
    pub degree: u32,
    /// Which of the devices.
    #[serde(default)]
    pub shard: u32,
    /// Position in its pipeline, from 0.
    pub stage_index: u32,
    /// Stages of that pipeline.
    pub stage_count: u32,
    /// Samples per pass of the stage.
    pub micro_batch_size: u32,
    /// The most micro-batches between forward and backward at once.
    pub in_flight: u32,
    /// Order of the passes; the document's training spec's where it is not given.
    #[serde(default)]
    pub schedule: Option<Schedule>,
    /// What was recomputed; the document's training spec's where it is not given.
    #[serde(default)]
    pub recompute: Option<RecomputePolicy>,
    /// Highest bytes on the device.
    pub peak_bytes: u64,
    /// Memory accounting of `peak_bytes`; the provenance's where it is not given.
    #[serde(default, deserialize_with = "perhaps_of_device")]
    pub ledger: Option<Accounting>,
    /// Bytes that the device allowed.
    #[serde(default)]
    pub capacity_bytes: Option<u64>,
    /// Parameters, master weights included.
    #[serde(default)]
    pub parameter_bytes: Option<u64>,
    /// Gradients.
    #[serde(default)]
    pub gradient_bytes: Option<u64>,
    /// Optimizer state.
    #[serde(default)]
    pub optimizer_bytes: Option<u64>,
    /// Forward pass of one micro-batch.
    #[serde(default)]
    pub forward_seconds: Option<f64>,
    /// Backward pass of one micro-batch, recomputation included.
    #[serde(default)]
    pub backward_seconds: Option<f64>,
    /// Gradient synchronisation and optimizer step, once per iteration.
    #[serde(default)]
    pub step_seconds: Option<f64>,
    /// One iteration, waiting included.
    #[serde(default)]
    pub iteration_seconds: Option<f64>,
}

fn one() -> u32 {
    1
}

impl MeasuredStage {
    /// The stage.
    pub fn config(&self) -> StageConfig {
        self.scenario().stage(self.first_layer, self.last_layer)
    }

    /// How its devices shared the work.
    pub fn scenario(&self) -> Scenario {
        Scenario { parallelism: self.parallelism, degree: self.degree }
    }

    pub(super) fn check(&self, layer_count: usize) -> Result<(), Invalid> {
        self.scenario().checked()?;
        self.config().checked()?;
        in_range("last_layer", self.last_layer, self.first_layer..=layer_count.saturating_sub(1))?;
        in_range("shard", self.shard, 0..=self.degree.saturating_sub(1))?;
        in_range("stage_count", self.stage_count, 1..=u32::try_from(layer_count).unwrap_or(u32::MAX))?;
        in_range("stage_index", self.stage_index, 0..=self.stage_count - 1)?;
        in_range("micro_batch_size", self.micro_batch_size, 1..=TrainingSpec::MAX_MICRO_BATCH_SIZE)?;
        in_range("in_flight", self.in_flight, 1..=TrainingSpec::MAX_MICRO_BATCHES)?;
        for (field, value) in [
            ("peak_bytes", Some(self.peak_bytes)),
            ("capacity_bytes", self.capacity_bytes),
            ("parameter_bytes", self.parameter_bytes),
            ("gradient_bytes", self.gradient_bytes),
            ("optimizer_bytes", self.optimizer_bytes),
        ] {
            value.map_or(Ok(()), |value| bytes(field, value))?;
        }
        for (field, value) in [
            ("forward_seconds", self.forward_seconds),
            ("backward_seconds", self.backward_seconds),
            ("step_seconds", self.step_seconds),
            ("iteration_seconds", self.iteration_seconds),
        ] {
            value.map_or(Ok(()), |value| seconds(field, value))?;
        }
        Ok(())
    }
}
