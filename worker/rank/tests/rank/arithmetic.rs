//! The arithmetic of `loadmaster-proto` is that of the tensors that a rank really makes.

use loadmaster_proto::chunks::layout::{List, Lists};
use loadmaster_proto::chunks::packing::{ChunkLayout, Packing};
use loadmaster_proto::chunks::sequence::Sequence;
use loadmaster_proto::model::Model;
use loadmaster_proto::training::actions::{StageActions, Steps};
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Precision, TrainingSpec};
use loadmaster_rank::movement::Movement;
use loadmaster_rank::pipeline::{Forwarded, MicroBatch, Share, Stage};
use tch::{Device, Kind, Tensor};

use crate::correctness::ADAM;
use crate::models::families;
use crate::processes::{small_gpt, small_vgg, training};
use crate::reference::alone;

fn build(model: &Model, first: usize, last: usize, training: &TrainingSpec) -> Stage {
    let config = StageConfig::single(first, last);
    let steps = Steps::of_stage(training, &config, (0, 1), &StageActions::default(), false);
    let share = Share::single(config);
    Stage::build(model, &share, training, &Movement::none(steps), Device::Cpu).unwrap()
}

/// Every layer yields the shape and holds the parameters that the arithmetic says.
#[test]
fn shapes_and_parameters_are_as_computed() {
    let _turn = alone();
    for model in [small_vgg(), small_gpt(false), small_gpt(true)].into_iter().chain(families()) {
        let training = training();
        let samples = i64::from(training.micro_batch_size);
        let with_samples = |edge: usize| -> Vec<Vec<i64>> {
            model.edge(edge).iter().map(|shape| [&[samples][..], shape].concat()).collect()
        };
        for index in 0..model.layers().len() {
            let mut stage = build(&model, index, index, &training);
            let expected: Vec<Vec<i64>> =
                model.stage_parameters(index, index).into_iter().map(|parameter| parameter.shape).collect();
            let made: Vec<Vec<i64>> = stage.trained().iter().map(|trained| trained.value.size()).collect();
            assert_eq!(made, expected, "{}", model.layers()[index].name);

            let ones = |shape: Vec<i64>| Tensor::ones(shape, (Kind::Float, Device::Cpu));
            let input = (index > 0).then(|| with_samples(index).into_iter().map(ones).collect());
            match stage.forward(MicroBatch { iteration: 0, index: 0, in_steps: 0 }, input).unwrap() {
                Forwarded::Activation(outputs) => {
                    let sizes: Vec<Vec<i64>> = outputs.iter().map(Tensor::size).collect();
                    assert_eq!(sizes, with_samples(index + 1), "{}", model.layers()[index].name);
                }
                Forwarded::Loss(loss) => {
                    assert_eq!(index + 1, model.layers().len());
                    assert!(loss > 0.0);
                }
            }
        }
    }
}

/// What is laid out in chunks is what a rank trains: the same tensors in the same order, each with the name, the shape and
/// the bytes that it has here, the copy of a tied weight included. No layer shares an atom with another.
#[test]
fn chunks_are_laid_out_for_the_tensors_of_a_rank() {
    let _turn = alone();
    for model in [small_vgg(), small_gpt(false), small_gpt(true)].into_iter().chain(families()) {
        let last = model.layers().len() - 1;
        let stages = (0..=last).map(|layer| (layer, layer)).chain([(0, last), (1, last)]);
        for (first, last) in stages {
            for (precision, kind) in [(Precision::Fp32, Kind::Float), (Precision::Bf16, Kind::BFloat16)] {
                let training = TrainingSpec { precision, optimizer: ADAM, ..training() };
                let stage = build(&model, first, last, &training);
                let config = StageConfig::single(first, last);
                let sequence = Sequence::of_stage(&model, &config, 0);
                let named = model.rank_parameters(&config, 0);
                let told: Vec<(&str, Vec<i64>)> =
                    named.iter().map(|of| (of.whole.name, of.shape())).collect();
                let made: Vec<(&str, Vec<i64>)> =
                    stage.trained().iter().map(|of| (of.name, of.value.size())).collect();
                assert_eq!(made, told, "{} {first}..{last}", model.family());
                let mut trained = stage.trained().iter();
                for atom in sequence.atoms() {
                    let layers: Vec<usize> = trained.by_ref().take(atom.len()).map(|of| of.layer).collect();
                    assert!(layers.len() == atom.len() && layers.iter().all(|layer| *layer == layers[0]));
                }
                assert!(trained.next().is_none(), "each tensor is in an atom");
                if told.is_empty() {
                    continue;
                }

                let lists = Lists::new(precision, &training.optimizer).unwrap();
                let packing = Packing::new(&sequence, ChunkLayout::Aligned, lists).unwrap();
                let layout = packing.lay_out(1024).unwrap();
                assert_eq!(layout.tensors().len(), stage.trained().len());
                for (place, trained) in layout.tensors().iter().zip(stage.trained()) {
                    let bytes = |tensor: &Tensor| (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64;
                    let in_list = |list| place.elements * lists.scalar_bytes(list);
                    assert_eq!(
                        (trained.value.kind(), bytes(&trained.value)),
                        (kind, in_list(List::Parameters))
                    );
                    let copy = trained.master.as_ref().unwrap_or(&trained.value);
                    assert_eq!((copy.kind(), bytes(copy)), (Kind::Float, in_list(List::Fp32Copy)));
                }
            }
        }
    }
}

/// A layer starts the same in whatever stage it is, and the copy of a tied weight as its original.
#[test]
fn parameters_do_not_depend_on_the_partitioning() {
    let _turn = alone();
    let (model, training) = (small_gpt(false), training());
    let whole = build(&model, 0, 5, &training);
    for (first, last) in [(0, 0), (1, 3), (2, 2), (4, 5), (5, 5)] {
        let stage = build(&model, first, last, &training);
        for trained in stage.trained() {
            let is_copy = trained.layer == 5;
            let original = whole
                .trained()
                .iter()
                .find(|other| {
                    if is_copy { other.name == "token" } else { other.global_name() == trained.global_name() }
                })
                .unwrap();
            assert!(trained.value.equal(&original.value), "{}", trained.global_name());
        }
    }
}
