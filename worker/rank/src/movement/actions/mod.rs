//! Memory optimizations: blocks that are away from the device between their uses (MPress).
//!
//! Which blocks, where they go and at which boundaries between steps they leave and come follows from
//! [`StageActions`](loadmaster_proto::training::actions::StageActions) alone ([`loadmaster_proto::training::actions`] is the
//! contract with the planner). Here it is done, with *storages*, the memory behind tensors: one is copied into a pool, its memory
//! is given back, and later it gets new memory and its bytes again. Handles, views and what autograd saved stay what they are and
//! notice nothing.
//!
//! | module | question |
//! |---|---|
//! | here | what is done with a block in each act? |
//! | `block_absence` | how far is a block, and where are its parts? |
//! | `blocks` | which storages is a block? |
//! | `place` | where are blocks meanwhile, and how much was moved and waited for? |
//! | `pool` | which part of a pool is whose? |

mod block_absence;
mod blocks;
mod place;
mod pool;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::offload::Offload;
use loadmaster_proto::measure::rank::RankSpec;
use loadmaster_proto::training::actions::{Absence, Block, Destination, Optimization, Steps, Stripe};
use loadmaster_proto::training::boundaries::{BoundaryAct, BoundaryTable};
use tch::Tensor;

use super::lane::Ways;
use crate::error::RankError;
use crate::ffi::{self, Direction, Mapping};
use crate::layers::Trained;
use crate::memory::Memory;
use crate::tape::defect;
use block_absence::{BlockAbsence, BlockState};
use blocks::Blocks;
use place::OffloadPlace;

/// Takes blocks away from a rank's device and brings them back. By default none leaves.
#[derive(Debug, Default)]
pub(crate) struct BlockMover {
    absences: Vec<Absence>,
    /// Of each action, the place of each of its stripes; none of those that move nothing.
    stripes: Vec<Vec<(usize, Stripe)>>,
    due: BoundaryTable,
    /// What is known of its blocks.
    pub(crate) blocks: Blocks,
    places: Vec<OffloadPlace>,
    away: Vec<Option<BlockAbsence>>,
    /// Storages of blocks that are away.
    storages: HashSet<u64>,
    /// Bytes that are missing from the device.
    missing: u64,
}

impl BlockMover {
    /// Begins to act as a specification wants, if it does: makes the pool of the host. `borrowed` are pools on other stages'
    /// devices, `shared` the ways on which chunks come and leave, where there are any.
    ///
    /// # Errors
    /// When the host has not so much memory.
    pub(super) fn begin(
        spec: &RankSpec,
        steps: &Steps,
        borrowed: &BTreeMap<u32, Arc<Mapping>>,
        shared: Option<Ways>,
        memory: &Memory,
    ) -> Result<Self, RankError> {
        let actions = &spec.actions;
        let moves = actions.actions.iter().any(|action| matches!(action.optimization, Optimization::Swap(_)));
        if !moves && actions.host_pool.0 == 0 {
            return Ok(Self::default());
        }
        let (host, gpu) = (memory.host_pool(actions.host_pool)?, memory.gpu());
        let ways = shared.map_or_else(|| Ways::start("host", spec.pace.host, gpu), Ok)?;
        let mut places = vec![OffloadPlace::new(None, Arc::new(host), ways)];
        for (&stage, pool) in borrowed {
            let ways = Ways::start(&format!("stage {stage}"), spec.pace.peer, gpu)?;
            places.push(OffloadPlace::new(Some(stage), pool.clone(), ways));
        }
        let absences = actions.absences(steps);
        let at: BTreeMap<Option<u32>, usize> =
            places.iter().enumerate().map(|(index, place)| (place.peer(), index)).collect();
        let place = |peer: Option<u32>| at.get(&peer).copied().ok_or_else(|| defect("a pool is missing"));
        let mut stripes = Vec::with_capacity(actions.actions.len());
        for action in &actions.actions {
            stripes.push(match &action.optimization {
                Optimization::Recompute => Vec::new(),
                Optimization::Swap(swap) => match &swap.to {
                    Destination::Host => vec![(place(None)?, Stripe { stage: 0, share: Stripe::WHOLE })],
                    Destination::Peers(peers) => peers
                        .iter()
                        .map(|&stripe| Ok((place(Some(stripe.stage))?, stripe)))
                        .collect::<Result<_, RankError>>()?,
                },
            });
        }
        let count = steps.all().len().max(1);
        let at = |index: usize| absences[index].at.boundaries_within(count).map(Some);
        let until_needed = |index: usize| absences[index].at.needed - absences[index].at.fetched;
        let due = BoundaryTable::new((absences.len(), count), at, until_needed);
        Ok(Self {
            away: absences.iter().map(|_| None).collect(),
            blocks: Blocks::new(&absences),
            absences,
            stripes,
            due,
            places,
            storages: HashSet::new(),
            missing: 0,
        })
    }

    /// Whether there is anything that may leave.
    pub(super) fn is_moving(&self) -> bool {
        !self.places.is_empty()
    }

    /// Whether blocks of a kind leave.
    pub(crate) fn moves(&self, block: Block) -> bool {
        self.absences.iter().any(|absence| absence.block == block)
    }

    /// Bytes that are missing from the device.
    pub(crate) fn missing(&self) -> u64 {
        self.missing
    }

    /// A layer's tensors were made. Parameters that are away when an iteration begins are from the start, so that the first one
    /// needs no more than the others.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(crate) fn made(
        &mut self,
        layer: usize,
        trained: &[Trained],
        buffers: &[Tensor],
    ) -> Result<(), RankError> {
        self.blocks.made(layer, trained, buffers)?;
        let count = self.due.boundaries();
        for index in 0..self.absences.len() {
            let Absence { block, layer: of, at, .. } = self.absences[index];
            if (block, of) == (Block::Weights, layer) && at.leaves < count && at.fetched >= count {
                self.leave(index)?;
                if at.freed < count {
                    self.free(index)?;
                }
            }
        }
        Ok(())
    }

    /// An iteration is over. Where it flushes, nothing is in flight any more.
    pub(super) fn end_iteration(&mut self, flushes: bool) -> Result<(), RankError> {
        if flushes {
            self.blocks.forget_micro_batches();
        }
        self.places.iter_mut().try_for_each(OffloadPlace::end_iteration)
    }

    /// One of the acts at a boundary.
    pub(super) fn act(&mut self, boundary: usize, act: BoundaryAct) -> Result<(), RankError> {
        self.due.due(boundary, act).to_vec().into_iter().try_for_each(|index| match act {
            BoundaryAct::Leave => self.leave(index),
            BoundaryAct::Free => self.free(index),
            BoundaryAct::Fetch => self.fetch(index),
            BoundaryAct::Settle => self.settle(index),
        })
    }

    /// Begins to copy what a block is into its pools.
    fn leave(&mut self, index: usize) -> Result<(), RankError> {
        let absence = &self.absences[index];
        let mut storages = Vec::new();
        for storage in self.blocks.of(absence)? {
            let bytes = storage.hold().map_or(0, |held| held.bytes());
            if bytes > 0 && self.storages.insert(storage.id()) {
                storages.push((storage, bytes));
            }
        }
        if !storages.is_empty() {
            let stripes = &self.stripes[absence.action];
            self.away[index] = Some(BlockAbsence::leave(storages, stripes, &mut self.places)?);
        }
        Ok(())
    }

    /// Waits until a block has left and gives its memory back.
    fn free(&mut self, index: usize) -> Result<(), RankError> {
        if let Some(away) = self.away[index].as_mut().filter(|away| away.state == BlockState::Leaving) {
            away.wait(&mut self.places)?;
            away.give_memory_back()?;
            away.state = BlockState::Gone;
            self.missing += away.bytes();
        }
        Ok(())
    }

    /// Gives a block memory again and begins to copy it back.
    fn fetch(&mut self, index: usize) -> Result<(), RankError> {
        if let Some(away) = self.away[index].as_mut().filter(|away| away.state == BlockState::Gone) {
            away.renew_memory()?;
            self.missing -= away.bytes();
            away.copy(&mut self.places, Direction::Back)?;
            away.state = BlockState::Coming;
        }
        Ok(())
    }

    /// Waits until a block is back and gives its places back.
    fn settle(&mut self, index: usize) -> Result<(), RankError> {
        if let Some(mut away) = self.away[index].take() {
            away.wait(&mut self.places)?;
            away.give_places_back(&mut self.places);
            for id in away.ids() {
                self.storages.remove(&id);
            }
        }
        Ok(())
    }

    /// Brings everything back for a moment.
    pub(super) fn lend(&mut self) -> Result<(), RankError> {
        for away in self.away.iter_mut().flatten() {
            away.wait(&mut self.places)?;
            if away.state == BlockState::Gone {
                ffi::without_host_capacity(|| away.renew_memory())?;
                away.copy(&mut self.places, Direction::Back)?;
                away.wait(&mut self.places)?;
                away.state = BlockState::Lent;
            }
        }
        Ok(())
    }

    /// Takes away again what was back for a moment, as it was.
    pub(super) fn take_back(&mut self) -> Result<(), RankError> {
        for away in self.away.iter_mut().flatten().filter(|away| away.state == BlockState::Lent) {
            away.give_memory_back()?;
            away.state = BlockState::Gone;
        }
        Ok(())
    }

    /// Forgets what was counted so far.
    pub(super) fn reset(&mut self) {
        self.places.iter_mut().for_each(OffloadPlace::reset);
    }

    /// What was counted, but for what others had here; none where nothing may leave and others have nothing here.
    ///
    /// # Errors
    /// When the device failed.
    pub(crate) fn offload(&self, hosts: bool) -> Result<Option<Offload>, RankError> {
        if !self.is_moving() && !hosts {
            return Ok(None);
        }
        let host = self.places.iter().find(|place| place.peer().is_none());
        let mut copies = self.places.iter().map(OffloadPlace::count).collect::<Result<Vec<_>, _>>()?;
        // There is a place at the host, whether anything goes there or not.
        copies.retain(|copies| copies.out_bytes > 0 || copies.in_bytes > 0);
        let host_peak = Bytes(host.map_or(0, OffloadPlace::peak));
        Ok(Some(Offload { host_peak, peer_pool_peak: Bytes::default(), copies }))
    }

    /// The most bytes that were on the device of each peer.
    pub(crate) fn peer_peaks(&self) -> Vec<(u32, u64)> {
        self.places.iter().filter_map(|place| Some((place.peer()?, place.peak()))).collect()
    }
}
