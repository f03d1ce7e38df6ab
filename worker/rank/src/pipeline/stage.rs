//! A stage: its segments, and what they hold of the micro-batches in flight.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

use loadmaster_proto::phase::Phase;
use tch::{Kind, TchError, Tensor};

use super::passes::{MicroBatch, Passes};
use super::segment::{Inputs, Kept, Segment};
use super::version::{Frame, Version};
use crate::data::Data;
use crate::error::RankError;
use crate::layers::Trained;
use crate::progress;
use crate::timing::Times;

/// What leaves a stage's forward pass.
#[derive(Debug)]
pub enum Forwarded {
    /// What the next stage takes.
    Activation(Vec<Tensor>),
    /// This pass's part of the model's loss: all parts add up to it.
    Loss(f64),
}

/// A stage of a model in training.
#[derive(Debug)]
pub struct Stage {
    pub(super) frames: Vec<Frame>,
    pub(super) newest: Rc<Version>,
    /// The version of the micro-batch that went backward last, with its gradients, until there is room for an update.
    pub(super) gone_back: Option<Rc<Version>>,
    /// Its segments for the micro-batches in each slot.
    pub(super) slots: Vec<Vec<Segment>>,
    pub(super) data: Data,
    pub(super) times: Times,
    /// The edge behind the model's last layer, where the loss is.
    pub(super) loss_edge: usize,
    /// Passes whose losses add up to the model's: one per micro-batch and replica.
    pub(super) loss_parts: f64,
    pub(super) replica: u32,
    pub(super) seed: u64,
    /// Each with the weights that it went forward with.
    pub(super) in_flight: HashMap<MicroBatch, (Rc<Version>, Vec<Kept>)>,
}

impl Stage {
    /// Its trained tensors, in the order of their layers.
    pub fn trained(&self) -> &[Trained] {
        &self.newest.trained
    }

    /// Times of its layers.
    pub fn times(&mut self) -> &mut Times {
        &mut self.times
    }

    /// Whether it takes samples instead of another stage's output.
    pub fn is_first(&self) -> bool {
        self.frames.first().is_some_and(|layer| layer.index == 0)
    }

    /// Whether it ends in the loss.
    pub fn is_last(&self) -> bool {
        self.frames.last().is_some_and(|layer| layer.index + 1 == self.loss_edge)
    }

    /// Its layers in the model.
    pub(super) fn layer_range(&self) -> RangeInclusive<usize> {
        let index = |layer: Option<&Frame>| layer.map_or(0, |layer| layer.index);
        index(self.frames.first())..=index(self.frames.last())
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
        progress::enter(Phase::Forward, self.frames.first().map(|layer| layer.index));
        let mut inputs = self.inputs(micro_batch, inputs)?;
        let version = self.newest.clone();
        let (mut passes, segments) = self.parts(&version, micro_batch);
        let mut kept = Vec::with_capacity(segments.len());
        let mut outputs = Vec::new();
        for segment in segments {
            let (values, held) = segment.forward(&mut passes, micro_batch, inputs)?;
            kept.push(held);
            // The graph ends between segments: each has a backward pass of its own.
            inputs = Inputs { tensors: detached(&values)?, want_gradients: true };
            outputs = values;
        }
        drop(inputs);
        self.in_flight.insert(micro_batch, (version, kept));
        self.forwarded(outputs)
    }

    /// What enters the first segment.
    pub(super) fn inputs(
        &self,
        micro_batch: MicroBatch,
        received: Option<Vec<Tensor>>,
    ) -> Result<Inputs, RankError> {
        Ok(match received {
            // Their gradients are what the previous stage waits for.
            Some(tensors) => Inputs { tensors, want_gradients: true },
            None => {
                let samples = self.data.samples(micro_batch.iteration, micro_batch.index)?;
                Inputs { tensors: vec![samples], want_gradients: false }
            }
        })
    }

    /// What leaves the last segment.
    pub(super) fn forwarded(&self, outputs: Vec<Tensor>) -> Result<Forwarded, RankError> {
        match (self.is_last(), outputs.as_slice()) {
            (true, [loss]) => Ok(Forwarded::Loss(loss.f_double_value(&[])?)),
            _ => Ok(Forwarded::Activation(contiguous(detached(&outputs)?)?)),
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
        progress::enter(Phase::Backward, self.frames.last().map(|layer| layer.index));
        let (version, kept) = self.in_flight.remove(&micro_batch).ok_or_else(|| {
            RankError::Other(format!("micro-batch {} has had no forward pass", micro_batch.index))
        })?;
        let mut gradients = self.gradients(gradients)?;
        let (mut passes, segments) = self.parts(&version, micro_batch);
        for (segment, held) in segments.iter().zip(kept).rev() {
            // Below the lowest trained layer there is nothing left to do.
            if gradients.is_empty() {
                break;
            }
            gradients = segment.backward(&mut passes, micro_batch, held, gradients)?;
        }
        self.gone_back = Some(version);
        handed_over(gradients)
    }

    /// The gradients of what leaves the last segment: those received, or that of the loss itself.
    pub(super) fn gradients(&self, received: Option<Vec<Tensor>>) -> Result<Vec<Tensor>, TchError> {
        match received {
            Some(gradients) => Ok(gradients),
            None => Ok(vec![Tensor::f_ones([0_i64; 0], (Kind::Float, self.data.device()))?]),
        }
    }

    pub(super) fn parts<'a>(
        &'a mut self,
        version: &'a Version,
        micro_batch: MicroBatch,
    ) -> (Passes<'a>, &'a [Segment]) {
        let slot = micro_batch.index as usize % self.slots.len().max(1);
        let passes = Passes {
            layers: &version.layers,
            data: &self.data,
            times: &mut self.times,
            seed: self.seed,
            loss_edge: self.loss_edge,
            loss_parts: self.loss_parts,
            replica: self.replica,
        };
        (passes, self.slots.get(slot).map_or(&[], Vec::as_slice))
    }
}

/// The gradients of the inputs, as the previous stage takes them.
pub(super) fn handed_over(gradients: Vec<Tensor>) -> Result<Option<Vec<Tensor>>, RankError> {
    if gradients.is_empty() { Ok(None) } else { Ok(Some(contiguous(gradients)?)) }
}

fn detached(tensors: &[Tensor]) -> Result<Vec<Tensor>, TchError> {
    tensors.iter().map(Tensor::f_detach).collect()
}

fn contiguous(tensors: Vec<Tensor>) -> Result<Vec<Tensor>, TchError> {
    tensors.into_iter().map(|tensor| tensor.f_contiguous()).collect()
}
