//! What a chunk size costs.

use super::groups::Groups;
use super::packing::{Packing, too_many};
use crate::bytes::Bytes;
use crate::error::Invalid;

/// What parameters and optimizer state take in chunks of one size: before sharding, whole chunks on one rank, and after
/// it, on all ranks together. Bytes are of tensors (memory accounting `allocated`), wherever the chunks are.
#[derive(Debug, Clone, PartialEq)]
pub struct Footprint {
    /// The chunk size, elements.
    pub chunk_elements: u64,
    /// Chunks of each list.
    pub chunks: u64,
    /// Those of them that are larger, because a single parameter group is.
    pub outliers: u64,
    /// Chunks that fill up the last group.
    pub dummies: u64,
    /// Share of the largest chunk that tensors take.
    pub fullest: f64,
    /// Elements of all tensors.
    pub parameters: u64,
    /// Elements that the chunks of a list have room for.
    pub capacity_elements: u64,
    /// Elements of each list that one rank owns.
    pub rank_elements: u64,
    /// Ranks that share them.
    pub ranks: u32,
    /// Bytes of a parameter in all lists.
    pub parameter_bytes: u64,
}

impl Packing<'_> {
    /// What chunks of this size cost.
    ///
    /// # Errors
    /// Those of [`Packing::checked_size`], or more bytes than can be counted.
    pub fn footprint(&self, chunk_elements: u64, groups: &Groups) -> Result<Footprint, Invalid> {
        let chunk_elements = self.checked_size(chunk_elements)?;
        let mut found = Footprint {
            chunk_elements,
            chunks: 0,
            outliers: 0,
            dummies: 0,
            fullest: 0.0,
            parameters: self.sequence.elements(),
            capacity_elements: 0,
            rank_elements: 0,
            ranks: groups.ranks(),
            parameter_bytes: self.lists.parameter_bytes(),
        };
        let mut group_extent = 0_u64;
        let end = self.starts.len() - 1;
        for atoms in self.next_fit(chunk_elements) {
            let extent = self.starts[atoms.end] - self.starts[atoms.start];
            let elements = self.elements[atoms.end] - self.elements[atoms.start];
            let capacity = self.capacity(&atoms, extent, chunk_elements);
            found.chunks += 1;
            found.outliers += u64::from(extent > chunk_elements);
            found.fullest = found.fullest.max(elements as f64 / capacity as f64);
            found.capacity_elements = found.capacity_elements.checked_add(capacity).ok_or_else(too_many)?;
            // No more than the last of `starts`.
            group_extent += extent;
            if found.chunks.is_multiple_of(groups.chunks().into()) || atoms.end == end {
                let part = groups.part(group_extent, chunk_elements, self.alignment);
                let sum = part.and_then(|part| found.rank_elements.checked_add(part));
                found.rank_elements = sum.ok_or_else(too_many)?;
                group_extent = 0;
            }
        }
        found.dummies = groups.dummies(found.chunks);
        found.checked()
    }
}

impl Footprint {
    /// All of its bytes can be counted, and sent.
    fn checked(self) -> Result<Self, Invalid> {
        let sharded = self.rank_elements.checked_mul(self.ranks.into());
        let filled = self.dummies.checked_mul(self.chunk_elements);
        let filled = filled.and_then(|dummies| dummies.checked_add(self.capacity_elements));
        for elements in [sharded, filled] {
            let bytes = elements.and_then(|elements| elements.checked_mul(self.parameter_bytes));
            bytes.and_then(|bytes| i64::try_from(bytes).ok()).ok_or_else(too_many)?;
        }
        Ok(self)
    }

    /// Share of the chunks that tensors take: the plain mean over them where all are of one size (the paper's UTIL).
    pub fn utilisation(&self) -> f64 {
        self.parameters as f64 / self.capacity_elements as f64
    }

    /// The same of what all ranks own together.
    pub fn sharded_utilisation(&self) -> f64 {
        self.parameters as f64 / (self.rank_elements * u64::from(self.ranks)) as f64
    }

    /// Bytes of a chunk of a list whose scalars take so many.
    pub fn chunk_bytes(&self, scalar_bytes: u64) -> Bytes {
        Bytes(self.chunk_elements.saturating_mul(scalar_bytes))
    }

    /// Bytes of all whole chunks of all lists.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.capacity_elements * self.parameter_bytes)
    }

    /// Bytes that one rank owns.
    pub fn rank_bytes(&self) -> Bytes {
        Bytes(self.rank_elements * self.parameter_bytes)
    }

    /// Bytes that all ranks own together.
    pub fn sharded_bytes(&self) -> Bytes {
        Bytes(self.rank_elements * u64::from(self.ranks) * self.parameter_bytes)
    }

    /// By what sizes are compared: less is better. Elements of whole chunks with padding chunks, then without, then chunks.
    ///
    /// Where groups end with their tensors, next to nothing is lost by sharding at any size; whole chunks are what
    /// their slots on a device take.
    pub(super) fn rank(&self) -> [u64; 3] {
        let dummies = self.dummies * self.chunk_elements;
        [self.capacity_elements + dummies, self.capacity_elements, self.chunks]
    }
}
