//! How a stage trains in chunks, as a message.

use crate::chunks::embedding::EmbeddingPlace;
use crate::chunks::residency::Payload;
use crate::chunks::residency::visits::Visit;
use crate::chunks::stage::{ChunkResidency, ChunkedStage, StepKernel};
use crate::error::{Invalid, in_range, required};
use crate::message;
use crate::training::boundaries::BoundaryInterval;
use crate::wire::v1::chunked_stage::Residency;
use crate::wire::{ToWire, field, v1};

message! { ChunkedStage <=> v1::ChunkedStage }

impl From<&ChunkedStage> for v1::ChunkedStage {
    fn from(stage: &ChunkedStage) -> Self {
        let residency = match &stage.residency {
            ChunkResidency::Planned(visits) => {
                Residency::Planned(v1::ChunkVisits { visits: visits.to_wire() })
            }
            ChunkResidency::Paged => Residency::Paged(v1::ChunkPaging {}),
        };
        Self {
            layout: stage.layout.to_wire(),
            chunk_elements: stage.chunk_elements.to_wire(),
            order: stage.order.to_wire(),
            host_copy: stage.host_copy.to_wire(),
            staging: stage.staging.to_wire(),
            moves: stage.moves.to_wire(),
            update: stage.update.to_wire(),
            embedding: (!stage.embedding.is_default()).then_some(stage.embedding).to_wire(),
            on_device: stage.on_device.to_wire(),
            host_memory_bytes: stage.host_memory.to_wire(),
            residency: Some(residency),
        }
    }
}

impl TryFrom<v1::ChunkedStage> for ChunkedStage {
    type Error = Invalid;

    fn try_from(wire: v1::ChunkedStage) -> Result<Self, Invalid> {
        let residency = match required("residency", wire.residency)? {
            Residency::Planned(v1::ChunkVisits { visits }) => {
                in_range("planned.visits", visits.len(), 0..=Visit::MAX)?;
                let visits = field("visits", visits).map_err(|invalid: Invalid| invalid.under("planned"))?;
                ChunkResidency::Planned(visits)
            }
            Residency::Paged(v1::ChunkPaging {}) => ChunkResidency::Paged,
        };
        Ok(Self {
            layout: field("layout", wire.layout)?,
            chunk_elements: field("chunk_elements", wire.chunk_elements)?,
            order: field("order", wire.order)?,
            host_copy: field("host_copy", wire.host_copy)?,
            staging: field("staging", wire.staging)?,
            moves: field("moves", wire.moves)?,
            update: field("update", wire.update)?,
            kernel: StepKernel::OnePass,
            embedding: field::<Option<EmbeddingPlace>, _>("embedding", wire.embedding)?.unwrap_or_default(),
            on_device: field("on_device", wire.on_device)?,
            residency,
            host_memory: field("host_memory_bytes", wire.host_memory_bytes)?,
        })
    }
}

message! { Visit <=> v1::ChunkVisit }

impl From<&Visit> for v1::ChunkVisit {
    fn from(visit: &Visit) -> Self {
        let Payload { chunk, is_gradients } = visit.payload;
        Self {
            chunk: chunk.to_wire(),
            gradients: is_gradients,
            fetched: visit.at.fetched.to_wire(),
            needed: visit.at.needed.to_wire(),
            leaves: visit.at.leaves.to_wire(),
            freed: visit.at.freed.to_wire(),
        }
    }
}

impl TryFrom<v1::ChunkVisit> for Visit {
    type Error = Invalid;

    fn try_from(wire: v1::ChunkVisit) -> Result<Self, Invalid> {
        Ok(Self {
            payload: Payload { chunk: field("chunk", wire.chunk)?, is_gradients: wire.gradients },
            at: BoundaryInterval {
                fetched: field("fetched", wire.fetched)?,
                needed: field("needed", wire.needed)?,
                leaves: field("leaves", wire.leaves)?,
                freed: field("freed", wire.freed)?,
            },
        })
    }
}
