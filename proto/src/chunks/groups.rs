//! What several ranks own of the chunks.
//!
//! Chunks that are gathered and reduced together are a *group*. A group is one range of elements, and of W ranks each
//! owns one W-th of it: a tensor may belong to two ranks, because what ranks update is elements, not tensors.

use std::ops::Range;

use super::layout::{Chunk, Layout, List, Lists};
use super::packing::ChunkLayout;
use crate::error::{Invalid, in_range};

/// Most ranks that share chunks, and most chunks of a group.
const MOST: u32 = 1 << 16;

/// How many ranks share chunks, and how many chunks they share at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Groups {
    ranks: u32,
    chunks: u32,
    /// A group is as long as that many chunks, whatever is in them, and the last is filled up with *padding chunks*. Then, with
    /// a chunk per rank, a rank owns whole chunks, as in PatrickStar. Else it ends where its tensors end.
    in_whole_chunks: bool,
}

impl Groups {
    /// `chunks` of a group default to one per rank in the paper's layout, where ranks own whole chunks, and to one
    /// altogether where they own parts.
    ///
    /// # Errors
    /// No or too many ranks or chunks, or not as many chunks for each rank (`ranks`, `group_chunks`).
    pub fn new(layout: ChunkLayout, ranks: u32, chunks: Option<u32>) -> Result<Self, Invalid> {
        in_range("rank_count", ranks, 1..=MOST)?;
        let in_whole_chunks = layout == ChunkLayout::Patrickstar;
        let chunks = chunks.unwrap_or(if in_whole_chunks { ranks } else { 1 });
        in_range("group_chunk_count", chunks, 1..=MOST)?;
        if in_whole_chunks && !chunks.is_multiple_of(ranks) {
            let why = format!(
                "{chunks} is not a multiple of rank_count ({ranks}), but each rank owns whole chunks. Remove this field, or \
                 use the layout {}, in which each rank owns a part of every chunk",
                ChunkLayout::Aligned
            );
            return Err(Invalid::field("group_chunk_count", why));
        }
        Ok(Self { ranks, chunks, in_whole_chunks })
    }

    /// Ranks that share the chunks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Chunks of a group.
    pub fn chunks(&self) -> u32 {
        self.chunks
    }

    /// Chunks that are missing in the last group of so many, and that nothing is in.
    pub fn dummies(&self, chunks: u64) -> u64 {
        let group = u64::from(self.chunks);
        if self.in_whole_chunks { chunks.next_multiple_of(group) - chunks } else { 0 }
    }

    /// Elements of a group that each rank owns: of whole chunks of this size, or of what is in the chunks, `extent`
    /// elements, rounded up to the alignment. None where that is more than can be counted.
    pub(super) fn part(&self, extent: u64, chunk_elements: u64, alignment: u64) -> Option<u64> {
        if self.in_whole_chunks {
            chunk_elements.checked_mul(u64::from(self.chunks / self.ranks))
        } else {
            extent.div_ceil(u64::from(self.ranks)).checked_next_multiple_of(alignment)
        }
    }

    /// The groups of a layout, in order.
    ///
    /// # Errors
    /// More elements than can be counted.
    pub fn of(&self, layout: &Layout) -> Result<Vec<Group>, Invalid> {
        let size = usize::try_from(self.chunks).unwrap_or(usize::MAX);
        let mut groups = Vec::new();
        for (index, chunks) in layout.chunks().chunks(size).enumerate() {
            let mut starts = Vec::with_capacity(chunks.len() + 1);
            let mut end = 0_u64;
            starts.push(end);
            for chunk in chunks {
                end += if self.in_whole_chunks { chunk.capacity } else { chunk.extent };
                starts.push(end);
            }
            let part = self.part(end, layout.chunk_elements(), layout.alignment);
            let part = part.ok_or_else(super::packing::too_many)?;
            groups.push(Group { first: index * size, starts, part });
        }
        Ok(groups)
    }
}

/// How ranks that train in chunks share each of them: every rank owns an equal part of a chunk's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sharing {
    ranks: u32,
    alignment: u64,
}

impl Sharing {
    /// Among so many ranks, in parts that begin at multiples of so many elements.
    ///
    /// # Errors
    /// No or too many ranks (`ranks`).
    pub fn new(ranks: u32, alignment: u64) -> Result<Self, Invalid> {
        Ok(Self { ranks: in_range("rank_count", ranks, 1..=MOST)?, alignment: alignment.max(1) })
    }

    /// Of one rank, which owns all.
    pub const fn alone() -> Self {
        Self { ranks: 1, alignment: 1 }
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Elements of a chunk that each rank owns: all of its capacity where there is one.
    pub fn part(&self, chunk: &Chunk) -> u64 {
        if self.ranks == 1 {
            return chunk.capacity;
        }
        // Far below the largest number: see `MAX_ELEMENTS`.
        chunk.extent.div_ceil(self.ranks.into()).next_multiple_of(self.alignment)
    }

    /// Elements of a chunk on a device: its capacity, or more where the parts of all ranks are.
    pub fn payload(&self, chunk: &Chunk) -> u64 {
        chunk.capacity.max(self.part(chunk).saturating_mul(self.ranks.into()))
    }

    /// Bytes of each rank's device that a chunk takes always whose state is there: all lists of the part that the rank owns. What
    /// no one shares is there whole, with its gradients where these are apart.
    pub fn always_bytes(&self, chunk: &Chunk, lists: &Lists, gradients_are_apart: bool) -> u64 {
        let part = self.part(chunk).saturating_mul(lists.parameter_bytes());
        let stay = gradients_are_apart && self.ranks == 1;
        let gradients = if stay { self.payload(chunk) } else { 0 };
        part.saturating_add(gradients.saturating_mul(lists.scalar_bytes(List::Parameters)))
    }

    /// The elements of a chunk that a rank owns.
    pub fn owned(&self, chunk: &Chunk, rank: u32) -> Range<u64> {
        let part = self.part(chunk);
        let start = part.saturating_mul(rank.into());
        start..start.saturating_add(part)
    }
}

/// Chunks that are gathered and reduced together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    first: usize,
    /// Elements of the group before each of its chunks, and before what fills it up.
    starts: Vec<u64>,
    part: u64,
}

/// Elements of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Which chunk.
    pub chunk: usize,
    /// Which of its elements.
    pub elements: Range<u64>,
}

impl Group {
    /// Its chunks, without padding chunks.
    pub fn chunks(&self) -> Range<usize> {
        self.first..self.first + self.starts.len() - 1
    }

    /// Elements that each rank owns, with what the group is filled up with.
    pub fn part_elements(&self) -> u64 {
        self.part
    }

    /// What a rank owns of its chunks, in order: nothing where its part is only what the group is filled up with.
    pub fn owned(&self, rank: u32) -> Vec<Piece> {
        let begin = self.part.saturating_mul(u64::from(rank));
        let end = begin.saturating_add(self.part);
        let pieces = self.starts.windows(2).enumerate().map(|(position, chunk)| Piece {
            chunk: self.first + position,
            elements: begin.clamp(chunk[0], chunk[1]) - chunk[0]..end.clamp(chunk[0], chunk[1]) - chunk[0],
        });
        pieces.filter(|piece| !piece.elements.is_empty()).collect()
    }
}
