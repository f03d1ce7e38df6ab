//! The campaign of one profile: its runs, and what their measurements say.
//!
//! A layout follows from the profile's settings alone, so it is computed again whenever it is needed
//! rather than stored.

use std::collections::{BTreeSet, HashSet};

use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::{Campaign, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::scenario::Scenario;

use crate::campaign::minimal::minimal;
use crate::campaign::neighbours::Neighbours;
use crate::campaign::scenarios::{check_split, sizes, sub_meshes};
use crate::campaign::stages::{Representative, expand, representatives, stages};
use crate::campaign::{CampaignError, KeyedRun, PlannedRun, Purpose, distinct_layers};
use crate::predict::capture::metrics::{self, Metrics, Setting, StagePeak};

/// Most layers that the runs of a campaign may train, added up over whole models: a model of 1,000 layers
/// may have 20,000 runs.
const MAX_LAYERS_TRAINED: usize = 20_000_000;
/// Most runs of single layers: twice as many as the queue holds.
const MAX_RUNS: usize = 200_000;

/// A campaign laid out for one model and settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// What to train, in the order of the queue. Keys may repeat where scenarios share runs.
    pub runs: Vec<PlannedRun>,
    /// CAPTURE's metrics that the runs show, scenario by scenario. Empty under `minimal`, whose stages
    /// are measured for other predictors.
    pub scenarios: Vec<ScenarioLayout>,
}

/// What the runs of one scenario show.
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
    /// Lays out the campaign of a profile of `model`.
    ///
    /// # Errors
    /// No device, more devices than layers, or a campaign that cannot measure what is needed there.
    pub fn new(settings: &ProfileSettings, model: &Model) -> Result<Self, CampaignError> {
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
            let (works, in_flight, neighbours, representatives) = match settings.campaign {
                Campaign::Minimal => {
                    let count = distinct_layers(model)
                        .len()
                        .saturating_mul(settings.micro_batch_sizes.len())
                        .saturating_mul(settings.scenarios.len());
                    if count > MAX_RUNS {
                        return Err(CampaignError::TooLarge { runs: count, layers });
                    }
                    // Its runs show no metrics, and scenarios of data parallelism not even runs.
                    runs = minimal(model, training, &settings.micro_batch_sizes, &settings.scenarios);
                    break;
                }
                // Whatever it holds was measured elsewhere.
                Campaign::Imported => break,
                Campaign::Stages => {
                    let of = stages(model, training, devices as usize)?.shared(scenario);
                    let works: Vec<Work> = of.runs.into_iter().map(Work::Solo).collect();
                    (works, of.in_flight, of.neighbours, of.representatives)
                }
                Campaign::Paper => {
                    let of = sub_meshes(model, training, devices, scenario)?;
                    let works = of.partitionings.into_iter().map(Work::Partitioning).collect();
                    // The same for all stages: the campaign refuses schedules where it is not.
                    let in_flight = training.schedule.in_flight(devices, 0, training.micro_batches);
                    let representatives = representatives(model, &of.neighbours);
                    (works, vec![in_flight], of.neighbours, representatives)
                }
            };
            // Before anything is copied: settings may come from a file.
            let count = works.len().saturating_mul(micro_batch_sizes.len()).saturating_add(runs.len());
            if count.saturating_mul(layers) > MAX_LAYERS_TRAINED {
                return Err(CampaignError::TooLarge { runs: count, layers });
            }
            for &size in &micro_batch_sizes {
                runs.extend(works.iter().map(|work| PlannedRun {
                    training: training.with_micro_batch_size(size),
                    work: work.clone(),
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
        keyed.filter(|keyed| seen.insert((keyed.key.clone(), keyed.run.training.micro_batch_size))).collect()
    }

    /// Both metrics of every layer at every setting that was measured or was to be, and what is missing.
    pub fn metrics(&self, model: &Model, measurements: &[&Measurement]) -> Metrics {
        let (alone, whole): (Vec<&Measurement>, Vec<&Measurement>) =
            measurements.iter().copied().partition(|measurement| measurement.solo);
        let peaks =
            |of: Vec<&Measurement>| of.into_iter().filter_map(StagePeak::of).collect::<Vec<StagePeak>>();
        let (alone, whole) = (peaks(alone), peaks(whole));
        let mut all = Metrics::default();
        for part in &self.scenarios {
            let Metrics { layers, missing } = part.metrics(model, &alone, &whole);
            all.layers.extend(layers);
            all.missing.extend(missing);
        }
        all
    }
}

impl ScenarioLayout {
    /// The metrics of this scenario, from stages that ran alone, each for all its equals, and from stages
    /// of whole partitionings. Nothing is missing where as many micro-batch sizes are complete as were to
    /// be measured, be they other ones: runs that do not fit are made at smaller sizes.
    fn metrics(&self, model: &Model, alone: &[StagePeak], whole: &[StagePeak]) -> Metrics {
        let own = |peaks: &[StagePeak]| -> Vec<StagePeak> {
            peaks.iter().copied().filter(|peak| peak.setting.scenario == self.scenario).collect()
        };
        let mut peaks = expand(&self.representatives, &own(alone));
        peaks.extend(own(whole));
        let wanted = self.micro_batch_sizes.iter().flat_map(|&micro_batch_size| {
            self.in_flight.iter().map(move |&in_flight| Setting {
                scenario: self.scenario,
                micro_batch_size,
                in_flight,
            })
        });
        let wanted: Vec<Setting> = wanted.collect();
        let mut derived = metrics::derive(&layer_names(model), &self.neighbours, &wanted, &peaks);
        if self.complete_sizes(&derived).len() >= self.micro_batch_sizes.len() {
            derived.missing.clear();
        }
        derived
    }

    /// The micro-batch sizes at which every layer has both metrics with every number of micro-batches in
    /// flight.
    fn complete_sizes(&self, derived: &Metrics) -> BTreeSet<u32> {
        let mut sizes: BTreeSet<u32> =
            derived.layers.iter().map(|layer| layer.setting.micro_batch_size).collect();
        for &in_flight in &self.in_flight {
            let complete = |&size: &u32| {
                let mut of_size = derived
                    .layers
                    .iter()
                    .filter(|layer| {
                        layer.setting.micro_batch_size == size && layer.setting.in_flight == in_flight
                    })
                    .peekable();
                of_size.peek().is_some()
                    && of_size
                        .all(|layer| layer.isolated.is_some() && (layer.layer == 0 || layer.added.is_some()))
            };
            sizes.retain(complete);
        }
        sizes
    }
}

/// Names of a model's layers, in order.
pub fn layer_names(model: &Model) -> Vec<String> {
    model.layers().iter().map(|layer| layer.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::model::zoo::{Gpt2, Vgg, Zoo};
    use loadmaster_proto::training::Schedule;
    use loadmaster_proto::training::stage::Parallelism;

    use super::*;
    use crate::campaign::scenarios::{DEFAULT_DEGREES, scenarios};
    use crate::testing::{settings, training};

    fn vgg11() -> Model {
        Zoo::Vgg11(Vgg::default()).build().unwrap()
    }

    fn gpt2() -> Model {
        Zoo::Gpt2(Gpt2 { blocks: 24, ..Gpt2::default() }).build().unwrap()
    }

    fn of(parallelism: Parallelism, degree: u32) -> Scenario {
        Scenario { parallelism, degree }
    }

    /// What `loadmaster profile run` asks for with these devices and nothing else.
    fn ordered(campaign: Campaign, model: &Model, devices: u32) -> ProfileSettings {
        let training = training(Schedule::Gpipe, 16, 4);
        let scenarios = scenarios(campaign, &[], &[], (model, &training, Some(devices)));
        ProfileSettings {
            scenarios,
            micro_batch_sizes: vec![4, 8],
            ..settings(campaign, training, Some(devices))
        }
    }

    /// CAPTURE's five scenarios where the devices form three sub-meshes of four, fewer where they do not.
    #[test]
    fn the_papers_scenarios_are_those_that_the_devices_allow() {
        use Parallelism::{Data, Tensor};
        let of_devices = |devices| ordered(Campaign::Paper, &vgg11(), devices).scenarios;
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

    /// Every run of every scenario uses whole sub-meshes, at most all devices, and sizes that replicas can
    /// share; each scenario shows both metrics of every layer.
    #[test]
    fn every_scenario_of_the_paper_yields_its_own_metrics() {
        let model = vgg11();
        let settings = ordered(Campaign::Paper, &model, 16);
        let layout = Layout::new(&settings, &model).unwrap();
        assert_eq!(layout.scenarios.len(), 5);
        for run in &layout.runs {
            assert!(run.device_count() <= 16);
            assert_eq!(run.training.micro_batch_size % run.scenario().micro_batch_step(), 0);
            let spec = loadmaster_proto::measure::run::RunSpec {
                model: model.clone(),
                training: run.training,
                work: run.work.clone(),
                iterations: 1,
                stage_recompute: Vec::new(),
                command: None,
            };
            spec.checked().unwrap();
        }
        let measured: Vec<StagePeak> = layout
            .runs
            .iter()
            .flat_map(|run| run.work.positions().into_iter().map(move |position| (run, position.stage)))
            .map(|(run, stage)| {
                let setting = Setting {
                    scenario: stage.scenario().unwrap(),
                    micro_batch_size: run.training.micro_batch_size,
                    in_flight: 4,
                };
                StagePeak {
                    setting,
                    ..StagePeak::new(stage.first_layer, stage.last_layer, 1, 1, stage.layer_count() as u64)
                }
            })
            .collect();
        for part in &layout.scenarios {
            assert_eq!(part.metrics(&model, &[], &measured).missing, [""; 0], "{}", part.scenario);
            assert_eq!(part.metrics(&model, &[], &[]).missing.len(), 2 * (2 * 30 - 1));
        }
    }

    /// Runs of the paper's campaign against the minimal one's, for GPT-2 with 24 blocks.
    #[test]
    fn the_minimal_campaign_has_a_tenth_of_the_papers_runs() {
        let model = gpt2();
        let paper = Layout::new(&ordered(Campaign::Paper, &model, 16), &model).unwrap().runs.len();
        let minimal = Layout::new(&ordered(Campaign::Minimal, &model, 16), &model).unwrap().runs.len();
        assert_eq!((paper, minimal), (232, 11));
    }

    /// The option that the paper mentions: parallel scenarios at one size, the largest.
    #[test]
    fn scenarios_that_are_scaled_by_the_pipeline_are_measured_once() {
        let model = vgg11();
        let both = ordered(Campaign::Paper, &model, 16);
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
                ..settings(Campaign::Paper, training(Schedule::Gpipe, 8, 4), Some(16))
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
                ..settings(Campaign::Paper, training(Schedule::Gpipe, 8, 4), Some(devices))
            };
            Layout::new(&settings, &model).unwrap_err().to_string()
        };
        let too_few = with(of(Parallelism::Data, 4), 8);
        assert!(
            too_few.contains("data parallelism of degree 4: whole partitionings over 2 devices"),
            "{too_few}"
        );
        let odd = with(of(Parallelism::Data, 4), 10);
        assert!(odd.contains("10 devices do not form sub-meshes of 4"), "{odd}");
        let heads = Zoo::Gpt2(Gpt2 { heads: 3, hidden_size: 96, ..Gpt2::default() }).build().unwrap();
        let settings = ProfileSettings {
            scenarios: vec![Scenario::SINGLE, of(Parallelism::Tensor, 2)],
            ..settings(Campaign::Minimal, training(Schedule::Gpipe, 8, 4), None)
        };
        let split = Layout::new(&settings, &heads).unwrap_err().to_string();
        assert!(
            split.contains("tensor parallelism of degree 2: layer 1") && split.contains("heads"),
            "{split}"
        );
    }

    /// A size that did not fit is no gap when a smaller one is complete in its place.
    #[test]
    fn a_table_is_complete_with_as_many_sizes_as_were_wanted_whichever_they_are() {
        let model = gpt2();
        let settings = ordered(Campaign::Stages, &model, 4);
        let layout = Layout::new(&settings, &model).unwrap();
        let part = &layout.scenarios[0];
        let at = |size| -> Vec<StagePeak> {
            let stages = layout.runs.iter().flat_map(|run| run.work.positions());
            stages.map(|of| StagePeak::new(of.stage.first_layer, of.stage.last_layer, size, 4, 1)).collect()
        };
        let missing = |peaks: &[StagePeak]| part.metrics(&model, peaks, &[]).missing.len();
        assert_eq!(missing(&[at(4), at(8)].concat()), 0);
        assert_eq!(missing(&[at(4), at(2)].concat()), 0);
        assert_eq!(missing(&at(4)), 2 * model.layers().len() - 1, "one size is not two");
    }
}
