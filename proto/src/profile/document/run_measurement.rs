//! A measurement of a Loadmaster run, as a document has it. What holds for a worker's results holds here, and the
//! numbers of a file are looked at before any of them is added to another.

use serde::{Deserialize, Serialize};

use super::parse::{bytes, checked_text, seconds};
use crate::error::{Invalid, in_range};
use crate::measure::environment::Environment;
use crate::measure::measurement::{LayerTimes, Measurement};
use crate::measure::run::RunSpec;
use crate::measure::trace::LayerTrace;
use crate::model::Model;
use crate::name::{RunName, checked_kind};
use crate::training::{StaticBytes, TrainingSpec};
use crate::wire::v1;

/// Most stages of a pipeline.
const MAX_STAGES: u32 = 10_000;
/// Longest text of an environment, bytes.
const MAX_TEXT: usize = 512;
/// Most reasons for which a device was throttled.
const MAX_REASONS: usize = 64;
/// Most threads, and most cores.
const MAX_THREADS: u32 = 1 << 20;

/// A measurement of a Loadmaster run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunMeasurement {
    /// The run, by the name that it had where it was made: `runs/…`.
    pub run: RunName,
    /// Predictions were held against it, and nothing may be learnt from it.
    #[serde(default)]
    pub held_out: bool,
    /// What it yielded, byte trace included, without its losses. Its keys are those of the message
    /// `Measurement` without the suffix `_bytes`.
    pub measurement: Measurement,
}

impl RunMeasurement {
    /// `runs/{run}/measurements/{stage}-{shard}`.
    pub fn name(&self) -> String {
        let Measurement { stage_index, shard, .. } = self.measurement;
        format!("{}/measurements/{stage_index}-{shard}", self.run)
    }

    /// The rules for what a worker sends hold for what a file says; and it must be of this model.
    pub(super) fn check(&self, model: &Model) -> Result<(), Invalid> {
        check(&self.measurement, model).map_err(|invalid| invalid.under("measurement"))
    }
}

fn check(measurement: &Measurement, model: &Model) -> Result<(), Invalid> {
    let Measurement { stage, layers, losses, .. } = measurement;
    stage.checked().map_err(|invalid| invalid.under("stage"))?;
    in_range("stage.last_layer", stage.last_layer, 0..=model.layers().len() - 1)?;
    model.check_stage(stage, measurement.micro_batch_size).map_err(|invalid| invalid.under("stage"))?;
    in_range("stage_count", measurement.stage_count, 1..=MAX_STAGES)?;
    in_range("stage_index", measurement.stage_index, 0..=measurement.stage_count - 1)?;
    in_range("shard", measurement.shard, 0..=stage.devices().saturating_sub(1))?;
    in_range("micro_batch_size", measurement.micro_batch_size, 1..=TrainingSpec::MAX_MICRO_BATCH_SIZE)?;
    in_range("in_flight", measurement.in_flight, 1..=TrainingSpec::MAX_MICRO_BATCHES)?;
    check_bytes(measurement)?;
    seconds("iteration_seconds", measurement.iteration_seconds)?;
    seconds("step_seconds", measurement.step_seconds)?;
    in_range("layers", layers.len(), 0..=stage.layer_count())?;
    for (index, times) in layers.iter().enumerate() {
        let LayerTimes { layer, forward_seconds, backward_seconds, recompute_seconds } = *times;
        let field = |name: &str| format!("layers[{index}].{name}");
        if !stage.layers().contains(&layer) {
            return Err(invalid!(
                field("layer"),
                "{layer} is not a layer of the measured stage {stage}. Use a layer of that stage"
            ));
        }
        seconds(&field("forward_seconds"), forward_seconds)?;
        seconds(&field("backward_seconds"), backward_seconds)?;
        seconds(&field("recompute_seconds"), recompute_seconds)?;
    }
    in_range("losses", losses.len(), 0..=RunSpec::MAX_ITERATIONS as usize)?;
    check_environment(&measurement.environment).map_err(|invalid| invalid.under("environment"))?;
    if let Some(trace) = measurement.trace.as_deref() {
        check_trace(trace, measurement).map_err(|invalid| invalid.under("tape"))?;
    }
    // What is left: nothing above may be cut to what the wire can carry.
    Measurement::try_from(v1::Measurement::from(measurement)).map(drop)
}

fn check_bytes(measurement: &Measurement) -> Result<(), Invalid> {
    let StaticBytes { parameters, gradients, optimizer, buffers } = measurement.static_bytes;
    for (field, value) in [
        ("peak_allocated", measurement.peak_allocated.0),
        ("peak_reserved", measurement.peak_reserved.map_or(0, |reserved| reserved.0)),
        ("capacity", measurement.capacity.0),
        ("static_bytes.parameters", parameters),
        ("static_bytes.gradients", gradients),
        ("static_bytes.optimizer", optimizer),
        ("static_bytes.buffers", buffers),
    ] {
        bytes(field, value)?;
    }
    let Some(chunks) = measurement.chunks.as_deref() else { return Ok(()) };
    let of_steps = chunks.other_bytes.iter().chain(&chunks.payload_bytes).max();
    for (field, value) in [
        ("chunks.other_bytes, payload_bytes", of_steps.copied().unwrap_or(0)),
        ("chunks.host_bytes", chunks.host_bytes.0),
        ("chunks.up_bytes", chunks.up_bytes),
        ("chunks.down_bytes", chunks.down_bytes),
        ("chunks.gathered_bytes", chunks.gathered_bytes),
        ("chunks.scattered_bytes", chunks.scattered_bytes),
        ("chunks.fetches", chunks.fetches),
    ] {
        bytes(field, value)?;
    }
    Ok(())
}

fn check_trace(trace: &LayerTrace, measurement: &Measurement) -> Result<(), Invalid> {
    if !measurement.stage.layers().contains(&trace.layer) {
        return Err(invalid!(
            "layer",
            "{} is not a layer of the measured stage {}. Use a layer of that stage",
            trace.layer,
            measurement.stage
        ));
    }
    checked_text("content", &trace.content, 0, MAX_TEXT)?;
    bytes("overhead", trace.overhead)?;
    trace.check()
}

fn check_environment(environment: &Environment) -> Result<(), Invalid> {
    let Environment {
        device_kind,
        libtorch_version,
        cuda_version,
        driver_version,
        loadmaster_version,
        threads,
        command,
        framework,
        framework_version,
        before,
        after,
        contended: _,
        cores,
        others_share: _,
        oversubscribed: _,
        contention_slowdown: _,
        copy_cost: _,
    } = environment;
    if !device_kind.is_empty() {
        checked_kind("device_kind", device_kind)?;
    }
    for (field, value) in [
        ("libtorch_version", libtorch_version),
        ("cuda_version", cuda_version),
        ("driver_version", driver_version),
        ("loadmaster_version", loadmaster_version),
        ("command", command),
        ("framework", framework),
        ("framework_version", framework_version),
    ] {
        checked_text(field, value, 0, MAX_TEXT)?;
    }
    in_range("threads", *threads, 0..=MAX_THREADS)?;
    in_range("cores", *cores, 0..=MAX_THREADS)?;
    environment.check_contention()?;
    for (field, sample) in [("before", before), ("after", after)] {
        let reasons = sample.iter().flat_map(|sample| &sample.throttle_reasons);
        in_range(&format!("{field}.throttle_reasons"), reasons.clone().count(), 0..=MAX_REASONS)?;
        for reason in reasons {
            checked_text(&format!("{field}.throttle_reasons"), reason, 0, MAX_TEXT)?;
        }
    }
    Ok(())
}
