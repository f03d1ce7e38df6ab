//! Memory optimizations: blocks that are away from the device between their uses (MPress). The crate's README has the walk.
//!
//! Which blocks, where they go and at which boundaries between steps they leave and come follows from
//! [`StageActions`](loadmaster_proto::training::actions::StageActions) alone ([`loadmaster_proto::training::actions`] is the
//! contract with the planner). Here it is done, with *storages*, the memory behind tensors: one is copied into a pool, its memory
//! is given back, and later it gets new memory and its bytes again. Handles, views and what autograd saved stay what they are and
//! notice nothing.
//!
//! | module | question |
//! |---|---|
//! | here | how does the rest of the rank tell where it is? |
//! | `mover` | what happens at a boundary? |
//! | `block_absence` | how far is a block, and where are its parts? |
//! | `blocks` | which storages is a block? |
//! | `place` | where are blocks meanwhile, and how much was moved and waited for? |
//! | `pool` | which part of a pool is whose? |
//! | `lane` | how do bytes get there without anybody waiting? |
//!
//! Boundaries of backward passes are in libtorch's hands, whose hooks carry nothing but a number: hence a static.

mod block_absence;
mod blocks;
pub(crate) mod lane;
mod mover;
mod place;
mod pool;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loadmaster_proto::measure::offload::Offload;
use loadmaster_proto::measure::rank::RankSpec;
use loadmaster_proto::training::actions::{Block, Deed, Step, Steps};
use loadmaster_proto::training::boundaries::BoundaryAct;
use tch::Tensor;

use crate::error::RankError;
use crate::ffi::{Finder, Mapping};
use crate::layers::Trained;
use crate::memory::Memory;
use lane::Ways;
use mover::Mover;
use place::OffloadPlace;

static MOVER: Mutex<Option<Mover>> = Mutex::new(None);

fn mover() -> MutexGuard<'static, Option<Mover>> {
    MOVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the mover says, or nothing where there is none.
fn with<T: Default>(act: impl FnOnce(&mut Mover) -> Result<T, RankError>) -> Result<T, RankError> {
    mover().as_mut().map_or_else(|| Ok(T::default()), act)
}

/// Begins to act as a specification wants, if it does: makes the pool of the host. `borrowed` are pools on other stages'
/// devices. Where the stage trains in chunks, `shared` are the ways on which these come and leave, and they tell of boundaries
/// ([`at_boundary`]). Before the stage is built.
///
/// # Errors
/// When the host has not so much memory.
pub(crate) fn begin(
    spec: &RankSpec,
    steps: Steps,
    borrowed: &BTreeMap<u32, Arc<Mapping>>,
    shared: Option<Ways>,
    memory: &Memory,
) -> Result<(), RankError> {
    let actions = &spec.actions;
    let moves = actions.actions.iter().any(|action| matches!(action.deed, Deed::Swap(_)));
    if !moves && actions.host_pool.0 == 0 {
        return Ok(());
    }
    let (host, gpu) = (memory.host_pool(actions.host_pool)?, memory.gpu());
    let is_told = shared.is_some();
    let ways = shared.map_or_else(|| Ways::start("host", spec.pace.host, gpu), Ok)?;
    let mut places = vec![OffloadPlace::new(None, Arc::new(host), ways)];
    for (&stage, pool) in borrowed {
        let ways = Ways::start(&format!("stage {stage}"), spec.pace.peer, gpu)?;
        places.push(OffloadPlace::new(Some(stage), pool.clone(), ways));
    }
    *mover() = Some(Mover::new(actions, steps, places, is_told)?);
    Ok(())
}

/// A layer's tensors were made.
///
/// # Errors
/// Out of memory, for one.
pub fn made(layer: usize, trained: &[Trained], buffers: &[Tensor]) -> Result<(), RankError> {
    with(|mover| {
        mover.blocks().made(layer, trained, buffers)?;
        mover.made(layer)
    })
}

/// The weights have other memory from now on, and what they had is left to these micro-batches.
///
/// # Errors
/// When libtorch refuses.
pub fn renewed(holders: &[u32], older: &[Trained], newest: &[Trained]) -> Result<(), RankError> {
    with(|mover| mover.blocks().renewed(holders, older, newest))
}

/// Whether blocks of a kind leave the device.
pub fn moves(block: Block) -> bool {
    mover().as_ref().is_some_and(|mover| mover.moves(block))
}

/// The boundary before a step. Returns whether anybody cares.
///
/// # Errors
/// Out of memory, for one.
pub fn before(step: Step) -> Result<bool, RankError> {
    with(|mover| if mover.is_told() { Ok(false) } else { mover.before(step).map(|()| true) })
}

/// One of the acts at a boundary, where chunks come and leave at the same: what of both leaves has left before anything
/// of both gets memory.
///
/// # Errors
/// Out of memory, for one.
pub(crate) fn at_boundary(boundary: usize, act: BoundaryAct) -> Result<(), RankError> {
    with(|mover| mover.act(boundary, act))
}

/// The boundary before a micro-batch's backward pass.
///
/// # Errors
/// Out of memory, for one.
pub fn before_backward(micro_batch: u32) -> Result<(), RankError> {
    with(|mover| mover.first_backward(micro_batch).map_or(Ok(()), |step| mover.before(step)))
}

/// The last step of an iteration, or of a turn, is done, but for its gradients.
///
/// # Errors
/// Out of memory, for one.
pub fn updated() -> Result<(), RankError> {
    with(Mover::catch_up_all)
}

/// A turn of a training that never flushes is over.
///
/// # Errors
/// Out of memory, for one.
pub fn end_turn() -> Result<(), RankError> {
    with(Mover::end_turn)
}

/// An iteration is over.
///
/// # Errors
/// Out of memory, for one.
pub fn end_iteration() -> Result<(), RankError> {
    with(Mover::end_iteration)
}

/// A run of a micro-batch begins with a layer and holds these inputs of it.
///
/// # Errors
/// When libtorch refuses.
pub fn entered(micro_batch: u32, layer: usize, inputs: &[Tensor]) -> Result<(), RankError> {
    with(
        |mover| {
            if mover.watches(layer) { mover.blocks().entered(micro_batch, layer, inputs) } else { Ok(()) }
        },
    )
}

/// Looks at what autograd saves in a layer, if anybody asks.
///
/// # Errors
/// When libtorch refuses.
pub fn find(layer: usize) -> Result<Option<Finder>, RankError> {
    with(|mover| Ok(if mover.watches(layer) { Some(Finder::begin()?) } else { None }))
}

/// A micro-batch has gone forward through a layer, for the first time.
///
/// # Errors
/// When libtorch refuses.
pub fn passed(
    micro_batch: u32,
    layer: usize,
    finder: Option<Finder>,
    outputs: &[Tensor],
) -> Result<(), RankError> {
    let saved = finder.map_or(Vec::new(), Finder::found);
    with(|mover| {
        if mover.watches(layer) { mover.blocks().passed(micro_batch, layer, saved, outputs) } else { Ok(()) }
    })
}

/// The optimizer has updated a tensor of a layer and keeps these.
///
/// # Errors
/// When libtorch refuses.
pub fn stepped<'a>(layer: usize, state: impl Iterator<Item = &'a Tensor>) -> Result<(), RankError> {
    with(|mover| mover.blocks().stepped(layer, state))
}

/// Does something with everything back on the device, which is not counted and to which no capacity applies.
///
/// # Errors
/// Those of what is done.
pub fn whole<T>(work: impl FnOnce() -> Result<T, RankError>) -> Result<T, RankError> {
    with(Mover::lend)?;
    let done = work()?;
    with(Mover::take_back)?;
    Ok(done)
}

/// Bytes of blocks that are missing from the device.
pub fn missing() -> u64 {
    mover().as_ref().map_or(0, Mover::missing)
}

/// Forgets what was counted so far.
pub fn reset() {
    if let Some(mover) = mover().as_mut() {
        mover.reset();
    }
}

/// The most bytes that were on the device of each peer.
pub fn peer_peaks() -> Vec<(u32, u64)> {
    mover().as_ref().map_or(Vec::new(), Mover::peer_peaks)
}

/// What was moved; none where there is nothing to move and others have nothing here.
///
/// # Errors
/// When the device failed.
pub fn offload(hosts: bool) -> Result<Option<Offload>, RankError> {
    let moved = mover().as_ref().map(Mover::offload).transpose()?;
    Ok(moved.or_else(|| hosts.then(Offload::default)))
}

/// Ends. What is away by now stays away: nothing may compute with it any more.
pub fn end() {
    *mover() = None;
}
