//! Questions for layouts, and what they are answered with, as messages with their documented defaults.

use crate::bytes::Bytes;
use crate::chunks::footprint::Footprint;
use crate::chunks::layout::{List, Lists};
use crate::chunks::question::{AskedSize, ChunkAnswer, ChunkQuestion};
use crate::chunks::sizes::{ChunkSize, LARGEST};
use crate::error::Invalid;
use crate::message;
use crate::model::Model;
use crate::training::{Optimizer, Precision};
use crate::wire::v1::chunk_spec::Size;
use crate::wire::{ToWire, field, v1};

/// Rows where a request does not say.
const ROWS: usize = 20;

message! { ChunkQuestion <=> v1::ChunkSpec }

impl TryFrom<v1::ChunkSpec> for ChunkQuestion {
    type Error = Invalid;

    fn try_from(wire: v1::ChunkSpec) -> Result<Self, Invalid> {
        let precision = match v1::Precision::try_from(wire.precision) {
            Ok(v1::Precision::Unspecified | v1::Precision::Bf16) => Precision::Bf16,
            Ok(v1::Precision::Fp32) => Precision::Fp32,
            Err(_) => {
                return Err(invalid!("precision", "{} is not a known value", wire.precision));
            }
        };
        let optimizer: Option<Optimizer> = field("optimizer", wire.optimizer)?;
        let optimizer = optimizer.map_or_else(adam, Ok)?;
        optimizer.check().map_err(|invalid| invalid.under("optimizer"))?;
        let layout: Option<_> = field("layout", wire.layout)?;
        let largest = field("max_chunk_elements", wire.max_chunk_elements)?;
        let size = match wire.size {
            None => AskedSize::Among { sizes: Default::default(), largest },
            Some(Size::SizeCandidates(sizes)) => {
                let sizes: Option<_> = field("size_candidates", sizes)?;
                AskedSize::Among { sizes: sizes.unwrap_or_default(), largest }
            }
            Some(Size::ChunkElements(_) | Size::ChunkBytes(_)) if largest.is_some() => {
                let why = "sets a maximum of the chunk sizes to try, but a chunk size is set. Remove one of the two";
                return Err(Invalid::field("max_chunk_elements", why));
            }
            Some(Size::ChunkElements(elements)) => {
                AskedSize::Named(ChunkSize::Elements(field("chunk_elements", elements)?))
            }
            Some(Size::ChunkBytes(bytes)) => {
                AskedSize::Named(ChunkSize::Bytes(Bytes(field("chunk_bytes", bytes)?)))
            }
        };
        let ranks: Option<u32> = field("rank_count", wire.rank_count)?;
        let rows: Option<usize> = field("max_size_count", wire.max_size_count)?;
        Ok(Self {
            precision,
            optimizer,
            layout: layout.unwrap_or_default(),
            size,
            ranks: ranks.unwrap_or(1),
            group_chunks: field("group_chunk_count", wire.group_chunk_count)?,
            rows: rows.unwrap_or(ROWS),
        })
    }
}

/// Adam as a message means it that says no more.
fn adam() -> Result<Optimizer, Invalid> {
    let kind = Some(v1::optimizer::Kind::Adam(v1::Adam::default()));
    v1::Optimizer { kind, ..v1::Optimizer::default() }.try_into()
}

impl From<&ChunkQuestion> for v1::ChunkSpec {
    fn from(question: &ChunkQuestion) -> Self {
        let (size, largest) = match question.size {
            AskedSize::Named(ChunkSize::Elements(elements)) => (Size::ChunkElements(elements.to_wire()), 0),
            AskedSize::Named(ChunkSize::Bytes(bytes)) => (Size::ChunkBytes(bytes.to_wire()), 0),
            AskedSize::Among { sizes, largest } => {
                (Size::SizeCandidates(sizes.to_wire()), largest.unwrap_or(LARGEST).to_wire())
            }
        };
        let precision = match question.precision {
            Precision::Fp32 => v1::Precision::Fp32,
            Precision::Bf16 | Precision::Bf16Fp32Gradients => v1::Precision::Bf16,
        };
        Self {
            precision: precision.into(),
            optimizer: Some(question.optimizer.into()),
            layout: question.layout.to_wire(),
            size: Some(size),
            max_chunk_elements: largest,
            rank_count: question.ranks.to_wire(),
            group_chunk_count: question.group_chunks.to_wire(),
            max_size_count: question.rows.to_wire(),
        }
    }
}

impl ChunkAnswer {
    /// As it is sent, with what was asked.
    pub fn message(&self, question: &ChunkQuestion, model: &Model) -> v1::ComputeChunkLayoutResponse {
        let asked = v1::ChunkSpec::from(question);
        let sizes = self.sizes.footprints.iter().enumerate();
        let sizes = sizes.map(|(index, of)| of.message(&self.lists, index == self.sizes.best)).collect();
        v1::ComputeChunkLayoutResponse {
            model: format!("models/{}", model.id()),
            spec: Some(v1::ChunkSpec { group_chunk_count: self.groups.chunks().to_wire(), ..asked }),
            parameter_count: model.parameter_count().to_wire(),
            bytes_per_parameter: self.lists.parameter_bytes().to_wire(),
            tensor_count: self.tensors.to_wire(),
            parameter_group_count: self.atoms.to_wire(),
            largest_group_elements: self.largest_atom.to_wire(),
            footprints: sizes,
            tried_size_count: self.sizes.tried.to_wire(),
            too_small_size_count: self.sizes.too_small.to_wire(),
        }
    }
}

impl Footprint {
    fn message(&self, lists: &Lists, best: bool) -> v1::ChunkFootprint {
        let chunk_bytes = |list| self.chunk_bytes(lists.scalar_bytes(list)).to_wire();
        v1::ChunkFootprint {
            chunk_elements: self.chunk_elements.to_wire(),
            parameter_chunk_bytes: chunk_bytes(List::Parameters),
            fp32_chunk_bytes: chunk_bytes(List::Fp32Copy),
            chunk_count: self.chunks.to_wire(),
            oversized_chunk_count: self.outliers.to_wire(),
            padding_chunk_count: self.dummies.to_wire(),
            utilization_ratio: self.utilisation(),
            max_utilization_ratio: self.fullest,
            total_bytes: self.bytes().to_wire(),
            sharded_utilization_ratio: self.sharded_utilisation(),
            sharded_bytes: self.sharded_bytes().to_wire(),
            rank_bytes: self.rank_bytes().to_wire(),
            best,
        }
    }
}
