//! What is on a device of a stage in each step.

use loadmaster_proto::training::actions::{Absence, Block, StageActions, Steps};
use loadmaster_proto::training::boundaries::{BoundaryAct, BoundaryTable, CycleBytes};

use super::player::{Gradients, Player};
use super::resident_state::ResidentState;
use crate::component::machine::{BlockClass, BlockId, ClassBytes};
use crate::component::stage::ReplayStage;
use crate::memory_optimizations::stripes;
use crate::{Away, Breakdown, MOST_BYTES, StepBytes};

/// A device of a stage, and what it does.
#[derive(Debug)]
pub(in crate::component) struct Scene<'a> {
    pub(in crate::component) stage: &'a ReplayStage<'a>,
    pub(in crate::component) stored: ResidentState,
    /// What its allocator holds besides.
    pub(in crate::component) overhead: u64,
    pub(in crate::component) steps: &'a Steps,
    pub(in crate::component) absences: &'a [Absence],
    pub(in crate::component) actions: &'a StageActions,
    /// Buffers in which gradients of replicas are summed.
    pub(in crate::component) synchronisation: u64,
    pub(in crate::component) gradients: Gradients<'a>,
}

/// What a device of a stage needs.
#[derive(Debug, Default)]
pub(in crate::component) struct ShardMemory {
    pub(in crate::component) curve: Vec<StepBytes>,
    pub(in crate::component) away: Vec<Away>,
    /// What is there when the iteration is over and was not when it began: nothing.
    #[cfg(test)]
    pub(in crate::component) left: u64,
}

impl ShardMemory {
    /// The first step of those that need most.
    pub(in crate::component) fn peak(&self) -> Breakdown {
        let mut peak = Breakdown::default();
        for step in &self.curve {
            if step.most.total() > peak.total() {
                peak = step.most;
            }
        }
        peak
    }
}

/// Whether it is a block of the machine: others are only counted.
fn is_of_machine(absence: &Absence) -> bool {
    matches!(absence.block, Block::Activations | Block::Inputs | Block::Gradients)
}

impl Scene<'_> {
    /// Plays all steps.
    pub(in crate::component) fn play(&self) -> ShardMemory {
        let [weights, versions, optimizer] =
            [Block::Weights, Block::Versions, Block::Optimizer].map(|block| self.stored_bytes(block));
        let count = self.steps.all().len();
        // Where nothing is flushed the first time fills the pipeline.
        let times = if self.steps.turn().is_some() { 2 } else { 1 };
        let table = self.table(times);
        let mut blocks: Vec<Vec<BlockId>> = vec![Vec::new(); self.absences.len()];
        let mut tensors: Vec<Vec<u64>> =
            self.absences.iter().map(|of| self.stored.tensors(of.layer, of.block).to_vec()).collect();
        let Self { stage, steps, synchronisation, gradients, .. } = *self;
        let mut player = Player::new(stage, steps, self.stored.first_layer, synchronisation, gradients);
        let mut curve = Vec::with_capacity(self.steps.all().len());
        for (at, &step) in (0..times).flat_map(|_| self.steps.all()).enumerate() {
            let acts = BoundaryAct::ALL.into_iter();
            let due = acts.flat_map(|act| table.due(at, act).iter().map(move |index| (act, index)));
            for (act, absence) in due.map(|(act, index)| (act, index % self.absences.len())) {
                let machine = &mut player.machine;
                match act {
                    BoundaryAct::Leave => {
                        // As it leaves the last time.
                        if times > 1 && is_of_machine(&self.absences[absence]) {
                            tensors[absence].clear();
                        }
                        for id in player.blocks(&self.absences[absence]) {
                            if let Some(bytes) = player.machine.begin_to_leave(id) {
                                blocks[absence].push(id);
                                tensors[absence].push(bytes);
                            }
                        }
                    }
                    BoundaryAct::Free => blocks[absence].iter().for_each(|&id| machine.leave(id)),
                    BoundaryAct::Fetch => blocks[absence].iter().for_each(|&id| machine.come(id)),
                    BoundaryAct::Settle => blocks[absence].drain(..).for_each(|id| machine.settle(id)),
                }
            }
            player.machine.reset_peak();
            let index = at % count.max(1);
            let stored = [weights[index].saturating_add(versions[index]), optimizer[index]];
            let at_boundary = self.breakdown(player.machine.held(), stored).total();
            player.play(index, step);
            if at + count < times * count {
                continue;
            }
            curve.push(StepBytes { at_boundary, most: self.breakdown(player.machine.peak(), stored) });
        }
        let away = |(absence, tensors): (&Absence, &Vec<u64>)| {
            Away::of(*absence, tensors, stripes(self.actions, absence))
        };
        ShardMemory {
            curve,
            away: self.absences.iter().zip(&tensors).map(away).collect(),
            #[cfg(test)]
            left: player.machine.held().total(),
        }
    }

    /// What boundaries do to blocks of the machine, where the steps are done so many times. Those of each time are as many as there
    /// are absences.
    fn table(&self, times: usize) -> BoundaryTable {
        let (count, absences) = (self.steps.all().len(), self.absences.len());
        let at = |index: usize| {
            let at = self.absences[index % absences].at.map(|boundary| index / absences * count + boundary);
            at.boundaries().map(|boundary| Some(boundary).filter(|&boundary| boundary < times * count))
        };
        BoundaryTable::new((times * absences, times * count), at, |index| index)
    }

    /// What a device has of its parameters, of their older versions, or of its optimizer's state in each step.
    fn stored_bytes(&self, block: Block) -> Vec<u64> {
        let whole = self.stored.all(block);
        let mut missing = CycleBytes::new(self.steps.all().len());
        for absence in self.absences.iter().filter(|absence| absence.block == block) {
            let tensors = self.stored.tensors(absence.layer, block);
            let bytes = tensors.iter().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes));
            missing.add(absence.at.away(), bytes);
        }
        missing.sums().into_iter().map(|missing| whole.saturating_sub(missing)).collect()
    }

    fn breakdown(&self, held: ClassBytes, [weights, optimizer]: [u64; 2]) -> Breakdown {
        let part = |class: BlockClass| held.of(class).min(MOST_BYTES);
        Breakdown {
            weights: weights.saturating_add(self.stored.whole.buffers).min(MOST_BYTES),
            gradients: part(BlockClass::Gradient),
            optimizer: optimizer.min(MOST_BYTES),
            activations: part(BlockClass::Activation),
            edges: part(BlockClass::Edge),
            communication: part(BlockClass::Communication),
            transient: part(BlockClass::Transient),
            overhead: self.overhead.min(MOST_BYTES),
        }
    }
}
