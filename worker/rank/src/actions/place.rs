//! A place where blocks are while they are away from the device.

use std::sync::Arc;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::ledger::Ledger;
use loadmaster_proto::measure::failure::OutOfMemory;
use loadmaster_proto::measure::offload::CopyCount;

use super::lane::{Ticket, Wait, Ways};
use super::pool::{Extent, Pool};
use crate::error::RankError;
use crate::ffi::{Direction, Mapping, Storage, Transfer};
use crate::progress;
use crate::timing::median;

/// A part of a storage, and where it is.
#[derive(Debug)]
pub(super) struct Portion {
    /// Which place.
    pub(super) place: usize,
    /// Where it begins in the storage.
    offset: u64,
    extents: Vec<Extent>,
}

/// A place where blocks are while they are away.
#[derive(Debug)]
pub(super) struct OffloadPlace {
    peer: Option<u32>,
    ways: Ways,
    memory: Arc<Mapping>,
    pool: Pool,
    /// Of the iteration so far.
    tally: Tally,
    /// Of the last whole one.
    moved: [u64; 2],
    /// Of the last whole one.
    waits: Vec<Wait>,
    /// Of each whole one before it.
    waited: Vec<f64>,
}

#[derive(Debug, Default)]
struct Tally {
    /// Bytes out and back.
    moved: [u64; 2],
    waits: Vec<Wait>,
}

impl OffloadPlace {
    /// A pool of the host, or on a peer, with the ways there and back.
    pub(super) fn new(peer: Option<u32>, memory: Arc<Mapping>, ways: Ways) -> Self {
        Self {
            peer,
            ways,
            pool: Pool::new(memory.bytes()),
            memory,
            tally: Tally::default(),
            moved: [0; 2],
            waits: Vec::new(),
            waited: Vec::new(),
        }
    }

    /// Whose pool it is; none of the host.
    pub(super) fn peer(&self) -> Option<u32> {
        self.peer
    }

    /// The most bytes that were there at once since the last reset.
    pub(super) fn peak(&self) -> u64 {
        self.pool.peak()
    }

    /// Whether so many bytes more have room.
    pub(super) fn check_room(&self, asked: u64) -> Result<(), RankError> {
        let (held, allowed) = (self.pool.used(), self.pool.size());
        if asked <= allowed - held {
            return Ok(());
        }
        let (phase, layer) = progress::whereabouts();
        // A pool on a peer is memory of that one's device.
        let ledger = if self.peer.is_none() { Ledger::Host } else { Ledger::Allocated };
        let [asked, held, allowed] = [asked, held, allowed].map(Bytes);
        Err(RankError::OutOfMemory(OutOfMemory { asked, held, allowed, ledger, phase, layer }))
    }

    /// Takes room for a part of a storage; none where there is none.
    pub(super) fn take(&mut self, place: usize, offset: u64, bytes: u64) -> Option<Portion> {
        Some(Portion { place, offset, extents: self.pool.take(bytes)? })
    }

    pub(super) fn give_back(&mut self, portion: &Portion) {
        self.pool.give_back(&portion.extents);
    }

    /// Begins to copy parts of storages. Those that nothing holds any more have nothing to copy.
    ///
    /// # Errors
    /// When a GPU refuses.
    pub(super) fn copy<'a>(
        &mut self,
        portions: impl Iterator<Item = (&'a Storage, &'a Portion)>,
        direction: Direction,
    ) -> Result<Ticket, RankError> {
        let mut transfers = Vec::new();
        for (storage, portion) in portions {
            let mut offset = portion.offset;
            for extent in &portion.extents {
                let of = (offset, extent.bytes);
                transfers.extend(Transfer::new(storage, of, &self.memory, extent.start, direction));
                offset += extent.bytes;
            }
        }
        let bytes: usize = transfers.iter().map(Transfer::bytes).sum();
        let (lane, moved) = match direction {
            Direction::Out => (&self.ways.out, 0),
            Direction::Back => (&self.ways.back, 1),
        };
        self.tally.moved[moved] += bytes as u64;
        lane.ask(transfers)
    }

    /// Waits for a copy.
    ///
    /// # Errors
    /// When it failed.
    pub(super) fn wait(&mut self, ticket: Ticket) -> Result<(), RankError> {
        self.tally.waits.push(ticket.wait()?);
        Ok(())
    }

    /// An iteration is over. What a GPU waited in it is asked when the next one is: it is not done with it yet.
    ///
    /// # Errors
    /// When the device failed.
    pub(super) fn count_iteration(&mut self) -> Result<(), RankError> {
        let Tally { moved, waits } = std::mem::take(&mut self.tally);
        self.moved = moved;
        let before = std::mem::replace(&mut self.waits, waits);
        if !before.is_empty() {
            self.waited.push(seconds(&before)?);
        }
        Ok(())
    }

    /// Forgets what was counted.
    pub(super) fn reset(&mut self) {
        self.pool.reset_peak();
        self.tally = Tally::default();
        self.waits.clear();
        self.waited.clear();
    }

    /// What was counted.
    ///
    /// # Errors
    /// When the device failed.
    pub(super) fn count(&self) -> Result<CopyCount, RankError> {
        let [out_bytes, in_bytes] = self.moved;
        let mut waited = self.waited.clone();
        waited.push(seconds(&self.waits)?);
        Ok(CopyCount { peer: self.peer, out_bytes, in_bytes, waited_seconds: median(&waited) })
    }
}

fn seconds(waits: &[Wait]) -> Result<f64, RankError> {
    waits.iter().map(Wait::seconds).sum()
}
