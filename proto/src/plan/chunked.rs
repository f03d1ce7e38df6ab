//! What a request asks of a training in chunks.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::choice;
use crate::chunks::activations::ActivationPlace;
use crate::chunks::embedding::EmbeddingPlace;
use crate::chunks::host::HostCopy;
use crate::chunks::packing::ChunkLayout;
use crate::chunks::residency::paged::Paging;
use crate::chunks::residency::rule::ResidencyRule;
use crate::chunks::sizes::ChunkSizes;
use crate::chunks::stage::{ChunkedStage, StepKernel};
use crate::error::{Invalid, in_range};
use crate::message;
use crate::model::layer::MAX_ELEMENTS;
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

choice! {
    MemoryMode = v1::MemoryMode {
        Plain = "plain",
        Chunks = "chunks",
        Best = "best",
    }
}

/// A question for a training in chunks.
#[derive(Debug, Clone, PartialEq)]
pub struct AskedChunks {
    /// A plan without chunks is looked for, too, and is the answer where it is better.
    pub or_plain: bool,
    /// What may be chosen.
    pub fixed: FixedChunks,
    /// What may be computed again; where it is empty, whatever is trained.
    pub recomputes: Vec<RecomputePolicy>,
    /// Bytes of each host that chunks may take, of all ranks there together: each has an equal part of them.
    pub host_memory: Bytes,
    /// Parameters that the host updates in a second; none where the profile says it.
    pub host_update: Option<f64>,
}

/// What a request fixes of a training in chunks: what is empty, or none, is free.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FixedChunks {
    /// How tensors may lie in chunks.
    pub layouts: Vec<ChunkLayout>,
    /// Chunk sizes, elements.
    pub sizes: Vec<u64>,
    /// Of which sizes the best are tried, where none are named.
    pub grid: Option<ChunkSizes>,
    /// In which order micro-batches may pass.
    pub orders: Vec<ChunkOrder>,
    /// What the host may hold of the parameters.
    pub host_copies: Vec<HostCopy>,
    /// Where the table of tokens may be when the embedding computes.
    pub embeddings: Vec<EmbeddingPlace>,
    /// Where what layers keep of a micro-batch may be between its passes.
    pub activations: Vec<ActivationPlace>,
    /// By which rules parameters may come and leave.
    pub residencies: Vec<ResidencyRule>,
    /// How many chunks have their state on the device, or all where there are fewer.
    pub on_device: Option<usize>,
    /// How many payloads are on their way before they are needed.
    pub ahead: Option<usize>,
    /// How many steps a complete payload has to leave in.
    pub behind: Option<usize>,
    /// Buffers that gradients pass through where they have no place on the host.
    pub staging: Option<usize>,
    /// What updates chunks.
    pub kernel: Option<StepKernel>,
}

impl FixedChunks {
    /// Most chunk sizes that are named.
    pub const MAX_SIZES: usize = 64;
}

message! {
    FixedChunks <= v1::ChunkChoices {
        layouts,
        sizes = chunk_elements,
        grid = sizes,
        orders,
        host_copies,
        embeddings,
        activations,
        residencies,
        on_device,
        ahead,
        behind,
        staging,
        kernel,
    } check checked
}

fn checked(fixed: FixedChunks) -> Result<FixedChunks, Invalid> {
    in_range("chunk_elements", fixed.sizes.len(), 0..=FixedChunks::MAX_SIZES)?;
    for (index, &size) in fixed.sizes.iter().enumerate() {
        in_range(&format!("chunk_elements[{index}]"), size, 1..=MAX_ELEMENTS)?;
    }
    if fixed.grid.is_some() && !fixed.sizes.is_empty() {
        let why = "chooses sizes, and `chunk_elements` names them: leave out one of the two";
        return Err(Invalid::field("sizes", why));
    }
    Paging::check_early(fixed.ahead.unwrap_or(0), fixed.behind.unwrap_or(0))?;
    in_range("staging", fixed.staging.unwrap_or(1), 1..=ChunkedStage::MAX_STAGING)?;
    Ok(fixed)
}
