//! A pipeline of real processes trains exactly the model that it was cut from.

use loadmaster_proto::model::Model;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use tch::{Kind, Tensor};

use crate::processes::{pipeline, run_all, small_gpt, small_vgg, training};
use crate::reference::{self, Reference};

const RECOMPUTE: [RecomputePolicy; 3] =
    [RecomputePolicy::None, RecomputePolicy::Stage, RecomputePolicy::Layer];
pub(crate) const ADAM: Optimizer =
    Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.01 };
pub(crate) const ADAMW: Optimizer =
    Optimizer::AdamW { learning_rate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 };
pub(crate) const SGD: Optimizer = Optimizer::Sgd { learning_rate: 0.02, momentum: 0.9, weight_decay: 0.01 };

/// Losses of four iterations (so three optimizer steps agree) and the gradients of the first one.
fn assert_same(
    reference: &Reference,
    model: &Model,
    training: TrainingSpec,
    sizes: &[usize],
    tolerance: f64,
) {
    let what = format!("{} {:?} {:?} {sizes:?}", model.family(), training.schedule, training.recompute);
    let folder = tempfile::tempdir().unwrap();
    let mut specs = pipeline(model, training, sizes, folder.path());
    for (index, spec) in specs.iter_mut().enumerate() {
        spec.dump_gradients = Some(folder.path().join(format!("{index}.safetensors")));
    }
    let measurements = run_all(&specs);

    let gradients: Vec<(String, Tensor)> = specs
        .iter()
        .flat_map(|spec| Tensor::read_safetensors(spec.dump_gradients.as_ref().unwrap()).unwrap())
        .collect();
    let mut compared = 0;
    for (name, gradient) in &gradients {
        // The copy of a tied weight goes by its own layer, but its gradient is the embedding's.
        let tied = format!("layers.{}.weight", model.layers().len() - 1);
        let original = if model.has_tied_head() && *name == tied { "layers.0.token" } else { name };
        let expected = &reference.gradients.iter().find(|(name, _)| name == original).unwrap().1;
        assert_close(gradient, expected, tolerance, &format!("{what} {name}"));
        compared += usize::from(original == name);
    }
    assert_eq!(compared, reference.gradients.len(), "{what}: every gradient is there");

    // The warm-up iteration's loss is not reported.
    let losses = &measurements.last().unwrap().losses;
    assert_eq!(losses.len() + 1, reference.losses.len(), "{what}");
    for (loss, expected) in losses.iter().zip(&reference.losses[1..]) {
        assert!(
            ((loss - expected) / expected).abs() < tolerance,
            "{what}: {losses:?} {:?}",
            reference.losses
        );
    }
    for measurement in &measurements[..measurements.len() - 1] {
        assert!(measurement.losses.is_empty(), "{what}");
    }
}

/// The largest difference, relative to the largest value.
pub(crate) fn assert_close(value: &Tensor, expected: &Tensor, tolerance: f64, what: &str) {
    assert_eq!(value.size(), expected.size(), "{what}");
    let (value, expected) = (value.to_kind(Kind::Double), expected.to_kind(Kind::Double));
    let scale = expected.abs().max().double_value(&[]).max(1e-12);
    let difference = (value - expected).abs().max().double_value(&[]) / scale;
    assert!(difference < tolerance, "{what}: differs by {difference} of the largest value");
}

pub(crate) fn assert_every_policy(model: &Model, training: TrainingSpec, sizes: &[usize]) {
    assert_every_policy_within(1e-4, model, training, sizes);
}

pub(crate) fn assert_every_policy_within(
    tolerance: f64,
    model: &Model,
    training: TrainingSpec,
    sizes: &[usize],
) {
    let reference = reference::train(model, training, 4);
    for recompute in RECOMPUTE {
        assert_same(&reference, model, TrainingSpec { recompute, ..training }, sizes, tolerance);
    }
}

#[test]
fn vgg_trains_under_gpipe_as_in_one_piece() {
    let training = TrainingSpec { optimizer: SGD, ..training() };
    assert_every_policy(&small_vgg(), training, &[3, 9, 11, 7]);
}

#[test]
fn vgg_trains_under_1f1b_as_in_one_piece() {
    let training = TrainingSpec { schedule: Schedule::OneFOneB, optimizer: SGD, ..training() };
    assert_every_policy(&small_vgg(), training, &[10, 12, 8]);
}

#[test]
fn tied_gpt_trains_under_gpipe_as_in_one_piece() {
    assert_every_policy(&small_gpt(false), TrainingSpec { optimizer: ADAM, ..training() }, &[2, 1, 3]);
}

#[test]
fn tied_gpt_trains_under_1f1b_as_in_one_piece() {
    let training =
        TrainingSpec { schedule: Schedule::OneFOneB, optimizer: SGD, micro_batches: 5, ..training() };
    // Four stages: the last one is no one's neighbour at the first, but shares a weight with it.
    assert_every_policy(&small_gpt(false), training, &[1, 2, 1, 2]);
}

#[test]
fn untied_gpt_trains_under_gpipe_as_in_one_piece() {
    assert_every_policy(&small_gpt(true), TrainingSpec { optimizer: SGD, ..training() }, &[3, 2, 1]);
}

#[test]
fn untied_gpt_trains_under_1f1b_as_in_one_piece() {
    let training = TrainingSpec { schedule: Schedule::OneFOneB, optimizer: ADAM, ..training() };
    assert_every_policy(&small_gpt(true), training, &[1, 1, 2, 2]);
}

/// Both ends of the tied weight in one stage, and a pipeline of two whose ends are neighbours.
#[test]
fn a_tied_weight_may_lie_in_one_stage_or_in_neighbours() {
    let (model, training) = (small_gpt(false), TrainingSpec { optimizer: ADAM, ..training() });
    let reference = reference::train(&model, training, 4);
    for sizes in [&[3, 3][..], &[6]] {
        assert_same(&reference, &model, training, sizes, 1e-4);
    }
}

/// Gradients that are added up in fp32: the weights that a plain loop finds which does the same by hand, with the
/// ends of a tied weight apart, in one stage, and with segments of one layer. The format is that of the dump.
#[test]
fn bf16_with_fp32_gradients_trains_as_in_one_piece() {
    let training = TrainingSpec {
        precision: Precision::Bf16Fp32Gradients,
        schedule: Schedule::OneFOneB,
        optimizer: ADAMW,
        ..training()
    };
    for is_untied in [true, false] {
        let model = small_gpt(is_untied);
        let reference = reference::train(&model, training, 4);
        for recompute in [RecomputePolicy::None, RecomputePolicy::Layer] {
            for sizes in [&[2, 1, 3][..], &[6]] {
                let training = TrainingSpec { recompute, ..training };
                assert_same(&reference, &model, training, sizes, 3e-2);
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let mut specs = pipeline(&small_gpt(false), training, &[3, 3], folder.path());
    specs[0].dump_gradients = Some(folder.path().join("gradients.safetensors"));
    run_all(&specs);
    let dumped = Tensor::read_safetensors(specs[0].dump_gradients.as_ref().unwrap()).unwrap();
    assert!(!dumped.is_empty() && dumped.iter().all(|(_, gradient)| gradient.kind() == Kind::Float));
}

#[test]
fn adamw_trains_as_in_one_piece() {
    let training = TrainingSpec { schedule: Schedule::OneFOneB, optimizer: ADAMW, ..training() };
    assert_every_policy(&small_gpt(false), training, &[2, 2, 2]);
}

#[test]
fn bf16_trains_as_in_one_piece() {
    let training = TrainingSpec {
        precision: Precision::Bf16,
        schedule: Schedule::OneFOneB,
        optimizer: ADAM,
        recompute: RecomputePolicy::Layer,
        ..training()
    };
    let model = small_gpt(false);
    let reference = reference::train(&model, training, 4);
    // Eight bits of mantissa, sums in another order.
    assert_same(&reference, &model, training, &[2, 2, 2], 0.05);
}
