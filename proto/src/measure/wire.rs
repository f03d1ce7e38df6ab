//! Runs, their failures and measurements.

use crate::accounting::Accounting;
use crate::error::{Invalid, required};
use crate::measure::failure::{FailureKind, OutOfMemory, Phase, RunFailure};
use crate::measure::measurement::{LayerTimes, Measurement};
use crate::measure::run::{RunSpec, SoloStage, Task, Work};
use crate::message;
use crate::training::strategy::Strategy;
use crate::training::{RecomputePolicy, StaticBytes};
use crate::wire::{ToWire, field, v1};

impl From<&Strategy> for v1::RunSpec {
    /// All of a run but its model, iterations and command.
    fn from(strategy: &Strategy) -> Self {
        use v1::run_spec::Work as Wire;
        let work = match &strategy.work {
            Work::Partitioning(partitioning) => Wire::PipelineLayout(partitioning.into()),
            Work::Solo(solo) => Wire::SoloStage(solo.into()),
        };
        Self {
            training: Some(strategy.training.into()),
            work: Some(work),
            stage_recompute_policies: strategy.stage_recompute().to_wire(),
            stage_memory_optimizations: strategy.stage_actions().to_wire(),
            chunked_training: strategy.chunks().map(Into::into),
            ..Self::default()
        }
    }
}

impl From<&RunSpec> for v1::RunSpec {
    fn from(spec: &RunSpec) -> Self {
        Self {
            model: Some((&spec.model).into()),
            iteration_count: spec.iterations.to_wire(),
            custom_profiler: spec.command.to_wire(),
            ..(&spec.strategy).into()
        }
    }
}

impl From<&Task> for v1::RunSpec {
    fn from(task: &Task) -> Self {
        match task {
            Task::Train(spec) => spec.as_ref().into(),
            Task::Links(work) => {
                Self { work: Some(v1::run_spec::Work::LinkWork(work.into())), ..Self::default() }
            }
        }
    }
}

impl TryFrom<v1::RunSpec> for Task {
    type Error = Invalid;

    /// What a lease asks for, checked as a whole.
    fn try_from(wire: v1::RunSpec) -> Result<Self, Invalid> {
        match wire.work {
            Some(v1::run_spec::Work::LinkWork(work)) => field("link_work", work).map(Self::Links),
            _ => RunSpec::try_from(wire).map(|spec| Self::Train(Box::new(spec))),
        }
    }
}

impl TryFrom<v1::RunSpec> for RunSpec {
    type Error = Invalid;

    fn try_from(wire: v1::RunSpec) -> Result<Self, Invalid> {
        use v1::run_spec::Work as Wire;
        let work = match required("work", wire.work)? {
            Wire::PipelineLayout(partitioning) => Work::Partitioning(field("pipeline_layout", partitioning)?),
            Wire::SoloStage(solo) => Work::Solo(field("solo_stage", solo)?),
            Wire::LinkWork(_) => {
                let why = "is not valid for a run that trains stages. Remove this field";
                return Err(Invalid::field("link_work", why));
            }
        };
        let policies: Vec<Option<RecomputePolicy>> =
            field("stage_recompute_policies", wire.stage_recompute_policies)?;
        let policies = policies.into_iter().map(Option::unwrap_or_default).collect();
        let training = field("training", required("training", wire.training)?)?;
        Self {
            model: field("model", required("model", wire.model)?)?,
            strategy: Strategy::plain(training, work)
                .with_recompute(policies)?
                .with_actions(field("stage_memory_optimizations", wire.stage_memory_optimizations)?)?
                .with_chunks(field::<Option<_>, _>("chunked_training", wire.chunked_training)?.map(Box::new)),
            iterations: field("iteration_count", wire.iteration_count)?,
            command: field("custom_profiler", wire.custom_profiler)?,
        }
        .checked()
    }
}

message! {
    SoloStage <=> v1::SoloStage { stage: required, stage_count, stage_index }
}

message! { Measurement <=> v1::Measurement }

impl From<&Measurement> for v1::Measurement {
    /// Everything but names and time, which the store knows.
    fn from(measurement: &Measurement) -> Self {
        Self {
            stage: Some(measurement.stage.into()),
            stage_index: measurement.stage_index.to_wire(),
            shard: measurement.shard.to_wire(),
            stage_count: measurement.stage_count.to_wire(),
            solo: measurement.solo,
            micro_batch_size: measurement.micro_batch_size.to_wire(),
            in_flight_micro_batch_count: measurement.in_flight.to_wire(),
            recompute: measurement.recompute.to_wire(),
            peak_allocated_bytes: measurement.peak_allocated.to_wire(),
            peak_accounting: measurement.peak_ledger.to_wire(),
            peak_reserved_bytes: measurement.peak_reserved.to_wire(),
            parameter_bytes: measurement.static_bytes.parameters.to_wire(),
            gradient_bytes: measurement.static_bytes.gradients.to_wire(),
            optimizer_bytes: measurement.static_bytes.optimizer.to_wire(),
            buffer_bytes: measurement.static_bytes.buffers.to_wire(),
            offload_traffic: measurement.offload.as_deref().map(Into::into),
            chunk_traffic: measurement.chunks.as_deref().map(Into::into),
            capacity_bytes: measurement.capacity.to_wire(),
            iteration_seconds: measurement.iteration_seconds,
            optimizer_step_seconds: measurement.step_seconds,
            allocation_trace: measurement.trace.as_deref().map(Into::into),
            components: measurement.components().map(Into::into),
            layer_seconds: measurement
                .layers
                .iter()
                .map(|times| v1::LayerSeconds {
                    layer: times.layer.to_wire(),
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
                Err(invalid!(field, "{value} is not valid. Use 0 seconds or more"))
            }
        };
        let layers = wire
            .layer_seconds
            .into_iter()
            .enumerate()
            .map(|(index, times)| {
                let path = format!("layer_seconds[{index}]");
                Ok(LayerTimes {
                    layer: field(&path, times.layer)?,
                    forward_seconds: seconds(&path, times.forward_seconds)?,
                    backward_seconds: seconds(&path, times.backward_seconds)?,
                    recompute_seconds: seconds(&path, times.recompute_seconds)?,
                })
            })
            .collect::<Result<Vec<_>, Invalid>>()?;
        Ok(Self {
            stage: field("stage", required("stage", wire.stage)?)?,
            stage_index: field("stage_index", wire.stage_index)?,
            shard: field("shard", wire.shard)?,
            stage_count: field("stage_count", wire.stage_count)?,
            solo: wire.solo,
            micro_batch_size: field("micro_batch_size", wire.micro_batch_size)?,
            in_flight: field("in_flight_micro_batch_count", wire.in_flight_micro_batch_count)?,
            recompute: field::<Option<_>, _>("recompute", wire.recompute)?.unwrap_or_default(),
            peak_allocated: field("peak_allocated_bytes", wire.peak_allocated_bytes)?,
            // Of a worker that does not know the field.
            peak_ledger: field::<Option<Accounting>, _>("peak_accounting", wire.peak_accounting)?
                .unwrap_or(Accounting::Allocated)
                .of_device()
                .map_err(|invalid| invalid.under("peak_accounting"))?,
            peak_reserved: field("peak_reserved_bytes", wire.peak_reserved_bytes)?,
            static_bytes: StaticBytes {
                parameters: field("parameter_bytes", wire.parameter_bytes)?,
                gradients: field("gradient_bytes", wire.gradient_bytes)?,
                optimizer: field("optimizer_bytes", wire.optimizer_bytes)?,
                buffers: field("buffer_bytes", wire.buffer_bytes)?,
            },
            offload: field::<Option<_>, _>("offload_traffic", wire.offload_traffic)?.map(Box::new),
            chunks: field::<Option<_>, _>("chunk_traffic", wire.chunk_traffic)?.map(Box::new),
            capacity: field("capacity_bytes", wire.capacity_bytes)?,
            iteration_seconds: seconds("iteration_seconds", wire.iteration_seconds)?,
            step_seconds: seconds("step_seconds", wire.optimizer_step_seconds)?,
            layers,
            trace: field::<Option<_>, _>("allocation_trace", wire.allocation_trace)?.map(Box::new),
            losses: wire.losses,
            environment: field("environment", required("environment", wire.environment)?)?,
        })
    }
}

message! { OutOfMemory <=> v1::OutOfMemory }

impl From<&OutOfMemory> for v1::OutOfMemory {
    fn from(oom: &OutOfMemory) -> Self {
        Self {
            requested_bytes: oom.asked.to_wire(),
            held_bytes: oom.held.to_wire(),
            allowed_bytes: oom.allowed.to_wire(),
            accounting: oom.ledger.to_wire(),
            phase: oom.phase.as_str().to_owned(),
            layer: oom.layer.map(|index| index.to_wire()),
        }
    }
}

impl TryFrom<v1::OutOfMemory> for OutOfMemory {
    type Error = Invalid;

    fn try_from(wire: v1::OutOfMemory) -> Result<Self, Invalid> {
        let ledger = field("accounting", wire.accounting)?;
        let phase: Result<Phase, _> = wire.phase.parse();
        let phase = phase.map_err(|_| invalid!("phase", "{:?} is not a known value", wire.phase))?;
        Ok(Self {
            asked: field("requested_bytes", wire.requested_bytes)?,
            held: field("held_bytes", wire.held_bytes)?,
            allowed: field("allowed_bytes", wire.allowed_bytes)?,
            ledger,
            phase,
            layer: wire.layer.map(|layer| field("layer", layer)).transpose()?,
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
            stage_index: failure.stage_index.map(|index| index.to_wire()),
            exit_code: code,
            out_of_memory,
            ..Self::default()
        }
    }
}

impl TryFrom<v1::RunFailure> for RunFailure {
    type Error = Invalid;

    /// As a worker reports it.
    fn try_from(wire: v1::RunFailure) -> Result<Self, Invalid> {
        use v1::run_failure::Kind;
        let kind = match Kind::try_from(wire.kind) {
            Ok(Kind::OutOfMemory) => FailureKind::OutOfMemory {
                out_of_memory: field("out_of_memory", required("out_of_memory", wire.out_of_memory)?)?,
            },
            Ok(Kind::Crashed) => FailureKind::Crashed { signal: wire.exit_code },
            Ok(Kind::Hung) => FailureKind::Hung,
            Ok(Kind::Exited) => FailureKind::Exited { code: wire.exit_code },
            Ok(Kind::NotStarted) => FailureKind::NotStarted,
            Ok(Kind::LeaseExpired) => FailureKind::LeaseExpired,
            Ok(Kind::HandedBack) => FailureKind::HandedBack,
            Ok(Kind::ResultRefused) => FailureKind::ResultRefused,
            Ok(Kind::Unspecified) | Err(_) => {
                return Err(invalid!("kind", "{} is not a known value", wire.kind));
            }
        };
        let stage_index = wire.stage_index.map(|index| field("stage_index", index)).transpose()?;
        Ok(Self { kind, message: wire.message, stage_index })
    }
}
