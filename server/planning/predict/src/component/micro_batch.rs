//! One micro-batch on its way through a stage, a layer at a time: what the rank holds of it around its layers, and when.
//!
//! It mirrors `pipeline/` of the rank, which says why; a test of real ranks compares both to the byte.

use loadmaster_proto::measure::trace::Slot;
use loadmaster_proto::training::actions::Run;

use super::machine::{BlockClass, BlockId, Machine};
use super::playing::Playing;
use super::stage::{PassTurn, ReplayStage};

/// What a stage holds of a micro-batch.
#[derive(Debug)]
pub(super) struct MicroBatch<'a> {
    stage: &'a ReplayStage<'a>,
    runs: &'a [Run],
    turn: PassTurn,
    /// Each layer with what it has of its blocks.
    layers: Vec<Option<Playing<'a>>>,
    /// The outputs of each layer, when it has gone forward.
    outputs: Vec<Vec<BlockId>>,
    /// The inputs of each run, at its first layer.
    held: Vec<Vec<Option<BlockId>>>,
    /// The lowest layer that went backward; as many as there are before any has.
    reached: usize,
    /// Nothing below the last layer that went backward is trained.
    is_over: bool,
}

impl ReplayStage<'_> {
    /// The forward pass of the first slot's micro-batch whose backward pass will be this turn's.
    pub(super) fn forward<'s>(&'s self, machine: &mut Machine, turn: PassTurn) -> MicroBatch<'s> {
        let mut micro_batch = MicroBatch::new(self, self.runs(0), turn);
        (0..self.layers.len()).for_each(|layer| micro_batch.forward(machine, layer));
        micro_batch
    }

    /// The backward pass of a micro-batch of the first slot. Returns the gradients of parameters that it has created.
    pub(super) fn backward(&self, machine: &mut Machine, mut micro_batch: MicroBatch<'_>) -> Vec<BlockId> {
        for run in self.runs(0).iter().rev() {
            if run.is_recomputed {
                run.layers.clone().for_each(|layer| micro_batch.again(machine, layer));
            }
            run.layers.clone().rev().for_each(|layer| micro_batch.backward(machine, layer));
        }
        micro_batch.end(machine)
    }
}

impl<'a> MicroBatch<'a> {
    pub(super) fn new(stage: &'a ReplayStage<'a>, runs: &'a [Run], turn: PassTurn) -> Self {
        let count = stage.layers.len();
        Self {
            stage,
            runs,
            turn,
            layers: std::iter::repeat_with(|| None).take(count).collect(),
            outputs: vec![Vec::new(); count],
            held: vec![Vec::new(); count],
            reached: count,
            is_over: false,
        }
    }

    fn run(&self, index: usize) -> Option<&'a Run> {
        self.runs.iter().find(|run| run.layers.contains(&index))
    }

    /// What autograd saved in the forward pass of a layer whose graph is kept, and the inputs of the run that begins
    /// with it, where it holds them.
    pub(super) fn kept(&self, index: usize) -> Vec<BlockId> {
        let is_kept = self.run(index).is_some_and(|run| !run.is_recomputed);
        let playing = self.layers.get(index).and_then(Option::as_ref).filter(|_| is_kept);
        let saved = playing.map(|playing| playing.places(&playing.passage().saved)).unwrap_or_default();
        saved.into_iter().chain(self.held.get(index).into_iter().flatten().copied()).flatten().collect()
    }

    /// The outputs of a layer that has gone forward, or of none.
    pub(super) fn outputs(&self, index: usize) -> &[BlockId] {
        self.outputs.get(index).map_or(&[], Vec::as_slice)
    }

    /// Whether the backward pass of a layer has created the gradients of its parameters.
    fn has_created(&self, index: usize) -> bool {
        self.turn == PassTurn::First && index >= self.reached
    }

    /// The gradients of a layer's parameters that its backward pass has created.
    pub(super) fn gradients(&self, index: usize) -> Vec<BlockId> {
        let playing = self.layers.get(index).and_then(Option::as_ref).filter(|_| self.has_created(index));
        playing.map_or_else(Vec::new, |playing| playing.live(playing.passage().left()).collect())
    }

    /// The same, which are the caller's to release from then on.
    pub(super) fn give_gradients(&mut self, machine: &mut Machine, index: usize) -> Vec<BlockId> {
        let has_created = self.has_created(index);
        let playing = self.layers.get_mut(index).and_then(Option::as_mut).filter(|_| has_created);
        let given = playing.map_or_else(Vec::new, |playing| playing.give_left(machine));
        given.iter().for_each(|&id| machine.reclassify(id, BlockClass::Gradient));
        given
    }

    /// Its forward pass through a layer.
    pub(super) fn forward(&mut self, machine: &mut Machine, index: usize) {
        let Some(run) = self.run(index) else { return };
        let passage = if run.is_recomputed {
            &self.stage.layers[index].trace.without_graph
        } else {
            self.stage.passage(index, self.turn, run)
        };
        let mut playing = self.stage.playing(index, passage);
        match index.checked_sub(1).and_then(|below| self.layers[below].as_mut()) {
            None => playing.play(machine, Slot::Input),
            Some(before) => connect_forward(machine, before, &mut playing),
        }
        // A run holds its input where a gradient of it is needed. That is so for each input from another run.
        let wants = run.is_recomputed || index > 0 || self.stage.wants_gradient;
        if wants && *run.layers.start() == index {
            let places = playing.places(&passage.inputs);
            places.iter().flatten().for_each(|&id| machine.hold(id));
            self.held[index] = places;
        }
        playing.play(machine, Slot::Forward);
        self.outputs[index] = playing.places(&passage.outputs).into_iter().flatten().collect();
        let is_last = index + 1 == self.layers.len();
        if is_last {
            playing.play(machine, Slot::Output);
        }
        self.layers[index] = Some(playing);
        if is_last {
            self.forget_recomputed(machine);
        }
    }

    /// What has no graph leaves nothing.
    fn forget_recomputed(&mut self, machine: &mut Machine) {
        for layer in self.runs.iter().filter(|run| run.is_recomputed).flat_map(|run| run.layers.clone()) {
            let playing = self.layers.get_mut(layer).and_then(Option::take);
            playing.into_iter().flat_map(Playing::left).for_each(|id| machine.release(id));
        }
    }

    /// Its forward pass once more, where the backward pass of the layer's run begins.
    pub(super) fn again(&mut self, machine: &mut Machine, index: usize) {
        let Some(run) = self.run(index) else { return };
        let (begins, ends) = (*run.layers.start() == index, *run.layers.end() == index);
        if begins {
            for layer in run.layers.clone() {
                let passage = self.stage.passage(layer, self.turn, run);
                self.layers[layer] = Some(self.stage.playing(layer, passage));
            }
            // The gradient of its outputs waits meanwhile.
            self.receive(machine, *run.layers.end());
        }
        if self.is_over {
            return;
        }
        let (before, from) = self.layers.split_at_mut(index);
        let Some(Some(playing)) = from.first_mut() else { return };
        match before.last_mut() {
            Some(Some(before)) if !begins => connect_forward(machine, before, playing),
            _ => playing.take_over(machine, &playing.passage().inputs, &self.held[index]),
        }
        playing.play(machine, Slot::Forward);
        if ends {
            playing.pass_on(machine, &playing.passage().outputs, Slot::Output);
        }
    }

    /// Its backward pass through a layer.
    pub(super) fn backward(&mut self, machine: &mut Machine, index: usize) {
        let Some(run) = self.run(index) else { return };
        if !(run.is_recomputed && *run.layers.end() == index) {
            self.receive(machine, index);
        }
        if let Some(playing) = self.layers[index].as_mut().filter(|_| !self.is_over) {
            playing.play(machine, Slot::Backward);
            self.reached = index;
        }
        if *run.layers.start() == index {
            self.held[index].drain(..).flatten().for_each(|id| machine.release(id));
        }
        if let (0, Some(first)) = (self.reached, self.layers[0].as_mut()) {
            first.play(machine, Slot::InputGradient);
        }
    }

    /// A layer receives the gradients of its outputs.
    fn receive(&mut self, machine: &mut Machine, index: usize) {
        let (until, above) = self.layers.split_at_mut(index + 1);
        let Some(Some(playing)) = until.last_mut().filter(|_| !self.is_over) else { return };
        match above.first_mut() {
            None => playing.play(machine, Slot::Gradient),
            Some(Some(above)) if !above.passage().input_gradients.is_empty() => {
                connect_backward(machine, above, playing);
            }
            // Below the lowest trained layer there is nothing left to do.
            Some(_) => self.is_over = true,
        }
    }

    /// Behind its last step. Returns the gradients of parameters that it has created.
    pub(super) fn end(self, machine: &mut Machine) -> Vec<BlockId> {
        let mut created = Vec::new();
        for (index, playing) in self.layers.into_iter().enumerate() {
            let left = playing.into_iter().flat_map(Playing::left);
            if self.turn == PassTurn::First && index >= self.reached {
                created.extend(left.inspect(|&id| machine.reclassify(id, BlockClass::Gradient)));
            } else {
                left.for_each(|id| machine.release(id));
            }
        }
        created
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
