//! Where every tensor is.

use std::ops::Range;

/// A chunk of every list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Elements that it has room for: the chunk size, or more where a single atom is larger; of a group of chunks all of theirs.
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
    /// Elements of a chunk that holds more than one atom, also where several are a group.
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
