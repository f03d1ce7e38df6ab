//! How a stage trains in chunks, as a message.

use crate::chunks::embedding::EmbeddingPlace;
use crate::chunks::residency::Payload;
use crate::chunks::residency::intervals::ResidencyInterval;
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
            ChunkResidency::Planned(intervals) => {
                Residency::PlannedResidency(v1::ResidencyPlan { intervals: intervals.to_wire() })
            }
            ChunkResidency::Paged => Residency::OnDemand(v1::OnDemandPaging {}),
        };
        Self {
            layout: stage.layout.to_wire(),
            chunk_elements: stage.chunk_elements.to_wire(),
            micro_batch_order: stage.order.to_wire(),
            host_parameters: stage.host_copy.to_wire(),
            staging_buffer_count: stage.staging.to_wire(),
            eviction: stage.moves.to_wire(),
            cpu_optimizer_timing: stage.update.to_wire(),
            embedding_place: stage.embedding.to_wire(),
            resident_chunks: stage.on_device.to_wire(),
            host_memory_bytes: stage.host_memory.to_wire(),
            residency: Some(residency),
        }
    }
}

impl TryFrom<v1::ChunkedStage> for ChunkedStage {
    type Error = Invalid;

    fn try_from(wire: v1::ChunkedStage) -> Result<Self, Invalid> {
        let residency = match required("residency", wire.residency)? {
            Residency::PlannedResidency(v1::ResidencyPlan { intervals }) => {
                in_range("planned_residency.intervals", intervals.len(), 0..=ResidencyInterval::MAX)?;
                let intervals = field("intervals", intervals)
                    .map_err(|invalid: Invalid| invalid.under("planned_residency"))?;
                ChunkResidency::Planned(intervals)
            }
            Residency::OnDemand(v1::OnDemandPaging {}) => ChunkResidency::Paged,
        };
        Ok(Self {
            layout: field("layout", wire.layout)?,
            chunk_elements: field("chunk_elements", wire.chunk_elements)?,
            order: field("micro_batch_order", wire.micro_batch_order)?,
            host_copy: field("host_parameters", wire.host_parameters)?,
            staging: field("staging_buffer_count", wire.staging_buffer_count)?,
            moves: field("eviction", wire.eviction)?,
            update: field("cpu_optimizer_timing", wire.cpu_optimizer_timing)?,
            kernel: StepKernel::OnePass,
            embedding: field::<Option<EmbeddingPlace>, _>("embedding_place", wire.embedding_place)?
                .unwrap_or_default(),
            on_device: field("resident_chunks", wire.resident_chunks)?,
            residency,
            host_memory: field("host_memory_bytes", wire.host_memory_bytes)?,
        })
    }
}

message! { ResidencyInterval <=> v1::ResidencyInterval }

impl From<&ResidencyInterval> for v1::ResidencyInterval {
    fn from(interval: &ResidencyInterval) -> Self {
        let Payload { chunk, is_gradients } = interval.payload;
        Self {
            chunk: chunk.to_wire(),
            gradients_only: is_gradients,
            prefetch_step: interval.at.fetched.to_wire(),
            first_use_step: interval.at.needed.to_wire(),
            evict_step: interval.at.leaves.to_wire(),
            free_step: interval.at.freed.to_wire(),
        }
    }
}

impl TryFrom<v1::ResidencyInterval> for ResidencyInterval {
    type Error = Invalid;

    fn try_from(wire: v1::ResidencyInterval) -> Result<Self, Invalid> {
        Ok(Self {
            payload: Payload { chunk: field("chunk", wire.chunk)?, is_gradients: wire.gradients_only },
            at: BoundaryInterval {
                fetched: field("prefetch_step", wire.prefetch_step)?,
                needed: field("first_use_step", wire.first_use_step)?,
                leaves: field("evict_step", wire.evict_step)?,
                freed: field("free_step", wire.free_step)?,
            },
        })
    }
}
