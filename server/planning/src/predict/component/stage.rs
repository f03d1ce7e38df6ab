//! Playing micro-batches through a stage: what the rank holds around its layers, and when.
//!
//! It mirrors `pipeline/` of the rank, which says why; a test of real ranks compares both to the byte.

use loadmaster_proto::measure::tape::{LayerTape, Passage, Slot};
use loadmaster_proto::training::RecomputePolicy;

use super::machine::{BlockClass, BlockId, Machine, Playing, StageEnds, play_step};

/// A layer of a stage with what is played for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct StageLayer<'a> {
    pub(super) tape: &'a LayerTape,
    /// Nothing before it in its stage is trained, and the stage is the model's first.
    pub(super) untrained_input: bool,
    /// Replaces the first passage, where a gradient that the layer adds to exists already.
    pub(super) first: Option<&'a Passage>,
    /// The optimizer updates its parameters here; not those of a head that shares the embedding's.
    pub(super) updates: bool,
}

/// A stage for a replay.
#[derive(Debug, Clone)]
pub(super) struct ReplayStage<'a> {
    pub(super) layers: Vec<StageLayer<'a>>,
    pub(super) recompute: RecomputePolicy,
    /// Its input's gradient is wanted: it is not the model's first stage.
    pub(super) wants_gradient: bool,
    /// First and last layer share a weight with a layer in another stage: their gradients are exchanged.
    pub(super) exchanges: bool,
}

/// Which of an iteration's micro-batches a backward pass is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum PassTurn {
    /// The first: gradients are created.
    First,
    /// A later one: they are added to.
    Later,
}

/// What a stage holds of a micro-batch between its passes.
#[derive(Debug)]
pub(super) struct InFlight<'a> {
    /// The layers with their graphs, where these are kept.
    layers: Vec<Playing<'a>>,
    /// The inputs of each segment.
    inputs: Vec<Vec<Option<BlockId>>>,
}

impl<'a> StageLayer<'a> {
    fn passage(&self, turn: PassTurn) -> &'a Passage {
        match (turn, self.first, self.tape.untrained_input.as_deref().filter(|_| self.untrained_input)) {
            (PassTurn::First, Some(first), _) => first,
            (PassTurn::First, None, Some([first, _])) => first,
            (PassTurn::Later, _, Some([_, later])) => later,
            (PassTurn::First, None, None) => &self.tape.first,
            (PassTurn::Later, _, None) => &self.tape.later,
        }
    }
}

impl<'a> ReplayStage<'a> {
    fn playing(&self, index: usize, passage: &'a Passage) -> Playing<'a> {
        Playing::new(passage, StageEnds { first: index == 0, last: index + 1 == self.layers.len() })
    }

    /// The forward pass of a micro-batch whose backward pass will be this turn's.
    pub(super) fn forward(&self, machine: &mut Machine, turn: PassTurn) -> InFlight<'a> {
        let keeps_graph = self.recompute == RecomputePolicy::None;
        let mut layers: Vec<Playing<'a>> = Vec::with_capacity(self.layers.len());
        let mut inputs = Vec::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let passage = if keeps_graph { layer.passage(turn) } else { &layer.tape.without_graph };
            let mut playing = self.playing(index, passage);
            match layers.last_mut() {
                None => playing.play(machine, Slot::Input),
                Some(before) => connect_forward(machine, before, &mut playing),
            }
            let holds_inputs = match self.recompute {
                RecomputePolicy::None => index == 0 && self.wants_gradient,
                RecomputePolicy::Stage => index == 0,
                RecomputePolicy::Layer => true,
            };
            if holds_inputs {
                let places = playing.places(&passage.inputs);
                places.iter().flatten().for_each(|&id| machine.hold(id));
                inputs.push(places);
            }
            playing.play(machine, Slot::Forward);
            layers.push(playing);
        }
        if let Some(last) = layers.last_mut() {
            last.play(machine, Slot::Output);
        }
        if !keeps_graph {
            layers.drain(..).flat_map(Playing::left).for_each(|id| machine.release(id));
        }
        InFlight { layers, inputs }
    }

    /// The backward pass of a micro-batch. Returns the gradients of parameters that it has created.
    pub(super) fn backward(
        &self,
        machine: &mut Machine,
        micro_batch: InFlight<'a>,
        turn: PassTurn,
    ) -> Vec<BlockId> {
        let InFlight { mut layers, mut inputs } = micro_batch;
        let mut done: Vec<Playing<'a>> = Vec::with_capacity(self.layers.len());
        let count = self.layers.len();
        match self.recompute {
            RecomputePolicy::None => {
                if let Some(last) = layers.last_mut() {
                    last.play(machine, Slot::Gradient);
                }
                backward_through(machine, &mut layers, &mut done);
            }
            RecomputePolicy::Stage => {
                layers = self
                    .layers
                    .iter()
                    .enumerate()
                    .map(|(index, layer)| self.playing(index, layer.passage(turn)))
                    .collect();
                if let Some(last) = layers.last_mut() {
                    last.play(machine, Slot::Gradient);
                }
                forward_again(machine, &mut layers, inputs.first().map_or(&[], Vec::as_slice));
                backward_through(machine, &mut layers, &mut done);
            }
            RecomputePolicy::Layer => {
                for index in (0..count).rev() {
                    let mut playing = self.playing(index, self.layers[index].passage(turn));
                    match done.last_mut() {
                        None => playing.play(machine, Slot::Gradient),
                        Some(above) if above.passage().input_gradients.is_empty() => break,
                        Some(above) => connect_backward(machine, above, &mut playing),
                    }
                    let mut one = vec![playing];
                    let held = inputs.pop().unwrap_or_default();
                    forward_again(machine, &mut one, &held);
                    backward_through(machine, &mut one, &mut done);
                    held.into_iter().flatten().for_each(|id| machine.release(id));
                }
            }
        }
        inputs.into_iter().flatten().flatten().for_each(|id| machine.release(id));
        if done.len() == count
            && let Some(first) = done.last_mut()
        {
            first.play(machine, Slot::InputGradient);
        }
        // Layers below the lowest trained one keep nothing.
        layers.into_iter().flat_map(Playing::left).for_each(|id| machine.release(id));
        let left: Vec<BlockId> = done.into_iter().flat_map(Playing::left).collect();
        match turn {
            PassTurn::First => {
                left.iter().for_each(|&id| machine.reclassify(id, BlockClass::Gradient));
                left
            }
            PassTurn::Later => {
                left.into_iter().for_each(|id| machine.release(id));
                Vec::new()
            }
        }
    }

    /// The end of an iteration: `gradients` are freed after the optimizer step.
    pub(super) fn step(&self, machine: &mut Machine, gradients: Vec<BlockId>) {
        for layer in self.layers.iter().filter(|_| self.exchanges) {
            play_step(machine, &layer.tape.step, &layer.tape.step.exchange);
        }
        for layer in self.layers.iter().filter(|layer| layer.updates) {
            play_step(machine, &layer.tape.step, &layer.tape.step.update);
        }
        gradients.into_iter().for_each(|id| machine.release(id));
    }
}

/// The forward pass of a segment, done again from its held inputs.
fn forward_again<'a>(machine: &mut Machine, layers: &mut [Playing<'a>], held: &[Option<BlockId>]) {
    for index in 0..layers.len() {
        let (before, from) = layers.split_at_mut(index);
        let Some(playing) = from.first_mut() else { return };
        match before.last_mut() {
            None => playing.take_over(machine, &playing.passage().inputs, held),
            Some(before) => connect_forward(machine, before, playing),
        }
        playing.play(machine, Slot::Forward);
    }
    if let Some(last) = layers.last_mut() {
        last.pass_on(machine, &last.passage().outputs, Slot::Output);
    }
}

/// The backward pass of a segment whose last layer has the gradients of its outputs. Moves the layers
/// that it went through, from the last one on.
fn backward_through<'a>(machine: &mut Machine, layers: &mut Vec<Playing<'a>>, done: &mut Vec<Playing<'a>>) {
    let mut is_connected = true;
    while let Some(mut playing) = layers.pop() {
        if !is_connected {
            match done.last_mut().filter(|above| !above.passage().input_gradients.is_empty()) {
                Some(above) => connect_backward(machine, above, &mut playing),
                None => {
                    layers.push(playing);
                    return;
                }
            }
        }
        playing.play(machine, Slot::Backward);
        done.push(playing);
        is_connected = false;
    }
}

/// The outputs of a layer become the inputs of the next one.
fn connect_forward<'a>(machine: &mut Machine, before: &mut Playing<'a>, next: &mut Playing<'a>) {
    let outputs = &before.passage().outputs;
    next.take_over(machine, &next.passage().inputs, &before.places(outputs));
    before.pass_on(machine, outputs, Slot::Output);
}

/// The gradients of a layer's inputs become those of the outputs of the layer below.
fn connect_backward<'a>(machine: &mut Machine, above: &mut Playing<'a>, below: &mut Playing<'a>) {
    let gradients = &above.passage().input_gradients;
    below.take_over(machine, &below.passage().output_gradients, &above.places(gradients));
    above.pass_on(machine, gradients, Slot::InputGradient);
}
