//! PipeDream: a pipeline of real processes trains what one process does that keeps every version of its weights.

use loadmaster_proto::model::layer::{Layer as Described, LayerKind};
use loadmaster_proto::model::{Loss, Model, ModelInput};
use loadmaster_proto::training::actions::{Action, Optimization, StageActions};
use loadmaster_proto::training::shard::Shard;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule, TrainingSpec};
use loadmaster_rank::data::Data;
use loadmaster_rank::layers::{ForwardKind, Layer, LayerTensors, ParameterMaker, Trained};
use loadmaster_rank::movement::Movement;
use loadmaster_rank::optimizer::Stepper;
use loadmaster_rank::random::Purpose;
use tch::{Device, Kind, Reduction, Tensor};

use crate::actions::random::Random;
use crate::correctness::{ADAM, ADAMW, SGD, assert_close};
use crate::memory::assert_solo_equals_pipeline;
use crate::models::{small_amoebanet, small_bert, small_llama};
use crate::parallel::{assert_copies_are_equal, dumping, read, stages};
use crate::processes::{connected, pipeline, run, run_all, small_gpt, small_vgg, solo, training};
use crate::reference::alone;

const MEASURED: usize = 3;

/// Of one iteration after the other the loss, and the weights in the end by name.
type Trace = (Vec<f64>, Vec<(String, Tensor)>);

/// One process that keeps every version of every weight: stage s of S goes forward, and back, with micro-batch i on weights
/// after `max(0, i − (S − s) + 1)` updates, and each gradient is an update of the newest.
fn stashing(model: &Model, training: &TrainingSpec, sizes: &[usize], micro_batches: usize) -> Trace {
    let _turn = alone();
    tch::set_num_threads(1);
    let data = Data::new(model, training, Device::Cpu);
    let precision = if training.precision == Precision::Fp32 { Precision::Fp32 } else { Precision::Bf16 };
    let maker = ParameterMaker { device: Device::Cpu, precision, seed: training.seed, updated: Shard::WHOLE };
    let kinds: Vec<LayerKind> = model.layers().iter().map(|layer| layer.kind).collect();
    let made = kinds.iter().enumerate().flat_map(|(index, kind)| {
        let parameters = kind.parameters();
        let make = |(position, parameter)| maker.make(index, position, parameter).unwrap();
        parameters.iter().enumerate().map(make).collect::<Vec<Trained>>()
    });
    let mut versions: Vec<Vec<Trained>> = vec![made.collect()];
    let buffers: Vec<Vec<Tensor>> = (0..kinds.len())
        .map(|layer| model.buffers(layer).iter().map(|buffer| maker.buffer(buffer).unwrap()).collect())
        .collect();
    let mut stage_of = Vec::new();
    sizes.iter().enumerate().for_each(|(stage, &size)| stage_of.extend(vec![stage; size]));
    let mut stepper = Stepper::new(training.optimizer, versions[0].len());
    let (each, mut losses) = (training.micro_batches as usize, Vec::new());
    for number in 0..micro_batches {
        let (iteration, micro_batch) = ((number / each) as u32, (number % each) as u32);
        let version = |stage: usize| &versions[(number + 1).saturating_sub(sizes.len() - stage)];
        let mut values = vec![data.samples(iteration, micro_batch).unwrap()];
        for (index, &kind) in kinds.iter().enumerate() {
            let own = version(stage_of[index]).iter().filter(|own| own.layer == index);
            let tensors = LayerTensors {
                parameters: own.map(|own| own.value.shallow_clone()).collect(),
                buffers: buffers[index].iter().map(Tensor::shallow_clone).collect(),
                shards: None,
                feeds_loss: index + 1 == kinds.len(),
                movement: Movement::default(),
            };
            let layer = Layer::new(index, kind, tensors).unwrap();
            if layer.is_random() {
                let replica = 0;
                Purpose::Dropout { iteration, micro_batch, layer: index, replica }.set(training.seed);
            }
            values = layer.forward(&values, ForwardKind::First).unwrap();
        }
        assert_eq!(model.loss(), Loss::CrossEntropy);
        let classes = values[0].size().last().copied().unwrap();
        let logits = values[0].reshape([-1, classes]).to_kind(Kind::Float);
        let targets = data.targets(iteration, micro_batch).unwrap().reshape([-1]);
        let loss = logits.cross_entropy_loss::<Tensor>(&targets, None, Reduction::Mean, -100, 0.0);
        losses.push(loss.double_value(&[]));
        loss.backward();

        let of_version = |(position, newest): (usize, &Trained)| {
            let gone = &version(stage_of[newest.layer])[position];
            let gradient = gone.gradient().unwrap().unwrap();
            let value = newest.value.detach().copy().set_requires_grad(true);
            (&value * &gradient).sum(Kind::Float).backward();
            gone.forget_gradient().unwrap();
            Trained { value, ..newest.shallow_clone() }
        };
        let next: Vec<Trained> = versions[number].iter().enumerate().map(of_version).collect();
        stepper.step(&next, &Movement::default()).unwrap();
        versions.push(next);
    }
    let losses = losses.chunks(each).map(|losses| losses.iter().sum::<f64>() / each as f64).collect();
    let weights = versions[micro_batches].iter().map(|own| (own.global_name(), own.value.detach())).collect();
    (losses, weights)
}

/// Iterations until each stage holds as many versions as it ever does: until then nothing is measured.
fn filling(training: &TrainingSpec, stages: usize) -> usize {
    stages.div_ceil(training.micro_batches as usize)
}

/// What a pipeline does about its memory.
#[derive(Debug, Clone, Copy)]
enum Memory {
    Policy(RecomputePolicy),
    /// The last layer of each stage is recomputed.
    LastAgain,
    /// Anything leaves, or is recomputed: versions of the weights, too.
    Random,
}

/// Losses and weights of a pipeline are those of one process, bit for bit, whatever is recomputed or leaves.
fn assert_bit_equal(model: &Model, training: TrainingSpec, sizes: &[usize]) {
    let training = TrainingSpec { schedule: Schedule::PipeDream, ..training };
    let filling = filling(&training, sizes.len());
    let micro_batches = (filling + MEASURED) * training.micro_batches as usize + sizes.len() - 1;
    let (losses, weights) = stashing(model, &training, sizes, micro_batches);
    let again = |layer| {
        let optimization = Optimization::Recompute;
        let actions = vec![Action { first_layer: layer, last_layer: layer, slots: Vec::new(), optimization }];
        StageActions { actions, ..StageActions::default() }
    };
    let policies = RecomputePolicy::ALL.map(Memory::Policy);
    for memory in policies.into_iter().chain([Memory::LastAgain, Memory::Random]) {
        let folder = tempfile::tempdir().unwrap();
        let recompute = if let Memory::Policy(policy) = memory { policy } else { RecomputePolicy::None };
        let training = TrainingSpec { recompute, ..training };
        let mut specs = dumping(pipeline(model, training, sizes, folder.path()), folder.path());
        match memory {
            Memory::Policy(_) => {}
            Memory::LastAgain => {
                specs.iter_mut().for_each(|spec| spec.actions = again(spec.position.stage.last_layer));
            }
            Memory::Random => Random::new(micro_batches as u64).act(&mut specs),
        }
        let actions: Vec<&StageActions> = specs.iter().map(|spec| &spec.actions).collect();
        let what = format!("{} {memory:?} {sizes:?} {actions:?}", model.family());
        let measured = run_all(&specs);
        assert_eq!(measured.last().unwrap().losses, losses[filling..filling + MEASURED], "{what}");
        let found: Vec<(String, Tensor)> =
            specs.iter().flat_map(|spec| read(&spec.dump_parameters)).collect();
        assert_eq!(found.len(), weights.len(), "{what}");
        for (name, expected) in &weights {
            let (_, value) = found.iter().find(|(other, _)| other == name).unwrap();
            assert!(value.equal(expected), "{what}: {name} differs");
        }
        for (stage, measured) in measured.iter().enumerate() {
            assert_eq!(measured.in_flight as usize, sizes.len() - stage, "{what}");
        }
    }
}

/// Three linear maps with what is between them.
fn perceptron() -> Model {
    let linear = |in_features, out_features| LayerKind::Linear { in_features, out_features };
    let kinds = [LayerKind::Flatten, linear(48, 32), LayerKind::Relu, linear(32, 24), LayerKind::Relu];
    let layers = kinds.into_iter().chain([linear(24, 10)]);
    let layers = layers.map(|kind| Described { name: "layer".to_owned(), kind }).collect();
    Model::new("perceptron".to_owned(), ModelInput::Image { channels: 3, height: 4, width: 4 }, layers)
        .unwrap()
}

#[test]
fn a_perceptron_trains_under_pipedream_as_in_one_process_that_stashes() {
    let no_momentum = Optimizer::Sgd { learning_rate: 0.05, momentum: 0.0, weight_decay: 0.0 };
    for (optimizer, sizes) in [(SGD, &[2, 2, 2][..]), (ADAM, &[1, 1, 2, 2]), (no_momentum, &[6])] {
        assert_bit_equal(&perceptron(), TrainingSpec { optimizer, ..training() }, sizes);
    }
}

#[test]
#[ignore = "slow: make test-slow"]
fn vgg_trains_under_pipedream_as_in_one_process_that_stashes() {
    assert_bit_equal(&small_vgg(), TrainingSpec { optimizer: SGD, ..training() }, &[8, 8, 14]);
}

/// With dropout; and with fewer micro-batches in an iteration than there are stages, so that what is in flight is of
/// several iterations.
#[test]
fn gpt_trains_under_pipedream_as_in_one_process_that_stashes() {
    assert_bit_equal(&small_gpt(true), TrainingSpec { optimizer: ADAM, ..training() }, &[2, 2, 2]);
    let short = TrainingSpec { optimizer: SGD, micro_batches: 1, ..training() };
    assert_bit_equal(&small_gpt(true), short, &[1, 2, 2, 1]);
}

/// Two tensors cross the edges between cells, and running statistics are no one's version.
#[test]
fn amoebanet_trains_under_pipedream_as_in_one_process_that_stashes() {
    let small_steps = Optimizer::Sgd { learning_rate: 1e-4, momentum: 0.9, weight_decay: 0.01 };
    assert_bit_equal(&small_amoebanet(), TrainingSpec { optimizer: small_steps, ..training() }, &[2, 3, 4]);
}

#[test]
fn other_transformers_train_under_pipedream_as_in_one_process_that_stashes() {
    assert_bit_equal(&small_llama(), TrainingSpec { optimizer: ADAMW, ..training() }, &[2, 3]);
    let odd = TrainingSpec { optimizer: SGD, micro_batches: 3, ..training() };
    assert_bit_equal(&small_bert(), odd, &[1, 2, 3]);
}

/// Versions are of what layers compute with; the fp32 weights that the optimizer updates are the newest alone.
#[test]
#[ignore = "slow: make test-slow"]
fn bf16_trains_under_pipedream_as_in_one_process_that_stashes() {
    for precision in [Precision::Bf16, Precision::Bf16Fp32Gradients] {
        let training = TrainingSpec { precision, optimizer: ADAM, ..training() };
        assert_bit_equal(&small_gpt(true), training, &[2, 1, 3]);
    }
}

/// Replicas add up the gradients of their parts of each micro-batch, shards compute with slices of each version: weights
/// come as near to those of single devices as sums in another order allow, and copies are equal to the bit.
#[test]
fn stages_of_several_devices_train_under_pipedream_as_those_of_one() {
    let training =
        TrainingSpec { schedule: Schedule::PipeDream, optimizer: SGD, micro_batch_size: 4, ..training() };
    let train = |folder: &std::path::Path, degrees: (u32, u32)| {
        let partitioning = stages(&[(10, (1, 1)), (12, degrees), (8, (1, 1))]);
        let specs = dumping(connected(&small_vgg(), training, &partitioning, folder), folder);
        (run_all(&specs), specs)
    };
    let folder = tempfile::tempdir().unwrap();
    let (single, specs) = train(folder.path(), (1, 1));
    let weights: Vec<(String, Tensor)> = specs.iter().flat_map(|spec| read(&spec.dump_parameters)).collect();
    for degrees in [(2, 1), (1, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let (measured, specs) = train(folder.path(), degrees);
        assert_copies_are_equal(&small_vgg(), &specs, "pipedream");
        for (loss, expected) in measured.last().unwrap().losses.iter().zip(&single.last().unwrap().losses) {
            assert!(((loss - expected) / expected).abs() < 1e-4, "{degrees:?}: {loss} {expected}");
        }
        let whole = specs.iter().filter(|spec| spec.position.stage.tensor_degree == 1);
        for (name, value) in whole.flat_map(|spec| read(&spec.dump_parameters)) {
            let (_, expected) = weights.iter().find(|(other, _)| *other == name).unwrap();
            assert_close(&value, expected, 1e-3, &format!("{degrees:?} {name}"));
        }
    }
}

/// Whoever its neighbours are, and if they are made up: each stage holds a version for every micro-batch in flight.
#[test]
fn a_stage_of_pipedream_needs_the_same_alone_and_in_a_pipeline() {
    for recompute in RecomputePolicy::ALL {
        let training = TrainingSpec { schedule: Schedule::PipeDream, recompute, ..training() };
        assert_solo_equals_pipeline(&small_gpt(true), training, &[2, 2, 2]);
        let short = TrainingSpec { micro_batches: 1, ..training };
        assert_solo_equals_pipeline(&small_vgg(), short, &[8, 8, 7, 7]);
    }
}

/// A weight with two ends would be updated by each of them at another moment.
#[test]
fn a_tied_weight_is_refused_under_pipedream() {
    let training = TrainingSpec { schedule: Schedule::PipeDream, ..training() };
    let position = crate::processes::positions(&[6])[0];
    let ended = run(&solo(&small_gpt(false), training, position));
    assert_ne!(ended.code, Some(0));
    assert!(ended.errors.contains("training.schedule") && ended.errors.contains("Untie"), "{}", ended.errors);
}
