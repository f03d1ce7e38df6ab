//! A place where blocks are while they are away from the device.

use std::sync::Arc;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::failure::OutOfMemory;
use loadmaster_proto::measure::offload::CopyCount;

use super::pool::{Extent, Pool};
use crate::error::RankError;
use crate::ffi::{Direction, Mapping, Storage, Transfer};
use crate::movement::lane::{Ticket, WaitCounts, Ways};
use crate::progress;

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
    /// Bytes out and back, of the iteration so far and of the last whole one.
    moved: [u64; 2],
    last_moved: [u64; 2],
    waits: WaitCounts,
}

impl OffloadPlace {
    /// A pool of the host, or on a peer, with the ways there and back.
    pub(super) fn new(peer: Option<u32>, memory: Arc<Mapping>, ways: Ways) -> Self {
        Self {
            peer,
            ways,
            pool: Pool::new(memory.bytes()),
            memory,
            moved: [0; 2],
            last_moved: [0; 2],
            waits: WaitCounts::default(),
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
        let ledger = if self.peer.is_none() { Accounting::Host } else { Accounting::Allocated };
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
        self.moved[usize::from(direction == Direction::Back)] += bytes as u64;
        self.ways.ask(direction, None, transfers)
    }

    /// Waits for a copy.
    ///
    /// # Errors
    /// When it failed.
    pub(super) fn wait(&mut self, ticket: Ticket) -> Result<(), RankError> {
        self.waits.add(ticket.wait()?);
        Ok(())
    }

    /// An iteration is over.
    ///
    /// # Errors
    /// When the device failed.
    pub(super) fn end_iteration(&mut self) -> Result<(), RankError> {
        self.last_moved = std::mem::take(&mut self.moved);
        self.waits.end_iteration()
    }

    /// Forgets what was counted.
    pub(super) fn reset(&mut self) {
        self.pool.reset_peak();
        self.moved = [0; 2];
        self.waits = WaitCounts::default();
    }

    /// What was counted.
    ///
    /// # Errors
    /// When the device failed.
    pub(super) fn count(&self) -> Result<CopyCount, RankError> {
        let [out_bytes, in_bytes] = self.last_moved;
        Ok(CopyCount { peer: self.peer, out_bytes, in_bytes, waited_seconds: self.waits.seconds()? })
    }
}
