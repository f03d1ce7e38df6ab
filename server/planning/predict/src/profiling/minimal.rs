//! The `minimal` profiling: what the `component` predictor needs, and nothing else.
//!
//! That predictor composes a stage from what its layers allocate and free in each pass. A layer alone on
//! a device shows that, whatever schedule, recompute policy or number of micro-batches the stage will
//! have.
//!
//! So each distinct layer runs once at each micro-batch size, under settings that are the same for
//! every profile ([`canonical`]). The runs of one profile serve all others of the same precision and
//! optimizer, and of other models with equal layers. Tensor shards hold other tensors and are measured
//! when asked for; replicas train the same layers at a part of the micro-batch and need no run.
//!
//! # Checks
//!
//! Up to three stages of several layers are measured besides, at the smallest profiled micro-batch size and
//! under the profile's own schedule and recompute policy. Predictors learn nothing from them; how far their
//! predictions miss is reported to users as the error of the others. The chain is cut into thirds, and of each
//! third the first [`CHECKED_LAYERS`] layers are trained, with at most [`CHECKED_MICRO_BATCHES`]
//! micro-batches, so that a check costs no more than a few runs of single layers. A check that does not
//! fit is left out.

use loadmaster_proto::measure::run::{SoloStage, Work};
use loadmaster_proto::model::Model;
use loadmaster_proto::training::scenario::Scenario;
use loadmaster_proto::training::stage::{Parallelism, StageConfig};
use loadmaster_proto::training::strategy::Strategy;
use loadmaster_proto::training::{RecomputePolicy, Schedule, TrainingSpec};

use super::planned_run::{PlannedRun, Purpose};
use super::stages::distinct_layers;

/// Most layers of a stage that checks predictions.
pub const CHECKED_LAYERS: usize = 8;
/// Most micro-batches of a run that checks predictions.
pub const CHECKED_MICRO_BATCHES: u32 = 4;
/// Stages that check predictions.
const CHECKS: usize = 3;

/// The settings under which single layers run: GPipe with two micro-batches, so that the first backward
/// pass creates gradients and the second adds to them, and nothing is recomputed.
pub fn canonical(training: &TrainingSpec) -> TrainingSpec {
    TrainingSpec {
        schedule: Schedule::Gpipe,
        micro_batches: 2,
        recompute: RecomputePolicy::None,
        seed: 0,
        ..*training
    }
}

/// Lays out the runs: single layers by size, scenario and layer, then the checks. Data parallelism adds
/// none.
pub fn minimal(
    model: &Model,
    training: &TrainingSpec,
    micro_batch_sizes: &[u32],
    scenarios: &[Scenario],
) -> Vec<PlannedRun> {
    let layers = distinct_layers(model);
    let measured: Vec<Scenario> =
        scenarios.iter().copied().filter(|of| of.parallelism != Parallelism::Data).collect();
    let canonical = canonical(training);
    let mut runs = Vec::new();
    for &size in micro_batch_sizes {
        for scenario in &measured {
            runs.extend(layers.iter().map(|&layer| PlannedRun {
                strategy: Strategy::plain(
                    canonical.with_micro_batch_size(size),
                    Work::Solo(alone(model, scenario.stage(layer, layer))),
                ),
                purpose: Purpose::Fit,
            }));
        }
    }
    if let Some(&smallest) = micro_batch_sizes.iter().min() {
        runs.extend(checks(model, training, smallest));
    }
    runs
}

/// The stages that predictions are held against.
fn checks(model: &Model, training: &TrainingSpec, micro_batch_size: u32) -> Vec<PlannedRun> {
    let layers = model.layers().len();
    // A stage of one layer would be one of those that predictors are made from.
    let parts = CHECKS.min(layers / 2);
    (0..parts)
        .map(|part| {
            let (first, end) = (part * layers / parts, (part + 1) * layers / parts);
            let last = (end - 1).min(first + CHECKED_LAYERS - 1);
            let training = TrainingSpec {
                micro_batches: training.micro_batches.min(CHECKED_MICRO_BATCHES),
                seed: 0,
                ..training.with_micro_batch_size(micro_batch_size)
            };
            let work = Work::Solo(alone(model, StageConfig::single(first, last)));
            PlannedRun { strategy: Strategy::plain(training, work), purpose: Purpose::Check }
        })
        .collect()
}

/// The stage between one stage before it and one after it, where the model has layers there.
fn alone(model: &Model, stage: StageConfig) -> SoloStage {
    let before = u32::from(stage.first_layer > 0);
    let after = u32::from(stage.last_layer + 1 < model.layers().len());
    SoloStage { stage, stage_count: before + 1 + after, stage_index: before }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::measure::run::ProfilingMode;
    use loadmaster_proto::training::{Optimizer, Precision};

    use super::*;
    use crate::profiling::stages::stage_key;
    use crate::tests::{gpt2, settings, training, vgg11};

    fn tensor(degree: u32) -> Scenario {
        Scenario { parallelism: Parallelism::Tensor, degree }
    }

    fn runs(model: &Model, scenarios: &[Scenario]) -> (Vec<PlannedRun>, Vec<PlannedRun>) {
        let runs = minimal(model, &training(Schedule::OneFOneB, 8, 12), &[2, 4], scenarios);
        runs.into_iter().partition(|run| run.purpose == Purpose::Fit)
    }

    /// The number of runs depends on the distinct layers alone: a GPT-2 of 96 blocks costs what one of 4
    /// costs, a tenth of CAPTURE's 10 (L − 1) runs and less.
    #[test]
    fn equal_layers_run_once_however_many_there_are() {
        for blocks in [4, 24, 96] {
            let (fit, checks) = runs(&gpt2(blocks), &[Scenario::SINGLE]);
            assert_eq!((fit.len(), checks.len()), (2 * 4, 3), "embedding, block, norm and head at two sizes");
            assert!(
                fit.len() + checks.len() <= 10 * (blocks as usize + 2) / if blocks > 20 { 10 } else { 1 }
            );
        }
    }

    /// Degrees multiply the runs of single layers, replicas need none.
    #[test]
    fn tensor_degrees_are_measured_and_data_degrees_follow() {
        let data = Scenario { parallelism: Parallelism::Data, degree: 2 };
        let (alone, _) = runs(&gpt2(4), &[Scenario::SINGLE, data]);
        let (sharded, checks) = runs(&gpt2(4), &[Scenario::SINGLE, data, tensor(2), tensor(4)]);
        assert_eq!(sharded.len(), 3 * alone.len());
        assert!(checks.iter().all(|run| run.device_count() == 1));
    }

    /// A worker accepts every run; single layers are under canonical settings, so that their keys are
    /// those of any other profile, and checks are under the profile's own.
    #[test]
    fn single_layers_have_the_same_keys_whatever_the_schedule() {
        for model in [gpt2(12), vgg11()] {
            let keys = |schedule, micro_batches, recompute| -> Vec<(String, Purpose)> {
                let training = TrainingSpec { recompute, ..training(schedule, 8, micro_batches) };
                let runs = minimal(&model, &training, &[2, 4], &[Scenario::SINGLE]);
                for run in &runs {
                    run.strategy.check(&model).unwrap();
                }
                let settings = settings(ProfilingMode::PerLayer, training, None);
                runs.iter().map(|run| (run.key(&model, &settings), run.purpose)).collect()
            };
            let one = keys(Schedule::Gpipe, 12, RecomputePolicy::None);
            let other = keys(Schedule::OneFOneB, 3, RecomputePolicy::Layer);
            for (one, other) in one.iter().zip(&other) {
                assert_eq!(one == other, one.1 == Purpose::Fit);
            }
        }
    }

    /// What was measured in one number format or under one update rule is never taken for another: gradients in
    /// fp32 and decoupled decay are settings of their own.
    #[test]
    fn number_formats_and_update_rules_have_keys_of_their_own() {
        let (learning_rate, beta1, beta2, epsilon, weight_decay) = (1e-3, 0.9, 0.95, 1e-8, 0.1);
        let adam = Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay };
        let adamw = Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay };
        let formats = [Precision::Fp32, Precision::Bf16, Precision::Bf16Fp32Gradients];
        let model = gpt2(2);
        let mut keys = std::collections::BTreeSet::new();
        for (precision, optimizer) in formats.into_iter().flat_map(|of| [(of, adam), (of, adamw)]) {
            let training = TrainingSpec { precision, optimizer, ..training(Schedule::Gpipe, 8, 2) };
            let runs = minimal(&model, &training, &[4], &[Scenario::SINGLE]);
            keys.insert(runs[0].key(&model, &settings(ProfilingMode::PerLayer, training, None)));
        }
        assert_eq!(keys.len(), 6);
    }

    /// Every layer of the model has an equal one that runs at every size.
    #[test]
    fn every_layer_is_stood_for() {
        let model = vgg11();
        let (fit, _) = runs(&model, &[Scenario::SINGLE]);
        for layer in 0..model.layers().len() {
            let wanted = stage_key(&model, layer, layer);
            let sizes =
                fit.iter().filter(|run| stage_key(&model, run.first_layer(), run.first_layer()) == wanted);
            assert_eq!(sizes.map(|run| run.strategy.training.micro_batch_size).collect::<Vec<_>>(), [2, 4]);
        }
    }

    /// Checks are of several layers, in different thirds, and never longer than a few layers.
    #[test]
    fn checks_are_short_stages_all_along_the_chain() {
        for layers in 1..=60 {
            let model = gpt2(layers);
            let (_, checks) = runs(&model, &[Scenario::SINGLE]);
            let stages: Vec<StageConfig> = checks
                .iter()
                .flat_map(|run| run.strategy.positions())
                .map(|position| position.stage)
                .collect();
            assert!(stages.iter().all(|stage| (2..=CHECKED_LAYERS).contains(&stage.layer_count())));
            assert!(stages.windows(2).all(|pair| pair[0].last_layer < pair[1].first_layer));
            assert_eq!(stages.len(), CHECKS.min(model.layers().len() / 2));
        }
    }
}
