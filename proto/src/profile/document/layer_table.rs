//! Times and bytes of a model's layers, as per-layer profilers tabulate them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::parse::{bytes, seconds};
use crate::accounting::{Accounting, perhaps_of_device};
use crate::error::{Invalid, in_range};
use crate::training::scenario::Scenario;
use crate::training::stage::{Parallelism, StageConfig};
use crate::training::{RecomputePolicy, TrainingSpec};

/// Most rows of one kind that a layer may have.
const MAX_ROWS: usize = 10_000;
/// Most bytes of copies of one scalar: more than four of each number that any framework keeps.
const MAX_COPIES_BYTES: u32 = 64;

/// What is known of every layer of the chain. Rows of one group of like layers are written once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerTable {
    /// Memory accounting of the byte counts; the provenance's where it is not given.
    #[serde(default, deserialize_with = "perhaps_of_device")]
    pub ledger: Option<Accounting>,
    /// What a device holds whatever it trains: context, kernels, communicators. Not a tensor's bytes, so
    /// only the device accounting has it.
    #[serde(default)]
    pub overhead_bytes: Option<u64>,
    /// Whether the times of shards are those of their kernels alone, without what the shards sum. Profilers
    /// that train with shards measure both together, so that it is usually false; a document with times of
    /// shards has to say which. None where there are no such times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times_without_collectives: Option<bool>,
    /// True if rows of shards are of a training with sequence parallelism: shards divide, along the sequence, the activations that tensor
    /// parallelism leaves whole. Plans with several shards have it then, too. Not given: no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_parallel: Option<bool>,
    /// Recompute policy of the measured training: `none`, or `layer`. Layers that are recomputed keep `activation_bytes` (their inputs), their
    /// transient bytes contain what they recompute, and their backward passes the second forward pass. Only plans with this
    /// policy can be predicted then. Not given: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recompute: Option<RecomputePolicy>,
    /// Replicas that divided the update of `update_seconds` among each other (ZeRO-1, distributed optimizer). Not given: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer_shards: Option<u32>,
    /// Share of the predicted bytes by which real peaks are expected to differ at most, 0 to 1: for those who
    /// have compared. Not given: the predictor's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<f64>,
    /// Bytes that the framework keeps of every trained scalar besides the parameter, its gradient and the
    /// optimizer's state as precision and optimizer have them: further copies of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies_bytes_per_parameter: Option<u32>,
    /// Groups of like layers that cover the chain in order, without gap or overlap.
    pub layers: Vec<LayerRows>,
}

/// Rows that each of the layers `first_layer..=last_layer` has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerRows {
    /// Index of the first of the layers, from 0.
    pub first_layer: usize,
    /// Index of the last one, inclusive.
    pub last_layer: usize,
    /// Times by micro-batch size and tensor-parallel size.
    #[serde(default)]
    pub times: Vec<TimesRow>,
    /// Bytes by micro-batch size and tensor-parallel size.
    #[serde(default)]
    pub bytes: Vec<BytesRow>,
    /// CAPTURE's two metrics.
    #[serde(default)]
    pub memory: Vec<MemoryRow>,
}

/// Seconds of one pass of one micro-batch through one layer, on one device.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimesRow {
    /// Samples per pass.
    pub micro_batch_size: u32,
    /// Shards of the layer's tensors.
    pub tensor_degree: u32,
    /// Forward pass.
    pub forward_seconds: f64,
    /// Backward pass.
    pub backward_seconds: f64,
    /// Optimizer step, once per iteration, where it is known.
    #[serde(default)]
    pub update_seconds: Option<f64>,
}

/// Bytes of one layer on one device, for one micro-batch. What is not known is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BytesRow {
    /// Samples per pass that all but `parameter_bytes` are of.
    pub micro_batch_size: u32,
    /// Shards of the layer's tensors.
    pub tensor_degree: u32,
    /// Parameters of one shard, in the format that is trained; without gradients and optimizer state.
    #[serde(default)]
    pub parameter_bytes: Option<u64>,
    /// What is kept between forward and backward pass.
    #[serde(default)]
    pub activation_bytes: Option<u64>,
    /// What one pass of the layer holds besides and frees before its end, at most.
    #[serde(default)]
    pub transient_bytes: Option<u64>,
    /// What enters the layer.
    #[serde(default)]
    pub input_bytes: Option<u64>,
    /// What leaves the layer.
    #[serde(default)]
    pub output_bytes: Option<u64>,
    /// What the shards of the layer sum in one direction, for times without collectives; twice the output if
    /// not given, as in a transformer block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchanged_bytes: Option<u64>,
}

/// Isolated and added memory of one layer (CAPTURE, III-B).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryRow {
    /// Samples per pass of the stage.
    pub micro_batch_size: u32,
    /// The most micro-batches between forward and backward at once.
    pub in_flight: u32,
    /// How the stage's devices shared its work.
    #[serde(default)]
    pub parallelism: Parallelism,
    /// Devices of the stage; 1 without parallelism.
    pub degree: u32,
    /// `M_i`: peak of a device that holds this layer alone.
    #[serde(default)]
    pub isolated_bytes: Option<u64>,
    /// `M_a`: growth of the peak when this layer joins its neighbours; may be negative.
    #[serde(default)]
    pub added_bytes: Option<i64>,
}

impl LayerTable {
    /// Returns true if its rows are of layers that are recomputed.
    pub fn recomputes(&self) -> bool {
        self.recompute == Some(RecomputePolicy::Layer)
    }

    /// The rows of a layer.
    pub fn layer(&self, layer: usize) -> Option<&LayerRows> {
        self.layers.iter().find(|rows| (rows.first_layer..=rows.last_layer).contains(&layer))
    }

    /// Whether any layer has rows of `M_i` or `M_a`.
    pub fn has_metrics(&self) -> bool {
        self.layers.iter().any(|rows| !rows.memory.is_empty())
    }

    /// Whether any layer has byte rows.
    pub fn has_bytes(&self) -> bool {
        self.layers.iter().any(|rows| !rows.bytes.is_empty())
    }

    /// Whether any row has times of shards.
    fn has_times_of_shards(&self) -> bool {
        self.layers.iter().flat_map(|rows| &rows.times).any(|row| row.tensor_degree > 1)
    }

    pub(super) fn check(&self, layer_count: usize) -> Result<(), Invalid> {
        self.overhead_bytes.map_or(Ok(()), |value| bytes("overhead_bytes", value))?;
        if self.times_without_collectives.is_none() && self.has_times_of_shards() {
            return Err(Invalid::field(
                "times_without_collectives",
                "is required because `times` has rows with a tensor_degree above 1. Use false if these times \
                 include tensor-parallel collectives, and true if they include only kernels",
            ));
        }
        if let Some(margin) = self.margin
            && !(0.0..=1.0).contains(&margin)
        {
            return Err(invalid!("margin", "{margin} is out of range. Use 0 to 1"));
        }
        if self.recompute == Some(RecomputePolicy::Stage) {
            return Err(Invalid::field(
                "recompute",
                "stage is not valid, because a layer table has no figures of whole stages. Use none or layer",
            ));
        }
        if let Some(shards) = self.optimizer_shards {
            in_range("optimizer_shards", shards, 1..=StageConfig::MAX_DATA_DEGREE)?;
        }
        if let Some(copies) = self.copies_bytes_per_parameter {
            in_range("copies_bytes_per_parameter", copies, 0..=MAX_COPIES_BYTES)?;
        }
        if self.layers.iter().all(LayerRows::is_empty) {
            return Err(Invalid::field("layers", "is empty. Add rows to `times`, `bytes` or `memory`"));
        }
        let mut next = 0;
        for (index, rows) in self.layers.iter().enumerate() {
            let path = format!("layers[{index}]");
            if rows.first_layer != next {
                return Err(Invalid::field(
                    format!("{path}.first_layer"),
                    format!(
                        "{} is not valid. Use {next}: the groups must cover all layers in order, without gaps or \
                         overlaps",
                        rows.first_layer
                    ),
                ));
            }
            rows.check(layer_count).map_err(|invalid| invalid.under(&path))?;
            next = rows.last_layer + 1;
        }
        if next != layer_count {
            return Err(invalid!(
                "layers",
                "cover only {next} layers, but the model has {layer_count}. Add groups for the other layers"
            ));
        }
        Ok(())
    }
}

impl LayerRows {
    /// Whether nothing is said of its layers.
    fn is_empty(&self) -> bool {
        self.times.is_empty() && self.bytes.is_empty() && self.memory.is_empty()
    }

    /// The bytes at exactly this setting.
    pub fn bytes_at(&self, micro_batch_size: u32, tensor_degree: u32) -> Option<&BytesRow> {
        self.bytes
            .iter()
            .find(|row| (row.micro_batch_size, row.tensor_degree) == (micro_batch_size, tensor_degree))
    }

    fn check(&self, layer_count: usize) -> Result<(), Invalid> {
        in_range("last_layer", self.last_layer, self.first_layer..=layer_count.saturating_sub(1))?;
        let times = self.times.iter().map(|row| (row.micro_batch_size, row.tensor_degree));
        unique("times", times)?;
        let bytes = self.bytes.iter().map(|row| (row.micro_batch_size, row.tensor_degree));
        unique("bytes", bytes)?;
        let memory = self
            .memory
            .iter()
            .map(|row| (row.micro_batch_size, row.in_flight, row.parallelism as u8, row.degree));
        unique("memory", memory)?;
        rows("times", &self.times, TimesRow::check)?;
        rows("bytes", &self.bytes, BytesRow::check)?;
        rows("memory", &self.memory, |row| row.check(self.first_layer))
    }
}

impl TimesRow {
    fn check(&self) -> Result<(), Invalid> {
        setting(self.micro_batch_size, self.tensor_degree)?;
        seconds("forward_seconds", self.forward_seconds)?;
        seconds("backward_seconds", self.backward_seconds)?;
        self.update_seconds.map_or(Ok(()), |value| seconds("update_seconds", value))
    }
}

impl BytesRow {
    fn check(&self) -> Result<(), Invalid> {
        setting(self.micro_batch_size, self.tensor_degree)?;
        for (field, value) in [
            ("parameter_bytes", self.parameter_bytes),
            ("activation_bytes", self.activation_bytes),
            ("transient_bytes", self.transient_bytes),
            ("input_bytes", self.input_bytes),
            ("output_bytes", self.output_bytes),
            ("exchanged_bytes", self.exchanged_bytes),
        ] {
            value.map_or(Ok(()), |value| bytes(field, value))?;
        }
        Ok(())
    }
}

impl MemoryRow {
    fn check(&self, first_layer: usize) -> Result<(), Invalid> {
        micro_batch_size(self.micro_batch_size)?;
        in_range("in_flight", self.in_flight, 1..=TrainingSpec::MAX_MICRO_BATCHES)?;
        let Self { parallelism, degree, .. } = *self;
        Scenario { parallelism, degree }.checked()?.stage(first_layer, first_layer).checked()?;
        self.added_bytes.map_or(Ok(()), |value| bytes("added_bytes", value.unsigned_abs()))?;
        self.isolated_bytes.map_or(Ok(()), |value| bytes("isolated_bytes", value))
    }
}

fn setting(micro_batch: u32, tensor_degree: u32) -> Result<(), Invalid> {
    micro_batch_size(micro_batch)?;
    in_range("tensor_degree", tensor_degree, 1..=MAX_TENSOR_DEGREE)?;
    Ok(())
}

/// Most shards of a layer.
const MAX_TENSOR_DEGREE: u32 = 1_024;

fn micro_batch_size(size: u32) -> Result<(), Invalid> {
    in_range("micro_batch_size", size, 1..=TrainingSpec::MAX_MICRO_BATCH_SIZE).map(drop)
}

fn rows<T>(field: &str, rows: &[T], check: impl Fn(&T) -> Result<(), Invalid>) -> Result<(), Invalid> {
    in_range(field, rows.len(), 0..=MAX_ROWS)?;
    rows.iter().enumerate().try_for_each(|(index, row)| {
        check(row).map_err(|invalid| invalid.under(&format!("{field}[{index}]")))
    })
}

fn unique<K: Ord>(field: &str, keys: impl Iterator<Item = K>) -> Result<(), Invalid> {
    let mut seen = BTreeSet::new();
    for (index, key) in keys.enumerate() {
        if !seen.insert(key) {
            return Err(Invalid::field(format!("{field}[{index}]"), "repeats a setting. Keep one row"));
        }
    }
    Ok(())
}
