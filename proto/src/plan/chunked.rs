//! What a request asks of a training in chunks.

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::choice;
use crate::chunks::activations::ActivationPlace;
use crate::chunks::embedding::EmbeddingPlace;
use crate::chunks::host::HostCopy;
use crate::chunks::packing::ChunkLayout;
use crate::chunks::residency::paged::Paging;
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
    /// The family of which the largest model is looked for; none where the model is given.
    pub grow: Option<GrownModel>,
}

/// What a request fixes of a training in chunks: what is empty, or none, is free.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FixedChunks {
    /// How tensors may lie in chunks.
    pub layouts: Vec<ChunkLayout>,
    /// Chunk sizes, elements.
    pub sizes: Vec<u64>,
    /// In which order micro-batches may pass.
    pub orders: Vec<ChunkOrder>,
    /// What the host may hold of the parameters.
    pub host_copies: Vec<HostCopy>,
    /// Where the table of tokens may be when the embedding computes.
    pub embeddings: Vec<EmbeddingPlace>,
    /// Where what layers keep of a micro-batch may be between its passes.
    pub activations: Vec<ActivationPlace>,
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
        orders,
        host_copies,
        embeddings,
        activations,
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
    Paging::check_early(fixed.ahead.unwrap_or(0), fixed.behind.unwrap_or(0))?;
    in_range("staging", fixed.staging.unwrap_or(1), 1..=ChunkedStage::MAX_STAGING)?;
    Ok(fixed)
}

/// Models of the zoo that differ in one parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrownModel {
    /// The parameter.
    pub parameter: String,
    /// Its least value.
    pub first: u64,
    /// Its largest value.
    pub last: u64,
}

impl GrownModel {
    /// The largest value of a parameter that grows.
    pub const MAX: u64 = 65_536;
}

message! { GrownModel <= v1::GrownModel { parameter, first: or(1), last } check growing }

fn growing(grown: GrownModel) -> Result<GrownModel, Invalid> {
    if grown.parameter.is_empty() {
        return Err(Invalid::field("parameter", "is required: name what grows, for example blocks"));
    }
    in_range("last", grown.last, 1..=GrownModel::MAX)?;
    in_range("first", grown.first, 1..=grown.last)?;
    Ok(grown)
}
