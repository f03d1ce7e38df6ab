//! Stages and partitionings.

use super::{to_i32, unsigned};
use crate::error::Invalid;
use crate::training::stage::{Parallelism, Partitioning, StageConfig};
use crate::wire::v1;

impl From<StageConfig> for v1::StageConfig {
    fn from(stage: StageConfig) -> Self {
        Self {
            first_layer: to_i32(stage.first_layer),
            last_layer: to_i32(stage.last_layer),
            data_degree: to_i32(stage.data_degree),
            tensor_degree: to_i32(stage.tensor_degree),
        }
    }
}

impl TryFrom<v1::StageConfig> for StageConfig {
    type Error = Invalid;

    fn try_from(wire: v1::StageConfig) -> Result<Self, Invalid> {
        Self {
            first_layer: unsigned("first_layer", wire.first_layer)?,
            last_layer: unsigned("last_layer", wire.last_layer)?,
            data_degree: super::or_default(unsigned("data_degree", wire.data_degree)?, 1),
            tensor_degree: super::or_default(unsigned("tensor_degree", wire.tensor_degree)?, 1),
        }
        .checked()
    }
}

impl From<Parallelism> for v1::Parallelism {
    fn from(parallelism: Parallelism) -> Self {
        match parallelism {
            Parallelism::None => Self::None,
            Parallelism::Data => Self::Data,
            Parallelism::Tensor => Self::Tensor,
        }
    }
}

impl From<&Partitioning> for v1::Partitioning {
    fn from(partitioning: &Partitioning) -> Self {
        Self { stages: partitioning.stages().iter().copied().map(Into::into).collect() }
    }
}

impl TryFrom<v1::Partitioning> for Partitioning {
    type Error = Invalid;

    fn try_from(wire: v1::Partitioning) -> Result<Self, Invalid> {
        let stages = wire
            .stages
            .into_iter()
            .enumerate()
            .map(|(index, stage)| {
                stage.try_into().map_err(|invalid: Invalid| invalid.under(&format!("stages[{index}]")))
            })
            .collect::<Result<Vec<StageConfig>, _>>()?;
        Self::new(stages)
    }
}
