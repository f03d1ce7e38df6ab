//! What a stage needed in a run.

use serde::{Deserialize, Deserializer, Serialize};

use crate::accounting::{Accounting, of_device};
use crate::bytes::Bytes;
use crate::measure::chunked::ChunkRun;
use crate::measure::environment::Environment;
use crate::measure::offload::Offload;
use crate::measure::trace::{LayerComponents, LayerTrace};
use crate::training::stage::StageConfig;
use crate::training::{RecomputePolicy, StaticBytes};

/// What one stage needed in one run. Bytes are of the allocated accounting but for `peak_reserved` and
/// where `peak_ledger` says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What was measured.
    pub stage: StageConfig,
    /// Position in its pipeline.
    pub stage_index: u32,
    /// Which device of the stage it was, from 0: each replica or shard is measured.
    #[serde(default)]
    pub shard: u32,
    /// Stages of that pipeline.
    pub stage_count: u32,
    /// The neighbours were synthetic.
    pub solo: bool,
    /// Samples per pass.
    pub micro_batch_size: u32,
    /// The most micro-batches between forward and backward at once.
    pub in_flight: u32,
    /// What the stage's backward pass recomputed.
    #[serde(default)]
    pub recompute: RecomputePolicy,
    /// Highest bytes of live tensors; where `peak_ledger` is another one than the allocated accounting (a
    /// training command may know no better), the highest bytes of that memory accounting.
    pub peak_allocated: Bytes,
    /// Memory accounting of `peak_allocated`.
    #[serde(default, deserialize_with = "of_device")]
    pub peak_ledger: Accounting,
    /// Highest bytes that the caching allocator held (reserved memory accounting); none on CPU slots.
    pub peak_reserved: Option<Bytes>,
    /// Parameters, gradients and optimizer state.
    pub static_bytes: StaticBytes,
    /// What its memory optimizations moved; none where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offload: Option<Box<Offload>>,
    /// What its chunks moved and held; none where it has not trained in chunks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Box<ChunkRun>>,
    /// Capacity of the device.
    pub capacity: Bytes,
    /// Seconds of one iteration, waiting included: the median over the measured ones.
    pub iteration_seconds: f64,
    /// Seconds at the end of an iteration, the median over the measured ones: gradient synchronisation and
    /// optimizer step.
    #[serde(default)]
    pub step_seconds: f64,
    /// Times of each layer, in order.
    pub layers: Vec<LayerTimes>,
    /// Every allocation and free; where one layer was trained alone.
    #[serde(rename = "tape", default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Box<LayerTrace>>,
    /// Losses of the measured iterations; last stage only. A training that diverges has losses that JSON
    /// writes as null.
    #[serde(deserialize_with = "null_is_not_a_number")]
    pub losses: Vec<f64>,
    /// Software and device.
    pub environment: Environment,
}

impl Measurement {
    /// What the layer needed, taken apart; where one layer was trained alone.
    pub fn components(&self) -> Option<LayerComponents> {
        let trace = self.trace.as_deref()?;
        let times = self.layers.iter().find(|times| times.layer == trace.layer).copied().unwrap_or_default();
        Some(LayerComponents::of(trace, self.static_bytes, times, self.step_seconds))
    }
}

fn null_is_not_a_number<'de, D: Deserializer<'de>>(json: D) -> Result<Vec<f64>, D::Error> {
    let numbers = Vec::<Option<f64>>::deserialize(json)?;
    Ok(numbers.into_iter().map(|number| number.unwrap_or(f64::NAN)).collect())
}

/// Seconds of one pass of one micro-batch through a layer: of each micro-batch the median over the measured
/// iterations, of these the mean.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LayerTimes {
    /// Index in the model.
    pub layer: usize,
    /// Forward pass.
    pub forward_seconds: f64,
    /// Backward pass, without recomputation.
    pub backward_seconds: f64,
    /// Forward pass done once more in the backward pass.
    pub recompute_seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a diverging training needed is measured like any other.
    #[test]
    fn losses_that_are_no_numbers_survive_json() {
        #[derive(Serialize, Deserialize)]
        struct Losses(#[serde(deserialize_with = "null_is_not_a_number")] Vec<f64>);
        let json = serde_json::to_string(&Losses(vec![1.5, f64::NAN, f64::INFINITY])).unwrap();
        let Losses(read) = serde_json::from_str(&json).unwrap();
        assert!(read[0] == 1.5 && read[1].is_nan() && read[2].is_nan(), "{read:?}");
    }
}
