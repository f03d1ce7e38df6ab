//! Where chunks are in the host's memory.
//!
//! Of a chunk that several ranks share each holds what it owns.
//!
//! A stretch of memory is taken before the first iteration and given out once for all. State first, chunk by chunk, then
//! places of parameters and gradients, then what gradients pass through that have no place. So what a rank takes of the
//! host is known beforehand, to the byte.

use serde::{Deserialize, Serialize};

use super::ALIGNMENT_BYTES;
use super::embedding::HostTable;
use super::groups::Sharing;
use super::layout::{Layout, List, Lists};
use super::residency::uses::{PayloadUses, Uses};
use crate::choice;
use crate::error::Invalid;
use crate::wire::v1;

/// What the host holds of the parameters that layers compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostParameters {
    /// All of them, beside the fp32 copy: 14 bytes a parameter with Adam in bf16, 16 in fp32.
    Stored,
    /// None: they are rounded from the fp32 copy while they are fetched, and gradients pass through a few buffers on their
    /// way to the optimizer. 12 bytes a parameter.
    #[default]
    Cast,
}

choice! { HostParameters = v1::HostParameters { Stored, Cast } }

/// A part of the host's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostPart {
    /// Where it begins, bytes.
    pub start: u64,
    /// How many there are.
    pub bytes: u64,
}

/// Where a chunk is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostChunk {
    /// What the optimizer keeps, in the order of the lists: the fp32 copy first. Nothing where that is on the device.
    pub state: Vec<HostPart>,
    /// Parameters that the rank owns, whose place gradients take where they are not apart; the whole chunk's where these may
    /// leave unfinished. None where they are made.
    pub parameters: Option<HostPart>,
    /// Gradients of the whole chunk that are apart.
    pub gradients: Option<HostPart>,
}

/// What a table on the host has besides what the optimizer keeps of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostTableParts {
    /// Its gradient, in which those of rows are added up, and that of a tied weight's upper end; where ranks share the table all of
    /// it, too.
    pub gradients: HostPart,
    /// The rows of a micro-batch, on their way to the device.
    pub up: HostPart,
    /// Gradients of the rows of a micro-batch, from the device.
    pub down: HostPart,
    /// All of the table, as layers compute with it, where ranks own parts of it: rows are taken from there.
    pub whole: Option<HostPart>,
}

/// What a rank's chunks take of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMemory {
    /// Each chunk.
    pub chunks: Vec<HostChunk>,
    /// What gradients without a place pass through, one after the other, and on their way to a GPU parameters that are rounded.
    pub staging: Vec<HostPart>,
    /// What a table on the host has besides its chunk.
    pub table: Option<HostTableParts>,
    /// All of it, bytes.
    pub bytes: u64,
}

/// Whether the host has a place for a payload before its gradients are complete.
pub fn spills(copy: HostParameters, of: &PayloadUses) -> bool {
    copy == HostParameters::Stored || of.payload.is_gradients || of.is_interrupted()
}

/// The same among ranks that share chunks. Of a chunk that ranks share each has all of its own gradients until they are added
/// up, and a place for the part alone that it owns, but where it must. Of a chunk whose state is on the device the host has
/// nothing.
pub fn may_leave_unfinished(
    copy: HostParameters,
    sharing: &Sharing,
    is_on_device: bool,
    of: &PayloadUses,
) -> bool {
    let has_whole = sharing.ranks() == 1 || of.payload.is_gradients || of.is_interrupted();
    !is_on_device && spills(copy, of) && has_whole
}

/// Bytes of a number of the fp32 copy.
const FP32_BYTES: u64 = 4;

/// What takes memory of the host.
#[derive(Debug, Clone, Copy)]
pub struct HostDemand<'a> {
    /// Chunks.
    pub layout: &'a Layout,
    /// What the optimizer keeps of each element.
    pub lists: &'a Lists,
    /// What steps do with chunks, and which of them are on the device.
    pub uses: &'a Uses,
    /// Which part of a chunk a rank owns.
    pub sharing: &'a Sharing,
    /// What the host holds of the parameters.
    pub copy: HostParameters,
    /// Buffers for what passes the host on its way, where as many are needed.
    pub staging: usize,
    /// A table that is on the host.
    pub table: Option<&'a HostTable>,
}

/// What a part of the host's memory is given to.
#[derive(Debug, Clone, Copy)]
enum Taker {
    /// What the optimizer keeps of a chunk, list by list.
    State(usize),
    Parameters(usize),
    Gradients(usize),
    Staging,
    /// A table's gradient, rows on their way up, and down; where ranks share it the table.
    Table,
}

impl HostDemand<'_> {
    /// The bytes that all of it takes where the state of other chunks is on the device than [`Self::uses`] says.
    ///
    /// # Errors
    /// More bytes than can be counted.
    pub fn bytes_with(&self, is_on_device: impl Fn(usize) -> bool) -> Result<u64, Invalid> {
        self.give_out(is_on_device, |_, _| ()).ok_or_else(super::packing::too_many)
    }

    /// Gives out the places of chunks, those of gradients on their way, where they need any, and those of a table that is on the
    /// host, and returns the end of the last. None where that is more than can be counted.
    fn give_out(
        &self,
        is_on_device: impl Fn(usize) -> bool,
        mut given: impl FnMut(Taker, HostPart),
    ) -> Option<u64> {
        let Self { layout, lists, uses, sharing, copy, staging, table } = *self;
        let mut end = 0_u64;
        let mut take = |taker: Taker, elements: u64, list: List| {
            let bytes = elements.checked_mul(lists.scalar_bytes(list))?;
            let start = end.checked_next_multiple_of(ALIGNMENT_BYTES)?;
            end = start.checked_add(bytes)?;
            given(taker, HostPart { start, bytes });
            Some(())
        };
        for (index, chunk) in layout.chunks().iter().enumerate().filter(|(index, _)| !is_on_device(*index)) {
            for &list in lists.all().iter().filter(|&&list| list != List::Parameters) {
                take(Taker::State(index), sharing.part(chunk), list)?;
            }
        }
        let (mut passing, mut largest) = (0, 0);
        // The same on CPU slots, which round while they copy: what a plan takes of a host depends on no device.
        let is_rounded = copy == HostParameters::Cast && lists.scalar_bytes(List::Parameters) < FP32_BYTES;
        for of in uses.payloads() {
            let index = of.payload.chunk;
            let Some(chunk) = layout.chunks().get(index) else { continue };
            // What no step needs is read where its state is.
            if is_on_device(index) || of.steps.is_empty() {
                continue;
            }
            // What leaves unfinished is each rank's own, all of it.
            let (part, whole) = (sharing.part(chunk), sharing.payload(chunk));
            if of.payload.is_gradients {
                take(Taker::Gradients(index), whole, List::Parameters)?;
                continue;
            }
            let has_place = spills(copy, of);
            if has_place {
                let elements = if of.is_interrupted() { whole } else { part };
                take(Taker::Parameters(index), elements, List::Parameters)?;
            }
            if is_rounded || of.changed.is_some() && !has_place {
                (passing, largest) = (passing + 1, part.max(largest));
            }
        }
        for _ in 0..staging.min(passing) {
            take(Taker::Staging, largest, List::Parameters)?;
        }
        if let Some(table) = table {
            let all = table.elements(layout, sharing);
            let whole = (sharing.ranks() > 1).then_some(all);
            for elements in [all, table.taken(), table.taken()].into_iter().chain(whole) {
                take(Taker::Table, elements, List::Parameters)?;
            }
        }
        Some(end)
    }
}

impl HostMemory {
    /// The place of everything.
    ///
    /// # Errors
    /// More bytes than can be counted.
    pub fn new(demand: &HostDemand<'_>) -> Result<Self, Invalid> {
        let empty = HostChunk { state: Vec::new(), parameters: None, gradients: None };
        let mut chunks = vec![empty; demand.layout.chunks().len()];
        let (mut staging, mut table) = (Vec::new(), Vec::new());
        let given = |taker, part| match taker {
            Taker::State(chunk) => chunks[chunk].state.push(part),
            Taker::Parameters(chunk) => chunks[chunk].parameters = Some(part),
            Taker::Gradients(chunk) => chunks[chunk].gradients = Some(part),
            Taker::Staging => staging.push(part),
            Taker::Table => table.push(part),
        };
        let bytes = demand.give_out(|chunk| demand.uses.is_on_device(chunk), given);
        let bytes = bytes.ok_or_else(super::packing::too_many)?;
        let table = match *table {
            [gradients, up, down] => Some(HostTableParts { gradients, up, down, whole: None }),
            [gradients, up, down, whole] => Some(HostTableParts { gradients, up, down, whole: Some(whole) }),
            _ => None,
        };
        Ok(Self { chunks, staging, table, bytes })
    }
}
