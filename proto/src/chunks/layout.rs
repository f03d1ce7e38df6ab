//! The lists of chunks, and the place of every tensor in them.

use std::ops::Range;

use super::ALIGNMENT_BYTES;
use crate::error::Invalid;
use crate::training::{Optimizer, Precision};

/// A chunk of every list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Elements that it has room for: the chunk size, or more where a single parameter group is larger; of a group
    /// of chunks all of theirs.
    pub capacity: u64,
    /// Elements up to the end of its last tensor, with its padding.
    pub extent: u64,
    /// Positions of its tensors.
    pub tensors: Range<usize>,
}

/// Where a tensor is: the same in every list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which chunk, from 0.
    pub chunk: usize,
    /// Elements before it in the chunk.
    pub offset: u64,
    /// Elements that it has.
    pub elements: u64,
}

impl Place {
    /// The elements of the chunk that are its own.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.elements
    }
}

/// Chunks of one size and what is in them. Made by [`Packing::lay_out`](super::packing::Packing::lay_out).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub(super) chunk_elements: u64,
    pub(super) alignment: u64,
    pub(super) chunks: Vec<Chunk>,
    pub(super) tensors: Vec<Place>,
}

impl Layout {
    /// Elements of a chunk that holds more than one parameter group, also where several are a group.
    pub fn chunk_elements(&self) -> u64 {
        self.chunk_elements
    }

    /// The chunks in order.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// The place of each tensor, in the order of the sequence.
    pub fn tensors(&self) -> &[Place] {
        &self.tensors
    }
}

/// One of the lists of chunks. Each holds one value of every parameter, in the same chunk at the same offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum List {
    /// What layers compute with. When a parameter's gradient is there, it takes this space.
    Parameters,
    /// What the optimizer updates, fp32: the gradient has overwritten the other one by then.
    Fp32Copy,
    /// First moment, fp32.
    Momentum,
    /// Second moment, fp32.
    Variance,
}

impl List {
    /// In their order; an update rule that keeps less state has the first ones.
    const ALL: [Self; 4] = [Self::Parameters, Self::Fp32Copy, Self::Momentum, Self::Variance];
}

/// Which lists a training needs, and what their scalars take.
///
/// ```
/// use loadmaster_proto::chunks::layout::Lists;
/// use loadmaster_proto::training::{Optimizer, Precision};
///
/// let sgd = Lists::new(Precision::Bf16, &Optimizer::default())?;
/// assert_eq!(sgd.parameter_bytes(), 2 + 4 + 4, "parameter or gradient, fp32 copy, momentum");
/// # Ok::<(), loadmaster_proto::error::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lists {
    precision: Precision,
    states: usize,
}

impl Lists {
    /// Those of a number format and an update rule.
    ///
    /// # Errors
    /// Gradients have another format than the parameters whose space they take.
    pub fn new(precision: Precision, optimizer: &Optimizer) -> Result<Self, Invalid> {
        if precision.gradient_bytes() != precision.scalar_bytes() {
            let why = format!(
                "{precision} is not supported in chunked training, where gradients take the space of their parameters. \
                 Use {} or {}",
                Precision::Bf16,
                Precision::Fp32
            );
            return Err(Invalid::field("precision", why));
        }
        // At most two: see `Optimizer::state_scalars`.
        let states = usize::try_from(optimizer.state_scalars()).unwrap_or(usize::MAX);
        Ok(Self { precision, states: states.min(List::ALL.len() - 2) })
    }

    /// The lists in their order.
    pub fn all(&self) -> &'static [List] {
        &List::ALL[..2 + self.states]
    }

    /// Bytes of a scalar of a list.
    pub fn scalar_bytes(&self, list: List) -> u64 {
        match list {
            List::Parameters => self.precision.scalar_bytes(),
            List::Fp32Copy | List::Momentum | List::Variance => Precision::Fp32.scalar_bytes(),
        }
    }

    /// Bytes per parameter in all lists: 14 with Adam in bf16, 16 in fp32 (PatrickStar, model data).
    pub fn parameter_bytes(&self) -> u64 {
        self.all().iter().map(|&list| self.scalar_bytes(list)).sum()
    }

    /// Elements after which an aligned tensor may start: [`ALIGNMENT_BYTES`] in the narrowest list, more in the others,
    /// since all have the same offsets.
    pub fn alignment_elements(&self) -> u64 {
        let narrowest = self.all().iter().map(|&list| self.scalar_bytes(list)).min();
        ALIGNMENT_BYTES / narrowest.unwrap_or(1)
    }
}
