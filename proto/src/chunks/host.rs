//! Where chunks are in the host's memory.
//!
//! Of a chunk that several ranks share each holds what it owns.
//!
//! A stretch of memory is taken before the first iteration and given out once for all: state first, chunk by chunk, then
//! places of parameters and gradients, then what gradients pass through that have no place. So what a rank takes of the
//! host is known beforehand, to the byte.

use serde::{Deserialize, Serialize};

use super::ALIGNMENT_BYTES;
use super::groups::Sharing;
use super::layout::Layout;
use super::lists::{List, Lists};
use super::residency::uses::{PayloadUses, Uses};
use crate::choice;
use crate::error::Invalid;
use crate::wire::v1;

/// What the host holds of the parameters that layers compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostCopy {
    /// All of them, beside the fp32 copy: 14 bytes a parameter with Adam in bf16, 16 in fp32.
    Kept,
    /// None: they are rounded from the fp32 copy while they are fetched, and gradients pass through a few buffers on their
    /// way to the optimizer. 12 bytes a parameter.
    #[default]
    Made,
}

choice! {
    HostCopy = v1::HostCopy {
        Kept = "kept",
        Made = "made",
    }
}

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

/// What a rank's chunks take of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMemory {
    /// Each chunk.
    pub chunks: Vec<HostChunk>,
    /// What gradients without a place pass through, one after the other.
    pub staging: Vec<HostPart>,
    /// All of it, bytes.
    pub bytes: u64,
}

/// Whether the host has a place for a payload before its gradients are complete.
pub fn spills(copy: HostCopy, of: &PayloadUses) -> bool {
    copy == HostCopy::Kept || of.payload.is_gradients || of.is_interrupted()
}

/// The same among ranks that share chunks. Of a chunk that ranks share each has all of its own gradients until they are added
/// up, and a place for the part alone that it owns, but where it must. Of a chunk whose state is on the device the host has
/// nothing.
pub fn may_leave_unfinished(copy: HostCopy, sharing: &Sharing, is_on_device: bool, of: &PayloadUses) -> bool {
    let has_whole = sharing.ranks() == 1 || of.payload.is_gradients || of.is_interrupted();
    !is_on_device && spills(copy, of) && has_whole
}

impl HostMemory {
    /// Gives out the places of a layout's chunks, with so many buffers for gradients on their way where they need any.
    ///
    /// # Errors
    /// More bytes than can be counted.
    pub fn new(
        layout: &Layout,
        lists: &Lists,
        uses: &Uses,
        sharing: &Sharing,
        copy: HostCopy,
        staging: usize,
    ) -> Result<Self, Invalid> {
        let mut end = 0_u64;
        let mut take = |elements: u64, list: List| {
            let bytes = elements.checked_mul(lists.scalar_bytes(list))?;
            let start = end.checked_next_multiple_of(ALIGNMENT_BYTES)?;
            end = start.checked_add(bytes)?;
            Some(HostPart { start, bytes })
        };
        let mut given_out = || {
            let mut chunks = Vec::with_capacity(layout.chunks().len());
            for (index, chunk) in layout.chunks().iter().enumerate() {
                let is_here = !uses.is_on_device(index);
                let states = lists.all().iter().filter(|&&list| is_here && list != List::Parameters);
                let part = sharing.part(chunk);
                let state = states.map(|&list| take(part, list)).collect::<Option<_>>()?;
                chunks.push(HostChunk { state, parameters: None, gradients: None });
            }
            let mut passing = Vec::new();
            for of in uses.payloads() {
                let index = of.payload.chunk;
                let (Some(chunk), Some(place)) = (layout.chunks().get(index), chunks.get_mut(index)) else {
                    continue;
                };
                if uses.is_on_device(index) {
                    continue;
                }
                // What leaves unfinished is each rank's own, all of it.
                let (part, whole) = (sharing.part(chunk), sharing.payload(chunk));
                if of.payload.is_gradients {
                    place.gradients = Some(take(whole, List::Parameters)?);
                } else if spills(copy, of) {
                    let elements = if of.is_interrupted() { whole } else { part };
                    place.parameters = Some(take(elements, List::Parameters)?);
                } else if of.changed.is_some() {
                    passing.push(part);
                }
            }
            passing.sort_unstable();
            let largest = passing.last().copied().unwrap_or(0);
            let staging = staging.min(passing.len());
            let staging = (0..staging).map(|_| take(largest, List::Parameters)).collect::<Option<_>>()?;
            Some((chunks, staging))
        };
        let given_out = given_out();
        match given_out {
            Some((chunks, staging)) => Ok(Self { chunks, staging, bytes: end }),
            None => Err(super::packing::too_many()),
        }
    }
}
