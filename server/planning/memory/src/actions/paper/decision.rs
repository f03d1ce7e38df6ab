//! What is done to which block, and what every device holds then.

use std::collections::BTreeMap;

use loadmaster_proto::training::actions::{Action, Block, Optimization, StageActions};

use super::{PlanError, Question};
use crate::actions::residency::pooled;
use crate::actions::simulation::{self, SimulatedIteration};
use crate::actions::{NodeDevices, PeakMemory, StageWork};
use loadmaster_simulate::copies::Keep;

/// A block of a layer, of all micro-batches alike; activations where the layer is recomputed.
pub(super) type BlockId = (usize, Block);

/// A plan in the making.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decision {
    /// By stage, its device.
    pub(super) mapping: Vec<usize>,
    /// By stage, what is done to its blocks.
    pub(super) optimizations: Vec<BTreeMap<BlockId, Optimization>>,
    held: Vec<PeakMemory>,
}

impl Decision {
    /// Every block stays.
    pub(super) fn nothing(question: &Question<'_>, mapping: &[usize]) -> Self {
        let optimizations = vec![BTreeMap::new(); question.stages.len()];
        let mut decided = Self {
            mapping: mapping.to_vec(),
            held: vec![PeakMemory::default(); optimizations.len()],
            optimizations,
        };
        (0..decided.optimizations.len()).for_each(|stage| decided.hold(question, stage));
        decided
    }

    /// Does something else to blocks of a stage; `None` lets one stay.
    pub(super) fn set(
        &mut self,
        question: &Question<'_>,
        stage: usize,
        optimizations: &[(BlockId, Option<Optimization>)],
    ) {
        let Some(all) = self.optimizations.get_mut(stage) else { return };
        for (of, optimization) in optimizations {
            match optimization {
                Some(optimization) => all.insert(*of, optimization.clone()),
                None => all.remove(of),
            };
        }
        self.hold(question, stage);
    }

    fn hold(&mut self, question: &Question<'_>, stage: usize) {
        let actions = self.actions_of(stage);
        let (Some(blocks), Some(held)) = (question.stages.get(stage), self.held.get_mut(stage)) else {
            return;
        };
        let work =
            StageWork::of(blocks, question.place(stage), question.order, question.micro_batches, &actions);
        *held = PeakMemory::of(blocks, &work, &actions);
    }

    /// What is done to a block.
    pub(super) fn optimization(&self, stage: usize, of: BlockId) -> Option<&Optimization> {
        self.optimizations.get(stage)?.get(&of)
    }

    /// Bytes of a stage's device.
    pub(super) fn peak(&self, node: &NodeDevices, stage: usize) -> u64 {
        let own = self.held.get(stage).map_or(0, |held| held.device);
        own.saturating_add(self.peer_pools(node, stage))
    }

    /// Bytes of every stage's device.
    pub(super) fn peaks(&self, node: &NodeDevices) -> Vec<u64> {
        (0..self.held.len()).map(|stage| self.peak(node, stage)).collect()
    }

    /// Bytes that others keep on a stage's device.
    fn peer_pools(&self, node: &NodeDevices, stage: usize) -> u64 {
        let here = u32::try_from(stage).unwrap_or(u32::MAX);
        let of = |(other, held): (usize, &PeakMemory)| {
            let bytes = held.peers.get(&here).copied().unwrap_or(0);
            bytes.saturating_mul(node.guests(self.device(other), self.device(stage)))
        };
        self.held.iter().enumerate().map(of).fold(0, u64::saturating_add)
    }

    /// A stage's device.
    fn device(&self, stage: usize) -> usize {
        self.mapping.get(stage).copied().unwrap_or(usize::MAX)
    }

    /// Bytes in the hosts' memory, of one device of each stage.
    pub(super) fn host(&self) -> u64 {
        self.held.iter().map(|held| held.host).sum()
    }

    /// Whether each host has the memory for all devices.
    pub(super) fn has_room_at_hosts(&self, node: &NodeDevices) -> bool {
        node.hosts_have_room(
            self.held.iter().enumerate().map(|(stage, held)| (self.device(stage), held.host)),
        )
    }

    /// Bytes that a stage's device lacks; below 0 what is free there.
    pub(super) fn lacks(&self, question: &Question<'_>, stage: usize) -> i128 {
        let capacity = question.node.capacity.get(self.device(stage)).copied().unwrap_or(0);
        i128::from(self.peak(question.node, stage)) + i128::from(question.reserve(stage))
            - i128::from(capacity)
    }

    /// Whether every device and the host have room.
    pub(super) fn fits(&self, question: &Question<'_>) -> bool {
        self.has_room_at_hosts(question.node)
            && (0..self.held.len()).all(|stage| self.lacks(question, stage) <= 0)
    }

    /// The actions of every stage, with the pools that they need.
    pub(super) fn actions(&self) -> Vec<StageActions> {
        pooled(self.without_pools().into_iter(), &self.held.iter().collect::<Vec<_>>())
    }

    /// Simulates an iteration.
    pub(super) fn simulated(
        &self,
        question: &Question<'_>,
        keep: Keep,
    ) -> Result<SimulatedIteration, PlanError> {
        SimulatedIteration::of(question, &self.mapping, &self.without_pools(), keep)
    }

    /// Seconds of an iteration.
    pub(super) fn seconds(&self, question: &Question<'_>) -> Result<f64, PlanError> {
        simulation::seconds(question, &self.mapping, &self.without_pools())
    }

    fn without_pools(&self) -> Vec<StageActions> {
        (0..self.optimizations.len()).map(|stage| self.actions_of(stage)).collect()
    }

    /// What is done, without pools. Layers next to each other with the same swap are one action.
    pub(super) fn actions_of(&self, stage: usize) -> StageActions {
        let mut by_block: BTreeMap<Block, Vec<Action>> = BTreeMap::new();
        for (&(layer, block), optimization) in self.optimizations.get(stage).into_iter().flatten() {
            let actions = by_block.entry(block).or_default();
            match actions.last_mut() {
                Some(last)
                    if last.optimization == *optimization
                        && *optimization != Optimization::Recompute
                        && last.last_layer + 1 == layer =>
                {
                    last.last_layer = layer;
                }
                _ => actions.push(Action {
                    first_layer: layer,
                    last_layer: layer,
                    slots: Vec::new(),
                    optimization: optimization.clone(),
                }),
            }
        }
        StageActions { actions: by_block.into_values().flatten().collect(), ..StageActions::default() }
    }
}
