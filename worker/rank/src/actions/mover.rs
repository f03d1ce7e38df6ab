//! What happens at the boundaries between steps.

use std::collections::{BTreeMap, HashSet};

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::offload::Offload;
use loadmaster_proto::training::actions::{
    Absence, Block, Deed, Destination, StageActions, Step, Steps, Stripe,
};
use loadmaster_proto::training::boundaries::{BoundaryAct, BoundaryTable};

use super::block_absence::{BlockAbsence, BlockState};
use super::blocks::Blocks;
use super::place::OffloadPlace;
use crate::error::RankError;
use crate::ffi::{self, Direction};
use crate::tape::defect;

/// Takes blocks away from a rank's device and brings them back.
#[derive(Debug)]
pub(super) struct Mover {
    steps: Steps,
    absences: Vec<Absence>,
    /// Of each action, the place of each of its stripes; none of those that move nothing.
    stripes: Vec<Vec<(usize, Stripe)>>,
    due: BoundaryTable,
    /// The boundary of the iteration that comes next.
    next: usize,
    blocks: Blocks,
    places: Vec<OffloadPlace>,
    away: Vec<Option<BlockAbsence>>,
    /// Storages of blocks that are away.
    storages: HashSet<u64>,
    /// Bytes that are missing from the device.
    missing: u64,
    /// Layers of which it must be known which storages micro-batches hold: of which some leave, and those above, which may hold
    /// the same. To look costs each saved tensor some time.
    watched: HashSet<usize>,
    /// Whether others tell of boundaries, act by act.
    is_told: bool,
}

impl Mover {
    /// A mover of a stage's blocks to these places. `is_told` says whether others tell of boundaries, act by act.
    pub(super) fn new(
        actions: &StageActions,
        steps: Steps,
        places: Vec<OffloadPlace>,
        is_told: bool,
    ) -> Result<Self, RankError> {
        let absences = actions.absences(&steps);
        let at: BTreeMap<Option<u32>, usize> =
            places.iter().enumerate().map(|(index, place)| (place.peer(), index)).collect();
        let place = |peer: Option<u32>| at.get(&peer).copied().ok_or_else(|| defect("a pool is missing"));
        let mut stripes = Vec::with_capacity(actions.actions.len());
        for action in &actions.actions {
            stripes.push(match &action.deed {
                Deed::Recompute => Vec::new(),
                Deed::Swap(swap) => match &swap.to {
                    Destination::Host => vec![(place(None)?, Stripe { stage: 0, share: Stripe::WHOLE })],
                    Destination::Peers(peers) => peers
                        .iter()
                        .map(|&stripe| Ok((place(Some(stripe.stage))?, stripe)))
                        .collect::<Result<_, RankError>>()?,
                },
            });
        }
        let count = steps.all().len().max(1);
        let at = |index: usize| absences[index].boundaries().map(|boundary| Some(boundary % count));
        let until_needed = |index: usize| absences[index].needed - absences[index].fetched;
        let due = BoundaryTable::new((absences.len(), count), at, until_needed);
        let leave = |absence: &&Absence| matches!(absence.block, Block::Activations | Block::Inputs);
        let watched = absences.iter().filter(leave).flat_map(|absence| [absence.layer, absence.layer + 1]);
        let watched = watched.collect();
        Ok(Self {
            steps,
            away: absences.iter().map(|_| None).collect(),
            absences,
            stripes,
            due,
            next: 0,
            blocks: Blocks::default(),
            places,
            storages: HashSet::new(),
            missing: 0,
            watched,
            is_told,
        })
    }

    pub(super) fn blocks(&mut self) -> &mut Blocks {
        &mut self.blocks
    }

    /// Whether anybody asks which storages micro-batches hold of a layer.
    pub(super) fn watches(&self, layer: usize) -> bool {
        self.watched.contains(&layer)
    }

    /// Whether others tell of boundaries, act by act.
    pub(super) fn is_told(&self) -> bool {
        self.is_told
    }

    /// Whether blocks of a kind leave.
    pub(super) fn moves(&self, block: Block) -> bool {
        self.absences.iter().any(|absence| absence.block == block)
    }

    /// Bytes that are missing from the device.
    pub(super) fn missing(&self) -> u64 {
        self.missing
    }

    /// A layer's parameters were made. Those that are away when an iteration begins are from the start, so that the first
    /// one needs no more than the others.
    pub(super) fn made(&mut self, layer: usize) -> Result<(), RankError> {
        let count = self.due.boundaries();
        for index in 0..self.absences.len() {
            let Absence { block, layer: of, leaves, freed, fetched, .. } = self.absences[index];
            if (block, of) == (Block::Weights, layer) && leaves < count && fetched >= count {
                self.leave(index)?;
                if freed < count {
                    self.free(index)?;
                }
            }
        }
        Ok(())
    }

    /// The first step of a micro-batch's backward pass.
    pub(super) fn first_backward(&self, micro_batch: u32) -> Option<Step> {
        let run = self.steps.runs(self.steps.slot(micro_batch)).last()?;
        Some(if run.is_recomputed {
            Step::Again { micro_batch, layer: *run.layers.start() }
        } else {
            Step::Backward { micro_batch, layer: *run.layers.end() }
        })
    }

    /// The boundary before a step, and those before the steps that did not happen.
    pub(super) fn before(&mut self, step: Step) -> Result<(), RankError> {
        match self.steps.index_within(step, self.next.saturating_sub(1)) {
            Some(index) => self.catch_up(index + 1),
            None => Ok(()),
        }
    }

    /// An iteration is over. The boundary behind its last step is the first of the next one.
    pub(super) fn end_iteration(&mut self) -> Result<(), RankError> {
        if self.steps.turn().is_none() {
            self.catch_up_all()?;
            self.next = 0;
            self.blocks.forget_micro_batches();
        }
        self.places.iter_mut().try_for_each(OffloadPlace::count_iteration)
    }

    /// A turn of a training that never flushes is over, and the micro-batch is back that went backward in it.
    pub(super) fn end_turn(&mut self) -> Result<(), RankError> {
        let Some(steps) = self.steps.turn() else { return Ok(()) };
        self.catch_up_all()?;
        let turn = (self.next / steps.max(1)).saturating_sub(1);
        self.blocks.forget(u32::try_from(turn).unwrap_or(u32::MAX));
        if self.next == self.due.boundaries() {
            self.next = 0;
        }
        Ok(())
    }

    /// All boundaries of the iteration, or of the turn, that are left: behind the last layer that is trained, others may have a
    /// step.
    pub(super) fn catch_up_all(&mut self) -> Result<(), RankError> {
        let turn = self.steps.turn().unwrap_or_else(|| self.due.boundaries()).max(1);
        self.catch_up(self.next.div_ceil(turn) * turn)
    }

    fn catch_up(&mut self, end: usize) -> Result<(), RankError> {
        while self.next < end {
            let boundary = self.next;
            self.next += 1;
            BoundaryAct::ALL.into_iter().try_for_each(|act| self.act(boundary, act))?;
        }
        Ok(())
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

    /// What was counted, but for what others had here.
    ///
    /// # Errors
    /// When the device failed.
    pub(super) fn offload(&self) -> Result<Offload, RankError> {
        let host = self.places.iter().find(|place| place.peer().is_none());
        let mut copies = self.places.iter().map(OffloadPlace::count).collect::<Result<Vec<_>, _>>()?;
        // There is a place at the host, whether anything goes there or not.
        copies.retain(|copies| copies.out_bytes > 0 || copies.in_bytes > 0);
        let host_peak = Bytes(host.map_or(0, OffloadPlace::peak));
        Ok(Offload { host_peak, hosted_peak: Bytes::default(), copies })
    }

    /// The most bytes that were on the device of each peer.
    pub(super) fn peer_peaks(&self) -> Vec<(u32, u64)> {
        self.places.iter().filter_map(|place| Some((place.peer()?, place.peak()))).collect()
    }
}
