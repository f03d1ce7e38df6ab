//! What is on a device of a stage in each step.

use loadmaster_proto::training::actions::{Absence, Block, StageActions, Steps};

use super::moved::{Cycle, stripes};
use super::player::Player;
use super::stored::Stored;
use crate::predict::component::machine::{BlockClass, BlockId, ClassBytes};
use crate::predict::component::stage::ReplayStage;
use crate::predict::{Away, Breakdown, MOST_BYTES, StepBytes};

/// A device of a stage, and what it does.
#[derive(Debug)]
pub(in crate::predict::component) struct Scene<'a> {
    pub(in crate::predict::component) stage: &'a ReplayStage<'a>,
    pub(in crate::predict::component) stored: Stored,
    /// What its allocator holds besides.
    pub(in crate::predict::component) overhead: u64,
    pub(in crate::predict::component) steps: &'a Steps,
    pub(in crate::predict::component) absences: &'a [Absence],
    pub(in crate::predict::component) actions: &'a StageActions,
    /// Buffers in which gradients of replicas are summed.
    pub(in crate::predict::component) synchronisation: u64,
}

/// What a device of a stage needs.
#[derive(Debug, Default)]
pub(in crate::predict::component) struct ActedShard {
    pub(in crate::predict::component) curve: Vec<StepBytes>,
    pub(in crate::predict::component) away: Vec<Away>,
    /// What is there when the iteration is over and was not when it began: nothing.
    #[cfg(test)]
    pub(in crate::predict::component) left: u64,
}

impl ActedShard {
    /// The first step of those that need most.
    pub(in crate::predict::component) fn peak(&self) -> Breakdown {
        let mut peak = Breakdown::default();
        for step in &self.curve {
            if step.most.total() > peak.total() {
                peak = step.most;
            }
        }
        peak
    }
}

/// What happens to a block at a boundary, in the order in which a boundary acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    Leave,
    Free,
    Fetch,
    Need,
}

impl Scene<'_> {
    /// Plays all steps.
    pub(in crate::predict::component) fn play(&self) -> ActedShard {
        let [weights, optimizer] = [Block::Weights, Block::Optimizer].map(|block| self.stored_bytes(block));
        let acts = self.acts();
        let mut acts = acts.iter().peekable();
        let mut blocks: Vec<Vec<BlockId>> = vec![Vec::new(); self.absences.len()];
        let mut tensors: Vec<Vec<u64>> =
            self.absences.iter().map(|of| self.stored.tensors(of.layer, of.block).to_vec()).collect();
        let mut player = Player::new(self.stage, self.steps, self.stored.first_layer, self.synchronisation);
        let mut curve = Vec::with_capacity(self.steps.all().len());
        for (index, &step) in self.steps.all().iter().enumerate() {
            while let Some(&&(_, act, absence)) = acts.peek().filter(|&&&(boundary, ..)| boundary <= index) {
                acts.next();
                let machine = &mut player.machine;
                match act {
                    Act::Leave => {
                        for id in player.blocks(&self.absences[absence]) {
                            if let Some(bytes) = player.machine.begin_to_leave(id) {
                                blocks[absence].push(id);
                                tensors[absence].push(bytes);
                            }
                        }
                    }
                    Act::Free => blocks[absence].iter().for_each(|&id| machine.leave(id)),
                    Act::Fetch => blocks[absence].iter().for_each(|&id| machine.come(id)),
                    Act::Need => blocks[absence].drain(..).for_each(|id| machine.settle(id)),
                }
            }
            player.machine.reset_peak();
            let stored = [weights[index], optimizer[index]];
            let at_boundary = self.breakdown(player.machine.held(), stored).total();
            player.play(index, step);
            curve.push(StepBytes { at_boundary, most: self.breakdown(player.machine.peak(), stored) });
        }
        let away = |(absence, tensors): (&Absence, &Vec<u64>)| {
            Away::of(*absence, tensors, stripes(self.actions, absence))
        };
        ActedShard {
            curve,
            away: self.absences.iter().zip(&tensors).map(away).collect(),
            #[cfg(test)]
            left: player.machine.held().total(),
        }
    }

    /// What boundaries do to blocks of the machine, in order.
    fn acts(&self) -> Vec<(usize, Act, usize)> {
        let of = |(index, absence): (usize, &Absence)| {
            let Absence { leaves, freed, fetched, needed, .. } = *absence;
            let points =
                [(leaves, Act::Leave), (freed, Act::Free), (fetched, Act::Fetch), (needed, Act::Need)];
            points.map(|(boundary, act)| (boundary, act, index))
        };
        let mut acts: Vec<_> = self.absences.iter().enumerate().flat_map(of).collect();
        acts.sort_unstable();
        acts
    }

    /// What a device has of its parameters or of its optimizer's state in each step.
    fn stored_bytes(&self, block: Block) -> Vec<u64> {
        let whole = match block {
            Block::Weights => self.stored.whole.parameters,
            _ => self.stored.whole.optimizer,
        };
        let mut missing = Cycle::new(self.steps.all().len());
        for absence in self.absences.iter().filter(|absence| absence.block == block) {
            let tensors = self.stored.tensors(absence.layer, block);
            let bytes = tensors.iter().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes));
            missing.add(absence.freed, absence.fetched, bytes);
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
