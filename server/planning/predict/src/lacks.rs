//! What each predictor lacks of a profile.

use std::collections::{BTreeMap, BTreeSet};

use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::ProfilingMode;
use loadmaster_proto::model::Model;
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::Parallelism;

use crate::profiling::runs::Layout;
use crate::profiling::{ProfilingError, distinct_layers, stage_key};

/// What one predictor lacks, human-readable; nothing when it can predict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredictorLacks {
    /// `component` or `capture`; `chunks` for what plans in chunks need besides.
    pub predictor: &'static str,
    /// What is missing.
    pub missing: Vec<String>,
}

/// What the predictor lacks that the profiling is for; a profile is complete when that is nothing.
///
/// # Errors
/// When the settings make no profiling.
pub fn of_profiling(
    settings: &ProfileSettings,
    model: &Model,
    measurements: &[&Measurement],
) -> Result<Vec<String>, ProfilingError> {
    match settings.profiling_mode {
        ProfilingMode::PerLayer => Ok(component(settings, model, measurements)),
        ProfilingMode::PerStage | ProfilingMode::WholePipeline => capture(settings, model, measurements),
        // What it lacks depends on the question: predictors say so.
        ProfilingMode::Imported => Ok(Vec::new()),
    }
}

/// What every predictor lacks, the profiling mode's own first.
///
/// # Errors
/// When the settings make no profiling.
pub fn of_all(
    settings: &ProfileSettings,
    model: &Model,
    measurements: &[&Measurement],
) -> Result<Vec<PredictorLacks>, ProfilingError> {
    let mut needs = vec![
        PredictorLacks { predictor: "component", missing: component(settings, model, measurements) },
        PredictorLacks { predictor: "capture", missing: capture(settings, model, measurements)? },
    ];
    if settings.profiling_mode != ProfilingMode::PerLayer {
        needs.reverse();
    }
    Ok(needs)
}

/// What plans in chunks lack besides: the profile's run in chunks, where it was asked for one. Nothing else is based on it.
pub fn of_chunks(settings: &ProfileSettings, is_measured: bool) -> Option<PredictorLacks> {
    settings.host_memory?;
    let why = "measurement of the whole model in chunked training: this profiling run has not ended, did not fit in \
        memory or failed. ListRuns shows the state of the run";
    let missing = if is_measured { Vec::new() } else { vec![why.to_owned()] };
    Some(PredictorLacks { predictor: "chunks", missing })
}

/// `component` needs the allocation trace of every distinct layer, whole and in as many shards as were asked for, at
/// two micro-batch sizes where two were to be measured.
fn component(settings: &ProfileSettings, model: &Model, measurements: &[&Measurement]) -> Vec<String> {
    let mut sizes: BTreeMap<(Scenario, String), BTreeSet<u32>> = BTreeMap::new();
    for measurement in measurements.iter().filter(|measurement| measurement.trace.is_some()) {
        let Some(scenario) = measurement.stage.scenario() else { continue };
        let layer = measurement.stage.first_layer;
        let of = (scenario, stage_key(model, layer, layer));
        sizes.entry(of).or_default().insert(measurement.micro_batch_size);
    }
    let wanted = settings.micro_batch_sizes.len().min(2);
    let mut missing = Vec::new();
    for &scenario in settings.scenarios.iter().filter(|of| of.parallelism != Parallelism::Data) {
        for &layer in &distinct_layers(model) {
            let measured = sizes.get(&(scenario, stage_key(model, layer, layer)));
            let count = measured.map_or(0, BTreeSet::len);
            if count >= wanted {
                continue;
            }
            let name = model.layers().get(layer).map_or("", |layer| layer.name.as_str());
            let shared =
                if scenario == Scenario::SINGLE { String::new() } else { format!(" under {scenario}") };
            missing.push(match measured.and_then(BTreeSet::first) {
                None => format!("layer {layer} ({name}) alone{shared} was not measured"),
                Some(size) => format!(
                    "layer {layer} ({name}) alone{shared} was measured at micro-batch size {size} only"
                ),
            });
        }
    }
    missing
}

/// `capture` needs isolated and added memory of every layer.
fn capture(
    settings: &ProfileSettings,
    model: &Model,
    measurements: &[&Measurement],
) -> Result<Vec<String>, ProfilingError> {
    if settings.profiling_mode == ProfilingMode::PerLayer {
        let why = "isolated and added memory of the layers: the peak of each layer alone, and the growth of the peak \
            when a layer joins a stage. Profile with the profiling mode `per-stage` or `whole-pipeline`";
        return Ok(vec![why.to_owned()]);
    }
    Ok(Layout::new(settings, model)?.metrics(model, measurements).missing)
}
