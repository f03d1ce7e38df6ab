//! Which parameter groups are in which chunk.

use std::ops::Range;

use super::layout::{Chunk, Layout, Lists, Place};
use super::mebi;
use super::sequence::Sequence;
use crate::choice;
use crate::error::Invalid;
use crate::model::layer::MAX_ELEMENTS;
use crate::wire::v1;

/// How tensors lie in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkLayout {
    /// As the paper packs: tensors bare next to each other, chunks all equal, none for a parameter group that is larger.
    Patrickstar,
    /// What is trained: tensors start at multiples of [`ALIGNMENT_BYTES`](super::ALIGNMENT_BYTES), and a parameter
    /// group that is larger than the chunk is a chunk of its own.
    #[default]
    Aligned,
}

choice! { ChunkLayout = v1::ChunkLayout { Patrickstar, Aligned } }

/// A sequence that is to be packed into chunks, whatever their size.
///
/// The rule is PatrickStar's (§ chunk-based memory management, its `append_tensor`): *next-fit*. The parameter
/// groups are taken in order; one that does not fit into the last chunk opens the next, and earlier chunks are never
/// looked at once more.
#[derive(Debug, Clone)]
pub struct Packing<'a> {
    pub(super) sequence: &'a Sequence,
    pub(super) layout: ChunkLayout,
    pub(super) lists: Lists,
    /// Tensors start at multiples of so many elements.
    pub(super) alignment: u64,
    /// The first so many parameter groups are chunks of their own, no larger than they are.
    pub(super) apart: usize,
    /// Where each parameter group would start if one chunk held all, and the end of the last.
    pub(super) starts: Vec<u64>,
    /// Elements of all tensors before each parameter group, and of all.
    pub(super) elements: Vec<u64>,
}

impl<'a> Packing<'a> {
    /// Measures the parameter groups of a sequence.
    ///
    /// # Errors
    /// Nothing to pack, or more than can be counted.
    pub fn new(sequence: &'a Sequence, layout: ChunkLayout, lists: Lists) -> Result<Self, Invalid> {
        let alignment = match layout {
            ChunkLayout::Patrickstar => 1,
            ChunkLayout::Aligned => lists.alignment_elements(),
        };
        let (mut starts, mut elements) = (vec![0_u64], vec![0_u64]);
        let (mut end, mut sum) = (0_u64, 0_u64);
        for atom in sequence.atoms() {
            for &tensor in atom {
                let padded = tensor.checked_next_multiple_of(alignment);
                end = padded.and_then(|padded| end.checked_add(padded)).ok_or_else(too_many)?;
                // No more than with padding.
                sum += tensor;
            }
            starts.push(end);
            elements.push(sum);
        }
        if sum == 0 {
            return Err(Invalid::field(
                "",
                "the model has no parameters, so it cannot have chunks. Use another model",
            ));
        }
        Ok(Self { sequence, layout, lists, alignment, apart: 0, starts, elements })
    }

    /// The same where the first parameter group is a chunk of its own, whatever its size: a table that is on the host
    /// ([`HostTable`](super::embedding::HostTable)).
    #[must_use]
    pub fn with_table_apart(self) -> Self {
        Self { apart: 1, ..self }
    }

    /// Elements that each parameter group takes which has no chunk of its own by itself, with the padding behind its tensors.
    pub fn extents(&self) -> impl Iterator<Item = u64> {
        self.starts.windows(2).skip(self.apart).map(|pair| pair[1] - pair[0])
    }

    /// Elements of the largest of those, with its padding.
    pub fn largest_atom(&self) -> u64 {
        self.extents().max().unwrap_or(0)
    }

    /// Which tensor is where in chunks of this size.
    ///
    /// # Errors
    /// Those of [`Self::checked_size`].
    pub fn lay_out(&self, chunk_elements: u64) -> Result<Layout, Invalid> {
        let chunk_elements = self.checked_size(chunk_elements)?;
        let alignment = self.alignment;
        let mut layout = Layout { chunk_elements, alignment, chunks: Vec::new(), tensors: Vec::new() };
        for atoms in self.next_fit(chunk_elements) {
            let tensors = self.sequence.tensors_of(atoms.clone());
            let (chunk, mut end) = (layout.chunks.len(), 0_u64);
            for &elements in &self.sequence.tensors()[tensors.clone()] {
                layout.tensors.push(Place { chunk, offset: end, elements });
                end = (end + elements).next_multiple_of(self.alignment);
            }
            let capacity = self.capacity(&atoms, end, chunk_elements);
            layout.chunks.push(Chunk { capacity, extent: end, tensors });
        }
        Ok(layout)
    }

    /// Capacity and extent of each chunk of this size, one of [`Self::checked_size`], as [`Self::lay_out`] makes them, for who
    /// needs to know of no tensor where it is.
    pub fn chunk_sizes(&self, chunk_elements: u64) -> impl Iterator<Item = (u64, u64)> {
        self.next_fit(chunk_elements).map(move |atoms| {
            let extent = self.starts[atoms.end] - self.starts[atoms.start];
            (self.capacity(&atoms, extent, chunk_elements), extent)
        })
    }

    /// Elements that a chunk of these parameter groups, which take so many, has room for.
    pub(super) fn capacity(&self, atoms: &Range<usize>, extent: u64, chunk_elements: u64) -> u64 {
        if atoms.start < self.apart { extent } else { chunk_elements.max(extent) }
    }

    /// A chunk size that these parameter groups can have: rounded up to the alignment.
    ///
    /// # Errors
    /// It is 0, or more than any tensor may have, or a parameter group does not fit and may have no chunk of its own.
    pub fn checked_size(&self, chunk_elements: u64) -> Result<u64, Invalid> {
        let refuse = |why: String| {
            Err(invalid!("", "{} elements is not a valid chunk size. {why}", mebi(chunk_elements)))
        };
        if !(1..=MAX_ELEMENTS).contains(&chunk_elements) {
            return refuse(format!("Use 1 to {MAX_ELEMENTS} elements"));
        }
        let has_outliers = self.layout == ChunkLayout::Aligned;
        let largest = if has_outliers { 0 } else { self.largest_atom() };
        if chunk_elements < largest {
            return refuse(format!(
                "The largest parameter group has {} elements. Use at least that, or use the layout {}, which puts such a \
                 group into a chunk of its own",
                mebi(largest),
                ChunkLayout::Aligned
            ));
        }
        // Far below the largest number.
        Ok(chunk_elements.next_multiple_of(self.alignment))
    }

    /// The parameter groups of each chunk of this size.
    pub(super) fn next_fit(&self, chunk_elements: u64) -> impl Iterator<Item = Range<usize>> {
        let mut first = 0;
        std::iter::from_fn(move || {
            let (&start, ends) = self.starts.get(first..)?.split_first()?;
            if ends.is_empty() {
                return None;
            }
            let limit = start.saturating_add(chunk_elements);
            let fit = if first < self.apart { 1 } else { ends.partition_point(|&end| end <= limit) };
            let atoms = first..first + fit.max(1);
            first = atoms.end;
            Some(atoms)
        })
    }
}

pub(super) fn too_many() -> Invalid {
    Invalid::field("", "gives more bytes than a 64-bit number can hold. Use smaller chunks or fewer ranks")
}
