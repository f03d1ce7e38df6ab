//! Stage configs and partitionings.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, in_range};
use crate::model::MAX_LAYERS;
use crate::training::sharding::StateSharding;
use crate::wire::{ToWire, field, v1};
use crate::{choice, message};

/// One way in which the devices of a stage share its work. A stage may be shared in both ways at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parallelism {
    /// One device.
    #[default]
    None,
    /// Replicas that split the batch.
    Data,
    /// Shards that split the tensors.
    Tensor,
}

choice! {
    Parallelism = v1::Parallelism, else "is not a known parallelism. Use none, data or tensor" {
        None, Data, Tensor,
    }
}

/// A contiguous group of layers on one set of devices: `data_degree` replicas, each of them
/// `tensor_degree` devices that hold one shard of the tensors.
///
/// Its devices are numbered as Megatron-LM numbers ranks, the shard varying fastest: device
/// `replica · tensor_degree + shard`.
///
/// ```
/// use loadmaster_proto::training::stage::StageConfig;
///
/// let stage = StageConfig { data_degree: 2, tensor_degree: 4, ..StageConfig::single(0, 3) }.checked()?;
/// assert_eq!((stage.layer_count(), stage.devices()), (4, 8));
/// assert_eq!(stage.samples_of(5, 32), 16..32, "the sixth device is one of the second replica");
/// assert_eq!(stage.to_string(), "0..3/data2/tensor4");
/// # Ok::<(), loadmaster_proto::error::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StageConfig {
    /// Index of the first layer.
    pub first_layer: usize,
    /// Index of the last layer, inclusive.
    pub last_layer: usize,
    /// Replicas that split the micro-batch and sum their gradients.
    pub data_degree: u32,
    /// Shards that split the tensors of each replica.
    pub tensor_degree: u32,
    /// The shards also divide, along the sequence, the activations that tensor parallelism leaves whole (sequence parallelism).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sequence_parallel: bool,
    /// States that the replicas divide among each other.
    #[serde(default, skip_serializing_if = "StateSharding::is_none")]
    pub sharding: StateSharding,
}

impl StageConfig {
    /// Most replicas of a stage.
    pub const MAX_DATA_DEGREE: u32 = 16_384;
    /// Most shards of a replica.
    pub const MAX_TENSOR_DEGREE: u32 = 64;

    /// Layers `first..=last` on one device.
    pub fn single(first_layer: usize, last_layer: usize) -> Self {
        Self {
            first_layer,
            last_layer,
            data_degree: 1,
            tensor_degree: 1,
            sequence_parallel: false,
            sharding: StateSharding::None,
        }
    }

    /// Number of layers.
    pub fn layer_count(&self) -> usize {
        self.last_layer + 1 - self.first_layer
    }

    /// Indices of its layers.
    pub fn layers(&self) -> std::ops::RangeInclusive<usize> {
        self.first_layer..=self.last_layer
    }

    /// Its devices.
    pub fn devices(&self) -> u32 {
        self.data_degree.saturating_mul(self.tensor_degree)
    }

    /// The replica that a device of the stage belongs to.
    pub fn replica(&self, device: u32) -> u32 {
        device / self.tensor_degree.max(1)
    }

    /// Devices among which the optimizer states of each of its tensors are divided.
    pub fn optimizer_parts(&self) -> u32 {
        self.sharding.optimizer_parts(self.data_degree)
    }

    /// Samples of one pass on each of its devices.
    pub fn per_device_micro_batch(&self, micro_batch_size: u32) -> u32 {
        micro_batch_size / self.data_degree.max(1)
    }

    /// Which samples of a micro-batch a device of the stage works on: those of its replica.
    pub fn samples_of(&self, device: u32, micro_batch_size: u32) -> Range<i64> {
        let share = i64::from(self.per_device_micro_batch(micro_batch_size));
        let first = i64::from(self.replica(device)) * share;
        first..first + share
    }

    /// Checks order and degrees.
    ///
    /// # Errors
    /// Names the field that is out of range.
    pub fn checked(self) -> Result<Self, Invalid> {
        in_range("first_layer", self.first_layer, 0..=MAX_LAYERS - 1)?;
        in_range("last_layer", self.last_layer, self.first_layer..=MAX_LAYERS - 1)?;
        in_range("data_degree", self.data_degree, 1..=Self::MAX_DATA_DEGREE)?;
        in_range("tensor_degree", self.tensor_degree, 1..=Self::MAX_TENSOR_DEGREE)?;
        if !self.tensor_degree.is_power_of_two() {
            return Err(invalid!("tensor_degree", "{} is not a power of two", self.tensor_degree));
        }
        if self.tensor_degree == 1 && self.sequence_parallel {
            return Err(Invalid::field(
                "sequence_parallel",
                "divides activations among tensor-parallel shards, but the stage has one shard. Leave it unset, or use a \
                 tensor-parallel size of 2 or more",
            ));
        }
        if self.data_degree == 1 && !self.sharding.is_none() {
            return Err(invalid!(
                "state_sharding",
                "{} divides states among replicas, but the stage has one replica. Use none, or a data-parallel size of 2 \
                 or more",
                self.sharding
            ));
        }
        Ok(self)
    }
}

/// First and last layer, and how they are shared: `3..7`, `3..7/data2`, `3..7/data2/tensor4`, `3..7/tensor4/sequence`, `3..7/data2/zero1`.
impl fmt::Display for StageConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}{}", self.first_layer, self.last_layer, Suffix(self))
    }
}

/// How a stage is shared; nothing for one device.
struct Suffix<'a>(&'a StageConfig);

impl fmt::Display for Suffix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StageConfig { data_degree, tensor_degree, sequence_parallel, sharding, .. } = self.0;
        if *data_degree != 1 {
            write!(f, "/data{data_degree}")?;
        }
        if *tensor_degree != 1 {
            write!(f, "/tensor{tensor_degree}")?;
        }
        if *sequence_parallel {
            f.write_str("/sequence")?;
        }
        if !sharding.is_none() {
            write!(f, "/zero{}", sharding.zero_stage())?;
        }
        Ok(())
    }
}

/// Stages that cover the layers `0..n` in order, without gap or overlap.
///
/// ```
/// use loadmaster_proto::training::stage::{Partitioning, StageConfig};
///
/// let partitioning = Partitioning::from_sizes(&[3, 1, 2])?;
/// assert_eq!(partitioning.layer_count(), 6);
/// assert_eq!(partitioning.to_string(), "3-1-2");
///
/// let gap = vec![StageConfig::single(0, 1), StageConfig::single(3, 4)];
/// assert_eq!(Partitioning::new(gap).unwrap_err().violations()[0].field, "stages[1].first_layer");
/// # Ok::<(), loadmaster_proto::error::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<StageConfig>", into = "Vec<StageConfig>")]
pub struct Partitioning(Vec<StageConfig>);

impl Partitioning {
    /// Checks that the stages follow each other from layer 0 on.
    ///
    /// # Errors
    /// No stage, or one that does not start where the last one ended; the path is `stages[k]…`.
    pub fn new(stages: Vec<StageConfig>) -> Result<Self, Invalid> {
        if stages.is_empty() {
            return Err(Invalid::field("stages", "has no stages. Add at least one stage"));
        }
        let mut next = 0;
        for (index, stage) in stages.iter().enumerate() {
            let path = format!("stages[{index}]");
            stage.checked().map_err(|invalid| invalid.under(&path))?;
            if stage.first_layer != next {
                return Err(Invalid::field(
                    format!("{path}.first_layer"),
                    format!(
                        "{} is not valid. Use {next}: the stages must cover all layers in order, without gaps or \
                         overlaps",
                        stage.first_layer
                    ),
                ));
            }
            next = stage.last_layer + 1;
        }
        Ok(Self(stages))
    }

    /// One device per stage, from the number of layers of each.
    ///
    /// # Errors
    /// No stage, or a stage of no layers.
    pub fn from_sizes(sizes: &[usize]) -> Result<Self, Invalid> {
        let mut first = 0;
        let mut stages = Vec::with_capacity(sizes.len());
        for (index, &size) in sizes.iter().enumerate() {
            in_range(&format!("stages[{index}]"), size, 1..=MAX_LAYERS)?;
            stages.push(StageConfig::single(first, first + size - 1));
            first += size;
        }
        Self::new(stages)
    }

    /// The stages in order.
    pub fn stages(&self) -> &[StageConfig] {
        &self.0
    }

    /// Layers covered.
    pub fn layer_count(&self) -> usize {
        self.0.last().map_or(0, |stage| stage.last_layer + 1)
    }

    /// Layers of each stage.
    pub fn sizes(&self) -> Vec<usize> {
        self.0.iter().map(StageConfig::layer_count).collect()
    }
}

impl TryFrom<Vec<StageConfig>> for Partitioning {
    type Error = Invalid;

    fn try_from(stages: Vec<StageConfig>) -> Result<Self, Invalid> {
        Self::new(stages)
    }
}

impl From<Partitioning> for Vec<StageConfig> {
    fn from(partitioning: Partitioning) -> Self {
        partitioning.0
    }
}

/// Layers per stage, joined by dashes: `8-8-7-7`, or `8-8/data2-7/tensor4-4/data2/tensor4` where
/// stages are shared among devices.
impl fmt::Display for Partitioning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stages: Vec<String> =
            self.0.iter().map(|stage| format!("{}{}", stage.layer_count(), Suffix(stage))).collect();
        f.write_str(&stages.join("-"))
    }
}

message! {
    StageConfig <=> v1::StageConfig {
        first_layer,
        last_layer,
        data_degree = data_parallel_size: or(1),
        tensor_degree = tensor_parallel_size: or(1),
        sequence_parallel,
        sharding = state_sharding: or(StateSharding::None),
    } check StageConfig::checked
}

message! { Partitioning <=> v1::PipelineLayout }

impl From<&Partitioning> for v1::PipelineLayout {
    fn from(partitioning: &Partitioning) -> Self {
        Self { stages: partitioning.0.to_wire() }
    }
}

impl TryFrom<v1::PipelineLayout> for Partitioning {
    type Error = Invalid;

    fn try_from(wire: v1::PipelineLayout) -> Result<Self, Invalid> {
        Self::new(field("stages", wire.stages)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_must_cover_all_layers_in_order() {
        assert_eq!(Partitioning::from_sizes(&[3, 1, 2]).unwrap().to_string(), "3-1-2");
        let gap = vec![StageConfig::single(0, 1), StageConfig::single(3, 4)];
        assert_eq!(Partitioning::new(gap).unwrap_err().violations()[0].field, "stages[1].first_layer");
        assert!(Partitioning::new(Vec::new()).is_err());
        assert!(Partitioning::from_sizes(&[2, 0]).is_err());
    }

    #[test]
    fn tensor_degrees_are_powers_of_two_and_data_degrees_any_number() {
        let stage = |data_degree, tensor_degree| {
            StageConfig { data_degree, tensor_degree, ..StageConfig::single(0, 3) }.checked()
        };
        for tensor_degree in [1, 2, 4, 8, 16, 32, 64] {
            for data_degree in [1, 3, 6, 100, 16_384] {
                let checked = stage(data_degree, tensor_degree).unwrap();
                assert_eq!(checked.devices(), data_degree * tensor_degree);
            }
        }
        let field = |invalid: Invalid| invalid.violations()[0].field.clone();
        for degree in [0, 3, 6, 128] {
            assert_eq!(field(stage(1, degree).unwrap_err()), "tensor_degree");
        }
        for degree in [0, 16_385] {
            assert_eq!(field(stage(degree, 2).unwrap_err()), "data_degree");
        }
    }

    /// Device numbers count the shards of the first replica first, and only replicas split the samples.
    #[test]
    fn replicas_split_the_samples_and_shards_do_not() {
        let stage = |data_degree, tensor_degree| StageConfig {
            data_degree,
            tensor_degree,
            ..StageConfig::single(0, 3)
        };
        assert_eq!(stage(4, 1).samples_of(3, 32), 24..32);
        assert_eq!(stage(1, 4).samples_of(3, 32), 0..32);
        let samples: Vec<Range<i64>> = (0..4).map(|device| stage(2, 2).samples_of(device, 32)).collect();
        assert_eq!(samples, [0..16, 0..16, 16..32, 16..32]);
        assert_eq!(stage(4, 1).to_string(), "0..3/data4");
        assert_eq!(stage(2, 4).to_string(), "0..3/data2/tensor4");
    }
}
