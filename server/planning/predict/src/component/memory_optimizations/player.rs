//! Every step of an iteration, one after another.

use std::collections::HashMap;

use loadmaster_proto::chunks::residency::uses::Uses;
use loadmaster_proto::training::actions::{Absence, Block, Part, Step, Steps};

use crate::component::machine::{BlockClass, BlockId, Machine};
use crate::component::micro_batch::MicroBatch;
use crate::component::stage::{PassTurn, ReplayStage};

/// What becomes of the gradients that backward passes leave at parameters.
#[derive(Debug, Clone, Copy)]
pub(in crate::component) enum Gradients<'a> {
    /// They wait for the update.
    Wait,
    /// They are copied into chunks, which are none of the machine's blocks, and freed at the end of every step that delivers
    /// them.
    Delivered(&'a Uses),
}

/// A stage in the middle of an iteration.
#[derive(Debug)]
pub(super) struct Player<'a> {
    pub(super) machine: Machine,
    stage: &'a ReplayStage<'a>,
    /// The stage's first layer in the model: steps name layers by the model's numbers.
    first_layer: usize,
    /// Gradients live until the last of so many steps is over.
    turn: usize,
    /// What becomes of gradients.
    leaves: Gradients<'a>,
    /// The micro-batch that goes backward first: allocation traces know it beforehand. None where all of them create
    /// gradients, for the update behind their backward pass or because those of earlier ones are in chunks.
    creates: Option<u32>,
    in_flight: HashMap<u32, MicroBatch<'a>>,
    /// Gradients until the end of the iteration.
    gradients: Vec<BlockId>,
    /// Those of each layer's parameters; the player holds them itself where they are delivered.
    gradients_of: Vec<Vec<BlockId>>,
    /// Buffers in which gradients of replicas are summed.
    synchronisation: u64,
}

impl<'a> Player<'a> {
    pub(super) fn new(
        stage: &'a ReplayStage<'a>,
        steps: &Steps,
        first_layer: usize,
        synchronisation: u64,
        leaves: Gradients<'a>,
    ) -> Self {
        let backward = |(index, step): (usize, &Step)| match *step {
            Step::Backward { micro_batch, .. } => Some((index, micro_batch)),
            _ => None,
        };
        let mut backward = steps.all().iter().enumerate().filter_map(backward);
        let all_create = match leaves {
            Gradients::Wait => steps.turn().is_some(),
            Gradients::Delivered(uses) => backward.clone().all(|(index, _)| uses.delivers(index)),
        };
        let creates = backward.next().filter(|_| !all_create).map(|(_, micro_batch)| micro_batch);
        Self {
            machine: Machine::default(),
            stage,
            first_layer,
            turn: steps.turn().unwrap_or_else(|| steps.all().len()).max(1),
            leaves,
            creates,
            in_flight: HashMap::new(),
            gradients: Vec::new(),
            gradients_of: vec![Vec::new(); stage.layers.len()],
            synchronisation,
        }
    }

    /// A layer's position in the stage.
    fn position(&self, layer: usize) -> Option<usize> {
        layer.checked_sub(self.first_layer).filter(|&position| position < self.stage.layers.len())
    }

    pub(super) fn play(&mut self, index: usize, step: Step) {
        match step {
            Step::Forward { micro_batch, layer } => {
                let Some(layer) = self.position(layer) else { return };
                let turn = if self.creates(micro_batch) { PassTurn::First } else { PassTurn::Later };
                let stage = self.stage;
                self.in_flight
                    .entry(micro_batch)
                    .or_insert_with(|| MicroBatch::new(stage, stage.runs(micro_batch), turn))
                    .forward(&mut self.machine, layer);
            }
            Step::Again { micro_batch, layer } => {
                let Some(layer) = self.position(layer) else { return };
                if let Some(micro_batch) = self.in_flight.get_mut(&micro_batch) {
                    micro_batch.again(&mut self.machine, layer);
                }
            }
            Step::Backward { micro_batch, layer } => {
                if let Some(layer) = self.position(layer) {
                    self.backward(index, micro_batch, layer);
                }
            }
            // What it frees and what it makes is of the same size, and counted where weights are.
            Step::Renew => {}
            Step::Exchange => {
                let id = self.machine.allocate(self.synchronisation, BlockClass::Communication);
                self.machine.release(id);
                self.stage.exchange(&mut self.machine);
            }
            Step::Update { layer } => {
                if let Some(layer) = self.position(layer) {
                    self.stage.update(&mut self.machine, layer);
                }
            }
        }
        if (index + 1).is_multiple_of(self.turn) {
            // As trainers do: all gradients live through the whole step.
            self.gradients.drain(..).for_each(|id| self.machine.release(id));
        }
    }

    fn creates(&self, micro_batch: u32) -> bool {
        self.creates.is_none_or(|creates| creates == micro_batch)
    }

    fn backward(&mut self, index: usize, number: u32, layer: usize) {
        let creates = self.creates(number);
        let Some(micro_batch) = self.in_flight.get_mut(&number) else { return };
        micro_batch.backward(&mut self.machine, layer);
        if creates {
            self.gradients_of[layer] = match self.leaves {
                Gradients::Wait => micro_batch.gradients(layer),
                Gradients::Delivered(_) => micro_batch.give_gradients(&mut self.machine, layer),
            };
        }
        if layer == 0
            && let Some(micro_batch) = self.in_flight.remove(&number)
        {
            self.gradients.extend(micro_batch.end(&mut self.machine));
        }
        if let Gradients::Delivered(uses) = self.leaves
            && uses.delivers(index)
        {
            self.gradients_of[layer].drain(..).for_each(|id| self.machine.release(id));
        }
    }

    /// The blocks that are meant by an absence, where they leave. Parameters, their versions and what the optimizer keeps are
    /// none of the machine's.
    pub(super) fn blocks(&self, absence: &Absence) -> Vec<BlockId> {
        let Some(layer) = self.position(absence.layer) else { return Vec::new() };
        if absence.block == Block::Gradients {
            return self.gradients_of[layer].clone();
        }
        let is_of_machine = matches!(absence.block, Block::Activations | Block::Inputs);
        let number = absence.micro_batch.filter(|_| is_of_machine);
        let Some(micro_batch) = number.and_then(|number| self.in_flight.get(&number)) else {
            return Vec::new();
        };
        // A tensor at an edge is the highest layer's that holds it; what is handed on is not even that one's.
        let outputs = micro_batch.outputs(layer);
        let mut blocks = micro_batch.kept(layer);
        match absence.part {
            Part::Own => blocks.retain(|id| !outputs.contains(id)),
            Part::Above => {
                let (held, handed_on) = (micro_batch.kept(layer + 1), micro_batch.outputs(layer + 1));
                blocks.retain(|id| outputs.contains(id) && !held.contains(id) && !handed_on.contains(id));
            }
        }
        blocks
    }
}
