//! A stage in training: its iterations, and what it holds between them.

use std::path::Path;
use std::time::Instant;

use loadmaster_proto::measure::failure::Phase;
use loadmaster_proto::measure::rank::RankSpec;
use loadmaster_proto::model::layer::Buffer;
use loadmaster_proto::training::StaticBytes;
use loadmaster_proto::training::actions::Step;
use loadmaster_proto::training::schedule::{Endless, Pass};
use loadmaster_proto::training::sharding::scalars_of_part;
use tch::{TchError, Tensor};

use crate::clock::{Clock, Timer};
use crate::collective::sum_gradients;
use crate::error::RankError;
use crate::layers::Trained;
use crate::memory::Memory;
use crate::movement::Movement;
use crate::movement::chunks::ChunkRun;
use crate::optimizer::Stepper;
use crate::pipeline::{Forwarded, MicroBatch, Share, Stage};
use crate::progress;
use crate::transport::{Crossing, Neighbours};

/// A stage in training.
pub(super) struct Trainer<'a> {
    pub(super) spec: &'a RankSpec,
    pub(super) share: Share,
    pub(super) stage: Stage,
    pub(super) neighbours: Box<dyn Neighbours>,
    /// Where it never flushes.
    pub(super) endless: Option<Endless>,
    pub(super) optimizer: Stepper,
    pub(super) movement: Movement,
    /// At the end of each iteration so far, or behind each backward pass, but for what the other end of a tied weight is
    /// told: that is a transfer.
    pub(super) step_seconds: Vec<f64>,
}

impl Trainer<'_> {
    /// One iteration: the passes of the schedule, then the optimizer step; under PipeDream a step behind each backward
    /// pass. Returns the loss on the last stage.
    pub(super) fn iterate(&mut self, iteration: u32) -> Result<Option<f64>, RankError> {
        if let Some(endless) = self.endless {
            let losses = self.go_on(endless, &endless.passes(iteration))?;
            self.movement.lock().end_iteration()?;
            // Each is the mean over its micro-batch.
            let loss = losses / f64::from(endless.micro_batches);
            return Ok(self.stage.is_last().then_some(loss));
        }
        if self.spec.chunks.is_some() {
            return self.iterate_in_chunks(iteration);
        }
        let position = self.spec.position;
        let training = self.spec.training;
        let mut loss = 0.0;
        let of = |index: u32| MicroBatch { iteration, index, in_steps: index };
        for pass in
            training.schedule.passes(position.stage_count, position.stage_index, training.micro_batches)
        {
            match pass {
                Pass::Forward(index) => loss += self.forward(of(index), index)?,
                Pass::Backward(index) => self.backward(of(index), index)?,
            }
            progress::pass_done();
        }
        self.step(iteration == 0)?;
        self.movement.lock().end_iteration()?;
        Ok(self.stage.is_last().then_some(loss))
    }

    /// The same in chunks: pass by pass, each of one layer. Chunks are updated beside them.
    fn iterate_in_chunks(&mut self, iteration: u32) -> Result<Option<f64>, RankError> {
        let last = self.spec.position.stage.last_layer;
        let of = |index: u32| MicroBatch { iteration, index, in_steps: index };
        let mut loss = 0.0;
        let movement = self.movement.clone();
        let steps = movement.steps();
        for &step in steps.all() {
            match step {
                Step::Forward { micro_batch, layer } => {
                    movement.lock().before(step)?;
                    if layer == 0 {
                        self.stage.enter(of(micro_batch), None)?;
                    }
                    if let Some(Forwarded::Loss(part)) = self.stage.forward_on(of(micro_batch))? {
                        loss += part;
                        progress::pass_done();
                    }
                }
                // With the backward pass that it is for, which has a boundary of its own behind it.
                Step::Again { .. } => {}
                Step::Backward { micro_batch, layer } => {
                    let is_again =
                        steps.run(layer, steps.slot(micro_batch)).is_some_and(|run| run.is_recomputed);
                    let first = if is_again { Step::Again { micro_batch, layer } } else { step };
                    movement.lock().before(first)?;
                    if layer == last {
                        self.stage.turn_back(of(micro_batch), None)?;
                    }
                    let are_more = self.stage.backward_on(of(micro_batch))?;
                    // Where nothing was to be done the boundaries are still there.
                    movement.lock().before(step)?;
                    movement.lock().went_backward(step)?;
                    if !are_more {
                        drop(self.stage.leave(of(micro_batch))?);
                        progress::pass_done();
                    }
                }
                Step::Renew | Step::Exchange | Step::Update { .. } => {}
            }
        }
        movement.lock().end_iteration()?;
        if let Some(path) = self.spec.dump_gradients.as_deref().filter(|_| iteration == 0) {
            let gradients = movement.lock().chunks.as_mut().map(ChunkRun::take_gradients);
            Tensor::write_safetensors(&gradients.unwrap_or_default(), path)?;
        }
        Ok(self.stage.is_last().then_some(loss))
    }

    /// The same, and the seconds until all of it is done.
    pub(super) fn iterate_timed(
        &mut self,
        iteration: u32,
        clock: Clock,
    ) -> Result<(Option<f64>, f64), RankError> {
        let start = Instant::now();
        let loss = self.iterate(iteration)?;
        Ok((loss, (clock.now()? - start).as_secs_f64()))
    }

    /// The end of a training: of PipeDream the passes behind its last iteration.
    pub(super) fn finish(&mut self) -> Result<(), RankError> {
        if let Some(endless) = self.endless {
            self.go_on(endless, &endless.rest())?;
        }
        Ok(())
    }

    /// Passes of an endless training, whose micro-batches are counted from its start. Returns the sum of their losses.
    fn go_on(&mut self, endless: Endless, passes: &[Pass]) -> Result<f64, RankError> {
        let (each, in_flight) = (endless.micro_batches.max(1), endless.in_flight());
        let of = |number: u32| MicroBatch {
            iteration: number / each,
            index: number % each,
            in_steps: number % in_flight,
        };
        let mut losses = 0.0;
        for &pass in passes {
            match pass {
                Pass::Forward(number) => {
                    losses += self.forward(of(number), number)?;
                    if endless.fills(number) {
                        self.stage.renew_without_update()?;
                        self.movement.lock().end_turn()?;
                    }
                }
                Pass::Backward(number) => {
                    self.backward(of(number), number)?;
                    progress::enter(Phase::Step, None);
                    self.stage.renew()?;
                    self.step(number == 0)?;
                    self.movement.lock().end_turn()?;
                }
            }
            progress::pass_done();
        }
        Ok(losses)
    }

    /// The gradients are completed, and written where it is the first time, and the optimizer steps.
    fn step(&mut self, is_first: bool) -> Result<(), RankError> {
        let timer = self.stage.times().timer().clone();
        let start = timer.now()?;
        progress::enter(Phase::Step, None);
        self.sum_over_replicas()?;
        let summed = timer.now()?;
        self.add_tied_gradients()?;
        if is_first && self.spec.dump_gradients.is_some() {
            self.gather_gradients(self.stage.trained())?;
            self.dump(self.spec.dump_gradients.as_deref(), Trained::gradient)?;
        }
        let gate = timer.gate()?;
        let complete = timer.now()?;
        self.update()?;
        drop(gate);
        let seconds = start.seconds_to(&summed)? + complete.seconds_to(&timer.now()?)?;
        self.step_seconds.push(seconds);
        Ok(())
    }

    /// Forgets what was timed, and goes on with this timer.
    pub(super) fn restart_times(&mut self, timer: Timer) {
        self.stage.times().restart(timer);
        self.step_seconds.clear();
    }

    /// The optimizer step.
    pub(super) fn update(&mut self) -> Result<(), RankError> {
        self.optimizer.step(self.stage.trained(), &self.movement)
    }

    /// Makes gradients whole of which each replica has the sum of its part.
    fn gather_gradients(&self, of: &[Trained]) -> Result<(), RankError> {
        let Some(division) = self.optimizer.division() else { return Ok(()) };
        division.all_gather(&gradients(of)?)
    }

    /// The number is what neighbours call the micro-batch by.
    fn forward(&mut self, micro_batch: MicroBatch, number: u32) -> Result<f64, RankError> {
        let layer = self.spec.position.stage.first_layer;
        self.movement.lock().before(Step::Forward { micro_batch: micro_batch.in_steps, layer })?;
        let inputs = if self.stage.is_first() {
            None
        } else {
            progress::enter(Phase::Forward, None);
            Some(self.neighbours.receive(Crossing::Activation, number)?)
        };
        match self.stage.forward(micro_batch, inputs)? {
            Forwarded::Loss(loss) => Ok(loss),
            Forwarded::Activation(outputs) => {
                self.neighbours.send(Crossing::Activation, number, outputs)?;
                Ok(0.0)
            }
        }
    }

    fn backward(&mut self, micro_batch: MicroBatch, number: u32) -> Result<(), RankError> {
        self.movement.lock().before_backward(micro_batch.in_steps)?;
        let gradients = if self.stage.is_last() {
            None
        } else {
            progress::enter(Phase::Backward, None);
            Some(self.neighbours.receive(Crossing::Gradient, number)?)
        };
        if let Some(gradients) = self.stage.backward(micro_batch, gradients)? {
            self.neighbours.send(Crossing::Gradient, number, gradients)?;
        }
        Ok(())
    }

    /// Makes the gradients those of the whole model: adds up what replicas and the other end of a tied
    /// weight have found.
    pub(super) fn complete_gradients(&mut self) -> Result<(), RankError> {
        self.sum_over_replicas()?;
        self.add_tied_gradients()
    }

    fn sum_over_replicas(&mut self) -> Result<(), RankError> {
        self.movement.lock().before(Step::Exchange)?;
        if let Some(replicas) = self.share.replicas() {
            let gradients = gradients(self.stage.trained())?;
            match self.optimizer.division() {
                Some(division) => division.reduce_scatter(&gradients)?,
                None => sum_gradients(replicas, gradients)?,
            }
        }
        Ok(())
    }

    /// First and last stage each hold a copy of a tied weight: both step with the sum of the gradients,
    /// so the copies stay equal.
    fn add_tied_gradients(&mut self) -> Result<(), RankError> {
        let Some(half) = self.stage.half_of_tied_pair(&self.spec.model) else { return Ok(()) };
        progress::enter(Phase::Step, Some(half.layer));
        // The other end may divide it otherwise.
        self.gather_gradients(std::slice::from_ref(half))?;
        let Some(mut gradient) = half.gradient()? else { return Ok(()) };
        self.neighbours.send(Crossing::TiedGradient, 0, vec![gradient.shallow_clone()])?;
        let others = self.neighbours.receive(Crossing::TiedGradient, 0)?;
        let _no_grad = tch::no_grad_guard();
        for other in others {
            drop(gradient.f_add_(&other)?);
        }
        Ok(())
    }

    /// Writes the weights to a file, if that is wanted.
    pub(super) fn dump_parameters(&self) -> Result<(), RankError> {
        let path = self.spec.dump_parameters.as_deref();
        if let (Some(path), Some(chunks)) = (path, &self.movement.lock().chunks) {
            return Ok(Tensor::write_safetensors(&chunks.parameters()?, path)?);
        }
        self.dump(path, |trained| Ok(Some(trained.value.shallow_clone())))
    }

    /// Writes what every trained tensor has of something to a file, if that is wanted.
    pub(super) fn dump(
        &self,
        path: Option<&Path>,
        of: impl Fn(&Trained) -> Result<Option<Tensor>, TchError>,
    ) -> Result<(), RankError> {
        let Some(path) = path else { return Ok(()) };
        self.movement.whole(|| {
            let mut named: Vec<(String, Tensor)> = Vec::new();
            for trained in self.stage.trained() {
                if let Some(tensor) = of(trained)? {
                    named.push((trained.global_name(), tensor.f_contiguous()?));
                }
            }
            Ok(Tensor::write_safetensors(&named, path)?)
        })
    }

    /// Parameters, gradients, optimizer state and buffers by the arithmetic that the planner also uses.
    pub(super) fn static_bytes(&self) -> StaticBytes {
        let sizes = || self.stage.trained().iter().map(|trained| trained.value.numel() as u64);
        let updated = scalars_of_part(sizes(), self.share.updated());
        let stage = self.spec.position.stage;
        let buffers = self.spec.model.stage_buffers(stage.first_layer, stage.last_layer);
        let buffers = self.spec.training.buffer_bytes(buffers.iter().map(Buffer::elements).sum());
        // What is in chunks comes and goes.
        let own = if self.spec.chunks.is_some() {
            StaticBytes::default()
        } else {
            self.spec.training.sharded_bytes(sizes().sum(), updated)
        };
        StaticBytes { buffers, ..own }
    }

    /// Between iterations a stage holds its parameters, optimizer state and buffers, less what of them is away, and
    /// what it has set aside for others, and nothing else. If the arithmetic and the allocator disagree on that, no number
    /// of this rank can be trusted.
    pub(super) fn check_static_bytes(&self, memory: &Memory, set_aside: u64) -> Result<(), RankError> {
        let (bytes, mover) = (self.static_bytes(), self.movement.lock());
        let own = bytes.total() - bytes.gradients + mover.chunks.as_ref().map_or(0, ChunkRun::resting_bytes);
        let expected = (own + set_aside).saturating_sub(mover.actions.missing());
        let held = memory.counts()?.allocated;
        // A caching allocator rounds up and also holds workspaces, but can never hold less.
        if held < expected || (memory.is_exact() && held != expected) {
            return Err(RankError::Other(format!(
                "a defect: {held} bytes are allocated between iterations. Parameters, optimizer state, buffers and \
                 pools for other stages have {expected} bytes"
            )));
        }
        Ok(())
    }
}

/// The gradients of these tensors, of those that have one.
fn gradients(of: &[Trained]) -> Result<Vec<Tensor>, RankError> {
    let mut gradients = Vec::with_capacity(of.len());
    for trained in of {
        gradients.extend(trained.gradient()?);
    }
    Ok(gradients)
}
