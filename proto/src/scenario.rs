//! The ways to share a stage among devices that a profile measures apart (CAPTURE, III-A1 and III-B3).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::stage::{Parallelism, StageConfig};

/// A parallelism with its degree. Peaks of two scenarios are never subtracted from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scenario {
    /// How the devices share the work.
    pub parallelism: Parallelism,
    /// Devices of a stage.
    pub degree: u32,
}

impl Scenario {
    /// One device per stage, CAPTURE's pipeline scenario.
    pub const SINGLE: Self = Self { parallelism: Parallelism::None, degree: 1 };

    /// The scenario of a stage. A degree of 1 is [`Self::SINGLE`] whatever the parallelism is called.
    pub fn of(stage: StageConfig) -> Self {
        match stage {
            StageConfig { degree: 0 | 1, .. } => Self::SINGLE,
            StageConfig { parallelism, degree, .. } => Self { parallelism, degree },
        }
    }

    /// Layers `first..=last`, shared in this way.
    pub fn stage(self, first_layer: usize, last_layer: usize) -> StageConfig {
        let Self { parallelism, degree } = self;
        StageConfig { first_layer, last_layer, parallelism, degree }
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
            Parallelism::Data => write!(f, "data parallelism of degree {}", self.degree),
            Parallelism::Tensor => write!(f, "tensor parallelism of degree {}", self.degree),
        }
    }
}
