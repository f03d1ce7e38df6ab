//! Records of the store as messages.

use std::collections::BTreeSet;

use jiff::Timestamp;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::ledger::Ledger;
use loadmaster_proto::measure::run::Work;
use loadmaster_proto::model::import::ModelSource;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::wire::{ToWire, v1};

use crate::profile::{Disturbance, StoredProfile};
use crate::store::records::{
    FailureRecord, MeasurementRecord, ModelRecord, ProfileRecord, ProfileSettings, ProfileState, RunCounts,
    RunRecord, RunWork, WorkerRecord,
};
use loadmaster_planning::campaign::CampaignError;
use loadmaster_planning::metrics::LayerMetrics;

pub(super) fn time(timestamp: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: timestamp.as_second(), nanos: timestamp.subsec_nanosecond() }
}

/// A count for the wire.
pub(super) fn count(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

pub(super) fn model(record: &ModelRecord) -> v1::Model {
    v1::Model {
        name: record.name.to_string(),
        source: Some((&record.source).into()),
        create_time: Some(time(record.create_time)),
        notes: record.source.notes(),
        ..(&record.model).into()
    }
}

/// A model without its layers and without the text that it was imported from, as lists show it: a page of
/// them must fit into a message.
pub(super) fn model_row(record: &ModelRecord) -> v1::Model {
    let model = model(record);
    let source = model.source.filter(|_| matches!(record.source, ModelSource::Zoo(_)));
    v1::Model { layers: Vec::new(), notes: Vec::new(), source, ..model }
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

/// A profile without its layers, as lists show it.
pub(super) fn profile_row(record: &ProfileRecord) -> v1::Profile {
    v1::Profile {
        state: record.state.to_wire(),
        device_seconds: record.device_seconds,
        reused_runs: count(record.reused_runs),
        saved_device_seconds: record.saved_device_seconds,
        shrunk_runs: count(record.shrunk_runs),
        missing: record.missing.clone(),
        operation: record.operation.to_string(),
        create_time: Some(time(record.create_time)),
        end_time: record.end_time.map(time),
        ..new_profile(&record.settings, record.runs)
    }
}

/// A profile with its layers' metrics and what each predictor lacks.
///
/// # Errors
/// When its settings make no campaign.
pub(super) fn profile(record: &ProfileRecord, stored: &StoredProfile) -> Result<v1::Profile, CampaignError> {
    let mut row = profile_row(record);
    let ledger = stored.fitted().first().map(|first| first.peak_ledger).unwrap_or_default();
    if record.state == ProfileState::Cancelled {
        row.missing = stored.missing()?;
    }
    for scenario in &mut row.scenarios {
        let sizes: BTreeSet<u32> = stored
            .fitted()
            .into_iter()
            .filter(|of| {
                let of = of.stage.scenario().map(self::scenario);
                of.is_some_and(|of| (of.parallelism, of.degree) == (scenario.parallelism, scenario.degree))
            })
            .map(|measurement| measurement.micro_batch_size)
            .collect();
        scenario.micro_batch_sizes = sizes.into_iter().map(count).collect();
    }
    let Disturbance { contended, others_share, oversubscribed } = stored.disturbance();
    Ok(v1::Profile {
        contended_measurements: count(contended),
        others_share,
        oversubscribed_measurements: count(oversubscribed),
        layers: stored.metrics()?.layers.iter().map(|of| layer_memory(of, ledger)).collect(),
        predictors: stored
            .needs()?
            .into_iter()
            .map(|of| v1::PredictorNeeds { predictor: of.predictor.to_owned(), missing: of.missing })
            .collect(),
        environments: stored.environments().into_iter().map(Into::into).collect(),
        ..row
    })
}

/// A profile as lists show it: one of a long model may lack thousands of things.
pub(super) fn profile_in_list(record: &ProfileRecord) -> v1::Profile {
    const MOST_MISSING: usize = 10;
    let mut profile = profile_row(record);
    profile.missing.truncate(MOST_MISSING);
    profile
}

/// A profile that is not stored.
pub(super) fn new_profile(profile: &ProfileSettings, runs: RunCounts) -> v1::Profile {
    v1::Profile {
        name: profile.name.to_string(),
        model: profile.model.to_string(),
        training: Some(profile.training.into()),
        campaign: profile.campaign.to_wire(),
        devices: profile.devices.map_or(0, count),
        scenarios: profile.scenarios.iter().map(|&of| scenario(of)).collect(),
        scale_by_pipeline: profile.scale_by_pipeline,
        fresh: profile.fresh,
        reuse_contended: profile.reuse_contended,
        command: profile.command.as_ref().map(ToString::to_string).unwrap_or_default(),
        profiled_micro_batch_sizes: profile.micro_batch_sizes.iter().copied().map(count).collect(),
        device_kind: profile.device_kind.clone(),
        runs: Some(run_counts(runs)),
        ..v1::Profile::default()
    }
}

fn scenario(scenario: Scenario) -> v1::ProfileScenario {
    let parallelism = scenario.parallelism.to_wire();
    v1::ProfileScenario { parallelism, degree: count(scenario.degree), micro_batch_sizes: Vec::new() }
}

pub(super) fn layer_memory(metrics: &LayerMetrics, ledger: Ledger) -> v1::LayerMemory {
    let index = |layer: usize| i32::try_from(layer).unwrap_or(i32::MAX);
    v1::LayerMemory {
        layer: index(metrics.layer),
        micro_batch_size: count(metrics.setting.micro_batch_size),
        in_flight: count(metrics.setting.in_flight),
        isolated_bytes: metrics.isolated.map(Bytes::to_wire),
        added_bytes: metrics.added.map(|added| added.bytes),
        neighbour_first_layer: metrics.added.map_or(-1, |added| index(added.neighbour_first_layer)),
        ledger: ledger.to_wire(),
        parallelism: scenario(metrics.setting.scenario).parallelism,
        degree: scenario(metrics.setting.scenario).degree,
    }
}

/// A run without its measurements, as lists show it.
pub(super) fn run_row(record: &RunRecord) -> v1::Run {
    v1::Run {
        name: record.name.to_string(),
        state: record.state.to_wire(),
        operation: record.operation.to_string(),
        profile: record.profile.as_ref().map(ToString::to_string).unwrap_or_default(),
        plan: record.plan.as_ref().map(ToString::to_string).unwrap_or_default(),
        spec: Some(run_spec(&record.work)),
        device_count: count(record.device_count),
        worker: record.worker.as_ref().map(ToString::to_string).unwrap_or_default(),
        attempts: count(record.attempts),
        failures: record.failures.iter().map(failure).collect(),
        create_time: Some(time(record.create_time)),
        start_time: record.start_time.map(time),
        end_time: record.end_time.map(time),
        progress: record.progress,
        measurements: Vec::new(),
        shrunk_from: record.shrunk_from.as_ref().map(ToString::to_string).unwrap_or_default(),
    }
}

/// What a run does; a model by its name alone.
fn run_spec(work: &RunWork) -> v1::RunSpec {
    let trained = match work {
        RunWork::Links(links) => {
            let links = v1::run_spec::Work::Links(links.into());
            return v1::RunSpec { work: Some(links), ..v1::RunSpec::default() };
        }
        RunWork::Stages(trained) => trained,
    };
    let stages = match &trained.stages {
        Work::Partitioning(partitioning) => v1::run_spec::Work::Partitioning(partitioning.into()),
        Work::Solo(solo) => v1::run_spec::Work::SoloStage(v1::SoloStage {
            stage: Some(solo.stage.into()),
            stage_count: count(solo.stage_count),
            stage_index: count(solo.stage_index),
        }),
    };
    let policies = trained.stage_recompute.iter();
    v1::RunSpec {
        model: Some(v1::Model { name: trained.model.to_string(), ..v1::Model::default() }),
        training: Some(trained.training.into()),
        work: Some(stages),
        stage_recompute: policies.map(ToWire::to_wire).collect(),
        iterations: count(trained.iterations),
        command: trained.command.as_ref().map(ToString::to_string).unwrap_or_default(),
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
        name: record.name(),
        run: record.run.to_string(),
        profile: record.profile.as_ref().map(ToString::to_string).unwrap_or_default(),
        time: Some(time(record.time)),
        ..(&record.measurement).into()
    }
}

/// A worker as lists show it: links are as many as pairs of devices.
pub(super) fn worker_in_list(record: &WorkerRecord) -> v1::Worker {
    v1::Worker { links: Vec::new(), ..worker(record) }
}

pub(super) fn worker(record: &WorkerRecord) -> v1::Worker {
    v1::Worker {
        name: record.name.to_string(),
        state: record.state.to_wire(),
        devices: record.devices.iter().map(Into::into).collect(),
        version: record.version.clone(),
        libtorch_version: record.libtorch_version.clone(),
        host: record.host.clone(),
        create_time: Some(time(record.create_time)),
        heartbeat_time: Some(time(record.heartbeat_time)),
        runs: record.runs.iter().map(ToString::to_string).collect(),
        commands: record.commands.iter().map(ToString::to_string).collect(),
        links: record.links.iter().map(Into::into).collect(),
        cores: count(record.cores),
        threads: count(record.threads),
    }
}
