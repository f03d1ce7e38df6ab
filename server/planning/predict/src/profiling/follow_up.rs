//! Which runs a profile needs besides those of its profiling, because of what these showed.
//!
//! CAPTURE's added memory is a difference of two peaks at the same micro-batch size. A run that did not fit
//! was repeated at a smaller size by itself, but its partner was not, so the metrics of the scenario have
//! gaps at every size. Two rules close them (III-A1 asks for every `M_i` and `M_a`):
//!
//! * *A smaller size for all.* If fewer sizes are complete than were to be measured, the largest sizes
//!   that some run of the scenario was made at, and that no run of it was too large for, are completed.
//! * *Split differently.* A partitioning that does not fit at any size is replaced by those of its stages
//!   that are needed, each alone. They need the same memory there, and one that does not fit does not take
//!   the others along.
//!
//! No run is made twice, so this comes to an end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use loadmaster_proto::measure::measurement::Measurement;
use loadmaster_proto::measure::run::{SoloStage, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::profile::ProfileSettings;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::strategy::Strategy;

use super::remaining_runs::{Attempt, AttemptOutcome};
use super::runs::{Layout, ScenarioLayout};
use super::{KeyedRun, PlannedRun};

/// The runs to add, none where nothing can be gained. `measurements` are those of the profile.
pub fn follow_up(
    layout: &Layout,
    settings: &ProfileSettings,
    model: &Model,
    attempts: &[Attempt<'_>],
    measurements: &[&Measurement],
) -> Vec<KeyedRun> {
    let keyed = layout.keyed(settings, model);
    let mut made: HashSet<(String, u32)> =
        attempts.iter().map(|attempt| (attempt.key.to_owned(), attempt.micro_batch_size)).collect();
    let mut more = Vec::new();
    for part in &layout.scenarios {
        let of_scenario = keyed.iter().filter(|keyed| keyed.run.scenario() == part.scenario);
        let mut works: BTreeMap<String, WorkAnswers> = BTreeMap::new();
        for KeyedRun { key, run } in of_scenario {
            works.entry(key.clone()).or_insert_with(|| WorkAnswers::new(run.clone(), key, attempts));
        }
        let split: Vec<PlannedRun> = works
            .values()
            .filter(|work| work.is_hopeless())
            .flat_map(|work| alone(&work.run, part))
            .collect();
        for run in split {
            let key = run.key(model, settings);
            works.entry(key.clone()).or_insert_with(|| WorkAnswers::new(run, &key, attempts));
        }
        works.retain(|_, work| !work.is_hopeless());
        let works: Vec<WorkAnswers> = works.into_values().collect();
        for run in closing(&works, part, measurements) {
            let key = run.key(model, settings);
            if made.insert((key.clone(), run.strategy.training.micro_batch_size)) {
                more.push(KeyedRun { key, run });
            }
        }
    }
    more
}

/// A work of a scenario, at any size, and the sizes at which it has an answer.
#[derive(Debug)]
struct WorkAnswers {
    run: PlannedRun,
    measured: BTreeSet<u32>,
    too_large: BTreeSet<u32>,
}

impl WorkAnswers {
    fn new(run: PlannedRun, key: &str, attempts: &[Attempt<'_>]) -> Self {
        let sizes = |outcome| {
            let own = attempts.iter().filter(move |of| of.key == key && of.outcome == outcome);
            own.map(|attempt| attempt.micro_batch_size).collect()
        };
        // What was given up without an answer is left to a resumption.
        Self { run, measured: sizes(AttemptOutcome::Measured), too_large: sizes(AttemptOutcome::TooLarge) }
    }

    /// It was too large for its devices at every size.
    fn is_hopeless(&self) -> bool {
        self.measured.is_empty() && !self.too_large.is_empty()
    }
}

/// The stages of a partitioning that the metrics are made of, each alone, as the one that stands for its
/// equals; nothing for what is alone already.
fn alone(run: &PlannedRun, part: &ScenarioLayout) -> Vec<PlannedRun> {
    if matches!(run.strategy.work, Work::Solo(_)) {
        return Vec::new();
    }
    let layers = |stage: StageConfig| (stage.first_layer, stage.last_layer);
    let representatives = part.representatives.iter();
    let stands_for: HashMap<(usize, usize), (usize, usize)> =
        representatives.map(|of| (layers(of.needed), layers(of.measured))).collect();
    let positions = run.strategy.positions().into_iter();
    let alone = positions.filter_map(|position| {
        let &(first, last) = stands_for.get(&layers(position.stage))?;
        let position = SoloStage { stage: part.scenario.stage(first, last), ..position };
        let strategy = Strategy::plain(run.strategy.training, Work::Solo(position));
        Some(PlannedRun { strategy, ..run.clone() })
    });
    alone.collect()
}

/// The runs that close the gaps of one scenario, some of which may have been made.
fn closing(works: &[WorkAnswers], part: &ScenarioLayout, measurements: &[&Measurement]) -> Vec<PlannedRun> {
    let seen: HashSet<(usize, usize, u32)> = measurements
        .iter()
        .filter(|of| of.stage.scenario() == Some(part.scenario))
        .map(|of| (of.stage.first_layer, of.stage.last_layer, of.micro_batch_size))
        .collect();
    // A stage alone need not run where a partitioning showed it.
    let is_known = |work: &WorkAnswers, size: u32| {
        work.measured.contains(&size)
            || match &work.run.strategy.work {
                Work::Solo(SoloStage { stage, .. }) => {
                    seen.contains(&(stage.first_layer, stage.last_layer, size))
                }
                Work::Partitioning(_) => false,
            }
    };
    let wanted = part.micro_batch_sizes.len();
    let feasible = || works.iter().filter(|work| !work.measured.is_empty());
    let sizes: Vec<u32> = match feasible().filter_map(|work| work.measured.last()).min() {
        None => part.micro_batch_sizes.clone(),
        // The largest size that everything fits at which fits at all.
        Some(&largest) => {
            let measured: BTreeSet<u32> = feasible().flat_map(|work| work.measured.iter().copied()).collect();
            let mut sizes: Vec<u32> = measured.into_iter().filter(|&size| size <= largest).collect();
            // Complete sizes cost nothing; of the others the largest are nearest to the target.
            let is_complete = |size: u32| works.iter().all(|work| is_known(work, size));
            sizes.sort_by_key(|&size| (!is_complete(size), Reverse(size)));
            sizes.truncate(wanted);
            sizes
        }
    };
    let gaps = sizes.into_iter().flat_map(|size| {
        works.iter().filter(move |work| !is_known(work, size)).map(move |work| work.run.at(size))
    });
    gaps.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use loadmaster_proto::measure::run::ProfilingMode;
    use loadmaster_proto::training::Schedule;

    use super::*;
    use crate::tests::{measurement, settings, training, vgg11};

    /// A fleet that says how large a micro-batch of a stage it holds, and keeps what it was asked.
    struct Fleet {
        model: Model,
        settings: ProfileSettings,
        layout: Layout,
        largest: fn(StageConfig) -> u32,
        outcomes: HashMap<(String, u32), AttemptOutcome>,
        measured: Vec<Measurement>,
    }

    impl Fleet {
        fn new(profiling_mode: ProfilingMode, largest: fn(StageConfig) -> u32) -> Self {
            let model = vgg11();
            let settings = ProfileSettings {
                micro_batch_sizes: vec![4, 8],
                ..settings(profiling_mode, training(Schedule::Gpipe, 16, 4), Some(4))
            };
            let layout = Layout::new(&settings, &model).unwrap();
            Self { model, settings, layout, largest, outcomes: HashMap::new(), measured: Vec::new() }
        }

        /// Makes a run, and repeats it at the next smaller size that is not there when it does not fit.
        fn make(&mut self, keyed: KeyedRun) {
            let size = keyed.run.strategy.training.micro_batch_size;
            let stages = keyed.run.strategy.work.positions();
            if stages.iter().all(|position| size <= (self.largest)(position.stage)) {
                self.outcomes.insert((keyed.key, size), AttemptOutcome::Measured);
                let solo = matches!(keyed.run.strategy.work, Work::Solo(_));
                let measured = stages.iter().map(|position| measurement(position.stage));
                let as_made = |of| Measurement {
                    solo,
                    micro_batch_size: size,
                    in_flight: 4,
                    iteration_seconds: 0.0,
                    ..of
                };
                self.measured.extend(measured.map(as_made));
                return;
            }
            self.outcomes.insert((keyed.key.clone(), size), AttemptOutcome::TooLarge);
            let smaller = std::iter::successors(Some(size / 2), |size| Some(size / 2))
                .take_while(|&size| size >= 1)
                .find(|&size| !self.outcomes.contains_key(&(keyed.key.clone(), size)));
            if let Some(smaller) = smaller {
                self.make(KeyedRun { run: keyed.run.at(smaller), ..keyed });
            }
        }

        /// The profiling, then rounds until nothing is added; says how many runs each round had.
        fn run(&mut self) -> Vec<usize> {
            for keyed in self.layout.keyed(&self.settings, &self.model) {
                self.make(keyed);
            }
            let mut rounds = Vec::new();
            loop {
                let attempts: Vec<Attempt<'_>> = self
                    .outcomes
                    .iter()
                    .map(|((key, size), &outcome)| Attempt { key, micro_batch_size: *size, outcome })
                    .collect();
                let measured: Vec<&Measurement> = self.measured.iter().collect();
                let more = follow_up(&self.layout, &self.settings, &self.model, &attempts, &measured);
                if more.is_empty() {
                    return rounds;
                }
                assert!(rounds.len() < 10, "it comes to an end");
                rounds.push(more.len());
                more.into_iter().for_each(|keyed| self.make(keyed));
            }
        }

        fn missing(&self) -> usize {
            let measured: Vec<&Measurement> = self.measured.iter().collect();
            self.layout.metrics(&self.model, &measured).missing.len()
        }
    }

    /// Nothing is added where everything fits.
    #[test]
    fn a_campaign_that_fits_needs_nothing_besides() {
        for profiling_mode in [ProfilingMode::WholePipeline, ProfilingMode::PerStage, ProfilingMode::PerLayer]
        {
            let mut fleet = Fleet::new(profiling_mode, |_| 8);
            assert_eq!(fleet.run(), [0; 0], "{profiling_mode:?}");
            assert_eq!(fleet.missing(), 0);
        }
    }

    /// Some stages fit at 4 and below only: 2 is made everywhere, and every metric is there twice.
    #[test]
    fn the_partners_of_what_shrank_are_made_at_its_size() {
        let largest = |stage: StageConfig| if stage.first_layer == 0 && stage.last_layer > 3 { 4 } else { 8 };
        for profiling_mode in [ProfilingMode::WholePipeline, ProfilingMode::PerStage] {
            let mut fleet = Fleet::new(profiling_mode, largest);
            assert_eq!(fleet.run().len(), 1, "{profiling_mode:?}");
            assert_eq!(fleet.missing(), 0, "{profiling_mode:?}");
        }
    }

    /// Partitionings with a long rest never fit; their growing stages alone do.
    #[test]
    fn a_partitioning_that_never_fits_is_split() {
        // No stage of this length is needed for the metrics: the growing sets end at 9 layers.
        let mut fleet =
            Fleet::new(ProfilingMode::WholePipeline, |stage| if stage.layer_count() > 9 { 0 } else { 8 });
        let rounds = fleet.run();
        assert!(rounds.len() == 1 && rounds[0] > 0, "{rounds:?}");
        assert_eq!(fleet.missing(), 0);

        // The stages alone shrink, too, and their partners with them.
        let mut fleet = Fleet::new(ProfilingMode::WholePipeline, |stage| match stage.layer_count() {
            0..=6 => 8,
            7..=9 => 4,
            _ => 0,
        });
        assert!(fleet.run().len() <= 3);
        assert_eq!(fleet.missing(), 0);
    }

    /// What cannot be measured at all is tried once, and stays missing.
    #[test]
    fn a_layer_that_never_fits_stays_missing() {
        for profiling_mode in [ProfilingMode::WholePipeline, ProfilingMode::PerStage] {
            let mut fleet =
                Fleet::new(profiling_mode, |stage| if stage.layers().contains(&3) { 0 } else { 8 });
            fleet.run();
            assert!(fleet.missing() > 0, "{profiling_mode:?}");
        }
        let mut fleet = Fleet::new(ProfilingMode::PerStage, |_| 0);
        assert_eq!(fleet.run(), [0; 0]);
    }
}
