//! Recording what a layer allocates: from the allocator's entries to a
//! [`LayerTrace`](loadmaster_proto::measure::trace::LayerTrace).

use std::collections::HashMap;

use loadmaster_proto::measure::trace::{Event, Passage, Slot, TraceStep};
use tch::Tensor;

use crate::error::RankError;
use crate::ffi::{self, TAPE_ALLOCATED, TAPE_EDGE, TAPE_FREED, TAPE_REMARK, TAPE_SAVED, TapeEntry};

/// Which of a layer's edges tensors are at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    Inputs,
    Outputs,
    OutputGradients,
    InputGradients,
}

/// The parts of the end of an iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Exchange,
    Update,
}

/// From now on a slot's events are recorded.
pub(crate) fn enter(slot: Slot) {
    ffi::remark(slot as u32);
}

/// Notes the blocks of the tensors at an edge.
pub(crate) fn at_edge(edge: Edge, tensors: &[Tensor]) -> Result<(), RankError> {
    for tensor in tensors {
        ffi::remark_edge(tensor, edge as u32)?;
    }
    Ok(())
}

/// While it lives, what this rank allocates are buffers of collectives. Guards do not nest.
#[derive(Debug)]
pub struct Communication(());

impl Communication {
    /// Begins to communicate.
    #[must_use]
    pub fn begin() -> Self {
        ffi::set_communicating(true);
        Self(())
    }
}

impl Drop for Communication {
    fn drop(&mut self) {
        ffi::set_communicating(false);
    }
}

/// Runs `work` and returns what it allocated, in order.
pub(crate) fn recorded(work: impl FnOnce() -> Result<(), RankError>) -> Result<Vec<TapeEntry>, RankError> {
    ffi::begin_tape()?;
    let result = work();
    let entries = ffi::end_tape();
    result?;
    Ok(entries?)
}

/// Gives blocks their numbers. A block that was there before is no one's: its end is not an event.
#[derive(Debug, Default)]
struct BlockNumbers {
    live: HashMap<u64, u32>,
    bytes: Vec<u64>,
    communication: Vec<u32>,
}

impl BlockNumbers {
    fn event(&mut self, entry: &TapeEntry) -> Result<Option<Event>, RankError> {
        let number = |block: u32| {
            i32::try_from(block + 1).map_err(|_| defect("a recording has too many memory blocks"))
        };
        match entry.kind {
            TAPE_ALLOCATED => {
                let block = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX - 1);
                self.bytes.push(entry.bytes);
                self.live.insert(entry.address, block);
                if entry.code == 1 {
                    self.communication.push(block);
                }
                number(block).map(Some)
            }
            TAPE_FREED => self.live.remove(&entry.address).map(|block| number(block).map(|b| -b)).transpose(),
            _ => Ok(None),
        }
    }
}

pub(crate) fn defect(what: &str) -> RankError {
    RankError::Other(format!("a defect: {what}"))
}

/// What entries say about a micro-batch.
pub(crate) fn passage(entries: &[TapeEntry]) -> Result<Passage, RankError> {
    let mut passage = Passage::default();
    let mut blocks = BlockNumbers::default();
    let mut slot = Slot::Input as usize;
    for entry in entries {
        match entry.kind {
            TAPE_REMARK => slot = entry.code as usize,
            TAPE_EDGE => {
                let edge = match entry.code {
                    code if code == Edge::Inputs as u32 => &mut passage.inputs,
                    code if code == Edge::Outputs as u32 => &mut passage.outputs,
                    code if code == Edge::OutputGradients as u32 => &mut passage.output_gradients,
                    _ => &mut passage.input_gradients,
                };
                let block = blocks.live.get(&entry.address);
                edge.push(*block.ok_or_else(|| {
                    defect("the allocation trace has no memory block for an input or output of a layer")
                })?);
            }
            // Parameters are saved too, and were there before.
            TAPE_SAVED => {
                let block = blocks.live.get(&entry.address).filter(|block| !passage.saved.contains(block));
                passage.saved.extend(block);
            }
            _ => {
                let event = blocks.event(entry)?;
                let events = passage.slots.get_mut(slot);
                events.ok_or_else(|| defect("the recording has an unknown slot"))?.extend(event);
            }
        }
    }
    passage.blocks = blocks.bytes;
    passage.communication = blocks.communication;
    Ok(passage)
}

/// What entries say about the end of an iteration.
pub(crate) fn step(entries: &[TapeEntry]) -> Result<TraceStep, RankError> {
    let mut step = TraceStep::default();
    let mut blocks = BlockNumbers::default();
    let mut end = End::Exchange as u32;
    for entry in entries {
        if entry.kind == TAPE_REMARK {
            end = entry.code;
        }
        let events = if end == End::Exchange as u32 { &mut step.exchange } else { &mut step.update };
        events.extend(blocks.event(entry)?);
    }
    step.blocks = blocks.bytes;
    step.communication = blocks.communication;
    Ok(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u32, code: u32, address: u64, bytes: u64) -> TapeEntry {
        TapeEntry { kind, code, address, bytes }
    }

    /// Addresses are reused by libtorch, blocks are not; and what was there before is not ours.
    #[test]
    fn blocks_are_told_apart_although_addresses_come_again() {
        let entries = [
            entry(TAPE_FREED, 0, 99, 0),
            entry(TAPE_ALLOCATED, 0, 16, 100),
            entry(TAPE_EDGE, Edge::Inputs as u32, 16, 0),
            entry(TAPE_REMARK, Slot::Forward as u32, 0, 0),
            entry(TAPE_FREED, 0, 16, 0),
            entry(TAPE_ALLOCATED, 1, 16, 50),
            entry(TAPE_EDGE, Edge::Outputs as u32, 16, 0),
            entry(TAPE_SAVED, 0, 99, 0),
            entry(TAPE_SAVED, 0, 16, 0),
            entry(TAPE_SAVED, 0, 16, 0),
            entry(TAPE_REMARK, Slot::Output as u32, 0, 0),
            entry(TAPE_FREED, 0, 16, 0),
        ];
        let passage = passage(&entries).unwrap();
        assert_eq!(passage.blocks, [100, 50]);
        assert_eq!((passage.inputs.as_slice(), passage.outputs.as_slice()), (&[0][..], &[1][..]));
        assert_eq!((passage.communication.as_slice(), passage.saved.as_slice()), (&[1][..], &[1][..]));
        assert_eq!(passage.slots[..3], [vec![1], vec![-1, 2], vec![-2]]);
        assert_eq!(passage.check(), Ok(()));
    }
}
