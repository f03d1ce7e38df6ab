//! A stage: its segments, and what they hold of the micro-batches in flight.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use loadmaster_proto::run::Phase;
use tch::{Kind, Reduction, TchError, Tensor};

use super::segment::{Kept, Segment};
use crate::data::Data;
use crate::error::RankError;
use crate::layers::{Layer, Trained};
use crate::progress;
use crate::timing::Times;

/// One micro-batch of one iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MicroBatch {
    /// Iteration, from 0.
    pub iteration: u32,
    /// Index within the iteration.
    pub index: u32,
}

/// What leaves a stage's forward pass.
#[derive(Debug)]
pub enum Forwarded {
    /// What the next stage takes.
    Activation(Vec<Tensor>),
    /// The model's loss, divided by the number of micro-batches.
    Loss(f64),
}

/// A stage of a model in training.
#[derive(Debug)]
pub struct Stage {
    pub(super) layers: Vec<Layer>,
    pub(super) trained: Vec<Trained>,
    pub(super) segments: Vec<Segment>,
    pub(super) data: Data,
    pub(super) times: Times,
    /// The edge behind the model's last layer, where the loss is.
    pub(super) loss_edge: usize,
    pub(super) micro_batches: u32,
    pub(super) seed: u64,
    pub(super) in_flight: HashMap<MicroBatch, Vec<Kept>>,
}

/// What segments work with.
pub(super) struct Passes<'a> {
    layers: &'a [Layer],
    data: &'a Data,
    pub(super) times: &'a mut Times,
    pub(super) seed: u64,
    pub(super) loss_edge: usize,
    micro_batches: u32,
}

impl Stage {
    /// Its trained tensors, in the order of their layers.
    pub fn trained(&self) -> &[Trained] {
        &self.trained
    }

    /// Times of its layers.
    pub fn times(&mut self) -> &mut Times {
        &mut self.times
    }

    /// Whether it takes samples instead of another stage's output.
    pub fn is_first(&self) -> bool {
        self.layers.first().is_some_and(|layer| layer.index() == 0)
    }

    /// Whether it ends in the loss.
    pub fn is_last(&self) -> bool {
        self.layers.last().is_some_and(|layer| layer.index() + 1 == self.loss_edge)
    }

    /// The forward pass of a micro-batch. `inputs` are the previous stage's outputs, none on the first.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn forward(
        &mut self,
        micro_batch: MicroBatch,
        inputs: Option<Vec<Tensor>>,
    ) -> Result<Forwarded, RankError> {
        progress::enter(Phase::Forward, self.layers.first().map(Layer::index));
        let mut values = match inputs {
            // Their gradients are what the previous stage waits for.
            Some(inputs) => with_gradients(inputs)?,
            None => vec![self.data.samples(micro_batch.iteration, micro_batch.index)?],
        };
        let (mut passes, segments) = self.parts();
        let mut kept = Vec::with_capacity(segments.len());
        for (position, segment) in segments.iter().enumerate() {
            if position > 0 {
                // The graph ends between segments: each has a backward pass of its own.
                values = with_gradients(detached(&values)?)?;
            }
            let (outputs, held) = segment.forward(&mut passes, micro_batch, values)?;
            kept.push(held);
            values = outputs;
        }
        self.in_flight.insert(micro_batch, kept);
        match (self.is_last(), values.as_slice()) {
            (true, [loss]) => Ok(Forwarded::Loss(loss.f_double_value(&[])?)),
            _ => Ok(Forwarded::Activation(contiguous(detached(&values)?)?)),
        }
    }

    /// The backward pass of a micro-batch. `gradients` are those of the outputs, none on the last stage.
    /// Returns the gradients of the inputs, none on the first stage.
    ///
    /// # Errors
    /// Out of memory, or the micro-batch is not in flight.
    pub fn backward(
        &mut self,
        micro_batch: MicroBatch,
        gradients: Option<Vec<Tensor>>,
    ) -> Result<Option<Vec<Tensor>>, RankError> {
        progress::enter(Phase::Backward, self.layers.last().map(Layer::index));
        let kept = self.in_flight.remove(&micro_batch).ok_or_else(|| {
            RankError::Other(format!("micro-batch {} has had no forward pass", micro_batch.index))
        })?;
        let mut gradients = match gradients {
            Some(gradients) => gradients,
            None => vec![Tensor::f_ones([0_i64; 0], (Kind::Float, self.data.device()))?],
        };
        let (mut passes, segments) = self.parts();
        for (segment, held) in segments.iter().zip(kept).rev() {
            // Below the lowest trained layer there is nothing left to do.
            if gradients.is_empty() {
                break;
            }
            gradients = segment.backward(&mut passes, micro_batch, held, gradients)?;
        }
        if self.is_first() || gradients.is_empty() {
            return Ok(None);
        }
        Ok(Some(contiguous(gradients)?))
    }

    fn parts(&mut self) -> (Passes<'_>, &[Segment]) {
        let passes = Passes {
            layers: &self.layers,
            data: &self.data,
            times: &mut self.times,
            seed: self.seed,
            loss_edge: self.loss_edge,
            micro_batches: self.micro_batches,
        };
        (passes, &self.segments)
    }
}

fn with_gradients(tensors: Vec<Tensor>) -> Result<Vec<Tensor>, TchError> {
    tensors.into_iter().map(|tensor| tensor.f_set_requires_grad(true)).collect()
}

fn detached(tensors: &[Tensor]) -> Result<Vec<Tensor>, TchError> {
    tensors.iter().map(Tensor::f_detach).collect()
}

fn contiguous(tensors: Vec<Tensor>) -> Result<Vec<Tensor>, TchError> {
    tensors.into_iter().map(|tensor| tensor.f_contiguous()).collect()
}

impl<'a> Passes<'a> {
    /// The layers of a segment.
    pub(super) fn layers_of(&self, range: &RangeInclusive<usize>) -> &'a [Layer] {
        let first = self.layers.first().map_or(0, Layer::index);
        self.layers.get(range.start() - first..=range.end() - first).unwrap_or_default()
    }

    /// Mean cross-entropy over the last axis, divided by the number of micro-batches.
    pub(super) fn loss(&self, micro_batch: MicroBatch, outputs: Vec<Tensor>) -> Result<Tensor, RankError> {
        let Some(logits) = outputs.into_iter().next() else {
            return Err(RankError::Other("the last layer yields nothing to compare".to_owned()));
        };
        let targets = self.data.targets(micro_batch.iteration, micro_batch.index)?;
        let classes = logits.size().last().copied().unwrap_or_default();
        // In fp32 whatever the precision: a sum over a vocabulary needs it.
        let logits = logits.f_reshape([-1, classes])?.f_to_kind(Kind::Float)?;
        let loss = logits.f_cross_entropy_loss(
            &targets.f_reshape([-1])?,
            None::<&Tensor>,
            Reduction::Mean,
            -100,
            0.0,
        )?;
        Ok(loss.f_div_scalar(f64::from(self.micro_batches))?)
    }
}
