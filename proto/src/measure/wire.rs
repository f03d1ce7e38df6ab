//! Runs, their failures and measurements.

use crate::bytes::Bytes;
use crate::convert::{to_i32, to_i64, unsigned};
use crate::error::{Invalid, required};
use crate::ledger::Ledger;
use crate::measure::failure::FailureKind;
use crate::measure::failure::OutOfMemory;
use crate::measure::failure::RunFailure;
use crate::measure::layer_times::LayerTimes;
use crate::measure::measurement::Measurement;
use crate::measure::run::{RunSpec, SoloStage, Task, Work};
use crate::name::CommandName;
use crate::phase::Phase;
use crate::training::StaticBytes;
use crate::training::wire::recompute_from_wire;
use crate::wire::v1;

impl From<&RunSpec> for v1::RunSpec {
    fn from(spec: &RunSpec) -> Self {
        use v1::run_spec::Work as Wire;
        let work = match &spec.work {
            Work::Partitioning(partitioning) => Wire::Partitioning(partitioning.into()),
            Work::Solo(solo) => Wire::SoloStage(v1::SoloStage {
                stage: Some(solo.stage.into()),
                stage_count: to_i32(solo.stage_count),
                stage_index: to_i32(solo.stage_index),
            }),
        };
        Self {
            model: Some((&spec.model).into()),
            training: Some(spec.training.into()),
            work: Some(work),
            stage_recompute: spec
                .stage_recompute
                .iter()
                .map(|&policy| v1::RecomputePolicy::from(policy).into())
                .collect(),
            iterations: to_i32(spec.iterations),
            command: spec.command.as_ref().map(ToString::to_string).unwrap_or_default(),
        }
    }
}

impl From<&Task> for v1::RunSpec {
    fn from(task: &Task) -> Self {
        match task {
            Task::Train(spec) => spec.as_ref().into(),
            Task::Links(work) => {
                Self { work: Some(v1::run_spec::Work::Links(work.into())), ..Self::default() }
            }
        }
    }
}

/// What a lease asks for, checked as a whole.
///
/// # Errors
/// Names the field that is missing or wrong.
pub fn task_from_wire(wire: v1::RunSpec) -> Result<Task, Invalid> {
    match wire.work {
        Some(v1::run_spec::Work::Links(work)) => {
            Ok(Task::Links(work.try_into().map_err(|invalid: Invalid| invalid.under("links"))?))
        }
        _ => Ok(Task::Train(Box::new(run_spec_from_wire(wire)?))),
    }
}

/// A run specification that was checked as a whole.
///
/// # Errors
/// Names the field that is missing or wrong.
pub fn run_spec_from_wire(wire: v1::RunSpec) -> Result<RunSpec, Invalid> {
    use v1::run_spec::Work as Wire;
    let work = match required("work", wire.work)? {
        Wire::Partitioning(partitioning) => Work::Partitioning(
            partitioning.try_into().map_err(|invalid: Invalid| invalid.under("partitioning"))?,
        ),
        Wire::SoloStage(solo) => {
            Work::Solo(solo.try_into().map_err(|invalid: Invalid| invalid.under("solo_stage"))?)
        }
        Wire::Links(_) => return Err(Invalid::field("links", "is set, but stages are to be trained")),
    };
    RunSpec {
        model: required("model", wire.model)?
            .try_into()
            .map_err(|invalid: Invalid| invalid.under("model"))?,
        training: required("training", wire.training)?
            .try_into()
            .map_err(|invalid: Invalid| invalid.under("training"))?,
        work,
        stage_recompute: wire
            .stage_recompute
            .into_iter()
            .enumerate()
            .map(|(index, policy)| recompute_from_wire(&format!("stage_recompute[{index}]"), policy))
            .collect::<Result<_, _>>()?,
        iterations: unsigned("iterations", wire.iterations)?,
        command: command_from_wire("command", wire.command)?,
    }
    .checked()
}

/// The name of a worker's command; none where the text is empty.
///
/// # Errors
/// When it is not a name; the violation's path is `field`.
pub fn command_from_wire(field: &str, name: String) -> Result<Option<CommandName>, Invalid> {
    if name.is_empty() { Ok(None) } else { CommandName::parse(field, name).map(Some) }
}

impl TryFrom<v1::SoloStage> for SoloStage {
    type Error = Invalid;

    fn try_from(wire: v1::SoloStage) -> Result<Self, Invalid> {
        Ok(Self {
            stage: required("stage", wire.stage)?
                .try_into()
                .map_err(|invalid: Invalid| invalid.under("stage"))?,
            stage_count: unsigned("stage_count", wire.stage_count)?,
            stage_index: unsigned("stage_index", wire.stage_index)?,
        })
    }
}

impl From<&Measurement> for v1::Measurement {
    /// Everything but names and time, which the store knows.
    fn from(measurement: &Measurement) -> Self {
        Self {
            stage: Some(measurement.stage.into()),
            stage_index: to_i32(measurement.stage_index),
            shard: to_i32(measurement.shard),
            stage_count: to_i32(measurement.stage_count),
            solo: measurement.solo,
            micro_batch_size: to_i32(measurement.micro_batch_size),
            in_flight: to_i32(measurement.in_flight),
            recompute: v1::RecomputePolicy::from(measurement.recompute).into(),
            peak_allocated_bytes: measurement.peak_allocated.to_wire(),
            peak_ledger: v1::Ledger::from(measurement.peak_ledger).into(),
            peak_reserved_bytes: measurement.peak_reserved.map(Bytes::to_wire),
            parameter_bytes: to_i64(measurement.static_bytes.parameters),
            gradient_bytes: to_i64(measurement.static_bytes.gradients),
            optimizer_bytes: to_i64(measurement.static_bytes.optimizer),
            buffer_bytes: to_i64(measurement.static_bytes.buffers),
            capacity_bytes: measurement.capacity.to_wire(),
            iteration_seconds: measurement.iteration_seconds,
            step_seconds: measurement.step_seconds,
            tape: measurement.tape.as_deref().map(Into::into),
            components: measurement.components().map(Into::into),
            layers: measurement
                .layers
                .iter()
                .map(|times| v1::LayerTimes {
                    layer: to_i32(times.layer),
                    forward_seconds: times.forward_seconds,
                    backward_seconds: times.backward_seconds,
                    recompute_seconds: times.recompute_seconds,
                })
                .collect(),
            losses: measurement.losses.clone(),
            environment: Some(measurement.environment.clone().into()),
            ..Self::default()
        }
    }
}

impl TryFrom<v1::Measurement> for Measurement {
    type Error = Invalid;

    fn try_from(wire: v1::Measurement) -> Result<Self, Invalid> {
        let seconds = |field: &str, value: f64| {
            if value.is_finite() && value >= 0.0 {
                Ok(value)
            } else {
                Err(Invalid::field(field, format!("is {value}, must be 0 seconds or more")))
            }
        };
        let layers = wire
            .layers
            .into_iter()
            .enumerate()
            .map(|(index, times)| {
                let path = format!("layers[{index}]");
                Ok(LayerTimes {
                    layer: unsigned(&path, times.layer)?,
                    forward_seconds: seconds(&path, times.forward_seconds)?,
                    backward_seconds: seconds(&path, times.backward_seconds)?,
                    recompute_seconds: seconds(&path, times.recompute_seconds)?,
                })
            })
            .collect::<Result<Vec<_>, Invalid>>()?;
        Ok(Self {
            stage: required("stage", wire.stage)?
                .try_into()
                .map_err(|invalid: Invalid| invalid.under("stage"))?,
            stage_index: unsigned("stage_index", wire.stage_index)?,
            shard: unsigned("shard", wire.shard)?,
            stage_count: unsigned("stage_count", wire.stage_count)?,
            solo: wire.solo,
            micro_batch_size: unsigned("micro_batch_size", wire.micro_batch_size)?,
            in_flight: unsigned("in_flight", wire.in_flight)?,
            recompute: recompute_from_wire("recompute", wire.recompute)?,
            peak_allocated: Bytes(unsigned("peak_allocated_bytes", wire.peak_allocated_bytes)?),
            // Of a worker that does not know the field.
            peak_ledger: match wire.peak_ledger {
                0 => Ledger::Allocated,
                ledger => ledger_from_wire("peak_ledger", ledger)?,
            },
            peak_reserved: wire
                .peak_reserved_bytes
                .map(|bytes| unsigned("peak_reserved_bytes", bytes).map(Bytes))
                .transpose()?,
            static_bytes: StaticBytes {
                parameters: unsigned("parameter_bytes", wire.parameter_bytes)?,
                gradients: unsigned("gradient_bytes", wire.gradient_bytes)?,
                optimizer: unsigned("optimizer_bytes", wire.optimizer_bytes)?,
                buffers: unsigned("buffer_bytes", wire.buffer_bytes)?,
            },
            capacity: Bytes(unsigned("capacity_bytes", wire.capacity_bytes)?),
            iteration_seconds: seconds("iteration_seconds", wire.iteration_seconds)?,
            step_seconds: seconds("step_seconds", wire.step_seconds)?,
            layers,
            tape: wire
                .tape
                .map(|tape| tape.try_into().map(Box::new).map_err(|invalid: Invalid| invalid.under("tape")))
                .transpose()?,
            losses: wire.losses,
            environment: required("environment", wire.environment)?
                .try_into()
                .map_err(|invalid: Invalid| invalid.under("environment"))?,
        })
    }
}

impl From<Ledger> for v1::Ledger {
    fn from(ledger: Ledger) -> Self {
        match ledger {
            Ledger::Allocated => Self::Allocated,
            Ledger::Reserved => Self::Reserved,
            Ledger::Device => Self::Device,
        }
    }
}

/// A ledger that is stated.
///
/// # Errors
/// When it is none of the three; the violation's path is `field`.
pub fn ledger_from_wire(field: &str, ledger: i32) -> Result<Ledger, Invalid> {
    match v1::Ledger::try_from(ledger) {
        Ok(v1::Ledger::Allocated) => Ok(Ledger::Allocated),
        Ok(v1::Ledger::Reserved) => Ok(Ledger::Reserved),
        Ok(v1::Ledger::Device) => Ok(Ledger::Device),
        Ok(v1::Ledger::Unspecified) | Err(_) => {
            Err(Invalid::field(field, "must be one of the three ledgers"))
        }
    }
}

impl From<&OutOfMemory> for v1::OutOfMemory {
    fn from(oom: &OutOfMemory) -> Self {
        Self {
            asked_bytes: oom.asked.to_wire(),
            held_bytes: oom.held.to_wire(),
            allowed_bytes: oom.allowed.to_wire(),
            ledger: v1::Ledger::from(oom.ledger).into(),
            phase: oom.phase.as_str().to_owned(),
            layer: oom.layer.map_or(-1, to_i32),
        }
    }
}

impl TryFrom<v1::OutOfMemory> for OutOfMemory {
    type Error = Invalid;

    fn try_from(wire: v1::OutOfMemory) -> Result<Self, Invalid> {
        let ledger = ledger_from_wire("ledger", wire.ledger)?;
        let phase = [Phase::Setup, Phase::Forward, Phase::Backward, Phase::Step, Phase::Exchange]
            .into_iter()
            .find(|phase| phase.as_str() == wire.phase)
            .ok_or_else(|| Invalid::field("phase", format!("{:?} is unknown", wire.phase)))?;
        Ok(Self {
            asked: Bytes(unsigned("asked_bytes", wire.asked_bytes)?),
            held: Bytes(unsigned("held_bytes", wire.held_bytes)?),
            allowed: Bytes(unsigned("allowed_bytes", wire.allowed_bytes)?),
            ledger,
            phase,
            layer: usize::try_from(wire.layer).ok(),
        })
    }
}

impl From<&RunFailure> for v1::RunFailure {
    /// Everything but worker, lease and time, which the store knows.
    fn from(failure: &RunFailure) -> Self {
        use v1::run_failure::Kind;
        let (kind, code, out_of_memory) = match &failure.kind {
            FailureKind::OutOfMemory { out_of_memory } => (Kind::OutOfMemory, 0, Some(out_of_memory.into())),
            FailureKind::Crashed { signal } => (Kind::Crashed, *signal, None),
            FailureKind::Hung => (Kind::Hung, 0, None),
            FailureKind::Exited { code } => (Kind::Exited, *code, None),
            FailureKind::NotStarted => (Kind::NotStarted, 0, None),
            FailureKind::LeaseExpired => (Kind::LeaseExpired, 0, None),
            FailureKind::HandedBack => (Kind::HandedBack, 0, None),
            FailureKind::ResultRefused => (Kind::ResultRefused, 0, None),
        };
        Self {
            kind: kind.into(),
            message: failure.message.clone(),
            stage_index: failure.stage_index.map_or(-1, to_i32),
            code,
            out_of_memory,
            ..Self::default()
        }
    }
}

/// A failure as a worker reports it.
///
/// # Errors
/// Names the field that is missing or wrong.
pub fn failure_from_wire(wire: v1::RunFailure) -> Result<RunFailure, Invalid> {
    use v1::run_failure::Kind;
    let kind = match Kind::try_from(wire.kind) {
        Ok(Kind::OutOfMemory) => FailureKind::OutOfMemory {
            out_of_memory: required("out_of_memory", wire.out_of_memory)?
                .try_into()
                .map_err(|invalid: Invalid| invalid.under("out_of_memory"))?,
        },
        Ok(Kind::Crashed) => FailureKind::Crashed { signal: wire.code },
        Ok(Kind::Hung) => FailureKind::Hung,
        Ok(Kind::Exited) => FailureKind::Exited { code: wire.code },
        Ok(Kind::NotStarted) => FailureKind::NotStarted,
        Ok(Kind::LeaseExpired) => FailureKind::LeaseExpired,
        Ok(Kind::HandedBack) => FailureKind::HandedBack,
        Ok(Kind::ResultRefused) => FailureKind::ResultRefused,
        Ok(Kind::Unspecified) | Err(_) => {
            return Err(Invalid::field("kind", format!("{} is unknown", wire.kind)));
        }
    };
    Ok(RunFailure { kind, message: wire.message, stage_index: u32::try_from(wire.stage_index).ok() })
}
