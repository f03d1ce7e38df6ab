//! A run of layers inside a stage that is kept or recomputed as a whole, and what it works with in a pass.

use std::ops::RangeInclusive;

use loadmaster_proto::measure::failure::Phase;
use loadmaster_proto::model::Loss;
use loadmaster_proto::training::actions::{Run, Step, Steps};
use tch::{Kind, Reduction, Tensor};

use crate::collective::vocabulary;
use crate::data::Data;
use crate::error::RankError;
use crate::ffi::{GradientCatch, GradientRoot};
use crate::layers::{ForwardKind, Layer, Split};
use crate::movement::Movement;
use crate::progress;
use crate::random::Purpose;
use crate::timing::Times;

/// What lies between the forward and the backward pass of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// All that autograd needs.
    Graph,
    /// Only the input; the rest is recomputed.
    Input,
}

/// A run of layers that is kept or recomputed as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its layers in the model.
    pub layers: RangeInclusive<usize>,
    /// What it keeps.
    pub keep: Keep,
}

impl Segment {
    /// The segments of each slot of a stage.
    pub fn of_slots(steps: &Steps) -> Vec<Vec<Self>> {
        (0..steps.slots()).map(|slot| steps.runs(slot).iter().map(Self::of).collect()).collect()
    }

    fn of(run: &Run) -> Self {
        let keep = if run.is_recomputed { Keep::Input } else { Keep::Graph };
        Self { layers: run.layers.clone(), keep }
    }
}

/// The tensors that enter a segment.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) tensors: Vec<Tensor>,
    /// Whether someone wants their gradients.
    pub(super) want_gradients: bool,
}

/// What a segment holds of one micro-batch between its passes.
#[derive(Debug)]
pub(super) struct Kept {
    /// The inputs, where the backward pass computes with them. Those whose gradients are wanted are kept
    /// in any case, as frameworks keep them.
    inputs: Option<Inputs>,
    /// What the forward pass has left of the graph, if it has made one.
    graph: Option<Graph>,
}

/// The autograd graph of one forward pass.
#[derive(Debug)]
pub(super) struct Graph {
    /// Where the backward pass starts; none where nothing is trained.
    pub(super) root: Option<GradientRoot>,
    /// Where it ends, if gradients of the inputs are wanted.
    pub(super) caught: Option<GradientCatch>,
}

impl Segment {
    /// The forward pass. Returns the outputs.
    pub(super) fn forward(
        &self,
        passes: &mut Passes<'_>,
        micro_batch: MicroBatch,
        inputs: Inputs,
    ) -> Result<(Vec<Tensor>, Kept), RankError> {
        let handles = inputs.handles();
        if self.keep == Keep::Input || inputs.want_gradients {
            let first = *self.layers.start();
            passes.movement.lock().actions.blocks.entered(micro_batch.in_steps, first, &inputs.tensors)?;
        }
        match self.keep {
            Keep::Input => {
                let outputs = self.forward_without_graph(passes, micro_batch, handles)?;
                Ok((outputs, Kept { inputs: Some(inputs), graph: None }))
            }
            Keep::Graph => {
                // What the graph alone needs is the graph's alone.
                let inputs = inputs.want_gradients.then_some(inputs);
                let (outputs, graph) =
                    self.forward_with_graph(passes, micro_batch, handles, ForwardKind::First)?;
                Ok((outputs, Kept { inputs, graph: Some(graph) }))
            }
        }
    }

    /// A forward pass that a backward pass can follow. Takes the inputs: none of them is held longer than
    /// autograd needs it.
    pub(super) fn forward_with_graph(
        &self,
        passes: &mut Passes<'_>,
        micro_batch: MicroBatch,
        inputs: Inputs,
        kind: ForwardKind,
    ) -> Result<(Vec<Tensor>, Graph), RankError> {
        let (tensors, caught) = if inputs.want_gradients {
            let (tensors, caught) = GradientCatch::of(inputs.tensors)?;
            (tensors, Some(caught))
        } else {
            (inputs.tensors, None)
        };
        passes.watch(&tensors, *self.layers.start())?;
        let outputs = self.run(passes, micro_batch, tensors, kind)?;
        let root = GradientRoot::of(&outputs)?;
        Ok((outputs, Graph { root, caught }))
    }

    /// A forward pass that leaves nothing but its outputs.
    pub(super) fn forward_without_graph(
        &self,
        passes: &mut Passes<'_>,
        micro_batch: MicroBatch,
        inputs: Inputs,
    ) -> Result<Vec<Tensor>, RankError> {
        let _no_grad = tch::no_grad_guard();
        self.run(passes, micro_batch, inputs.tensors, ForwardKind::First)
    }

    /// The backward pass. Takes the gradients of the outputs and returns those of the inputs, none where
    /// nothing below is trained.
    pub(super) fn backward(
        &self,
        passes: &mut Passes<'_>,
        micro_batch: MicroBatch,
        kept: Kept,
        gradients: Vec<Tensor>,
    ) -> Result<Vec<Tensor>, RankError> {
        let graph = match (kept.graph, &kept.inputs) {
            (Some(graph), _) => graph,
            (None, Some(inputs)) => {
                let inputs = inputs.handles();
                let (outputs, graph) =
                    self.forward_with_graph(passes, micro_batch, inputs, ForwardKind::Again)?;
                drop(outputs);
                graph
            }
            (None, None) => return Ok(Vec::new()),
        };
        self.backward_through(passes, micro_batch, graph, gradients)
    }

    /// The backward pass through a graph. Takes the gradients of the outputs.
    pub(super) fn backward_through(
        &self,
        passes: &mut Passes<'_>,
        micro_batch: MicroBatch,
        graph: Graph,
        gradients: Vec<Tensor>,
    ) -> Result<Vec<Tensor>, RankError> {
        let Graph { root, caught } = graph;
        match root {
            Some(root) => {
                let layers = (*self.layers.start(), *self.layers.end());
                let MicroBatch { index, in_steps, .. } = micro_batch;
                passes.movement.lock().before(Step::Backward { micro_batch: in_steps, layer: layers.1 })?;
                passes.times.backward(layers, (index, in_steps), || Ok(root.backward(gradients)?))?;
            }
            None => drop(gradients),
        }
        // Either all of them are reached or nothing is trained that they lead to.
        Ok(caught.and_then(GradientCatch::take).unwrap_or_default())
    }

    /// Runs the layers, and the loss after the model's last one.
    fn run(
        &self,
        passes: &mut Passes<'_>,
        micro_batch: MicroBatch,
        inputs: Vec<Tensor>,
        kind: ForwardKind,
    ) -> Result<Vec<Tensor>, RankError> {
        let phase = if kind == ForwardKind::First { Phase::Forward } else { Phase::Backward };
        let mut values = inputs;
        let mut taken = Vec::with_capacity(self.layers.clone().count());
        let mut start = passes.times.begin_pass()?;
        for layer in passes.layers_of(&self.layers) {
            let index = layer.index();
            progress::enter(phase, Some(index));
            let in_steps = micro_batch.in_steps;
            let step = match kind {
                ForwardKind::First => Step::Forward { micro_batch: in_steps, layer: index },
                ForwardKind::Again => Step::Again { micro_batch: in_steps, layer: index },
            };
            if passes.movement.lock().before(step)? {
                start = passes.times.timer().now()?;
            }
            let is_first = kind == ForwardKind::First;
            let finder = if is_first { passes.movement.lock().actions.blocks.find(index)? } else { None };
            if layer.is_random() {
                let MicroBatch { iteration, index: micro_batch, .. } = micro_batch;
                let replica = passes.replica;
                Purpose::Dropout { iteration, micro_batch, layer: index, replica }.set(passes.seed);
            }
            values = layer.forward(&values, kind)?;
            if index + 1 == passes.loss_edge {
                values = vec![passes.loss(micro_batch, values, layer.split_output())?];
            } else if index < *self.layers.end() {
                passes.watch(&values, index + 1)?;
            }
            if is_first {
                passes.movement.lock().actions.blocks.passed(in_steps, index, finder, &values)?;
            }
            let end = passes.times.timer().now()?;
            taken.push((index, start, end.clone()));
            start = end;
        }
        passes.times.let_go();
        for (layer, start, end) in taken {
            passes.times.add_forward(layer, kind, micro_batch.index, start.seconds_to(&end)?);
        }
        Ok(values)
    }
}

impl Inputs {
    /// Other handles of the same tensors.
    fn handles(&self) -> Self {
        let tensors = self.tensors.iter().map(Tensor::shallow_clone).collect();
        Self { tensors, want_gradients: self.want_gradients }
    }
}

/// One micro-batch of one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MicroBatch {
    /// Iteration, from 0.
    pub iteration: u32,
    /// Index within the iteration.
    pub index: u32,
    /// What the stage's steps call it: its index, but under PipeDream, where they restart with every micro-batch that is
    /// in flight.
    pub in_steps: u32,
}

/// What segments work with.
pub(super) struct Passes<'a> {
    pub(super) layers: &'a [Layer],
    pub(super) data: &'a Data,
    pub(super) times: &'a mut Times,
    pub(super) movement: &'a Movement,
    pub(super) seed: u64,
    pub(super) loss_edge: usize,
    pub(super) loss_parts: f64,
    pub(super) replica: u32,
}

impl<'a> Passes<'a> {
    /// The layers of a segment.
    pub(super) fn layers_of(&self, range: &RangeInclusive<usize>) -> &'a [Layer] {
        let first = self.layers.first().map_or(0, Layer::index);
        self.layers.get(range.start() - first..=range.end() - first).unwrap_or_default()
    }

    /// Notes when the gradient at this edge is complete. The first tensor is what the layer before computed;
    /// others only pass by.
    fn watch(&self, values: &[Tensor], edge: usize) -> Result<(), RankError> {
        match values.first().filter(|value| value.requires_grad()) {
            Some(value) => self.times.watch(value, edge, self.movement),
            None => Ok(()),
        }
    }

    /// Mean cross-entropy over the last axis, which may be split, or mean square of the difference, divided
    /// by the number of passes that add up to the model's.
    pub(super) fn loss(
        &mut self,
        micro_batch: MicroBatch,
        outputs: Vec<Tensor>,
        split: Option<&Split>,
    ) -> Result<Tensor, RankError> {
        let Some(logits) = outputs.into_iter().next() else {
            return Err(RankError::Other("the last layer has no output to compute the loss from".to_owned()));
        };
        // They are copied to the device, which the host waits for.
        self.times.let_go();
        let targets = self.data.targets(micro_batch.iteration, micro_batch.index)?;
        if self.data.loss() == Loss::MeanSquare {
            let targets = targets.f_to_kind(Kind::Float)?;
            let loss = logits.f_to_kind(Kind::Float)?.f_mse_loss(&targets, Reduction::Mean)?;
            return Ok(loss.f_div_scalar(self.loss_parts)?);
        }
        let classes = logits.size().last().copied().unwrap_or_default();
        // In fp32 whatever the precision: a sum over a vocabulary needs it.
        let logits = logits.f_reshape([-1, classes])?.f_to_kind(Kind::Float)?;
        let targets = targets.f_reshape([-1])?;
        let loss = match split {
            Some(Split { group, extent }) => vocabulary::cross_entropy(group, &logits, &targets, *extent)?,
            None => logits.f_cross_entropy_loss(&targets, None::<&Tensor>, Reduction::Mean, -100, 0.0)?,
        };
        Ok(loss.f_div_scalar(self.loss_parts)?)
    }
}
