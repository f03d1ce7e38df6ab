//! The whole of a rank's work, from its specification to its measurement.

use std::path::Path;
use std::time::Instant;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::ledger::Ledger;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::rank::{Edges, RankSpec};
use loadmaster_proto::model::layer::Buffer;
use loadmaster_proto::phase::Phase;
use loadmaster_proto::training::StaticBytes;
use loadmaster_proto::training::schedule::Pass;
use tch::{TchError, Tensor};

use crate::collective::{gradients, operators};
use crate::error::RankError;
use crate::layers::Trained;
use crate::library;
use crate::memory::Memory;
use crate::optimizer::Stepper;
use crate::pipeline::{Forwarded, MicroBatch, Part, Stage};
use crate::progress;
use crate::tape;
use crate::timing::{Clock, median};
use crate::transport::{self, Connections, Crossing, Forms, Neighbours};

/// Trains a stage for one warm-up iteration and the measured ones.
///
/// # Errors
/// Why there is no measurement.
pub fn train(spec: &RankSpec) -> Result<Measurement, RankError> {
    library::check_version()?;
    let memory = Memory::open(&spec.device)?;
    let threads = i32::try_from(spec.threads).unwrap_or(i32::MAX);
    tch::set_num_threads(threads);
    // The first one warms up.
    let iterations = 1 + u64::from(spec.iterations) + u64::from(timing_iterations(spec, &memory));
    let passes = u64::from(spec.training.micro_batches) * 2 * iterations;
    progress::start(passes + if is_recorded(spec) { tape::PASSES } else { 0 });
    measure(spec, &memory).map_err(|error| {
        let error = operators::cause_of(error);
        let (phase, layer) = progress::whereabouts();
        memory.explain(error, phase, layer)
    })
}

/// Iterations besides the measured ones that time the layers of a device that works asynchronously. It would
/// have to be waited for at every layer meanwhile, which no real training does.
fn timing_iterations(spec: &RankSpec, memory: &Memory) -> u32 {
    const MOST: u32 = 3;
    if memory.asynchronous_device().is_some() { spec.iterations.min(MOST) } else { 0 }
}

/// Whether a tape is recorded: of layers that are trained alone.
fn is_recorded(spec: &RankSpec) -> bool {
    spec.edges == Edges::Synthetic && spec.position.stage.layer_count() == 1
}

fn measure(spec: &RankSpec, memory: &Memory) -> Result<Measurement, RankError> {
    let device = memory.device();
    // Before the parameters are made: who waits for us need not wait for those.
    let Connections { neighbours, groups } = transport::connect(spec, Forms::of(spec, device))?;
    let part = Part { config: spec.position.stage, shard: spec.shard, groups };
    let clock = Clock::new(memory.asynchronous_device());
    let stage = Stage::build(&spec.model, &part, &spec.training, device, clock)?;
    let optimizer = Stepper::new(spec.training.optimizer, stage.trained().len());
    let mut trainer = Trainer { spec, part, stage, neighbours, optimizer, clock, step_seconds: Vec::new() };

    trainer.iterate(0)?;
    trainer.check_static_bytes(memory)?;
    memory.reset_peak()?;
    let unhindered = clock.without_waiting();
    trainer.stage.times().restart(unhindered);
    trainer.step_seconds.clear();

    let mut losses = Vec::new();
    let mut seconds = Vec::new();
    for iteration in 1..=spec.iterations {
        let start = Instant::now();
        losses.extend(trainer.iterate(iteration)?);
        seconds.push((clock.now()? - start).as_secs_f64());
    }
    let counts = memory.counts()?;
    trainer.dump(spec.dump_parameters.as_deref(), |trained| Ok(Some(trained.value.shallow_clone())))?;
    let step_seconds = median(&trainer.step_seconds);
    if clock != unhindered {
        trainer.stage.times().restart(clock);
        for iteration in 1..=timing_iterations(spec, memory) {
            trainer.iterate(spec.iterations + iteration)?;
        }
    }
    let times = trainer.stage.times().typical();
    let static_bytes = trainer.static_bytes();
    let tape = if is_recorded(spec) { Some(Box::new(tape::record(&mut trainer, memory)?)) } else { None };
    // Each replica has the loss of its samples.
    if let Some(replicas) = trainer.part.replicas().filter(|_| !losses.is_empty()) {
        losses = replicas.sum(&losses, device)?;
    }
    trainer.neighbours.finish()?;

    let position = spec.position;
    Ok(Measurement {
        stage: position.stage,
        stage_index: position.stage_index,
        shard: spec.shard,
        stage_count: position.stage_count,
        solo: spec.edges == Edges::Synthetic,
        micro_batch_size: spec.training.micro_batch_size,
        in_flight: spec.training.schedule.in_flight(
            position.stage_count,
            position.stage_index,
            spec.training.micro_batches,
        ),
        peak_allocated: Bytes(counts.allocated_peak),
        recompute: spec.training.recompute,
        peak_ledger: Ledger::Allocated,
        peak_reserved: (!memory.is_exact()).then_some(Bytes(counts.reserved_peak)),
        static_bytes,
        capacity: spec.device.capacity,
        iteration_seconds: median(&seconds),
        step_seconds,
        tape,
        layers: times,
        losses,
        environment: environment(spec),
    })
}

/// A stage in training.
pub(crate) struct Trainer<'a> {
    pub(crate) spec: &'a RankSpec,
    part: Part,
    pub(crate) stage: Stage,
    pub(crate) neighbours: Box<dyn Neighbours>,
    optimizer: Stepper,
    clock: Clock,
    /// At the end of each iteration so far.
    step_seconds: Vec<f64>,
}

impl Trainer<'_> {
    /// One iteration: the passes of the schedule, then the optimizer step. Returns the loss on the last
    /// stage.
    fn iterate(&mut self, iteration: u32) -> Result<Option<f64>, RankError> {
        let position = self.spec.position;
        let training = self.spec.training;
        let mut loss = 0.0;
        for pass in
            training.schedule.passes(position.stage_count, position.stage_index, training.micro_batches)
        {
            match pass {
                Pass::Forward(index) => loss += self.forward(MicroBatch { iteration, index })?,
                Pass::Backward(index) => self.backward(MicroBatch { iteration, index })?,
            }
            progress::pass_done();
        }
        let start = self.clock.now()?;
        progress::enter(Phase::Step, None);
        self.complete_gradients()?;
        if iteration == 0 {
            self.dump(self.spec.dump_gradients.as_deref(), Trained::gradient)?;
        }
        self.update()?;
        self.step_seconds.push((self.clock.now()? - start).as_secs_f64());
        Ok(self.stage.is_last().then_some(loss))
    }

    /// The optimizer step.
    pub(crate) fn update(&mut self) -> Result<(), RankError> {
        self.optimizer.step(self.stage.trained())
    }

    fn forward(&mut self, micro_batch: MicroBatch) -> Result<f64, RankError> {
        let inputs = if self.stage.is_first() {
            None
        } else {
            progress::enter(Phase::Forward, None);
            Some(self.neighbours.receive(Crossing::Activation, micro_batch.index)?)
        };
        match self.stage.forward(micro_batch, inputs)? {
            Forwarded::Loss(loss) => Ok(loss),
            Forwarded::Activation(outputs) => {
                self.neighbours.send(Crossing::Activation, micro_batch.index, outputs)?;
                Ok(0.0)
            }
        }
    }

    fn backward(&mut self, micro_batch: MicroBatch) -> Result<(), RankError> {
        let gradients = if self.stage.is_last() {
            None
        } else {
            progress::enter(Phase::Backward, None);
            Some(self.neighbours.receive(Crossing::Gradient, micro_batch.index)?)
        };
        if let Some(gradients) = self.stage.backward(micro_batch, gradients)? {
            self.neighbours.send(Crossing::Gradient, micro_batch.index, gradients)?;
        }
        Ok(())
    }

    /// Makes the gradients those of the whole model: adds up what replicas and the other end of a tied
    /// weight have found.
    pub(crate) fn complete_gradients(&mut self) -> Result<(), RankError> {
        if let Some(replicas) = self.part.replicas() {
            gradients::sum_gradients(replicas, self.stage.trained())?;
        }
        self.add_tied_gradients()
    }

    /// First and last stage each hold a copy of a tied weight: both step with the sum of the gradients,
    /// so the copies stay equal.
    fn add_tied_gradients(&mut self) -> Result<(), RankError> {
        let Some(half) = self.stage.half_of_tied_pair(&self.spec.model) else { return Ok(()) };
        progress::enter(Phase::Step, Some(half.layer));
        let Some(mut gradient) = half.gradient()? else { return Ok(()) };
        self.neighbours.send(Crossing::TiedGradient, 0, vec![gradient.shallow_clone()])?;
        let others = self.neighbours.receive(Crossing::TiedGradient, 0)?;
        let _no_grad = tch::no_grad_guard();
        for other in others {
            drop(gradient.f_add_(&other)?);
        }
        Ok(())
    }

    /// Writes what every trained tensor has of something to a file, if that is wanted.
    fn dump(
        &self,
        path: Option<&Path>,
        of: impl Fn(&Trained) -> Result<Option<Tensor>, TchError>,
    ) -> Result<(), RankError> {
        let Some(path) = path else { return Ok(()) };
        let mut named: Vec<(String, Tensor)> = Vec::new();
        for trained in self.stage.trained() {
            if let Some(tensor) = of(trained)? {
                named.push((trained.global_name(), tensor.f_contiguous()?));
            }
        }
        Ok(Tensor::write_safetensors(&named, path)?)
    }

    /// Parameters, gradients, optimizer state and buffers by the arithmetic that the planner also uses.
    pub(crate) fn static_bytes(&self) -> StaticBytes {
        let scalars = self.stage.trained().iter().map(|trained| trained.value.numel() as u64).sum();
        let stage = self.spec.position.stage;
        let buffers = self.spec.model.stage_buffers(stage.first_layer, stage.last_layer);
        StaticBytes {
            buffers: self.spec.training.buffer_bytes(buffers.iter().map(Buffer::elements).sum()),
            ..self.spec.training.static_bytes(scalars)
        }
    }

    /// Between iterations a stage holds its parameters, optimizer state and buffers and nothing else: if the
    /// arithmetic and the allocator disagree on that, no number of this rank can be trusted.
    fn check_static_bytes(&self, memory: &Memory) -> Result<(), RankError> {
        let bytes = self.static_bytes();
        let (expected, held) = (bytes.total() - bytes.gradients, memory.counts()?.allocated);
        // A caching allocator rounds up and also holds workspaces, but can never hold less.
        if held < expected || (memory.is_exact() && held != expected) {
            return Err(RankError::Other(format!(
                "a defect: {held} bytes are held between iterations, parameters, optimizer state and buffers \
                 are {expected}"
            )));
        }
        Ok(())
    }
}

fn environment(spec: &RankSpec) -> Environment {
    Environment {
        device_kind: spec.device.kind.clone(),
        libtorch_version: library::version(),
        cuda_version: library::cuda_version(),
        driver_version: spec.device.driver_version.clone(),
        loadmaster_version: env!("CARGO_PKG_VERSION").to_owned(),
        threads: spec.threads,
        ..Environment::default()
    }
}
