//! What a request asks of a training in chunks.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::choice;
use crate::chunks::activations::ActivationPlace;
use crate::chunks::embedding::EmbeddingPlace;
use crate::chunks::host::HostParameters;
use crate::error::{Invalid, in_range};
use crate::message;
use crate::model::layer::MAX_ELEMENTS;
use crate::plan::compatibility::{Setting, Settings};
use crate::training::RecomputePolicy;
use crate::training::chunk_order::ChunkOrder;
use crate::wire::v1;

/// Where parameters and optimizer state are while a model is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryMode {
    /// On the devices, all the time.
    #[default]
    Plain,
    /// In chunks.
    Chunks,
    /// Whichever of the two is better.
    Best,
}

choice! { MemoryMode = v1::MemoryMode { Plain, Chunks, Best } }

/// Which chunks are on the device in which step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ChunkPolicy {
    /// The fastest plan that the planner finds.
    #[default]
    Loadmaster,
    /// Baseline: PatrickStar as published (Fang et al., 2022).
    Patrickstar,
    /// Baseline: all parameters stay on the device for the whole iteration (ZeRO-Offload).
    Static,
}

choice! { ChunkPolicy = v1::ChunkPolicy { Loadmaster, Patrickstar, Static } }

/// A question for a training in chunks.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedChunks {
    /// A plan without chunks is looked for, too, and is the answer where it is better.
    pub or_plain: bool,
    /// What may be chosen.
    pub fixed: FixedChunks,
    /// What may be recomputed; where it is empty, whatever is trained.
    pub recomputes: Vec<RecomputePolicy>,
    /// Bytes of each host that chunks may take, of all ranks there together: each has an equal part of them.
    pub host_memory: Bytes,
    /// Parameters that the host updates in a second; none where the profile says it.
    pub host_update: Option<f64>,
}

/// Which plans in chunks are searched: an empty list, and a number that is none, allow all values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FixedChunks {
    /// Which chunks are on the device in which step; none is the default.
    pub policy: Option<ChunkPolicy>,
    /// Chunk sizes, elements.
    pub sizes: Vec<u64>,
    /// In which order micro-batches may pass.
    pub orders: Vec<ChunkOrder>,
    /// What the host may hold of the parameters.
    pub host_copies: Vec<HostParameters>,
    /// Where the embedding table may be when the embedding computes.
    pub embeddings: Vec<EmbeddingPlace>,
    /// Where what layers keep of a micro-batch may be between its passes.
    pub activations: Vec<ActivationPlace>,
    /// How many chunks have their state on the device, or all where there are fewer.
    pub on_device: Option<usize>,
}

impl FixedChunks {
    /// Most chunk sizes that are named.
    pub const MAX_SIZES: usize = 64;
}

message! {
    FixedChunks <= v1::ChunkOptions {
        policy,
        sizes = chunk_elements,
        orders = micro_batch_orders,
        host_copies = host_parameters,
        embeddings = embedding_places,
        activations = activation_places,
        on_device = resident_chunk_count,
    } check checked
}

fn checked(fixed: FixedChunks) -> Result<FixedChunks, Invalid> {
    in_range("chunk_elements", fixed.sizes.len(), 0..=FixedChunks::MAX_SIZES)?;
    for (index, &size) in fixed.sizes.iter().enumerate() {
        in_range(&format!("chunk_elements[{index}]"), size, 1..=MAX_ELEMENTS)?;
    }
    if fixed.policy == Some(ChunkPolicy::Patrickstar) {
        let policy = Settings::default().says(Setting::PatrickstarPolicy, ChunkPolicy::Patrickstar);
        let choices = [
            (!fixed.sizes.is_empty(), Setting::ChunkSizes, "chunk_elements"),
            (!fixed.orders.is_empty(), Setting::ChunkOrders, "micro_batch_orders"),
            (!fixed.host_copies.is_empty(), Setting::HostCopies, "host_parameters"),
            (!fixed.embeddings.is_empty(), Setting::Embeddings, "embedding_places"),
            (!fixed.activations.is_empty(), Setting::ChunkActivations, "activations"),
            (fixed.on_device.is_some(), Setting::ChunksOnDevice, "resident_chunk_count"),
        ];
        let add = |settings: Settings, (is_fixed, choice, field)| {
            settings.when(is_fixed, choice).in_field(choice, field)
        };
        choices.into_iter().fold(policy, add).check()?;
    }
    Ok(fixed)
}
