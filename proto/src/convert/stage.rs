//! Stages and partitionings.

use super::{to_i32, unsigned};
use crate::error::Invalid;
use crate::stage::{Parallelism, Partitioning, StageConfig};
use crate::wire::v1;

impl From<StageConfig> for v1::StageConfig {
    fn from(stage: StageConfig) -> Self {
        let parallelism = match stage.parallelism {
            Parallelism::None => v1::Parallelism::None,
            Parallelism::Data => v1::Parallelism::Data,
            Parallelism::Tensor => v1::Parallelism::Tensor,
        };
        Self {
            first_layer: to_i32(stage.first_layer),
            last_layer: to_i32(stage.last_layer),
            parallelism: parallelism.into(),
            degree: to_i32(stage.degree),
        }
    }
}

impl TryFrom<v1::StageConfig> for StageConfig {
    type Error = Invalid;

    fn try_from(wire: v1::StageConfig) -> Result<Self, Invalid> {
        let parallelism = match v1::Parallelism::try_from(wire.parallelism) {
            Ok(v1::Parallelism::Unspecified | v1::Parallelism::None) => Parallelism::None,
            Ok(v1::Parallelism::Data) => Parallelism::Data,
            Ok(v1::Parallelism::Tensor) => Parallelism::Tensor,
            Err(_) => return Err(Invalid::field("parallelism", format!("{} is unknown", wire.parallelism))),
        };
        Self {
            first_layer: unsigned("first_layer", wire.first_layer)?,
            last_layer: unsigned("last_layer", wire.last_layer)?,
            parallelism,
            degree: super::or_default(unsigned("degree", wire.degree)?, 1),
        }
        .checked()
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
