//! Stages in chunks.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::residency::Payload;
use loadmaster_proto::chunks::residency::visits::Visit;
use loadmaster_proto::chunks::stage::{ChunkResidency, ChunkedStage};

/// Small chunks that come when they are needed, in so much memory of the host.
pub fn chunked(host_memory: u64) -> ChunkedStage {
    ChunkedStage { staging: 2, ..ChunkedStage::on_demand(1 << 20, Bytes(host_memory)) }
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
