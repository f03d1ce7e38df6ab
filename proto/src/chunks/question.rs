//! A model's chunks, as they are asked for.

use super::footprint::Footprint;
use super::groups::Groups;
use super::layout::{List, Lists};
use super::packing::{ChunkLayout, Packing};
use super::sequence::Sequence;
use super::sizes::{ChunkSize, ChunkSizes, LARGEST, TriedSizes};
use crate::error::{Invalid, in_range};
use crate::model::Model;
use crate::model::layer::MAX_ELEMENTS;
use crate::training::{Optimizer, Precision};

/// Most rows of an answer.
const MAX_ROWS: usize = 1_000;

/// How a model is to lie in chunks.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkQuestion {
    /// Number formats.
    pub precision: Precision,
    /// Update rule.
    pub optimizer: Optimizer,
    /// How tensors lie in chunks.
    pub layout: ChunkLayout,
    /// The chunk size.
    pub size: AskedSize,
    /// Ranks that share the chunks.
    pub ranks: u32,
    /// Chunks of a group; see [`Groups::new`] for the default.
    pub group_chunks: Option<u32>,
    /// Most rows of the answer.
    pub rows: usize,
}

/// The chunk size that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedSize {
    /// This one.
    Named(ChunkSize),
    /// The best of these.
    Among {
        /// Which are tried.
        sizes: ChunkSizes,
        /// The largest that is, elements; [`LARGEST`] unless set.
        largest: Option<u64>,
    },
}

/// How a model lies in chunks.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkAnswer {
    /// The lists of chunks.
    pub lists: Lists,
    /// What ranks share.
    pub groups: Groups,
    /// Tensors that are trained.
    pub tensors: usize,
    /// Parameter groups that they make.
    pub atoms: usize,
    /// Elements of the largest parameter group.
    pub largest_atom: u64,
    /// The sizes that were tried.
    pub sizes: TriedSizes,
}

impl ChunkQuestion {
    /// Lays out a model.
    ///
    /// # Errors
    /// Names the field that is wrong or that another contradicts, and what to do.
    pub fn answer(&self, model: &Model) -> Result<ChunkAnswer, Invalid> {
        in_range("max_size_count", self.rows, 1..=MAX_ROWS)?;
        let lists = Lists::new(self.precision, &self.optimizer)?;
        let groups = Groups::new(self.layout, self.ranks, self.group_chunks)?;
        let sequence = Sequence::of_model(model);
        let packing = Packing::new(&sequence, self.layout, lists)?;
        let tried = match self.size {
            AskedSize::Named(size) => {
                let (field, elements) = elements(size, &lists)?;
                let footprint = packing.footprint(elements, &groups).map_err(|of| of.under(field))?;
                TriedSizes { footprints: vec![footprint], best: 0, tried: 1, too_small: 0 }
            }
            AskedSize::Among { sizes, largest } => {
                let largest = in_range("max_chunk_elements", largest.unwrap_or(LARGEST), 1..=MAX_ELEMENTS)?;
                packing.choose(sizes, largest, &groups, self.rows)?
            }
        };
        Ok(ChunkAnswer {
            lists,
            groups,
            tensors: sequence.tensors().len(),
            atoms: sequence.atoms().len(),
            largest_atom: packing.largest_atom(),
            sizes: tried,
        })
    }
}

impl ChunkAnswer {
    /// What the best size costs.
    pub fn best(&self) -> Option<&Footprint> {
        self.sizes.footprints.get(self.sizes.best)
    }
}

/// The field that a size is in, and its elements.
fn elements(size: ChunkSize, lists: &Lists) -> Result<(&'static str, u64), Invalid> {
    match size {
        ChunkSize::Elements(elements) => Ok(("chunk_elements", elements)),
        ChunkSize::Bytes(bytes) => {
            let scalar = lists.scalar_bytes(List::Parameters);
            if !bytes.0.is_multiple_of(scalar) {
                let why = format!(
                    "{} bytes is not a multiple of {scalar}, the bytes of one parameter. Use a multiple of {scalar}",
                    bytes.0
                );
                return Err(Invalid::field("chunk_bytes", why));
            }
            Ok(("chunk_bytes", bytes.0 / scalar))
        }
    }
}
