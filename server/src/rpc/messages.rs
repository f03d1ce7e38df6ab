//! Records of the store as messages.

use jiff::Timestamp;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::run::Work;
use loadmaster_proto::wire::v1;

use crate::planning::metrics::LayerMetrics;
use crate::store::records::{
    Campaign, FailureRecord, MeasurementRecord, ModelRecord, PlanRecord, ProfileRecord, ProfileSettings,
    ProfileState, RunCounts, RunRecord, RunState, WorkerRecord, WorkerState,
};

pub(super) fn time(timestamp: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: timestamp.as_second(), nanos: timestamp.subsec_nanosecond() }
}

fn count(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

pub(super) fn model(record: &ModelRecord) -> v1::Model {
    v1::Model {
        name: record.name.to_string(),
        source: Some((&record.source).into()),
        create_time: Some(time(record.create_time)),
        ..(&record.model).into()
    }
}

/// A model without its layers, as lists show it.
pub(super) fn model_row(record: &ModelRecord) -> v1::Model {
    v1::Model { layers: Vec::new(), ..model(record) }
}

pub(super) fn run_counts(counts: RunCounts) -> v1::RunCounts {
    v1::RunCounts {
        total: count(counts.total()),
        queued: count(counts.queued),
        running: count(counts.running),
        succeeded: count(counts.succeeded),
        out_of_memory: count(counts.out_of_memory),
        parked: count(counts.parked),
        cancelled: count(counts.cancelled),
    }
}

pub(super) fn campaign(campaign: Campaign) -> v1::Campaign {
    match campaign {
        Campaign::Paper => v1::Campaign::Paper,
        Campaign::Stages => v1::Campaign::Stages,
    }
}

/// A profile without its layers, as lists show it.
pub(super) fn profile_row(record: &ProfileRecord) -> v1::Profile {
    use v1::profile::State;
    let state = match record.state {
        ProfileState::Running => State::Running,
        ProfileState::Complete => State::Complete,
        ProfileState::Incomplete => State::Incomplete,
        ProfileState::Cancelled => State::Cancelled,
    };
    v1::Profile {
        state: state.into(),
        device_seconds: record.device_seconds,
        missing: record.missing.clone(),
        operation: record.operation.to_string(),
        create_time: Some(time(record.create_time)),
        end_time: record.end_time.map(time),
        ..new_profile(&record.settings, record.runs)
    }
}

/// A profile that is not stored.
pub(super) fn new_profile(profile: &ProfileSettings, runs: RunCounts) -> v1::Profile {
    v1::Profile {
        name: profile.name.to_string(),
        model: profile.model.to_string(),
        training: Some(profile.training.into()),
        campaign: campaign(profile.campaign).into(),
        devices: count(profile.devices),
        profiled_micro_batch_sizes: profile.micro_batch_sizes.iter().copied().map(count).collect(),
        device_kind: profile.device_kind.clone(),
        runs: Some(run_counts(runs)),
        ..v1::Profile::default()
    }
}

pub(super) fn layer_memory(metrics: &LayerMetrics) -> v1::LayerMemory {
    let index = |layer: usize| i32::try_from(layer).unwrap_or(i32::MAX);
    v1::LayerMemory {
        layer: index(metrics.layer),
        micro_batch_size: count(metrics.setting.micro_batch_size),
        in_flight: count(metrics.setting.in_flight),
        isolated_bytes: metrics.isolated.map(Bytes::to_wire),
        added_bytes: metrics.added.map(|added| added.bytes),
        neighbour_first_layer: metrics.added.map_or(-1, |added| index(added.neighbour_first_layer)),
        ledger: v1::Ledger::Allocated.into(),
    }
}

/// A run without its measurements, as lists show it.
pub(super) fn run_row(record: &RunRecord) -> v1::Run {
    use v1::run::State;
    let state = match record.state {
        RunState::Queued => State::Queued,
        RunState::Running => State::Running,
        RunState::Succeeded => State::Succeeded,
        RunState::OutOfMemory => State::OutOfMemory,
        RunState::Parked => State::Parked,
        RunState::Cancelled => State::Cancelled,
    };
    let work = match &record.work {
        Work::Partitioning(partitioning) => v1::run_spec::Work::Partitioning(partitioning.into()),
        Work::Solo(solo) => v1::run_spec::Work::SoloStage(v1::SoloStage {
            stage: Some(solo.stage.into()),
            stage_count: count(solo.stage_count),
            stage_index: count(solo.stage_index),
        }),
    };
    v1::Run {
        name: record.name.to_string(),
        state: state.into(),
        operation: record.operation.to_string(),
        profile: record.profile.as_ref().map(ToString::to_string).unwrap_or_default(),
        plan: record.plan.as_ref().map(ToString::to_string).unwrap_or_default(),
        spec: Some(v1::RunSpec {
            model: Some(v1::Model { name: record.model.to_string(), ..v1::Model::default() }),
            training: Some(record.training.into()),
            work: Some(work),
            iterations: count(record.iterations),
        }),
        device_count: count(record.device_count),
        worker: record.worker.as_ref().map(ToString::to_string).unwrap_or_default(),
        attempts: count(record.attempts),
        failures: record.failures.iter().map(failure).collect(),
        create_time: Some(time(record.create_time)),
        start_time: record.start_time.map(time),
        end_time: record.end_time.map(time),
        progress: record.progress,
        measurements: Vec::new(),
    }
}

fn failure(record: &FailureRecord) -> v1::RunFailure {
    v1::RunFailure {
        worker: record.worker.as_ref().map(ToString::to_string).unwrap_or_default(),
        lease_token: record.lease_token,
        time: Some(time(record.time)),
        ..(&record.failure).into()
    }
}

pub(super) fn measurement(record: &MeasurementRecord) -> v1::Measurement {
    v1::Measurement {
        name: format!("{}/measurements/{}", record.run, record.measurement.stage_index),
        run: record.run.to_string(),
        profile: record.profile.as_ref().map(ToString::to_string).unwrap_or_default(),
        time: Some(time(record.time)),
        ..(&record.measurement).into()
    }
}

pub(super) fn worker(record: &WorkerRecord) -> v1::Worker {
    use v1::worker::State;
    let state = match record.state {
        WorkerState::Alive => State::Alive,
        WorkerState::Draining => State::Draining,
        WorkerState::Lost => State::Lost,
        WorkerState::Gone => State::Gone,
    };
    v1::Worker {
        name: record.name.to_string(),
        state: state.into(),
        devices: record.devices.iter().map(Into::into).collect(),
        version: record.version.clone(),
        libtorch_version: record.libtorch_version.clone(),
        host: record.host.clone(),
        create_time: Some(time(record.create_time)),
        heartbeat_time: Some(time(record.heartbeat_time)),
        runs: record.runs.iter().map(ToString::to_string).collect(),
    }
}

fn figure(bytes: u64, source: v1::FigureSource, origin: &str) -> v1::MemoryFigure {
    v1::MemoryFigure {
        bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        ledger: v1::Ledger::Allocated.into(),
        source: source.into(),
        origin: origin.to_owned(),
    }
}

/// Relative error of a prediction: (predicted − measured) / measured.
fn error_ratio(predicted: u64, measured: u64) -> f64 {
    (predicted as f64 - measured as f64) / (measured.max(1) as f64)
}

/// One trial of a plan: its run and, when it succeeded, one measurement per stage in order.
#[derive(Debug)]
pub(super) struct Trial {
    /// The run.
    pub run: RunRecord,
    /// What it yielded.
    pub measurements: Vec<MeasurementRecord>,
}

/// A plan with the trials of it, newest first.
pub(super) fn plan(record: &PlanRecord, layer_names: &[String], trials: &[Trial]) -> v1::Plan {
    let content = &record.content;
    let newest = trials.iter().find(|trial| trial.measurements.len() == content.stages.len());
    let layer_name = |layer: usize| layer_names.get(layer).cloned().unwrap_or_default();
    let stages = content
        .stages
        .iter()
        .enumerate()
        .map(|(index, stage)| {
            let measured = newest
                .and_then(|trial| trial.measurements.get(index))
                .map(|measurement| (measurement.measurement.peak_allocated.0, measurement.run.to_string()));
            v1::PlanStage {
                config: Some(stage.config.into()),
                first_layer_name: layer_name(stage.config.first_layer),
                last_layer_name: layer_name(stage.config.last_layer),
                capacity_bytes: i64::try_from(stage.capacity).unwrap_or(i64::MAX),
                predicted_peak: Some(figure(
                    stage.predicted_peak,
                    v1::FigureSource::Predicted,
                    &content.predictor,
                )),
                error_ratio: measured.as_ref().map(|(bytes, _)| error_ratio(stage.predicted_peak, *bytes)),
                measured_peak: measured.map(|(bytes, run)| figure(bytes, v1::FigureSource::Measured, &run)),
            }
        })
        .collect();
    v1::Plan {
        name: record.name.to_string(),
        profile: content.profile.to_string(),
        model: content.model.to_string(),
        training: Some(content.training.into()),
        shape: v1::PlanShape::SinglePipeline.into(),
        devices: device_groups(record),
        stages,
        predicted_peak: Some(figure(predicted_peak(record), v1::FigureSource::Predicted, &content.predictor)),
        solver: content.solver.clone(),
        warnings: content.warnings.clone(),
        create_time: Some(time(record.create_time)),
        validations: trials.iter().filter_map(|trial| validation(record, trial)).collect(),
    }
}

fn predicted_peak(record: &PlanRecord) -> u64 {
    record.content.stages.iter().map(|stage| stage.predicted_peak).max().unwrap_or(0)
}

/// Neighbouring devices of equal capacity as one group.
fn device_groups(record: &PlanRecord) -> Vec<v1::DeviceGroup> {
    let mut groups: Vec<v1::DeviceGroup> = Vec::new();
    for stage in &record.content.stages {
        let capacity_bytes = i64::try_from(stage.capacity).unwrap_or(i64::MAX);
        match groups.last_mut() {
            Some(group) if group.capacity_bytes == capacity_bytes => group.count += 1,
            _ => groups.push(v1::DeviceGroup {
                count: 1,
                capacity_bytes,
                kind: record.content.device_kind.clone(),
            }),
        }
    }
    groups
}

/// An ended trial; none while it waits or runs.
fn validation(record: &PlanRecord, trial: &Trial) -> Option<v1::PlanValidation> {
    let failure = match trial.run.state {
        RunState::Queued | RunState::Running => return None,
        RunState::Succeeded => String::new(),
        RunState::Cancelled => "cancelled".to_owned(),
        RunState::OutOfMemory | RunState::Parked => {
            trial.run.failures.last().map_or_else(|| "failed".to_owned(), |last| last.failure.message.clone())
        }
    };
    let run = trial.run.name.to_string();
    let peaks: Vec<u64> = trial.measurements.iter().map(|m| m.measurement.peak_allocated.0).collect();
    let measured_peak = peaks.iter().copied().max();
    let losses = trial.measurements.last().map(|last| last.measurement.losses.clone()).unwrap_or_default();
    Some(v1::PlanValidation {
        time: trial.run.end_time.map(time),
        measured_peaks: peaks.iter().map(|&bytes| figure(bytes, v1::FigureSource::Measured, &run)).collect(),
        iteration_seconds: trial
            .measurements
            .iter()
            .map(|m| m.measurement.iteration_seconds)
            .fold(0.0, f64::max),
        peak_error_ratio: measured_peak.map_or(0.0, |peak| error_ratio(predicted_peak(record), peak)),
        losses,
        failure,
        run,
    })
}
