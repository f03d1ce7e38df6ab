//! Training of a stage, from the specification to the measurement.
//!
//! A rank runs one warm-up iteration, which creates the optimizer state, and then the measured ones. A stage of one layer that is
//! trained alone runs one more iteration, which records the allocation trace ([`record`]). The seconds of a pass are the median
//! over iterations for each micro-batch, and the mean over micro-batches.
//!
//! Hooks on the gradients at layer edges time the backward
//! pass without cutting the graph. A GPU times its own passes (`clock`). On CPU slots the rank then measures the contention with
//! other slots and copies ([`contention`]); ranks of one host take turns for it.
//!
//! Under PipeDream an iteration is a number of micro-batches, and nothing is flushed. Measured ones begin once the pipeline is as
//! full as in the long run, and end before it drains.

mod contention;
mod record;
mod trainer;

use contention::{Contention, CoreLock};
use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::rank::{Edges, RankSpec};
use loadmaster_proto::measure::run::SoloStage;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::schedule::Endless;
use trainer::Trainer;

use crate::clock::{Clock, Timer};
use crate::collective::operators;
use crate::connections::{self, Connections};
use crate::error::RankError;
use crate::memory::Memory;
use crate::movement::Movement;
use crate::movement::actions::BlockMover;
use crate::movement::chunks::ChunkRun;
use crate::optimizer::Stepper;
use crate::pipeline::{Share, Stage};
use crate::spec::is_alone;
use crate::timing::median;
use crate::transport::Forms;
use crate::{library, progress};

/// Trains a stage for one warm-up iteration and the measured ones.
///
/// # Errors
/// Why there is no measurement.
pub fn train(spec: &RankSpec) -> Result<Measurement, RankError> {
    library::check_version()?;
    let memory = Memory::open(&spec.device)?;
    let threads = i32::try_from(spec.threads).unwrap_or(i32::MAX);
    tch::set_num_threads(threads);
    let iterations = iterations(spec, &memory);
    let micro_batches = match endless(spec, iterations) {
        Some(endless) => endless.total().into(),
        None => u64::from(spec.training.micro_batches) * u64::from(iterations),
    };
    let passes = 2 * micro_batches;
    progress::start(passes + if is_recorded(spec) { record::PASSES } else { 0 });
    measure(spec, &memory).map_err(|error| {
        let error = operators::cause_of(error);
        let (phase, layer) = progress::whereabouts();
        memory.explain(error, phase, layer)
    })
}

/// Iterations besides the measured ones in which a GPU times its layers. It is held up meanwhile until it was given a
/// pass, which no real training does.
fn timing_iterations(spec: &RankSpec, memory: &Memory) -> u32 {
    const MOST: u32 = 3;
    if memory.gpu().is_some() { spec.iterations.min(MOST) } else { 0 }
}

/// Whether iterations of so many seconds say too little. A layer that is over in milliseconds is timed for longer.
fn are_too_short(seconds: &[f64]) -> bool {
    const ENOUGH_SECONDS: f64 = 0.1;
    const MOST: usize = 20;
    seconds.len() < MOST && seconds.iter().sum::<f64>() < ENOUGH_SECONDS
}

/// Whether a rank may train longer than it was told to: no one trains with it, and no one wants its weights. A GPU times its
/// layers by itself.
fn may_go_on(spec: &RankSpec, memory: &Memory) -> bool {
    let flushes = !spec.training.schedule.updates_always();
    is_alone(spec) && flushes && memory.gpu().is_none() && spec.dump_parameters.is_none()
}

/// Whether a rank may find out by itself what others on its host's cores would cost it: what it trains is as it was when all is
/// measured.
fn may_be_crowded(spec: &RankSpec, memory: &Memory) -> bool {
    may_go_on(spec, memory) && spec.actions.is_empty() && spec.chunks.is_none()
}

/// Iterations before the measured ones: one, and under PipeDream as many as fill the pipeline.
fn warm_up(spec: &RankSpec) -> u32 {
    let TrainingSpec { schedule, micro_batches, .. } = spec.training;
    if schedule.updates_always() { Endless::warm_up(spec.position.stage_count, micro_batches) } else { 1 }
}

/// Iterations in all.
fn iterations(spec: &RankSpec, memory: &Memory) -> u32 {
    warm_up(spec) + spec.iterations + timing_iterations(spec, memory)
}

/// The passes of a training of so many iterations that never flushes; none of one that does.
fn endless(spec: &RankSpec, iterations: u32) -> Option<Endless> {
    let SoloStage { stage_count: stages, stage_index: stage, .. } = spec.position;
    let TrainingSpec { schedule, micro_batches, .. } = spec.training;
    schedule.updates_always().then_some(Endless { stages, stage, micro_batches, iterations })
}

/// Whether a tape is recorded: of layers that are trained alone, as they are.
fn is_recorded(spec: &RankSpec) -> bool {
    spec.edges == Edges::Synthetic
        && spec.position.stage.layer_count() == 1
        && spec.actions.is_empty()
        && spec.chunks.is_none()
}

fn measure(spec: &RankSpec, memory: &Memory) -> Result<Measurement, RankError> {
    let device = memory.device();
    // Before the parameters are made: who waits for us need not wait for those.
    let Connections { neighbours, groups, pools } =
        connections::connect(spec, Forms::of(spec, device), memory)?;
    let share = Share { config: spec.position.stage, shard: spec.shard, groups };
    let clock = Clock::new(memory.asynchronous_device());
    let movement = Movement::begin(spec, share.replicas(), &pools.borrowed, memory)?;
    let stage = Stage::build(&spec.model, &share, &spec.training, &movement, device)?;
    let optimizer =
        Stepper::new(spec.training.optimizer, stage.trained().len()).dividing(share.division(&spec.training));
    let (endless, step_seconds) = (endless(spec, iterations(spec, memory)), Vec::new());
    let trained = movement.clone();
    let mut trainer =
        Trainer { spec, share, stage, neighbours, endless, optimizer, movement: trained, step_seconds };

    let warm_up = warm_up(spec);
    for iteration in 0..warm_up {
        trainer.iterate(iteration)?;
    }
    if endless.is_none() {
        trainer.check_static_bytes(memory, pools.set_aside())?;
    }
    memory.reset_peak()?;
    movement.lock().reset();
    trainer.restart_times(Timer::Host);

    let contention = spec.contention.as_ref().filter(|_| may_be_crowded(spec, memory));
    let turn = contention.map(|contention| CoreLock::wait(&contention.turns)).transpose()?;
    let mut losses = Vec::new();
    let mut seconds = Vec::new();
    for iteration in 0..spec.iterations {
        pools.check_peers()?;
        let (loss, taken) = trainer.iterate_timed(warm_up + iteration, clock)?;
        losses.extend(loss);
        seconds.push(taken);
    }
    let mut mover = movement.lock();
    let highest = mover.chunks.as_mut().map(|chunks| chunks.trace.highest());
    let counts = highest.unwrap_or_else(|| memory.counts())?;
    let in_chunks = mover.chunks.as_ref().map(|chunks| chunks.told().map(Box::new)).transpose()?;
    let (set_aside, peer_peaks) = (pools.set_aside(), mover.actions.peer_peaks());
    let mut offload = mover.actions.offload(set_aside > 0)?;
    drop(mover);
    for iteration in spec.iterations.. {
        if !may_go_on(spec, memory) || !are_too_short(&seconds) {
            break;
        }
        seconds.push(trainer.iterate_timed(warm_up + iteration, clock)?.1);
    }
    if let Some(gpu) = memory.gpu() {
        trainer.restart_times(Timer::Gpu(gpu.clone()));
        for iteration in 0..timing_iterations(spec, memory) {
            trainer.iterate(warm_up + spec.iterations + iteration)?;
        }
    }
    if endless.is_some() {
        // What is in flight until now went forward with weights that no one has any more.
        trainer.finish()?;
        trainer.check_static_bytes(memory, set_aside)?;
    }
    movement.lock().chunks.as_mut().map_or(Ok(()), ChunkRun::finish)?;
    trainer.dump_parameters()?;
    // Whoever parks blocks elsewhere does so until here: where nothing is flushed, until the last micro-batch is back. Behind that
    // nothing is on its way any more, and others may have their memory back.
    movement.lock().actions = BlockMover::default();
    let peer_pool_peak = pools.finish(&peer_peaks)?;
    if let Some(offload) = offload.as_mut().filter(|_| set_aside > 0) {
        offload.peer_pool_peak = Bytes(peer_pool_peak);
    }
    movement.lock().chunks = None;
    let (step_seconds, layers) = (median(&trainer.step_seconds), trainer.stage.times().typical());
    let static_bytes = trainer.static_bytes();
    let crowded = match contention {
        Some(contention) => {
            let next = warm_up + u32::try_from(seconds.len()).unwrap_or(0);
            contention::measure(&mut trainer, next, contention.companions)?
        }
        None => Contention::default(),
    };
    drop(turn);
    let trace = if is_recorded(spec) { Some(Box::new(record::record(&mut trainer, memory)?)) } else { None };
    // Each replica has the loss of its samples.
    if let Some(replicas) = trainer.share.replicas().filter(|_| !losses.is_empty()) {
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
        peak_ledger: Accounting::Allocated,
        peak_reserved: (!memory.is_exact()).then_some(Bytes(counts.reserved_peak)),
        static_bytes,
        offload: offload.map(Box::new),
        chunks: in_chunks,
        capacity: spec.device.capacity,
        iteration_seconds: median(&seconds),
        step_seconds,
        trace,
        layers,
        losses,
        environment: Environment {
            contention_slowdown: crowded.ratio,
            copy_cost: crowded.copies,
            ..library::environment(&spec.device, spec.threads)
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_iterations_are_timed_for_longer_but_not_for_ever() {
        assert!(are_too_short(&[0.001; 3]));
        assert!(!are_too_short(&[0.001; 20]));
        assert!(are_too_short(&[0.03; 3]) && !are_too_short(&[0.03; 4]));
        assert!(!are_too_short(&[5.0]));
    }
}
