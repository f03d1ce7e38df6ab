//! Where every tensor is.

use std::ops::Range;

use super::groups::ChunkOwners;
use super::packing::{ChunkLayout, too_many};
use crate::error::Invalid;

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

    /// The same where each W chunks, as many as there are ranks, are one group, which is gathered and reduced at once: as long as
    /// all of them, the last filled up with dummies that nothing is in. The chunk size stays that of one.
    ///
    /// # Errors
    /// A chunk that is larger than others, or more elements than can be counted.
    pub fn in_groups(self, ranks: u32) -> Result<Self, Invalid> {
        let Self { chunk_elements, alignment, chunks, mut tensors } = self;
        let size = usize::try_from(ranks).unwrap_or(usize::MAX).max(1);
        let capacity = chunk_elements.checked_mul(ranks.into()).ok_or_else(too_many)?;
        if let Some(large) = chunks.iter().find(|chunk| chunk.capacity != chunk_elements) {
            let why = format!(
                "are whole chunks, but one has {} elements and others {chunk_elements}: choose the layout {}, in which all are \
                 equal, or owners of {}",
                large.capacity,
                ChunkLayout::Patrickstar,
                ChunkOwners::Parts
            );
            return Err(Invalid::field("owners", why));
        }
        for place in &mut tensors {
            // No more than the capacity of a group.
            place.offset += (place.chunk % size) as u64 * chunk_elements;
            place.chunk /= size;
        }
        let group = |group: &[Chunk]| {
            let (first, last) = group.first().zip(group.last())?;
            let extent = (group.len() as u64 - 1) * chunk_elements + last.extent;
            Some(Chunk { capacity, extent, tensors: first.tensors.start..last.tensors.end })
        };
        let chunks = chunks.chunks(size).filter_map(group).collect();
        Ok(Self { chunk_elements, alignment, chunks, tensors })
    }
}
