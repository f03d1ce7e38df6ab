//! The predictors of a study, made from what was measured as a planner makes them from its store, and what profiles cost.

use std::collections::BTreeMap;

use loadmaster_predict::choose::stored_profile::predictor;
use loadmaster_predict::choose::{AnyPredictor, Evidence, PredictorKind, Profiled};
use loadmaster_predict::profiling::runs::sub_meshes;
use loadmaster_predict::profiling::{PlannedRun, Purpose};
use loadmaster_proto::measure::run::ProfilingMode;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::{Parallelism, StageConfig};
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};

use crate::accuracy::job::{ITERATIONS, Job, Outcome};
use crate::accuracy::measure::Measured;
use crate::accuracy::report::Cost;
use crate::accuracy::study::{DEVICES, Study};

/// A predictor, where it can be made, and what its profile cost.
pub(crate) struct Made {
    pub(crate) predictor: Option<AnyPredictor>,
    pub(crate) cost: Cost,
}

/// `component` from the `minimal` campaign, or `capture` from `stages`. The stages of the paper's partitionings are measured
/// alone, which gives the same peaks byte for byte; the cost of running whole partitionings is counted apart.
pub(crate) fn made(
    study: &Study,
    measured: &Measured,
    problems: &mut Vec<String>,
    profiling_mode: ProfilingMode,
) -> anyhow::Result<Made> {
    let (name, kind) = match profiling_mode {
        ProfilingMode::PerLayer => ("minimal", PredictorKind::Component),
        _ => ("stages", PredictorKind::Capture),
    };
    let settings = study.settings(profiling_mode);
    let runs = study.layout(profiling_mode)?.runs;
    let evidence = evidence(study, &runs, measured, problems);
    let profiled = Profiled { settings: &settings, model: &study.model, evidence: &evidence };
    let made = predictor(profiled, Some(kind));
    let predictor = made.map_err(|error| {
        problems.push(format!("{}: no predictor from campaign {name}: {error}", study.name));
    });
    Ok(Made { predictor: predictor.ok(), cost: cost(study, name, &runs, measured) })
}

/// What the runs measured; those that failed are problems.
fn evidence(
    study: &Study,
    runs: &[PlannedRun],
    measured: &Measured,
    problems: &mut Vec<String>,
) -> Vec<Evidence> {
    let mut all = Vec::new();
    for (number, run) in runs.iter().enumerate() {
        let job = Job::new(&study.model, run);
        match measured.of(&job) {
            Some(Outcome::Measured { measurements, .. }) => {
                all.extend(measurements.iter().map(|measurement| Evidence {
                    name: format!(
                        "runs/{number}/measurements/{}-{}",
                        measurement.stage_index, measurement.shard
                    ),
                    measurement: measurement.clone(),
                    held_out: run.purpose == Purpose::Check,
                }));
            }
            Some(Outcome::Failed(why)) => {
                problems.push(format!("{}: {} was not profiled: {why}", study.name, job.describe()));
            }
            None => problems.push(format!("{}: {} was not run", study.name, job.describe())),
        }
    }
    all
}

/// What the runs of a campaign took.
fn cost(study: &Study, profiling_mode: &'static str, runs: &[PlannedRun], measured: &Measured) -> Cost {
    let outcomes: Vec<&Outcome> =
        runs.iter().filter_map(|run| measured.of(&Job::new(&study.model, run))).collect();
    let device_seconds = outcomes.iter().map(|outcome| outcome.device_seconds()).sum();
    let start = start_seconds(&outcomes);
    let ranks: f64 = outcomes.iter().map(|outcome| outcome.measurements().len() as f64).sum();
    Cost {
        study: study.name.clone(),
        profiling_mode,
        runs: outcomes.len(),
        device_seconds,
        training_seconds: (device_seconds - start * ranks).max(0.0),
        estimated: false,
    }
}

/// What a run takes that trains next to nothing.
fn start_seconds(outcomes: &[&Outcome]) -> f64 {
    let shortest = outcomes.iter().filter_map(|outcome| outcome.seconds()).reduce(f64::min);
    shortest.unwrap_or(0.0)
}

/// What the paper's campaign would take, estimated from the layers' own runs.
///
/// A run of a partitioning takes all its devices until its slowest stage is done: the start of a process,
/// then warm-up and measured iterations of the seconds that the layers' passes and steps took. Shards and
/// replicas share them evenly. Waiting for neighbours, collectives and the making of parameters are left
/// out, in the paper's favour. Parallel scenarios get three sub-meshes, the fewest that the paper's
/// rules can do with; a campaign under 1F1B, which they refuse, is counted under GPipe.
///
/// None where a layer was not measured.
pub(crate) fn paper(study: &Study, measured: &Measured) -> anyhow::Result<Option<Cost>> {
    let fit = study.layout(ProfilingMode::PerLayer)?;
    let gpipe = TrainingSpec { schedule: Schedule::Gpipe, ..study.training };
    let scenarios = if study.capture.is_empty() { &study.scenarios } else { &study.capture };
    let mut total = Cost {
        study: study.name.clone(),
        profiling_mode: "paper",
        runs: 0,
        device_seconds: 0.0,
        training_seconds: 0.0,
        estimated: true,
    };
    for &size in &study.sizes {
        let Some(layers) = LayerSeconds::of(study, &fit.runs, size, measured) else { return Ok(None) };
        for &scenario in scenarios {
            let profiling = sub_meshes(&study.model, &gpipe, devices(scenario), scenario)?;
            for partitioning in &profiling.partitionings {
                let slowest = partitioning
                    .stages()
                    .iter()
                    .map(|stage| layers.training(stage, &study.training))
                    .fold(0.0, f64::max);
                let devices = f64::from(scenario.degree) * partitioning.stages().len() as f64;
                total.runs += 1;
                total.training_seconds += devices * slowest;
                total.device_seconds += devices * (slowest + layers.start);
            }
        }
    }
    Ok(Some(total))
}

/// As many sub-meshes as a pipeline on single devices has stages, or three, the fewest that the paper's
/// campaign can do with.
fn devices(scenario: Scenario) -> u32 {
    match scenario.parallelism {
        Parallelism::None => DEVICES,
        Parallelism::Data | Parallelism::Tensor => 3 * scenario.degree,
    }
}

/// Seconds of the layers of a model alone, on one device: of the start of a process, and of each layer's passes, forward and
/// backward, and its step.
struct LayerSeconds {
    start: f64,
    layers: Vec<[f64; 3]>,
}

impl LayerSeconds {
    fn of(study: &Study, runs: &[PlannedRun], size: u32, measured: &Measured) -> Option<Self> {
        let alone = |run: &&PlannedRun| {
            run.strategy.training.micro_batch_size == size
                && run.scenario() == Scenario::SINGLE
                && run.strategy.positions().iter().all(|position| position.stage.layer_count() == 1)
        };
        let content = |layer| loadmaster_predict::profiling::stage_key(&study.model, layer, layer);
        let mut by_content = BTreeMap::new();
        let mut outcomes = Vec::new();
        for run in runs.iter().filter(alone) {
            let outcome = measured.of(&Job::new(&study.model, run))?;
            let measurement = outcome.measurements().first()?;
            let times = measurement.layers.first()?;
            let seconds = [times.forward_seconds, times.backward_seconds, measurement.step_seconds];
            by_content.insert(content(run.first_layer()), seconds);
            outcomes.push(outcome);
        }
        let layers = (0..study.model.layers().len()).map(|layer| by_content.get(&content(layer)).copied());
        Some(Self { start: start_seconds(&outcomes), layers: layers.collect::<Option<_>>()? })
    }

    /// Seconds of each device of a stage, for all iterations of a run.
    fn training(&self, stage: &StageConfig, training: &TrainingSpec) -> f64 {
        let again = if training.recompute == RecomputePolicy::None { 0.0 } else { 1.0 };
        let micro_batches = f64::from(training.micro_batches);
        let each = |[forward, backward, step]: &[f64; 3]| {
            micro_batches * (forward * (1.0 + again) + backward) + step
        };
        let iteration: f64 = self.layers[stage.layers()].iter().map(each).sum();
        f64::from(1 + ITERATIONS) * iteration / f64::from(stage.devices())
    }
}
