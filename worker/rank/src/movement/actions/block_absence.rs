//! A block that is away from the device: its storages, where their parts are, and how far it is.

use std::collections::BTreeSet;
use std::sync::Arc;

use loadmaster_proto::training::actions::Stripe;

use super::place::{OffloadPlace, Portion};
use crate::error::RankError;
use crate::ffi::{Direction, Storage};
use crate::movement::lane::Ticket;
use crate::tape::defect;

/// How far a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockState {
    Leaving,
    Gone,
    /// Gone, but back for a moment.
    Lent,
    Coming,
}

/// A block on its way.
#[derive(Debug)]
pub(super) struct BlockAbsence {
    pub(super) state: BlockState,
    pieces: Vec<Piece>,
    /// Its copies that are not waited for yet, with their places.
    tickets: Vec<(usize, Ticket)>,
}

/// A storage of a block, and where its parts are.
#[derive(Debug)]
struct Piece {
    storage: Arc<Storage>,
    bytes: u64,
    portions: Vec<Portion>,
}

impl BlockAbsence {
    /// Begins to copy storages of so many bytes into the pools of these stripes.
    ///
    /// # Errors
    /// When one of the pools is too small.
    pub(super) fn leave(
        storages: Vec<(Arc<Storage>, u64)>,
        stripes: &[(usize, Stripe)],
        places: &mut [OffloadPlace],
    ) -> Result<Self, RankError> {
        let shares: Vec<Stripe> = stripes.iter().map(|&(_, stripe)| stripe).collect();
        let parts: Vec<Vec<u64>> = storages.iter().map(|(_, bytes)| Stripe::split(&shares, *bytes)).collect();
        // All of it or nothing: what is told is how much the whole block asks for.
        for (stripe, &(place, _)) in stripes.iter().enumerate() {
            let asked = parts.iter().filter_map(|parts| parts.get(stripe)).sum();
            places[place].check_room(asked)?;
        }
        let mut pieces = Vec::with_capacity(storages.len());
        for ((storage, bytes), parts) in storages.into_iter().zip(parts) {
            let mut portions = Vec::with_capacity(parts.len());
            let mut offset = 0;
            for (&(place, _), part) in stripes.iter().zip(parts) {
                let taken = places[place].take(place, offset, part);
                portions.push(taken.ok_or_else(|| {
                    defect(
                        "cannot offload data to a memory pool, although the pool reported enough free memory",
                    )
                })?);
                offset += part;
            }
            pieces.push(Piece { storage, bytes, portions });
        }
        let mut away = Self { state: BlockState::Leaving, pieces, tickets: Vec::new() };
        away.copy(places, Direction::Out)?;
        Ok(away)
    }

    /// Begins to copy all parts one way, those of one place one behind the other.
    ///
    /// # Errors
    /// When a GPU refuses.
    pub(super) fn copy(
        &mut self,
        places: &mut [OffloadPlace],
        direction: Direction,
    ) -> Result<(), RankError> {
        let portions = self.pieces.iter().flat_map(|piece| &piece.portions);
        let used: BTreeSet<usize> = portions.map(|portion| portion.place).collect();
        for index in used {
            let portions = self.pieces.iter().flat_map(|piece| {
                let here = piece.portions.iter().filter(move |portion| portion.place == index);
                here.map(|portion| (&*piece.storage, portion))
            });
            self.tickets.push((index, places[index].copy(portions, direction)?));
        }
        Ok(())
    }

    /// Waits for the copies that were begun.
    ///
    /// # Errors
    /// When one of them failed.
    pub(super) fn wait(&mut self, places: &mut [OffloadPlace]) -> Result<(), RankError> {
        self.tickets.drain(..).try_for_each(|(place, ticket)| places[place].wait(ticket))
    }

    /// Gives its memory on the device back.
    pub(super) fn give_memory_back(&self) -> Result<(), RankError> {
        let held = self.pieces.iter().filter_map(|piece| piece.storage.hold());
        Ok(held.into_iter().try_for_each(|mut held| held.give_back())?)
    }

    /// Gives it memory on the device again, as far as anything still holds it.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn renew_memory(&self) -> Result<(), RankError> {
        let held = self.pieces.iter().filter_map(|piece| piece.storage.hold());
        Ok(held.into_iter().try_for_each(|mut held| held.renew())?)
    }

    /// Gives its parts of pools back.
    pub(super) fn give_places_back(&self, places: &mut [OffloadPlace]) {
        for portion in self.pieces.iter().flat_map(|piece| &piece.portions) {
            places[portion.place].give_back(portion);
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }

    /// Tells its storages from others.
    pub(super) fn ids(&self) -> impl Iterator<Item = u64> + '_ {
        self.pieces.iter().map(|piece| piece.storage.id())
    }
}
