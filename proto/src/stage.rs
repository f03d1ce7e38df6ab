//! Stage configs and partitionings.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, in_range};
use crate::model::MAX_LAYERS;

/// How the devices of a stage share its work.
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

/// A contiguous group of layers on one set of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StageConfig {
    /// Index of the first layer.
    pub first_layer: usize,
    /// Index of the last layer, inclusive.
    pub last_layer: usize,
    /// How its devices share the work.
    pub parallelism: Parallelism,
    /// Devices.
    pub degree: u32,
}

impl StageConfig {
    /// Most devices of a stage.
    pub const MAX_DEGREE: u32 = 64;

    /// Layers `first..=last` on one device.
    pub fn single(first_layer: usize, last_layer: usize) -> Self {
        Self { first_layer, last_layer, parallelism: Parallelism::None, degree: 1 }
    }

    /// Number of layers.
    pub fn layer_count(&self) -> usize {
        self.last_layer + 1 - self.first_layer
    }

    /// Indices of its layers.
    pub fn layers(&self) -> std::ops::RangeInclusive<usize> {
        self.first_layer..=self.last_layer
    }

    /// Replicas that split the batch; 1 unless the stage is data parallel.
    pub fn replicas(&self) -> u32 {
        if self.parallelism == Parallelism::Data { self.degree } else { 1 }
    }

    /// Shards that split the tensors; 1 unless the stage is tensor parallel.
    pub fn tensor_degree(&self) -> u32 {
        if self.parallelism == Parallelism::Tensor { self.degree } else { 1 }
    }

    /// Samples of one pass on each of its devices.
    pub fn per_device_micro_batch(&self, micro_batch_size: u32) -> u32 {
        micro_batch_size / self.replicas().max(1)
    }

    /// Which samples of a micro-batch the device `shard` works on.
    pub fn samples_of(&self, shard: u32, micro_batch_size: u32) -> Range<i64> {
        let share = i64::from(self.per_device_micro_batch(micro_batch_size));
        let first = if self.parallelism == Parallelism::Data { i64::from(shard) * share } else { 0 };
        first..first + share
    }

    /// Checks order and degree.
    ///
    /// # Errors
    /// Names the field that is out of range.
    pub fn checked(self) -> Result<Self, Invalid> {
        in_range("first_layer", self.first_layer, 0..=MAX_LAYERS - 1)?;
        in_range("last_layer", self.last_layer, self.first_layer..=MAX_LAYERS - 1)?;
        match self.parallelism {
            Parallelism::None => drop(in_range("degree", self.degree, 1..=1)?),
            Parallelism::Data | Parallelism::Tensor => {
                in_range("degree", self.degree, 2..=Self::MAX_DEGREE)?;
                if !self.degree.is_power_of_two() {
                    return Err(Invalid::field(
                        "degree",
                        format!("is {}, must be a power of two", self.degree),
                    ));
                }
            }
        };
        Ok(self)
    }
}

/// First and last layer, and how they are parallel: `3..7`, `3..7/data2`.
impl fmt::Display for StageConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}{}", self.first_layer, self.last_layer, Suffix(self))
    }
}

/// How a stage is parallel; nothing for one device.
struct Suffix<'a>(&'a StageConfig);

impl fmt::Display for Suffix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.parallelism {
            Parallelism::None => Ok(()),
            Parallelism::Data => write!(f, "/data{}", self.0.degree),
            Parallelism::Tensor => write!(f, "/tensor{}", self.0.degree),
        }
    }
}

/// Stages that cover the layers `0..n` in order, without gap or overlap.
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
            return Err(Invalid::field("stages", "is empty, must have at least one stage"));
        }
        let mut next = 0;
        for (index, stage) in stages.iter().enumerate() {
            let path = format!("stages[{index}]");
            stage.checked().map_err(|invalid| invalid.under(&path))?;
            if stage.first_layer != next {
                return Err(Invalid::field(
                    format!("{path}.first_layer"),
                    format!("is {}, must be {next}: stages cover all layers in order", stage.first_layer),
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

/// Layers per stage, joined by dashes: `8-8-7-7`, or `8-8/data2-7/tensor4` where stages are parallel.
impl fmt::Display for Partitioning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stages: Vec<String> =
            self.0.iter().map(|stage| format!("{}{}", stage.layer_count(), Suffix(stage))).collect();
        f.write_str(&stages.join("-"))
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
    fn degrees_are_powers_of_two_and_one_without_parallelism() {
        let stage = |parallelism, degree| StageConfig { parallelism, degree, ..StageConfig::single(0, 3) };
        for parallelism in [Parallelism::Data, Parallelism::Tensor] {
            for degree in [2, 4, 8, 16, 32, 64] {
                assert!(stage(parallelism, degree).checked().is_ok());
            }
            for degree in [0, 1, 3, 6, 128] {
                let invalid = stage(parallelism, degree).checked().unwrap_err();
                assert_eq!(invalid.violations()[0].field, "degree");
            }
        }
        assert!(stage(Parallelism::None, 2).checked().is_err());
    }

    #[test]
    fn replicas_split_the_samples_and_shards_do_not() {
        let stage = |parallelism| StageConfig { parallelism, degree: 4, ..StageConfig::single(0, 3) };
        assert_eq!(stage(Parallelism::Data).samples_of(3, 32), 24..32);
        assert_eq!(stage(Parallelism::Tensor).samples_of(3, 32), 0..32);
        assert_eq!(stage(Parallelism::Data).to_string(), "0..3/data4");
    }
}
