//! Every family of models trains in pipelines exactly as in one piece, also when layers are recomputed.

use loadmaster_proto::model::Model;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};

use crate::correctness::{ADAM, SGD, assert_every_policy, assert_every_policy_within};
use crate::models::{families, small_amoebanet, small_bert, small_llama, small_qwen3, small_transgan};
use crate::processes::{pipeline, run_all, training};
use crate::reference;

const SMALL_STEPS: Optimizer = Optimizer::Sgd { learning_rate: 1e-4, momentum: 0.9, weight_decay: 0.01 };

/// Once with each optimizer and each schedule.
fn assert_trains_as_in_one_piece(model: &Model, gpipe: &[usize], one_f_one_b: &[usize]) {
    assert_every_policy(model, TrainingSpec { optimizer: ADAM, ..training() }, gpipe);
    let training = TrainingSpec { schedule: Schedule::OneFOneB, optimizer: SGD, ..training() };
    assert_every_policy(model, training, one_f_one_b);
}

#[test]
fn bert_trains_as_in_one_piece() {
    assert_trains_as_in_one_piece(&small_bert(), &[2, 4], &[1, 2, 3]);
}

#[test]
fn llama_trains_as_in_one_piece() {
    assert_trains_as_in_one_piece(&small_llama(), &[2, 3], &[1, 2, 2]);
}

#[test]
fn qwen3_trains_as_in_one_piece() {
    assert_trains_as_in_one_piece(&small_qwen3(), &[3, 2], &[2, 1, 2]);
}

/// Two tensors cross the edges between cells. Normalisations of a few values each, one behind the other,
/// make rounding grow, so the steps are small and the tolerance is not.
#[test]
fn amoebanet_trains_as_in_one_piece() {
    let model = small_amoebanet();
    let gpipe = TrainingSpec { optimizer: SMALL_STEPS, ..training() };
    assert_every_policy_within(1e-3, &model, gpipe, &[4, 5]);
    let one_f_one_b = TrainingSpec { schedule: Schedule::OneFOneB, ..gpipe };
    assert_every_policy_within(1e-3, &model, one_f_one_b, &[2, 3, 4]);
}

/// The loss is a mean square, the input a vector.
#[test]
fn transgan_trains_as_in_one_piece() {
    assert_trains_as_in_one_piece(&small_transgan(), &[3, 4], &[2, 3, 2]);
}

/// Also with eight bits of mantissa. How far rounding leads there says nothing, so the losses are compared
/// loosely; that every byte between iterations is accounted for the rank checks itself.
#[test]
fn every_family_trains_in_bf16() {
    for model in families() {
        let bf16 = TrainingSpec {
            precision: Precision::Bf16,
            recompute: RecomputePolicy::Layer,
            optimizer: SMALL_STEPS,
            ..training()
        };
        let reference = reference::train(&model, bf16, 4);
        let folder = tempfile::tempdir().unwrap();
        let measured = run_all(&pipeline(&model, bf16, &[model.layers().len()], folder.path()));
        for (loss, expected) in measured[0].losses.iter().zip(&reference.losses[1..]) {
            let difference = (loss - expected).abs() / expected;
            assert!(difference < 0.1, "{}: {loss} {expected}", model.family());
        }
    }
}
