//! Stages that never flush against real ranks: as many versions of the weights as micro-batches in flight, to the byte.

use loadmaster_tests::Sampler;

use super::actions::{ActedRun, acted_pipeline, actions, cases, pick};
use super::*;

fn endless(training: TrainingSpec) -> TrainingSpec {
    TrainingSpec { schedule: Schedule::PipeDream, ..training }
}

/// Random stages of random pipelines, trained alone: few micro-batches and many, whatever is computed again.
fn random(model: &Model, training: TrainingSpec, degree: Degrees, seed: u64, count: usize) -> Vec<Run> {
    let (mut dice, layers) = (Sampler::new(seed), model.layers().len());
    let mut run = |_| {
        let first = dice.below(layers);
        let last = first + dice.below(layers - first);
        let training = TrainingSpec {
            recompute: pick(&mut dice, &POLICIES),
            micro_batches: 1 + dice.below(5) as u32,
            ..endless(training)
        };
        let mut run = Run::new(model, training, (first, last), degree);
        let (before, after) = (dice.below(first + 1) as u32, dice.below(layers - last) as u32);
        let after = after.min(5);
        (run.position.stage_index, run.position.stage_count) = (before, before + 1 + after);
        run
    };
    (0..cases(count)).map(&mut run).collect()
}

#[test]
fn stages_under_pipedream_are_predicted_to_the_byte() {
    let adam = TrainingSpec { optimizer: ADAM, ..training() };
    let plain = TrainingSpec {
        optimizer: Optimizer::Sgd { learning_rate: 0.01, momentum: 0.0, weight_decay: 0.0 },
        ..adam
    };
    for (seed, model, training) in [(1, vgg(), training()), (2, gpt2(true), adam), (3, gpt2(true), plain)] {
        let component = profile(&model, training, &[4], &[WHOLE]);
        assert_exact(&model, &component, &random(&model, training, WHOLE, seed, 10));
    }
}

/// Random stages with random actions: some layers are computed again, with the weights that their micro-batch went forward
/// with, and versions of these, activations, inputs and the optimizer's state leave.
fn assert_acted_exact(
    model: &Model,
    component: &Component,
    training: TrainingSpec,
    degree: Degrees,
    seed: u64,
    count: usize,
) {
    let mut dice = Sampler::new(seed);
    let mut differences = Vec::new();
    for mut run in random(model, training, degree, seed + 1, count) {
        run.training.recompute = RecomputePolicy::None;
        let actions = actions(model, &run.training, &run.position, &[], &mut dice);
        differences.extend(ActedRun::new(model, component, vec![run], &[actions]).differences(model));
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
#[ignore = "slow: make test-slow"]
fn acted_stages_under_pipedream_are_predicted_to_the_byte() {
    let (model, training) = (gpt2(true), TrainingSpec { optimizer: ADAM, ..training() });
    let component = profile(&model, training, &[4], &[WHOLE]);
    assert_acted_exact(&model, &component, training, WHOLE, 9, 24);
    let (model, training) = (vgg(), self::training());
    let component = profile(&model, training, &[4], &[WHOLE]);
    assert_acted_exact(&model, &component, training, WHOLE, 19, 10);
}

#[test]
fn acted_stages_under_pipedream_in_bf16_are_predicted_to_the_byte() {
    for precision in [Precision::Bf16, Precision::Bf16Fp32Gradients] {
        let (model, training) = (gpt2(true), TrainingSpec { optimizer: ADAM, precision, ..training() });
        let component = profile(&model, training, &[4], &[WHOLE]);
        assert_acted_exact(&model, &component, training, WHOLE, 29, 8);
    }
}

#[test]
fn acted_stages_of_amoebanet_under_pipedream_are_predicted_to_the_byte() {
    let model =
        Zoo::AmoebaNetD(AmoebaNet { cells: 3, filters: 16, image_size: 64, classes: 10 }).build().unwrap();
    let component = profile(&model, training(), &[4], &[WHOLE]);
    assert_acted_exact(&model, &component, training(), WHOLE, 39, 8);
}

/// Pipelines with real neighbours, whose stages put versions and all else on each other's devices.
#[test]
fn stages_under_pipedream_that_keep_blocks_of_others_are_predicted_to_the_byte() {
    let (model, training) = (gpt2(true), endless(TrainingSpec { optimizer: ADAM, ..training() }));
    let component = profile(&model, training, &[4], &[WHOLE]);
    let (mut dice, mut differences) = (Sampler::new(49), Vec::new());
    for _ in 0..cases(6) {
        let sizes = pick(&mut dice, &[[2, 2, 2], [1, 3, 2], [3, 2, 1]]);
        let training = TrainingSpec { micro_batches: 1 + dice.below(5) as u32, ..training };
        differences.extend(acted_pipeline(&model, &component, training, sizes, &mut dice));
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Versions are bf16, and there is one copy in fp32.
#[test]
fn stages_under_pipedream_in_bf16_are_predicted_to_the_byte() {
    for precision in [Precision::Bf16, Precision::Bf16Fp32Gradients] {
        let (model, training) = (gpt2(true), TrainingSpec { optimizer: ADAM, precision, ..training() });
        let component = profile(&model, training, &[4], &[WHOLE]);
        assert_exact(&model, &component, &random(&model, training, WHOLE, 4, 6));
    }
}

/// Two tensors at the edges between cells, and running statistics, of which there is one version.
#[test]
fn stages_of_amoebanet_under_pipedream_are_predicted_to_the_byte() {
    let model =
        Zoo::AmoebaNetD(AmoebaNet { cells: 3, filters: 16, image_size: 64, classes: 10 }).build().unwrap();
    let component = profile(&model, training(), &[4], &[WHOLE]);
    assert_exact(&model, &component, &random(&model, training(), WHOLE, 5, 6));
}

#[test]
fn replicas_and_shards_under_pipedream_are_predicted_to_the_byte() {
    let (model, training) = (gpt2(true), TrainingSpec { optimizer: ADAM, ..training() });
    for (seed, degree) in [(6, (2, 1)), (7, (1, 2)), (8, (2, 2))] {
        let component = profile(&model, training, &[4 / degree.0], &[(1, degree.1)]);
        assert_exact(&model, &component, &random(&model, training, degree, seed, 4));
    }
}

/// The stages of whole pipelines, each with real neighbours.
#[test]
fn pipelines_under_pipedream_are_predicted_to_the_byte() {
    let (model, training) = (gpt2(true), endless(TrainingSpec { optimizer: ADAM, ..training() }));
    let component = profile(&model, training, &[4], &[WHOLE]);
    for (sizes, micro_batches, recompute) in [
        (&[2, 2, 2][..], 4, RecomputePolicy::None),
        (&[1, 1, 2, 2], 1, RecomputePolicy::Layer),
        (&[3, 1, 1, 1], 3, RecomputePolicy::Stage),
    ] {
        let training = TrainingSpec { micro_batches, recompute, ..training };
        let partitioning = Partitioning::from_sizes(sizes).unwrap();
        let stage_count = sizes.len() as u32;
        let folder = tempfile::Builder::new().prefix("lmp").tempdir().unwrap();
        let runs: Vec<Run> = (0..)
            .zip(partitioning.stages())
            .map(|(stage_index, &stage)| Run {
                training,
                position: SoloStage { stage, stage_count, stage_index },
                pipeline: Some(partitioning.clone()),
            })
            .collect();
        let start = |run: &Run| {
            let edges = Edges::Sockets { partitioning: partitioning.clone() };
            start(&RankSpec { edges, iterations: 2, ..run.spec(&model, 0, folder.path()) })
        };
        let children: Vec<Child> = runs.iter().map(start).collect();
        for (run, child) in runs.iter().zip(children) {
            let SoloStage { stage, stage_count, stage_index } = run.position;
            let predicted =
                component.stage(&StageSetting { stage, stage_index, stage_count, training }).unwrap();
            let measured = end(child);
            assert_eq!(predicted.bytes, measured.peak_allocated, "{sizes:?} {stage_index} {predicted:?}");
            // All of the stage's weights, as often as micro-batches are in flight.
            let weights = predicted.breakdown.unwrap().weights;
            assert_eq!(weights, measured.static_bytes.parameters * u64::from(stage_count - stage_index));
        }
    }
}
