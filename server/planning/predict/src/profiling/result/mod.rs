//! Checks of a worker's result against its run.
//!
//! A result that contradicts its run (other layers, another micro-batch size, a missing device, a peak above the
//! device) would be stored, and found by every profile that needs the same measurement. It is therefore compared
//! with the run first, field by field, and rejected by the field's name. Loadmaster's own rank must send every
//! figure that follows from the run. A custom profiler must send only the figures that every framework can report.

mod chunks;
mod offload;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::BTreeSet;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::stage::Chunks;
use loadmaster_proto::cluster::device::{Backend, Device};
use loadmaster_proto::error::{Invalid, in_range};
use loadmaster_proto::measure::environment::Environment;
use loadmaster_proto::measure::links::{LinkMeasurement, LinkPoint, LinkWork};
use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::{RankPosition, RunSpec, Work};
use loadmaster_proto::model::layer::elements;
use loadmaster_proto::training::actions::StageActions;

/// Longest that a rank may be at work beyond its deadline: its end takes a moment.
const GRACE_SECONDS: f64 = 60.0;
/// Longest seconds of a command, which may come from elsewhere than its own clock: a month.
const MOST_SECONDS: f64 = 30.0 * 86_400.0;

/// A run in the hands of a worker.
#[derive(Debug, Clone, Copy)]
pub struct Leased<'a> {
    /// What it was asked to train.
    pub spec: &'a RunSpec,
    /// The kind of device that it was to be done on.
    pub device_kind: &'a str,
    /// Seconds that it had.
    pub deadline_seconds: u32,
    /// All devices of the worker.
    pub devices: &'a [Device],
}

/// Checks that the measurements are those of the run: one for each of its ranks, of that rank's stage, on a
/// device that the worker has.
///
/// # Errors
/// Names the field and says what it contradicts.
pub fn check(leased: &Leased<'_>, measurements: &[Measurement]) -> Result<(), Invalid> {
    let ranks = leased.spec.ranks();
    let laid = chunks::laid(leased.spec)?;
    let mut seen = BTreeSet::new();
    for (index, measurement) in measurements.iter().enumerate() {
        let Measurement { stage_index, shard, .. } = *measurement;
        let path = format!("measurements[{index}]");
        let Some(rank) =
            ranks.iter().find(|rank| rank.position.stage_index == stage_index && rank.shard == shard)
        else {
            let why = format!(
                "{stage_index} with `shard` {shard} is not a rank of the run. Use a stage and a shard of \
                the run"
            );
            return Err(Invalid::field(format!("{path}.stage_index"), why));
        };
        if !seen.insert((stage_index, shard)) {
            let why = format!("has two measurements of device {shard} of stage {stage_index}");
            return Err(Invalid::field("measurements", why));
        }
        of_rank(leased, (rank, laid.as_ref()), measurement).map_err(|invalid| invalid.under(&path))?;
    }
    match ranks.iter().find(|rank| !seen.contains(&(rank.position.stage_index, rank.shard))) {
        Some(RankPosition { position, shard }) => Err(Invalid::field(
            "measurements",
            format!(
                "has {} of {} measurements. The measurement of device {shard} of stage {} is missing",
                measurements.len(),
                ranks.len(),
                position.stage_index
            ),
        )),
        None => Ok(()),
    }
}

/// A rank of a run, and what follows from how its chunks lie.
type OfRank<'a> = (&'a RankPosition, Option<&'a Chunks>);

fn of_rank(leased: &Leased<'_>, (rank, laid): OfRank<'_>, measured: &Measurement) -> Result<(), Invalid> {
    let spec = leased.spec;
    let position = rank.position;
    let training = spec.strategy.training_at(&position);
    let in_flight =
        training.schedule.in_flight(position.stage_count, position.stage_index, training.micro_batches);
    same("stage", &measured.stage, &position.stage)?;
    same("stage_count", &measured.stage_count, &position.stage_count)?;
    same("solo", &measured.solo, &matches!(spec.strategy.work, Work::Solo(_)))?;
    same("micro_batch_size", &measured.micro_batch_size, &training.micro_batch_size)?;
    same("in_flight", &measured.in_flight, &in_flight)?;
    if measured.recompute != training.recompute {
        return Err(contradicts(
            "recompute",
            &format!("{:?}", measured.recompute),
            &format!("{:?}", training.recompute),
        ));
    }
    environment(&measured.environment).map_err(|invalid| invalid.under("environment"))?;
    let command = spec.command.as_ref().map(ToString::to_string).unwrap_or_default();
    same("environment.device_kind", &measured.environment.device_kind.as_str(), &leased.device_kind)?;
    same("environment.command", &measured.environment.command.as_str(), &command.as_str())?;
    let device = device(leased, measured)?;
    let most = device.physical.max(device.capacity);
    let actions = spec.strategy.actions_at(&position);
    bytes(measured, most, &actions)?;
    seconds(leased, measured)?;
    let most_seconds = f64::from(leased.deadline_seconds) + GRACE_SECONDS;
    offload::check(&actions, hosts(spec, rank, &actions), measured.offload.as_deref(), most_seconds)?;
    chunks::check(spec, laid, measured.chunks.as_deref(), (most, most_seconds))?;
    layers(leased, measured)?;
    match (&spec.command, &measured.trace) {
        (None, _) => own_rank(leased, (rank, laid), measured, device),
        (Some(_), None) => adds_up(measured, &actions),
        (Some(_), Some(_)) => {
            Err(Invalid::field("tape", "is set, but a custom profiler records no allocation traces"))
        }
    }
}

/// Whether a rank's device has blocks of another stage: number n of that one sends to `n mod devices` of this one, so that it
/// has one of that number, if any. What takes no bytes, such as the state that plain SGD does not have, is nowhere.
fn hosts(spec: &RunSpec, rank: &RankPosition, actions: &StageActions) -> bool {
    let ranks = spec.ranks();
    let sends = |stage: u32| {
        ranks.iter().any(|other| other.position.stage_index == stage && other.shard == rank.shard)
    };
    let mut with_bytes = actions.peer_pools.iter().filter(|peer_pools| peer_pools.bytes.0 > 0);
    with_bytes.any(|peer_pools| matches!(spec.strategy.work, Work::Solo(_)) || sends(peer_pools.stage))
}

/// The worker's device that it can have been measured on.
fn device<'a>(leased: &Leased<'a>, measured: &Measurement) -> Result<&'a Device, Invalid> {
    let mut of_kind = leased.devices.iter().filter(|device| device.kind == leased.device_kind);
    of_kind.find(|device| device.capacity == measured.capacity).ok_or_else(|| {
        let why = format!(
            "{} is not the capacity of any {} of the worker",
            measured.capacity.0, leased.device_kind
        );
        Invalid::field("capacity_bytes", why)
    })
}

/// No memory accounting holds more than the device has, whose rest others may use; what leaves it was never there all at once.
fn bytes(measured: &Measurement, most: Bytes, actions: &StageActions) -> Result<(), Invalid> {
    if measured.peak_allocated.0 == 0 {
        return Err(Invalid::field("peak_allocated_bytes", "is 0, so nothing was measured"));
    }
    let static_bytes = offload::staying(actions, measured.static_bytes);
    for (field, held) in [
        ("peak_allocated_bytes", measured.peak_allocated.0),
        ("peak_reserved_bytes", measured.peak_reserved.map_or(0, |bytes| bytes.0)),
        ("parameter_bytes", static_bytes.parameters),
        ("gradient_bytes", static_bytes.gradients),
        ("optimizer_bytes", static_bytes.optimizer),
        ("buffer_bytes", static_bytes.buffers),
    ] {
        if held > most.0 {
            return Err(Invalid::field(field, format!("{held} exceeds the {} bytes of the device", most.0)));
        }
    }
    Ok(())
}

fn seconds(leased: &Leased<'_>, measured: &Measurement) -> Result<(), Invalid> {
    let is_command = leased.spec.command.is_some();
    let most = if is_command { MOST_SECONDS } else { f64::from(leased.deadline_seconds) + GRACE_SECONDS };
    let within = |field: &str, seconds: f64| {
        if (0.0..=most).contains(&seconds) {
            return Ok(());
        }
        Err(Invalid::field(field, format!("{seconds} is out of range. Use 0 to the run's {most} seconds")))
    };
    within("iteration_seconds", measured.iteration_seconds)?;
    if measured.iteration_seconds == 0.0 {
        return Err(Invalid::field("iteration_seconds", "is 0, so nothing was measured"));
    }
    within("step_seconds", measured.step_seconds)?;
    for (index, times) in measured.layers.iter().enumerate() {
        within(&format!("layers[{index}].forward_seconds"), times.forward_seconds)?;
        within(&format!("layers[{index}].backward_seconds"), times.backward_seconds)?;
        within(&format!("layers[{index}].recompute_seconds"), times.recompute_seconds)?;
    }
    Ok(())
}

/// Times are of the stage's layers: of the rank all of them in order, of a command any.
fn layers(leased: &Leased<'_>, measured: &Measurement) -> Result<(), Invalid> {
    let stage = measured.stage;
    let mut seen = BTreeSet::new();
    for (index, times) in measured.layers.iter().enumerate() {
        let field = format!("layers[{index}].layer");
        if !stage.layers().contains(&times.layer) {
            return Err(Invalid::field(field, format!("{} is not the run's stage, {stage}", times.layer)));
        }
        if !seen.insert(times.layer) {
            return Err(Invalid::field(field, format!("{} is listed twice", times.layer)));
        }
    }
    let in_order = measured.layers.iter().map(|times| times.layer).eq(stage.layers());
    if leased.spec.command.is_none() && !in_order {
        let why = format!("has {} entries. Use one for each layer of {stage}, in order", seen.len());
        return Err(Invalid::field("layers", why));
    }
    Ok(())
}

/// A command that reports parts of its peak reports no peak below them. Gradients need not be there with the state.
fn adds_up(measured: &Measurement, actions: &StageActions) -> Result<(), Invalid> {
    let staying = offload::staying(actions, measured.static_bytes);
    let parts = [staying.parameters, staying.optimizer, staying.buffers];
    let least = parts.into_iter().fold(0, u64::saturating_add);
    peaks_at(measured, least, "the reported parameters, optimizer state and buffers")
}

/// Checks that a peak is no less than parts that are on the device at one moment, so many bytes of what `parts` names.
fn peaks_at(measured: &Measurement, least: u64, parts: &str) -> Result<(), Invalid> {
    let peak = measured.peak_allocated.0;
    let why =
        || Invalid::field("peak_allocated_bytes", format!("{peak} is less than {parts}, {least} bytes"));
    if peak < least { Err(why()) } else { Ok(()) }
}

/// What follows from the run where Loadmaster's own rank did it.
fn own_rank(
    leased: &Leased<'_>,
    (rank, laid): OfRank<'_>,
    measured: &Measurement,
    device: &Device,
) -> Result<(), Invalid> {
    let spec = leased.spec;
    let training = spec.strategy.training_at(&rank.position);
    let expected = spec.model.rank_static_bytes(&rank.position.stage, rank.shard, &training);
    let expected = chunks::staying(laid, expected);
    let held = measured.static_bytes;
    same("parameter_bytes", &held.parameters, &expected.parameters)?;
    same("gradient_bytes", &held.gradients, &expected.gradients)?;
    same("optimizer_bytes", &held.optimizer, &expected.optimizer)?;
    same("buffer_bytes", &held.buffers, &expected.buffers)?;
    same("peak_ledger", &measured.peak_ledger.as_str(), &Accounting::Allocated.as_str())?;
    let actions = spec.strategy.actions_at(&rank.position);
    let staying = offload::staying(&actions, expected);
    let (in_chunks, inputs) = (chunks::least(measured), waiting_inputs(spec, rank, &actions));
    let least = staying.total().saturating_add(in_chunks).saturating_add(inputs);
    let parts = match laid {
        Some(_) => "chunks and buffers",
        None => "parameters, gradients, optimizer state, inputs and buffers",
    };
    peaks_at(measured, least, parts)?;
    same("peak_reserved_bytes", &measured.peak_reserved.is_some(), &(device.backend == Backend::Cuda))?;
    let losses = measured.losses.len();
    if losses > spec.iterations as usize {
        return Err(Invalid::field("losses", format!("has {losses} entries, not {}", spec.iterations)));
    }
    trace::check(spec, measured, device)
}

/// Bytes of the inputs of micro-batches that wait for their backward passes when the first of these is over, and all gradients
/// are there: a rank has each until its own backward pass. Of a stage without a trained layer below it, whose input needs no
/// gradient, and of stages whose blocks leave, 0, which is never too much. So it is under PipeDream, where a run may
/// be too short.
fn waiting_inputs(spec: &RunSpec, rank: &RankPosition, actions: &StageActions) -> u64 {
    let (position, training) = (&rank.position, spec.strategy.training_at(&rank.position));
    let first = position.stage.first_layer;
    let below = spec.model.layers().get(..first).unwrap_or_default();
    let is_trained = below.iter().any(|layer| layer.kind.parameter_count() > 0);
    if !is_trained
        || !actions.is_empty()
        || spec.strategy.chunks().is_some()
        || training.schedule.updates_always()
    {
        return 0;
    }
    let in_flight =
        training.schedule.in_flight(position.stage_count, position.stage_index, training.micro_batches);
    let samples = u64::from(training.micro_batch_size / position.stage.data_degree.max(1));
    let scalars = spec.model.edge(first).iter().map(|shape| elements(shape)).fold(0, u64::saturating_add);
    let input = scalars.saturating_mul(training.precision.scalar_bytes()).saturating_mul(samples);
    input.saturating_mul(u64::from(in_flight.saturating_sub(1)))
}

/// Checks that what was measured of links is what was asked for.
///
/// # Errors
/// Names the field and says what it contradicts.
pub fn check_links(
    work: &LinkWork,
    device_kind: &str,
    devices: &[Device],
    measured: &LinkMeasurement,
) -> Result<(), Invalid> {
    let (given, asked) = (measured.device_ids.len(), work.devices as usize);
    same("device_ids", &given, &asked)?;
    for (index, id) in measured.device_ids.iter().enumerate() {
        if !devices.iter().any(|device| device.id == *id && device.kind == device_kind) {
            let why = format!("{id:?} is not a {device_kind} of the worker");
            return Err(Invalid::field(format!("device_ids[{index}]"), why));
        }
    }
    let known =
        |points: &[LinkPoint]| points.iter().all(|point| work.payload_bytes.contains(&point.payload_bytes));
    if let Some(index) = measured.pairs.iter().position(|pair| !known(&pair.points)) {
        return Err(Invalid::field(format!("pairs[{index}].points"), "has an unrequested payload"));
    }
    if let Some(index) = measured.groups.iter().position(|group| !known(&group.points)) {
        return Err(Invalid::field(format!("groups[{index}].points"), "has an unrequested payload"));
    }
    if let Some(copies) = &measured.copies {
        let largest = work.copied_bytes(None).last().copied().unwrap_or_default();
        copies.check_payloads(largest).map_err(|invalid| invalid.under("copies"))?;
    }
    for (index, of) in measured.updates.iter().enumerate() {
        for (place, timed) in of.steps.iter().enumerate() {
            let field = format!("updates[{index}].steps[{place}].parameters");
            same(&field, &timed.parameters, &work.updated_parameters())?;
        }
    }
    same("environment.device_kind", &measured.environment.device_kind.as_str(), &device_kind)?;
    environment(&measured.environment).map_err(|invalid| invalid.under("environment"))
}

fn same<T: PartialEq + std::fmt::Display>(field: &str, measured: &T, asked: &T) -> Result<(), Invalid> {
    if measured == asked { Ok(()) } else { Err(contradicts(field, measured, asked)) }
}

fn contradicts(field: &str, measured: &impl std::fmt::Display, asked: &impl std::fmt::Display) -> Invalid {
    Invalid::field(field, format!("{measured} is not the requested value, {asked}"))
}

/// Most bytes of a text.
const MOST_TEXT: usize = 256;
/// Most reasons for which a GPU was throttled.
const MOST_REASONS: usize = 64;

/// Checks the lengths of all texts.
fn environment(environment: &Environment) -> Result<(), Invalid> {
    for (field, text) in [
        ("device_kind", &environment.device_kind),
        ("libtorch_version", &environment.libtorch_version),
        ("cuda_version", &environment.cuda_version),
        ("driver_version", &environment.driver_version),
        ("loadmaster_version", &environment.loadmaster_version),
        ("command", &environment.command),
        ("framework", &environment.framework),
        ("framework_version", &environment.framework_version),
    ] {
        line(field, text)?;
    }
    for (field, sample) in [("before", &environment.before), ("after", &environment.after)] {
        let reasons = sample.as_ref().map(|sample| sample.throttle_reasons.as_slice()).unwrap_or_default();
        let field = format!("{field}.throttle_reasons");
        in_range(&field, reasons.len(), 0..=MOST_REASONS)?;
        reasons.iter().try_for_each(|reason| line(&field, reason))?;
    }
    Ok(())
}

fn line(field: &str, text: &str) -> Result<(), Invalid> {
    if text.len() > MOST_TEXT {
        return Err(Invalid::field(field, format!("has {} bytes. Use at most {MOST_TEXT}", text.len())));
    }
    Ok(())
}
