//! A stage: its segments, and what they hold of the micro-batches in flight.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

use loadmaster_proto::measure::failure::Phase;
use tch::{Kind, TchError, Tensor};

use super::segment::{Inputs, Kept, MicroBatch, Passes, Segment};
use super::version::{LayerFrame, Version};
use crate::data::Data;
use crate::error::RankError;
use crate::layers::Trained;
use crate::movement::Movement;
use crate::progress;
use crate::tape::defect;
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
    pub(super) frames: Vec<LayerFrame>,
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
    pub(super) in_flight: HashMap<MicroBatch, Flight>,
    pub(super) movement: Movement,
}

/// A micro-batch on its way through a stage.
#[derive(Debug)]
pub(super) struct Flight {
    /// The weights that it goes forward with.
    pub(super) version: Rc<Version>,
    /// Of each segment that it went forward through and not yet back.
    kept: Vec<Kept>,
    /// What enters the next segment of its forward pass.
    inputs: Option<Inputs>,
    /// What the next segment of its backward pass takes, once that has begun: none where nothing below is trained.
    gradients: Option<Vec<Tensor>>,
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
        let index = |layer: Option<&LayerFrame>| layer.map_or(0, |layer| layer.index);
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
        self.enter(micro_batch, inputs)?;
        loop {
            if let Some(forwarded) = self.forward_on(micro_batch)? {
                return Ok(forwarded);
            }
        }
    }

    /// A micro-batch comes with the previous stage's outputs, or with samples on the first.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn enter(&mut self, micro_batch: MicroBatch, inputs: Option<Vec<Tensor>>) -> Result<(), RankError> {
        progress::enter(Phase::Forward, self.frames.first().map(|layer| layer.index));
        let inputs = Some(self.inputs(micro_batch, inputs)?);
        let flight = Flight { version: self.newest.clone(), kept: Vec::new(), inputs, gradients: None };
        self.in_flight.insert(micro_batch, flight);
        Ok(())
    }

    /// A micro-batch goes forward through its next segment. Returns what leaves the last.
    ///
    /// # Errors
    /// Out of memory, or it has not entered.
    pub fn forward_on(&mut self, micro_batch: MicroBatch) -> Result<Option<Forwarded>, RankError> {
        let mut flight = self.flight(micro_batch)?;
        let (mut passes, segments) = self.parts(&flight.version, micro_batch);
        let next = segments.get(flight.kept.len()).zip(flight.inputs.take());
        let (segment, inputs) = next.ok_or_else(|| defect("a micro-batch passed all segments"))?;
        let (values, held) = segment.forward(&mut passes, micro_batch, inputs)?;
        flight.kept.push(held);
        let is_through = flight.kept.len() == segments.len();
        if !is_through {
            // The graph ends between segments: each has a backward pass of its own.
            flight.inputs = Some(Inputs { tensors: detached(&values)?, want_gradients: true });
        }
        self.in_flight.insert(micro_batch, flight);
        if is_through { self.forwarded(values).map(Some) } else { Ok(None) }
    }

    fn flight(&mut self, micro_batch: MicroBatch) -> Result<Flight, RankError> {
        self.in_flight.remove(&micro_batch).ok_or_else(|| {
            RankError::Other(format!("micro-batch {} has had no forward pass", micro_batch.index))
        })
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
        self.turn_back(micro_batch, gradients)?;
        while self.backward_on(micro_batch)? {}
        self.leave(micro_batch)
    }

    /// A micro-batch turns back with the gradients of its outputs, or with that of the loss on the last stage.
    ///
    /// # Errors
    /// Out of memory, or it is not in flight.
    pub fn turn_back(
        &mut self,
        micro_batch: MicroBatch,
        gradients: Option<Vec<Tensor>>,
    ) -> Result<(), RankError> {
        progress::enter(Phase::Backward, self.frames.last().map(|layer| layer.index));
        let mut flight = self.flight(micro_batch)?;
        flight.gradients = Some(self.gradients(gradients)?);
        self.in_flight.insert(micro_batch, flight);
        Ok(())
    }

    /// A micro-batch goes back through the segment that it went forward through last. Returns whether there are more.
    ///
    /// # Errors
    /// Out of memory, or it has not turned back.
    pub fn backward_on(&mut self, micro_batch: MicroBatch) -> Result<bool, RankError> {
        let mut flight = self.flight(micro_batch)?;
        let gradients =
            flight.gradients.take().ok_or_else(|| defect("a backward pass has no output gradients"))?;
        let held = flight.kept.pop();
        let (mut passes, segments) = self.parts(&flight.version, micro_batch);
        // Below the lowest trained layer there is nothing left to do.
        let next = segments.get(flight.kept.len()).zip(held).filter(|_| !gradients.is_empty());
        flight.gradients = Some(match next {
            Some((segment, held)) => segment.backward(&mut passes, micro_batch, held, gradients)?,
            None => Vec::new(),
        });
        let are_more = !flight.kept.is_empty();
        self.in_flight.insert(micro_batch, flight);
        Ok(are_more)
    }

    /// A micro-batch that went back leaves: the gradients of its inputs, none on the first stage.
    ///
    /// # Errors
    /// Out of memory, or it is not in flight.
    pub fn leave(&mut self, micro_batch: MicroBatch) -> Result<Option<Vec<Tensor>>, RankError> {
        let flight = self.flight(micro_batch)?;
        self.gone_back = Some(flight.version);
        handed_over(flight.gradients.unwrap_or_default())
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
            movement: &self.movement,
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
