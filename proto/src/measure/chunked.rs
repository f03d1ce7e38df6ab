//! What a rank that trains in chunks moved and held.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::chunks::residency::intervals::Moved;
use crate::error::{Invalid, in_range};
use crate::message;
use crate::wire::v1;

/// What a rank that trains in chunks moves and holds, measured or predicted. Bytes of the device are of the
/// allocated accounting.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ChunkRun {
    /// In each step the highest bytes of the device besides payloads, the most over all iterations: `N(t)`.
    pub other_bytes: Vec<u64>,
    /// In each step the payloads that were there: `R(t)`.
    pub payload_bytes: Vec<u64>,
    /// Bytes that it took of the host, all before the first iteration.
    pub host_bytes: Bytes,
    /// Bytes that came to the device in the last iteration.
    pub up_bytes: u64,
    /// Bytes that left it.
    pub down_bytes: u64,
    /// Of the bytes that came, rows that the host gathered of an embedding table.
    #[serde(default, skip_serializing_if = "is_none")]
    pub rows_up_bytes: u64,
    /// Of the bytes that left, gradients of such rows.
    #[serde(default, skip_serializing_if = "is_none")]
    pub rows_down_bytes: u64,
    /// Of the bytes that came, parameters whose first use was in a backward pass, or in a forward pass that is recomputed. The
    /// rest, but for rows and what is unfinished, came for forward passes.
    #[serde(default, skip_serializing_if = "is_none")]
    pub backward_up_bytes: u64,
    /// Of the bytes that came, gradients that are not complete, with the parameters beside which they are added up.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unfinished_up_bytes: u64,
    /// Of the bytes that left, the same. The rest, but for rows and what is unchanged, are complete gradients.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unfinished_down_bytes: u64,
    /// Of the bytes that left, parameters that the host has as they are, where moves are exclusive.
    #[serde(default, skip_serializing_if = "is_none")]
    pub unchanged_down_bytes: u64,
    /// Bytes of parameters that other ranks own and gave in the last iteration.
    #[serde(default)]
    pub gathered_bytes: u64,
    /// Bytes of gradients that went to the ranks that own their parameters.
    #[serde(default)]
    pub scattered_bytes: u64,
    /// Payloads that came.
    pub fetches: u64,
    /// Seconds of an iteration in which the device waited for what comes: the median over the measured ones.
    pub fetch_seconds: f64,
    /// The same for what leaves.
    pub leave_seconds: f64,
    /// Seconds in which the host updated chunks, beside or behind the passes.
    pub step_seconds: f64,
    /// Whether planned visits left too little room for what the first iteration was found to need, so that what was in the way of
    /// that was not there.
    pub is_replanned: bool,
}

message! {
    ChunkRun <=> v1::ChunkTraffic {
        other_bytes = non_chunk_step_bytes,
        payload_bytes = chunk_step_bytes,
        host_bytes,
        up_bytes = fetched_bytes,
        down_bytes = evicted_bytes,
        rows_up_bytes = embedding_row_bytes,
        rows_down_bytes = embedding_gradient_bytes,
        backward_up_bytes = backward_fetched_bytes,
        unfinished_up_bytes = partial_gradient_fetched_bytes,
        unfinished_down_bytes = partial_gradient_evicted_bytes,
        unchanged_down_bytes = clean_evicted_bytes,
        gathered_bytes = all_gather_bytes,
        scattered_bytes = reduce_scatter_bytes,
        fetches = fetch_count,
        fetch_seconds = fetch_wait_seconds,
        leave_seconds = evict_wait_seconds,
        step_seconds = cpu_optimizer_seconds,
        is_replanned = replanned,
    } check checked
}

impl ChunkRun {
    /// What an iteration moves, and nothing else.
    pub fn moving(moved: &Moved) -> Self {
        Self {
            up_bytes: moved.up,
            down_bytes: moved.down,
            rows_up_bytes: moved.rows_up,
            rows_down_bytes: moved.rows_down,
            backward_up_bytes: moved.backward_up,
            unfinished_up_bytes: moved.unfinished_up,
            unfinished_down_bytes: moved.unfinished_down,
            unchanged_down_bytes: moved.unchanged_down,
            gathered_bytes: moved.gathered,
            scattered_bytes: moved.scattered,
            fetches: moved.fetches,
            ..Self::default()
        }
    }
}

fn is_none(bytes: &u64) -> bool {
    *bytes == 0
}

fn checked(run: ChunkRun) -> Result<ChunkRun, Invalid> {
    for (field, seconds) in [
        ("fetch_seconds", run.fetch_seconds),
        ("leave_seconds", run.leave_seconds),
        ("step_seconds", run.step_seconds),
    ] {
        in_range(field, seconds, 0.0..=f64::MAX)?;
    }
    Ok(run)
}
