//! Profiles as messages.

use std::collections::BTreeSet;

use loadmaster_predict::capture::metrics::LayerMetrics;
use loadmaster_predict::profiling::ProfilingError;
use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::disturbance::Disturbance;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::wire::{ToWire, v1};

use crate::profile::StoredProfile;
use crate::rpc::limits::MAX_LISTED_MISSING;
use crate::rpc::messages::{count, run_counts, time};
use crate::store::labels_etag;
use crate::store::records::{ProfileRecord, ProfileSettings, ProfileState, RunCounts};

/// A profile without its layers, as lists show it.
pub(super) fn row(record: &ProfileRecord) -> v1::Profile {
    v1::Profile {
        state: record.state.to_wire(),
        device_seconds: record.device_seconds,
        reused_run_count: count(record.reused_runs),
        saved_device_seconds: record.saved_device_seconds,
        reduced_batch_run_count: count(record.shrunk_runs),
        missing: record.missing.clone(),
        operation: record.operation.to_string(),
        create_time: Some(time(record.create_time)),
        end_time: record.end_time.map(time),
        etag: labels_etag(&record.labels),
        labels: record.labels.clone().into_iter().collect(),
        ..new(&record.settings, record.runs)
    }
}

/// A profile with its layers' metrics and what each predictor lacks.
///
/// # Errors
/// When its settings make no campaign.
pub(super) fn profile(record: &ProfileRecord, stored: &StoredProfile) -> Result<v1::Profile, ProfilingError> {
    let mut row = row(record);
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
                of.is_some_and(|of| {
                    (of.parallelism, of.parallel_size) == (scenario.parallelism, scenario.parallel_size)
                })
            })
            .map(|measurement| measurement.micro_batch_size)
            .collect();
        scenario.micro_batch_sizes = sizes.into_iter().map(count).collect();
    }
    let Disturbance { contended, others_share, oversubscribed } = stored.disturbance();
    Ok(v1::Profile {
        contended_measurement_count: count(contended),
        external_cpu_share: others_share,
        oversubscribed_measurement_count: count(oversubscribed),
        layer_memory: stored.metrics()?.layers.iter().map(|of| layer_memory(of, ledger)).collect(),
        predictor_needs: stored
            .needs()?
            .into_iter()
            .map(|of| v1::PredictorNeeds { predictor: of.predictor.to_owned(), missing: of.missing })
            .collect(),
        cpu_optimizer_rate: stored.chunk_check().map(|of| of.update_rate),
        environments: stored.environments().into_iter().map(Into::into).collect(),
        ..row
    })
}

/// A profile as lists show it: one of a long model may lack thousands of things.
pub(super) fn in_list(record: &ProfileRecord) -> v1::Profile {
    let mut profile = row(record);
    profile.missing.truncate(MAX_LISTED_MISSING);
    profile
}

/// A profile that is not stored.
pub(super) fn new(profile: &ProfileSettings, runs: RunCounts) -> v1::Profile {
    v1::Profile {
        name: profile.name.to_string(),
        model: profile.model.to_string(),
        training: Some(profile.training.into()),
        profiling_mode: profile.profiling_mode.to_wire(),
        device_count: profile.devices.map_or(0, count),
        scenarios: profile.scenarios.iter().map(|&of| scenario(of)).collect(),
        single_device_scaling: profile.scale_by_pipeline,
        ignore_stored_runs: profile.fresh,
        reuse_contended: profile.reuse_contended,
        custom_profiler: profile.command.as_ref().map(ToString::to_string).unwrap_or_default(),
        profiled_micro_batch_sizes: profile.micro_batch_sizes.iter().copied().map(count).collect(),
        device_kind: profile.device_kind.clone(),
        host_memory_bytes: profile.host_memory.unwrap_or_default().to_wire(),
        run_counts: Some(run_counts(runs)),
        ..v1::Profile::default()
    }
}

fn scenario(scenario: Scenario) -> v1::ProfileScenario {
    let parallelism = scenario.parallelism.to_wire();
    v1::ProfileScenario { parallelism, parallel_size: count(scenario.degree), micro_batch_sizes: Vec::new() }
}

pub(super) fn layer_memory(metrics: &LayerMetrics, ledger: Accounting) -> v1::LayerMemory {
    let index = |layer: usize| i32::try_from(layer).unwrap_or(i32::MAX);
    v1::LayerMemory {
        layer: index(metrics.layer),
        micro_batch_size: count(metrics.setting.micro_batch_size),
        in_flight_micro_batch_count: count(metrics.setting.in_flight),
        isolated_bytes: metrics.isolated.map(Bytes::to_wire),
        added_bytes: metrics.added.map(|added| added.bytes),
        neighbour_first_layer: metrics.added.map(|added| index(added.neighbour_first_layer)),
        accounting: ledger.to_wire(),
        parallelism: scenario(metrics.setting.scenario).parallelism,
        degree: scenario(metrics.setting.scenario).parallel_size,
    }
}
