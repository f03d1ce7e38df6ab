//! Stages in chunks.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::groups::ChunkOwners;
use loadmaster_proto::chunks::host::HostCopy;
use loadmaster_proto::chunks::packing::ChunkLayout;
use loadmaster_proto::chunks::residency::Payload;
use loadmaster_proto::chunks::residency::paged::Paging;
use loadmaster_proto::chunks::residency::visits::Visit;
use loadmaster_proto::chunks::stage::{ChunkMoves, ChunkResidency, ChunkedStage, StepKernel, UpdateTime};
use loadmaster_proto::training::chunk_order::ChunkOrder;

/// Small chunks that come when they are needed, in so much memory of the host.
pub fn chunked(host_memory: u64) -> ChunkedStage {
    ChunkedStage {
        layout: ChunkLayout::Aligned,
        chunk_elements: 1 << 20,
        owners: ChunkOwners::Parts,
        order: ChunkOrder::Layer,
        host_copy: HostCopy::Made,
        staging: 2,
        moves: ChunkMoves::Dropped,
        update: UpdateTime::OnArrival,
        kernel: StepKernel::OnePass,
        embedding: EmbeddingPlace::Chunk,
        on_device: Vec::new(),
        residency: ChunkResidency::Paged(Paging::AT_NEED),
        host_memory: Bytes(host_memory),
    }
}

/// The same in so many visits, of whatever chunks.
pub fn visiting(host_memory: u64, visits: usize) -> ChunkedStage {
    let visit = |chunk| Visit {
        payload: Payload { chunk, is_gradients: false },
        fetched: 1_000,
        needed: 1_001,
        leaves: 1_002,
        freed: 1_003,
    };
    ChunkedStage {
        residency: ChunkResidency::Planned((0..visits).map(visit).collect()),
        ..chunked(host_memory)
    }
}
