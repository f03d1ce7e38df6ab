//! CAPTURE's metrics of a profile, from the measurements of its profiling.

use std::collections::{BTreeMap, BTreeSet};

use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::model::Model;
use loadmaster_proto::training::stage::StageConfig;

use super::{Metrics, Setting, StagePeak, derive};
use crate::profiling::Representative;
use crate::profiling::runs::{Layout, ScenarioLayout, layer_names};

impl Layout {
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
        let mut derived = derive(&layer_names(model), &self.neighbours, &wanted, &peaks);
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

/// Adds to the measured peaks those of the stages that they stand for. Peaks of stages that no profiling
/// asked for are kept.
pub fn expand(representatives: &[Representative], peaks: &[StagePeak]) -> Vec<StagePeak> {
    let mut stands_for: BTreeMap<(usize, usize), Vec<StageConfig>> = BTreeMap::new();
    for &Representative { needed, measured } in representatives {
        if needed != measured {
            stands_for.entry((measured.first_layer, measured.last_layer)).or_default().push(needed);
        }
    }
    let mut expanded = peaks.to_vec();
    for &peak in peaks {
        let others = stands_for.get(&(peak.first_layer, peak.last_layer)).into_iter().flatten();
        expanded.extend(others.map(|needed| StagePeak {
            first_layer: needed.first_layer,
            last_layer: needed.last_layer,
            ..peak
        }));
    }
    expanded
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::measure::run::ProfilingMode;
    use loadmaster_proto::training::Schedule;

    use super::*;
    use crate::profiling::stages::stages;
    use crate::tests::{gpt2, ordered, training, vgg11};

    /// Every run of every scenario uses whole sub-meshes, at most all devices, and sizes that replicas can
    /// share; each scenario shows both metrics of every layer.
    #[test]
    fn every_scenario_of_the_paper_yields_its_own_metrics() {
        let model = vgg11();
        let settings = ordered(ProfilingMode::WholePipeline, &model, 16);
        let layout = Layout::new(&settings, &model).unwrap();
        assert_eq!(layout.scenarios.len(), 5);
        for run in &layout.runs {
            assert!(run.device_count() <= 16);
            assert_eq!(run.strategy.training.micro_batch_size % run.scenario().micro_batch_step(), 0);
            run.strategy.check(&model).unwrap();
        }
        let measured: Vec<StagePeak> = layout
            .runs
            .iter()
            .flat_map(|run| run.strategy.positions().into_iter().map(move |position| (run, position.stage)))
            .map(|(run, stage)| {
                let setting = Setting {
                    scenario: stage.scenario().unwrap(),
                    micro_batch_size: run.strategy.training.micro_batch_size,
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

    /// A size that did not fit is no gap when a smaller one is complete in its place.
    #[test]
    fn a_table_is_complete_with_as_many_sizes_as_were_wanted_whichever_they_are() {
        let model = gpt2(24);
        let settings = ordered(ProfilingMode::PerStage, &model, 4);
        let layout = Layout::new(&settings, &model).unwrap();
        let part = &layout.scenarios[0];
        let at = |size| -> Vec<StagePeak> {
            let stages = layout.runs.iter().flat_map(|run| run.strategy.positions());
            stages.map(|of| StagePeak::new(of.stage.first_layer, of.stage.last_layer, size, 4, 1)).collect()
        };
        let missing = |peaks: &[StagePeak]| part.metrics(&model, peaks, &[]).missing.len();
        assert_eq!(missing(&[at(4), at(8)].concat()), 0);
        assert_eq!(missing(&[at(4), at(2)].concat()), 0);
        assert_eq!(missing(&at(4)), 2 * model.layers().len() - 1, "one size is not two");
    }

    /// Measured peaks reach all stages that they stand for, and nothing is lost.
    #[test]
    fn expanded_peaks_complete_the_metrics() {
        let model = gpt2(24);
        let profiling = stages(&model, &training(Schedule::Gpipe, 8, 12), 4).unwrap();
        let peaks: Vec<StagePeak> = profiling
            .runs
            .iter()
            .map(|run| StagePeak::new(run.stage.first_layer, run.stage.last_layer, 4, 12, 1 << 30))
            .collect();
        let names: Vec<String> = model.layers().iter().map(|layer| layer.name.clone()).collect();
        let metrics = |peaks: &[StagePeak]| derive(&names, &profiling.neighbours, &[], peaks);
        assert!(!metrics(&peaks).missing.is_empty());
        assert!(metrics(&expand(&profiling.representatives, &peaks)).missing.is_empty());
    }
}
