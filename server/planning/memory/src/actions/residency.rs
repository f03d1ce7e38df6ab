//! What a stage holds, on its own device and elsewhere, from its blocks and the order of its steps alone.
//!
//! Bytes here are sums of blocks. Where tensors are shared between layers, or an allocator rounds, a predictor that replays
//! what a rank does says more. Plans are held to it, and what was missing is left free when it is asked once more.

use std::collections::{BTreeMap, BTreeSet};

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::training::actions::{
    Absence, Block, Destination, Optimization, Part, PeerPool, StageActions, Step, Stripe,
};
use loadmaster_proto::training::boundaries::CycleBytes;

use super::{StageBlocks, StageWork};

/// What a stage holds at most.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeakMemory {
    /// On its device, pools for others not counted.
    pub device: u64,
    /// In the host's memory at once.
    pub host: u64,
    /// On the device of each other stage at once.
    pub peers: BTreeMap<u32, u64>,
}

impl PeakMemory {
    /// What the work of a stage holds.
    pub fn of(stage: &StageBlocks, work: &StageWork, actions: &StageActions) -> Self {
        let count = work.steps.all().len();
        let mut device = CycleBytes::new(count);
        for (at, &step) in work.steps.all().iter().enumerate() {
            hold(&mut device, stage, work, step, at);
        }
        let lasting: u64 = stage.layers.iter().map(|layer| layer.lasting()).sum();
        device.add(0..count, lasting + stage.fixed);
        forget_gradients(&mut device, stage, work);
        let mut host = CycleBytes::new(count);
        let mut peers: BTreeMap<u32, CycleBytes> = BTreeMap::new();
        for absence in &work.absences {
            let bytes = bytes_of(stage, absence);
            if bytes == 0 {
                continue;
            }
            device.add(absence.at.away(), -i128::from(bytes));
            let Some(Optimization::Swap(swap)) =
                actions.actions.get(absence.action).map(|action| &action.optimization)
            else {
                continue;
            };
            let stored = absence.at.stored();
            match &swap.to {
                Destination::Host => host.add(stored, bytes),
                Destination::Peers(stripes) => {
                    for (stripe, part) in stripes.iter().zip(Stripe::split(stripes, bytes)) {
                        let pool = peers.entry(stripe.stage).or_insert_with(|| CycleBytes::new(count));
                        pool.add(stored.clone(), part);
                    }
                }
            }
        }
        let peers = peers.into_iter().map(|(stage, pool)| (stage, pool.most())).collect();
        Self { device: device.most(), host: host.most(), peers }
    }
}

/// The actions of all stages, in order, with the pools that they need.
pub(super) fn pooled(actions: impl Iterator<Item = StageActions>, held: &[&PeakMemory]) -> Vec<StageActions> {
    let of_stage = |((here, actions), own): ((u32, StageActions), &&PeakMemory)| {
        let peer_pools = |(stage, other): (u32, &&PeakMemory)| {
            let bytes = Bytes(other.peers.get(&here).copied().filter(|&bytes| bytes > 0)?);
            Some(PeerPool { stage, bytes })
        };
        let peer_pools = (0..).zip(held).filter_map(peer_pools).collect();
        StageActions { host_pool: Bytes(own.host), peer_pools, ..actions }
    };
    (0..).zip(actions).zip(held).map(of_stage).collect()
}

/// Bytes of what is away.
pub(super) fn bytes_of(stage: &StageBlocks, absence: &Absence) -> u64 {
    match absence.part {
        Part::Own => stage.bytes(absence.layer, absence.block),
        // A layer's output counts to the one that reads it.
        Part::Above => 0,
    }
}

/// Takes gradients away that are not there yet, or no more: from their update to the first pass that makes them once
/// more. Those that never leave count all the time, since some frameworks keep their memory.
fn forget_gradients(device: &mut CycleBytes, stage: &StageBlocks, work: &StageWork) {
    let leaving = work.absences.iter().filter(|one| one.block == Block::Gradients);
    for layer in leaving.map(|one| one.layer).collect::<BTreeSet<_>>() {
        let is_made = |step: &Step| matches!(*step, Step::Backward { layer: of, .. } if of == layer);
        let first = work.steps.all().iter().position(is_made);
        let updated = work.steps.index(Step::Update { layer });
        if let (true, Some(first), Some(updated)) = (work.flushes, first, updated) {
            let bytes = i128::from(stage.bytes(layer, Block::Gradients));
            device.add(0..first, -bytes);
            device.add(updated + 1..work.steps.all().len(), -bytes);
        }
    }
}

/// Adds what a step makes, for as long as it is needed.
fn hold(device: &mut CycleBytes, stage: &StageBlocks, work: &StageWork, step: Step, at: usize) {
    let until = |step| work.steps.index(step).unwrap_or(at) + 1;
    match step {
        Step::Forward { micro_batch, layer } => {
            let back = until(Step::Backward { micro_batch, layer });
            let bytes = |block| i128::from(stage.bytes(layer, block));
            device.add(at..back, bytes(Block::Versions));
            let run = work.steps.run(layer, work.steps.slot(micro_batch));
            match run.filter(|run| run.is_recomputed) {
                None => device.add(at..back, bytes(Block::Activations)),
                Some(run) => {
                    device.add(at..at + 1, bytes(Block::Activations));
                    if *run.layers.start() == layer {
                        device.add(at + 1..back, bytes(Block::Inputs));
                    }
                }
            }
        }
        Step::Again { micro_batch, layer } => {
            let back = until(Step::Backward { micro_batch, layer });
            let working = stage.layer(layer).map_or(0, |of| of.working);
            device.add(at..back, stage.bytes(layer, Block::Activations));
            device.add(back.saturating_sub(1)..back, working);
        }
        Step::Backward { .. } | Step::Renew | Step::Exchange | Step::Update { .. } => {}
    }
}
