//! The ways to share a stage among devices that a profile measures apart (CAPTURE, III-A1 and III-B3).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, in_range};
use crate::training::stage::{Parallelism, StageConfig};

/// A parallelism with its degree. Peaks of two scenarios are never subtracted from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scenario {
    /// How the devices share the work.
    pub parallelism: Parallelism,
    /// Devices of a stage.
    pub degree: u32,
}

impl Scenario {
    /// Most devices of a stage that a profile measures.
    pub const MAX_DEGREE: u32 = 64;

    /// One device per stage, CAPTURE's pipeline scenario.
    pub const SINGLE: Self = Self { parallelism: Parallelism::None, degree: 1 };

    /// Layers `first..=last`, shared in this way.
    pub fn stage(self, first_layer: usize, last_layer: usize) -> StageConfig {
        let (data_degree, tensor_degree) = match self.parallelism {
            Parallelism::None => (1, 1),
            Parallelism::Data => (self.degree, 1),
            Parallelism::Tensor => (1, self.degree),
        };
        StageConfig { data_degree, tensor_degree, ..StageConfig::single(first_layer, last_layer) }
    }

    /// Checks the degree: one device has none, sharing needs two at least, and nothing profiled is shared
    /// among other numbers than powers of two.
    ///
    /// # Errors
    /// Names the degree.
    pub fn checked(self) -> Result<Self, Invalid> {
        match self.parallelism {
            Parallelism::None => drop(in_range("degree", self.degree, 1..=1)?),
            Parallelism::Data | Parallelism::Tensor => {
                in_range("degree", self.degree, 2..=Self::MAX_DEGREE)?;
                if !self.degree.is_power_of_two() {
                    return Err(invalid!("degree", "{} is not a power of two", self.degree));
                }
            }
        }
        Ok(self)
    }

    /// The step between the micro-batch sizes that a stage can train: replicas take equal parts.
    pub fn micro_batch_step(self) -> u32 {
        match self.parallelism {
            Parallelism::Data => self.degree.max(1),
            Parallelism::None | Parallelism::Tensor => 1,
        }
    }
}

impl Default for Scenario {
    fn default() -> Self {
        Self::SINGLE
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parallelism {
            Parallelism::None => f.write_str("one device"),
            Parallelism::Data => write!(f, "data-parallel size {}", self.degree),
            Parallelism::Tensor => write!(f, "tensor-parallel size {}", self.degree),
        }
    }
}

impl StageConfig {
    /// How its devices share the work, where that is one of the ways that profiles measure apart; none
    /// where replicas consist of shards.
    pub fn scenario(&self) -> Option<Scenario> {
        match (self.data_degree, self.tensor_degree) {
            (0 | 1, 0 | 1) => Some(Scenario::SINGLE),
            (degree, 0 | 1) => Some(Scenario { parallelism: Parallelism::Data, degree }),
            (0 | 1, degree) => Some(Scenario { parallelism: Parallelism::Tensor, degree }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_that_is_shared_in_both_ways_is_in_no_scenario() {
        let stage = |data_degree, tensor_degree| {
            StageConfig { data_degree, tensor_degree, ..StageConfig::single(0, 3) }.scenario()
        };
        assert_eq!(stage(1, 1), Some(Scenario::SINGLE));
        assert_eq!(stage(3, 1), Some(Scenario { parallelism: Parallelism::Data, degree: 3 }));
        assert_eq!(stage(1, 4), Some(Scenario { parallelism: Parallelism::Tensor, degree: 4 }));
        assert_eq!(stage(2, 2), None);
    }
}
