//! The profiling of one profile: its scenarios, its runs, and what each scenario measures with them.
//!
//! A layout follows from the profile's settings alone, so it is recomputed whenever it is needed
//! rather than stored.

use std::collections::HashSet;

use loadmaster_proto::measure::run::{ProfilingMode, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::Parallelism;
use loadmaster_proto::training::strategy::Strategy;

use super::chunk_run::in_chunks;
use super::error::check_counts;
use super::minimal::minimal;
use super::neighbours::Neighbours;
use super::paper::{WholePipelineProfiling, paper};
use super::stages::{Representative, representatives, stages};
use super::{KeyedRun, PlannedRun, ProfilingError, Purpose, distinct_layers};

/// Most layers that the runs of a profiling may train, added up over whole models: a model of 1,000 layers
/// may have 20,000 runs.
const MAX_LAYERS_TRAINED: usize = 20_000_000;
/// Most runs of single layers: twice as many as the queue holds.
const MAX_RUNS: usize = 200_000;

/// A profiling laid out for one model and settings. What its measurements say, its `metrics`, is
/// [read by CAPTURE's rules](crate::capture::metrics::of_profiling).
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// What to train, in the order of the queue. Keys may repeat where scenarios share runs.
    pub runs: Vec<PlannedRun>,
    /// CAPTURE's metrics that the runs show, scenario by scenario. Empty under `minimal`, whose stages
    /// are measured for other predictors.
    pub scenarios: Vec<ScenarioLayout>,
}

/// What the runs of one scenario are to show.
#[derive(Debug, Clone, PartialEq)]
pub struct ScenarioLayout {
    /// How its stages are shared among devices.
    pub scenario: Scenario,
    /// Micro-batch sizes that it is measured at, ascending.
    pub micro_batch_sizes: Vec<u32>,
    /// Micro-batches in flight that it is measured with, ascending.
    pub in_flight: Vec<u32>,
    /// The neighbours that each layer's added memory is measured with.
    pub neighbours: Neighbours,
    /// The stages that the metrics are made of, and which of them runs for its equals where it runs alone.
    pub representatives: Vec<Representative>,
}

impl Layout {
    /// Lays out the profiling of a profile of `model`.
    ///
    /// # Errors
    /// No device, more devices than layers, or a profiling that cannot measure what is needed there.
    pub fn new(settings: &ProfileSettings, model: &Model) -> Result<Self, ProfilingError> {
        let training = &settings.training;
        let devices = settings.devices.unwrap_or(0);
        for &scenario in &settings.scenarios {
            check_split(model, scenario)?;
        }
        let layers = model.layers().len();
        let mut runs = Vec::new();
        let mut scenarios = Vec::new();
        for &scenario in &settings.scenarios {
            let micro_batch_sizes = sizes(settings, scenario);
            let (works, in_flight, neighbours, representatives) = match settings.profiling_mode {
                ProfilingMode::PerLayer => {
                    let count = distinct_layers(model)
                        .len()
                        .saturating_mul(settings.micro_batch_sizes.len())
                        .saturating_mul(settings.scenarios.len());
                    if count > MAX_RUNS {
                        return Err(ProfilingError::TooLarge { runs: count, layers });
                    }
                    // Its runs show no metrics, and scenarios of data parallelism not even runs.
                    runs = minimal(model, training, &settings.micro_batch_sizes, &settings.scenarios);
                    runs.extend(in_chunks(settings, model)?);
                    break;
                }
                // Whatever it holds was measured elsewhere.
                ProfilingMode::Imported => break,
                ProfilingMode::PerStage => {
                    let of = stages(model, training, devices as usize)?.shared(scenario);
                    let works: Vec<Work> = of.runs.into_iter().map(Work::Solo).collect();
                    (works, of.in_flight, of.neighbours, of.representatives)
                }
                ProfilingMode::WholePipeline => {
                    let of = sub_meshes(model, training, devices, scenario)?;
                    let works = of.partitionings.into_iter().map(Work::Partitioning).collect();
                    // The same for all stages: the profiling refuses schedules where it is not.
                    let in_flight = training.schedule.in_flight(devices, 0, training.micro_batches);
                    let representatives = representatives(model, &of.neighbours);
                    (works, vec![in_flight], of.neighbours, representatives)
                }
            };
            // Before anything is copied: settings may come from a file.
            let count = works.len().saturating_mul(micro_batch_sizes.len()).saturating_add(runs.len());
            if count.saturating_mul(layers) > MAX_LAYERS_TRAINED {
                return Err(ProfilingError::TooLarge { runs: count, layers });
            }
            for &size in &micro_batch_sizes {
                runs.extend(works.iter().map(|work| PlannedRun {
                    strategy: Strategy::plain(training.with_micro_batch_size(size), work.clone()),
                    purpose: Purpose::Fit,
                }));
            }
            scenarios.push(ScenarioLayout {
                scenario,
                micro_batch_sizes,
                in_flight,
                neighbours,
                representatives,
            });
        }
        Ok(Self { runs, scenarios })
    }

    /// The runs with their keys; a run that measures the same as an earlier one is left out.
    pub fn keyed(&self, settings: &ProfileSettings, model: &Model) -> Vec<KeyedRun> {
        let mut seen = HashSet::new();
        let keyed = self.runs.iter().map(|run| KeyedRun { key: run.key(model, settings), run: run.clone() });
        keyed
            .filter(|keyed| seen.insert((keyed.key.clone(), keyed.run.strategy.training.micro_batch_size)))
            .collect()
    }
}

/// Names of a model's layers, in order.
pub fn layer_names(model: &Model) -> Vec<String> {
    model.layers().iter().map(|layer| layer.name.clone()).collect()
}

/// Degrees that CAPTURE profiles.
pub const DEFAULT_DEGREES: [u32; 2] = [2, 4];

/// The scenarios of a request that names these kinds of parallelism and degrees. Nothing named means all
/// that the devices allow under `paper`, whose point they are, and single devices alone otherwise.
pub fn scenarios(
    profiling_mode: ProfilingMode,
    parallelisms: &[Parallelism],
    degrees: &[u32],
    (model, training, devices): (&Model, &TrainingSpec, Option<u32>),
) -> Vec<Scenario> {
    let degrees = if degrees.is_empty() { &DEFAULT_DEGREES[..] } else { degrees };
    let kinds = |parallelisms: &[Parallelism]| {
        let mut scenarios: Vec<Scenario> = parallelisms
            .iter()
            .filter(|&&parallelism| parallelism != Parallelism::None)
            .flat_map(|&parallelism| degrees.iter().map(move |&degree| Scenario { parallelism, degree }))
            .collect();
        scenarios.push(Scenario::SINGLE);
        scenarios.sort_unstable();
        scenarios.dedup();
        scenarios
    };
    if profiling_mode != ProfilingMode::WholePipeline || !parallelisms.is_empty() {
        return kinds(parallelisms);
    }
    let mut all = kinds(&[Parallelism::Data, Parallelism::Tensor]);
    // What holds for single devices is an error and not a matter of choice.
    all.retain(|&of| {
        let laid_out = || sub_meshes(model, training, devices.unwrap_or(0), of).is_ok();
        of == Scenario::SINGLE || check_split(model, of).is_ok() && laid_out()
    });
    all
}

/// Whether every layer can be split as often as a scenario does.
///
/// # Errors
/// The first layer that cannot, and why.
pub fn check_split(model: &Model, scenario: Scenario) -> Result<(), ProfilingError> {
    if scenario.parallelism != Parallelism::Tensor {
        return Ok(());
    }
    for (index, layer) in model.layers().iter().enumerate() {
        if let Err(invalid) = layer.kind.check_tensor_degree(scenario.degree) {
            let why = invalid.to_string();
            return Err(ProfilingError::NotSplit { scenario, layer: index, name: layer.name.clone(), why });
        }
    }
    Ok(())
}

/// Description 1 over the sub-meshes that the devices form in a scenario.
///
/// # Errors
/// As [`paper`]; for a scenario of several devices it is named.
pub fn sub_meshes(
    model: &Model,
    training: &TrainingSpec,
    devices: u32,
    scenario: Scenario,
) -> Result<WholePipelineProfiling, ProfilingError> {
    let layers = model.layers().len();
    if scenario == Scenario::SINGLE {
        check_counts(layers, devices as usize)?;
        return paper(layers, devices as usize, training);
    }
    if !devices.is_multiple_of(scenario.degree) {
        return Err(ProfilingError::NotDivisible { devices: devices as usize, scenario });
    }
    paper(layers, (devices / scenario.degree) as usize, training)
        .map(|laid_out| laid_out.shared(scenario))
        .map_err(|reason| ProfilingError::Scenario { scenario, reason: Box::new(reason) })
}

/// The micro-batch sizes that a scenario is measured at, ascending.
///
/// Replicas take equal parts of a micro-batch, so sizes are rounded down to multiples of the degree, and
/// up where nothing would be left; where two become one, the next multiple is the second.
pub fn sizes(settings: &ProfileSettings, scenario: Scenario) -> Vec<u32> {
    let all = &settings.micro_batch_sizes;
    let few = settings.scale_by_pipeline && scenario != Scenario::SINGLE;
    let chosen = if few { &all[all.len().saturating_sub(1)..] } else { &all[..] };
    let step = scenario.micro_batch_step();
    let mut sizes: Vec<u32> = Vec::with_capacity(chosen.len());
    for &size in chosen {
        let rounded = (size - size % step).max(step);
        let next = sizes.last().map_or(rounded, |&last| rounded.max(last.saturating_add(step)));
        sizes.push(next);
    }
    sizes
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::model::zoo::{Gpt2, Zoo};
    use loadmaster_proto::training::Schedule;
    use loadmaster_proto::training::stage::Parallelism;

    use super::*;
    use crate::profiling::runs::DEFAULT_DEGREES;
    use crate::tests::{gpt2, ordered, settings, training, vgg11};

    fn of(parallelism: Parallelism, degree: u32) -> Scenario {
        Scenario { parallelism, degree }
    }

    /// CAPTURE's five scenarios where the devices form three sub-meshes of four, fewer where they do not.
    #[test]
    fn the_papers_scenarios_are_those_that_the_devices_allow() {
        use Parallelism::{Data, Tensor};
        let of_devices = |devices| ordered(ProfilingMode::WholePipeline, &vgg11(), devices).scenarios;
        assert_eq!(of_devices(4), [Scenario::SINGLE]);
        assert_eq!(of_devices(6), [Scenario::SINGLE, of(Data, 2), of(Tensor, 2)]);
        assert_eq!(
            of_devices(8),
            [Scenario::SINGLE, of(Data, 2), of(Tensor, 2)],
            "two sub-meshes of 4 isolate no layer"
        );
        let five = [Scenario::SINGLE, of(Data, 2), of(Data, 4), of(Tensor, 2), of(Tensor, 4)];
        assert_eq!(of_devices(12), five);
        assert_eq!(of_devices(16), five);
        assert_eq!(DEFAULT_DEGREES, [2, 4]);
    }

    /// Runs of the paper's profiling against the minimal one's, for GPT-2 with 24 blocks.
    #[test]
    fn the_minimal_campaign_has_a_tenth_of_the_papers_runs() {
        let model = gpt2(24);
        let paper =
            Layout::new(&ordered(ProfilingMode::WholePipeline, &model, 16), &model).unwrap().runs.len();
        let minimal = Layout::new(&ordered(ProfilingMode::PerLayer, &model, 16), &model).unwrap().runs.len();
        assert_eq!((paper, minimal), (232, 11));
    }

    /// The option that the paper mentions: parallel scenarios at one size, the largest.
    #[test]
    fn scenarios_that_are_scaled_by_the_pipeline_are_measured_once() {
        let model = vgg11();
        let both = ordered(ProfilingMode::WholePipeline, &model, 16);
        let scaled = ProfileSettings { scale_by_pipeline: true, ..both.clone() };
        let layout = Layout::new(&scaled, &model).unwrap();
        let sizes: Vec<&[u32]> = layout.scenarios.iter().map(|part| &part.micro_batch_sizes[..]).collect();
        assert_eq!(sizes, [&[4, 8][..], &[8], &[8], &[8], &[8]]);
        let single = layout.runs.iter().filter(|run| run.scenario() == Scenario::SINGLE).count();
        let all = Layout::new(&both, &model).unwrap().runs.len();
        assert_eq!(layout.runs.len() - single, (all - single) / 2);
    }

    /// Sizes that replicas cannot share are rounded, and stay two.
    #[test]
    fn sizes_of_data_parallel_scenarios_are_multiples_of_the_degree() {
        let sizes_of = |sizes: &[u32], degree| {
            let settings = ProfileSettings {
                micro_batch_sizes: sizes.to_vec(),
                ..settings(ProfilingMode::WholePipeline, training(Schedule::Gpipe, 8, 4), Some(16))
            };
            super::sizes(&settings, of(Parallelism::Data, degree))
        };
        assert_eq!(sizes_of(&[23, 46], 4), [20, 44]);
        assert_eq!(sizes_of(&[1, 2], 4), [4, 8]);
        assert_eq!(sizes_of(&[2, 4], 2), [2, 4]);
        assert_eq!(sizes_of(&[1], 2), [2]);
    }

    /// What cannot be laid out is named with its scenario.
    #[test]
    fn scenarios_that_cannot_be_laid_out_are_refused_by_name() {
        let model = vgg11();
        let with = |scenario, devices| {
            let settings = ProfileSettings {
                scenarios: vec![Scenario::SINGLE, scenario],
                ..settings(ProfilingMode::WholePipeline, training(Schedule::Gpipe, 8, 4), Some(devices))
            };
            Layout::new(&settings, &model).unwrap_err().to_string()
        };
        let too_few = with(of(Parallelism::Data, 4), 8);
        assert!(too_few.contains("data-parallel size 4: in pipelines over 2 devices"), "{too_few}");
        let odd = with(of(Parallelism::Data, 4), 10);
        assert!(odd.contains("10 devices cannot be divided into groups of 4"), "{odd}");
        let heads = Zoo::Gpt2(Gpt2 { heads: 3, hidden_size: 96, ..Gpt2::default() }).build().unwrap();
        let settings = ProfileSettings {
            scenarios: vec![Scenario::SINGLE, of(Parallelism::Tensor, 2)],
            ..settings(ProfilingMode::PerLayer, training(Schedule::Gpipe, 8, 4), None)
        };
        let split = Layout::new(&settings, &heads).unwrap_err().to_string();
        assert!(split.contains("tensor-parallel size 2: layer 1") && split.contains("heads"), "{split}");
    }
}
