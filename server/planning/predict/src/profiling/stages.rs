//! The `stages` profiling: each distinct stage that the predictor needs, alone on one device.
//!
//! Stages with one [`stage_key`] need the same memory.
//!
//! A stage's memory depends on its layers, on what crosses its edges and on how many micro-batches
//! are in flight, not on who its neighbours are. So every stage of CAPTURE's growing sets can run by
//! itself with synthetic edges, on as many workers as there are, and stages of equal content run
//! once. The 24 equal blocks of a transformer need a handful of runs.
//!
//! Under GPipe every stage holds all micro-batches. Under 1F1B stage s of S holds min(m, S − s), so
//! the stages are profiled at 1 and at min(m, G) in flight and the predictor reads a line between.
//!
//! CAPTURE's other scenarios are the same stages, each shared among several devices.

use std::collections::HashMap;

use loadmaster_proto::measure::run::SoloStage;
use loadmaster_proto::model::layer::{LayerKind, Shape, fingerprint};
use loadmaster_proto::model::{Loss, Model, ModelInput};
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Schedule, TrainingSpec};
use serde::{Deserialize, Serialize};

use super::error::{ProfilingError, check_counts};
use super::neighbours::Neighbours;

/// The runs to make at each profiled micro-batch size, and what they stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerStageProfiling {
    /// One per distinct stage and number of micro-batches in flight, in order of [`Self::in_flight`],
    /// then of the stage.
    pub runs: Vec<SoloStage>,
    /// Which measured stage stands for which needed one; every needed stage occurs once, in order.
    pub representatives: Vec<Representative>,
    /// Micro-batches in flight that the stages are profiled at, ascending: one or two values.
    pub in_flight: Vec<u32>,
    /// The neighbours that each layer's added memory is measured with.
    pub neighbours: Neighbours,
}

/// A stage that the predictor needs and the stage of equal content that is run for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Representative {
    /// The needed stage.
    pub needed: StageConfig,
    /// The first stage of the same content; often `needed` itself.
    pub measured: StageConfig,
}

/// Lays out the solo runs for a model over `devices` devices.
///
/// # Errors
/// No device, or more devices than layers.
pub fn stages(
    model: &Model,
    training: &TrainingSpec,
    devices: usize,
) -> Result<PerStageProfiling, ProfilingError> {
    let layers = model.layers().len();
    check_counts(layers, devices)?;
    let neighbours = Neighbours::growing(layers, devices);
    let representatives = representatives(model, &neighbours);

    let in_flight = profiled_in_flight(training, devices);
    let runs = in_flight
        .iter()
        .flat_map(|&in_flight| {
            representatives
                .iter()
                .filter(|representative| representative.needed == representative.measured)
                .map(move |representative| position(representative.measured, layers, training, in_flight))
        })
        .collect();
    Ok(PerStageProfiling { runs, representatives, in_flight, neighbours })
}

impl PerStageProfiling {
    /// The same runs with every stage shared among several devices.
    #[must_use]
    pub fn shared(mut self, scenario: Scenario) -> Self {
        for SoloStage { stage, .. } in &mut self.runs {
            *stage = scenario.stage(stage.first_layer, stage.last_layer);
        }
        self
    }
}

/// The stages that the metrics are made of, in order, each with the first one of the same content.
pub fn representatives(model: &Model, neighbours: &Neighbours) -> Vec<Representative> {
    let alone = (0..neighbours.layers()).map(|layer| (layer, layer));
    let mut needed: Vec<StageConfig> = alone.chain(neighbours.stages()).map(single).collect();
    needed.sort_by_key(|stage| (stage.first_layer, stage.last_layer));
    let mut first_of_content: HashMap<String, StageConfig> = HashMap::new();
    needed
        .into_iter()
        .map(|needed| {
            let content = stage_key(model, needed.first_layer, needed.last_layer);
            Representative { needed, measured: *first_of_content.entry(content).or_insert(needed) }
        })
        .collect()
}

/// The numbers of micro-batches in flight to profile at.
fn profiled_in_flight(training: &TrainingSpec, devices: usize) -> Vec<u32> {
    let stages = u32::try_from(devices).unwrap_or(u32::MAX);
    let most = training.schedule.in_flight(stages, 0, training.micro_batches);
    let mut in_flight = match training.schedule {
        Schedule::Gpipe => vec![most],
        Schedule::OneFOneB | Schedule::PipeDream => vec![1, most],
    };
    in_flight.dedup();
    in_flight
}

fn single((first_layer, last_layer): (usize, usize)) -> StageConfig {
    StageConfig::single(first_layer, last_layer)
}

/// The shortest imagined pipeline in which a stage holds `in_flight` micro-batches, with a stage
/// before it and one after it where the model has layers there.
///
/// Under 1F1B the numbers decide: a stage at 1 in flight is the last of its pipeline even if the
/// model has layers after it. Whether a stage takes the model's input or computes its loss is
/// always a matter of its layers, never of its position.
fn position(stage: StageConfig, layers: usize, training: &TrainingSpec, in_flight: u32) -> SoloStage {
    let before = u32::from(stage.first_layer > 0);
    let after = u32::from(stage.last_layer + 1 < layers);
    let from_here = if training.schedule.in_flight(1 + after, 0, training.micro_batches) == in_flight {
        1 + after
    } else {
        in_flight
    };
    // A pipeline never has more stages than the model has layers.
    let before = if (before + from_here) as usize > layers { 0 } else { before };
    SoloStage { stage, stage_count: before + from_here, stage_index: before }
}

/// A content id of a stage: its layers, the shapes that enter it, and three facts. The first is whether it is the
/// model's first stage, which reads the data. The second is whether it is the last, which computes the loss. The third
/// is whether any layer before it has parameters: without these, its input carries no gradient inside a longer stage.
/// A tied head is a layer of its own kind. Whether it holds its own copy of the embedding follows from the stage being
/// first as well.
///
/// Names of layers do not count: `block.3` and `block.4` are equal.
///
/// ```
/// use loadmaster_predict::profiling::stage_key;
/// use loadmaster_proto::model::zoo::{Gpt2, Zoo};
///
/// let model = Zoo::Gpt2(Gpt2 { blocks: 8, ..Gpt2::default() }).build()?;
/// assert_eq!(stage_key(&model, 3, 4), stage_key(&model, 4, 5));
/// assert_ne!(stage_key(&model, 3, 4), stage_key(&model, 3, 5));
/// # Ok::<(), loadmaster_proto::error::Invalid>(())
/// ```
pub fn stage_key(model: &Model, first_layer: usize, last_layer: usize) -> String {
    #[derive(Serialize)]
    struct Content<'a> {
        layers: Vec<&'a LayerKind>,
        inputs: &'a [Shape],
        data: Option<(ModelInput, Loss)>,
        /// Whether a weight's other end is in another stage, with which gradients are exchanged.
        exchanges: bool,
        follows_parameters: bool,
        is_last: bool,
    }
    let layers = model.layers().get(first_layer..=last_layer).unwrap_or_default();
    let (is_first, is_last) = (first_layer == 0, last_layer + 1 == model.layers().len());
    fingerprint(&Content {
        layers: layers.iter().map(|layer| &layer.kind).collect(),
        inputs: model.edge(first_layer),
        data: (is_first || is_last).then(|| (model.input(), model.loss())),
        exchanges: model.has_tied_head() && is_first != is_last,
        follows_parameters: model
            .layers()
            .iter()
            .take(first_layer)
            .any(|layer| layer.kind.parameter_count() > 0),
        is_last,
    })
}

/// The first layer of each content, in order: what has to be measured of a model whose layers repeat.
pub fn distinct_layers(model: &Model) -> Vec<usize> {
    let mut seen = std::collections::HashSet::new();
    (0..model.layers().len()).filter(|&layer| seen.insert(stage_key(model, layer, layer))).collect()
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::measure::run::Work;
    use loadmaster_proto::model::zoo::{Gpt2, Zoo};
    use loadmaster_proto::training::strategy::Strategy;

    use super::*;
    use crate::tests::{gpt2, training, vgg11};

    /// Equal blocks run once: 53 needed stages of a 24-block GPT-2 come down to 20 runs, and twice
    /// as many blocks cost runs only because the growing sets get longer.
    #[test]
    fn stages_of_equal_content_run_once() {
        let training = training(Schedule::Gpipe, 8, 12);
        let profiling = stages(&gpt2(24), &training, 4).unwrap();
        assert_eq!(profiling.representatives.len(), 2 * 27 - 1);
        assert_eq!(profiling.runs.len(), 20);
        assert_eq!(stages(&gpt2(48), &training, 4).unwrap().runs.len(), 32);
    }

    /// Every needed stage has a representative that runs, and both have the same content.
    #[test]
    fn every_needed_stage_is_stood_for_by_an_equal_one_that_runs() {
        for model in [gpt2(12), vgg11()] {
            let profiling = stages(&model, &training(Schedule::Gpipe, 8, 12), 4).unwrap();
            for &Representative { needed, measured } in &profiling.representatives {
                assert!(profiling.runs.iter().any(|run| run.stage == measured), "{needed}");
                assert_eq!(
                    stage_key(&model, needed.first_layer, needed.last_layer),
                    stage_key(&model, measured.first_layer, measured.last_layer)
                );
            }
        }
    }

    /// What enters the model needs no gradient and what leaves it has a loss: a block at an end is
    /// another stage than one inside. So is a layer with another input shape.
    #[test]
    fn ends_of_the_model_and_input_shapes_make_stages_different() {
        let model = vgg11();
        assert_ne!(stage_key(&model, 1, 1), stage_key(&model, 4, 4), "same relu, other shape");
        assert_eq!(stage_key(&model, 11, 12), stage_key(&model, 11, 12));
        let blocks = gpt2(4);
        assert_eq!(stage_key(&blocks, 1, 2), stage_key(&blocks, 3, 4));
        assert_ne!(stage_key(&blocks, 5, 6), stage_key(&blocks, 4, 5));
        let untied = Zoo::Gpt2(Gpt2 { blocks: 4, untied_head: true, ..Gpt2::default() }).build().unwrap();
        assert_ne!(stage_key(&blocks, 6, 6), stage_key(&untied, 6, 6));
    }

    /// A worker accepts every run, and the run holds as many micro-batches as it was made for.
    #[test]
    fn every_run_is_valid_and_has_the_in_flight_it_was_made_for() {
        for schedule in Schedule::ALL {
            for micro_batches in [1, 2, 3, 12] {
                for devices in [1, 2, 3, 4, 15] {
                    let training = training(schedule, 8, micro_batches);
                    let untied_head = schedule.updates_always();
                    let gpt2 = Gpt2 { blocks: 12, untied_head, ..Gpt2::default() };
                    let model = Zoo::Gpt2(gpt2).build().unwrap();
                    let profiling = stages(&model, &training, devices).unwrap();
                    let per_value = profiling.runs.len() / profiling.in_flight.len();
                    for (index, &run) in profiling.runs.iter().enumerate() {
                        let in_flight = schedule.in_flight(run.stage_count, run.stage_index, micro_batches);
                        assert_eq!(in_flight, profiling.in_flight[index / per_value], "{run:?}");
                        Strategy::plain(training, Work::Solo(run)).check(&model).unwrap();
                    }
                }
            }
        }
    }

    /// 1F1B needs a second point because stages differ; GPipe does not.
    #[test]
    fn one_f_one_b_is_profiled_at_one_and_at_most_in_flight() {
        let in_flight = |schedule, micro_batches, devices| {
            stages(&gpt2(12), &training(schedule, 8, micro_batches), devices).unwrap().in_flight
        };
        assert_eq!(in_flight(Schedule::Gpipe, 12, 4), [12]);
        assert_eq!(in_flight(Schedule::OneFOneB, 12, 4), [1, 4]);
        assert_eq!(in_flight(Schedule::OneFOneB, 3, 4), [1, 3]);
        assert_eq!(in_flight(Schedule::OneFOneB, 1, 4), [1]);
        assert_eq!(in_flight(Schedule::OneFOneB, 12, 1), [1]);
        // Micro-batches of the next iterations follow.
        assert_eq!(in_flight(Schedule::PipeDream, 1, 4), [1, 4]);
    }

    #[test]
    fn counts_that_do_not_match_are_refused() {
        let training = training(Schedule::Gpipe, 8, 12);
        assert_eq!(
            stages(&gpt2(1), &training, 5).unwrap_err(),
            ProfilingError::MoreStagesThanLayers { devices: 5, layers: 4 }
        );
        assert_eq!(stages(&gpt2(1), &training, 0).unwrap_err(), ProfilingError::NoDevices);
    }
}
