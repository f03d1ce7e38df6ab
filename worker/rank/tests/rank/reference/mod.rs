//! Training the whole model in one straightforward loop of plain tch, to compare pipelines with.
//!
//! It shares with the rank what defines the result (where parameters, data and dropout start) and
//! nothing of how it is computed.

mod cells;
mod layers;
mod transformer;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use loadmaster_proto::model::{Loss, Model};
use loadmaster_proto::training::shard::Shard;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Optimizer, Precision, TrainingSpec};
use loadmaster_rank::data::Data;
use loadmaster_rank::layers::ParameterMaker;
use loadmaster_rank::random::Purpose;
use tch::{Device, Kind, Tensor};

/// Waits for a turn: libtorch has one random generator per process, which tests must not share.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What training did.
#[derive(Debug)]
pub(crate) struct Reference {
    /// Loss of each iteration, the warm-up one included.
    pub(crate) losses: Vec<f64>,
    /// Gradients of the first iteration by global name.
    pub(crate) gradients: Vec<(String, Tensor)>,
}

struct Weight {
    /// Name within its layer.
    short: &'static str,
    name: String,
    value: Tensor,
    master: Option<Tensor>,
    /// The fp32 sum of its gradients, where they are not added up beside it.
    main: Option<Tensor>,
    moments: [Option<Tensor>; 2],
}

impl Weight {
    /// What the step is made with.
    fn gradient(&self) -> Tensor {
        self.main.as_ref().map_or_else(|| self.value.grad(), Tensor::shallow_clone)
    }
}

pub(crate) fn train(model: &Model, training: TrainingSpec, iterations: u32) -> Reference {
    let last_layer = model.layers().len() - 1;
    train_stages(model, training, &[StageConfig::single(0, last_layer)], iterations)
}

/// As the stages of a pipeline would: the replicas of a data-parallel one take the samples in turn.
pub(crate) fn train_stages(
    model: &Model,
    training: TrainingSpec,
    stages: &[StageConfig],
    iterations: u32,
) -> Reference {
    let _turn = alone();
    tch::set_num_threads(1);
    let data = Data::new(model, &training, Device::Cpu);
    // Gradients in fp32 are added up here, by plain additions.
    let precision = match training.precision {
        Precision::Bf16Fp32Gradients => Precision::Bf16,
        other => other,
    };
    let maker = ParameterMaker { device: Device::Cpu, precision, seed: training.seed, updated: Shard::WHOLE };
    let mut weights: Vec<Vec<Weight>> = Vec::new();
    for (index, layer) in model.layers().iter().enumerate() {
        let parameters = layer.kind.parameters();
        let make = |(position, parameter)| {
            let made = maker.make(index, position, parameter).unwrap();
            Weight {
                short: made.name,
                name: format!("layers.{index}.{}", made.name),
                value: made.value,
                master: made.master,
                main: None,
                moments: [None, None],
            }
        };
        weights.push(parameters.iter().enumerate().map(make).collect());
    }

    let mut reference = Reference { losses: Vec::new(), gradients: Vec::new() };
    for iteration in 0..iterations {
        let mut mean = 0.0;
        for micro_batch in 0..training.micro_batches {
            let mut values = vec![data.samples(iteration, micro_batch).unwrap()];
            for (layer, kind) in model.layers().iter().map(|layer| layer.kind).enumerate() {
                let mut named: HashMap<&str, Tensor> = weights[layer]
                    .iter()
                    .map(|weight| (weight.short, weight.value.shallow_clone()))
                    .collect();
                if kind.shared_parameter().is_some() {
                    named.insert("weight", weights[0][0].value.shallow_clone());
                }
                let stage = stages.iter().find(|stage| stage.layers().contains(&layer)).unwrap();
                let parts = (0..stage.data_degree).map(|replica| {
                    Purpose::Dropout { iteration, micro_batch, layer, replica }.set(training.seed);
                    let samples = stage.samples_of(replica * stage.tensor_degree, training.micro_batch_size);
                    let part = |value: &Tensor| value.narrow(0, samples.start, samples.end - samples.start);
                    layers::forward(kind, &named, &values.iter().map(part).collect::<Vec<Tensor>>())
                });
                values = joined(parts.collect());
            }
            let value = &values[0];
            let classes = value.size().last().copied().unwrap();
            let targets = data.targets(iteration, micro_batch).unwrap();
            let error = match model.loss() {
                Loss::CrossEntropy => {
                    let probabilities =
                        value.to_kind(Kind::Float).reshape([-1, classes]).log_softmax(-1, None);
                    -probabilities.gather(1, &targets.reshape([-1, 1]), false).mean(None)
                }
                Loss::MeanSquare => {
                    (value.to_kind(Kind::Float) - targets.to_kind(Kind::Float)).square().mean(None)
                }
            };
            let loss = error / f64::from(training.micro_batches);
            loss.backward();
            mean += loss.double_value(&[]);
            if training.precision == Precision::Bf16Fp32Gradients {
                for weight in weights.iter_mut().flatten() {
                    let added = weight.value.grad().to_kind(Kind::Float);
                    weight.main = Some(weight.main.take().map_or_else(|| added.copy(), |sum| sum + &added));
                    weight.value.zero_grad();
                }
            }
        }
        reference.losses.push(mean);
        if iteration == 0 {
            reference.gradients = weights
                .iter()
                .flatten()
                .map(|weight| (weight.name.clone(), weight.gradient().copy()))
                .collect();
        }
        tch::no_grad(|| {
            for weight in weights.iter_mut().flatten() {
                step(weight, training, iteration as i32 + 1);
            }
        });
    }
    reference
}

/// The outputs of all replicas, one after the other.
fn joined(parts: Vec<Vec<Tensor>>) -> Vec<Tensor> {
    (0..parts[0].len())
        .map(|output| Tensor::cat(&parts.iter().map(|part| &part[output]).collect::<Vec<&Tensor>>(), 0))
        .collect()
}

fn step(weight: &mut Weight, training: TrainingSpec, steps: i32) {
    let gradient = weight.gradient().to_kind(Kind::Float);
    let mut target = weight.master.as_ref().unwrap_or(&weight.value).shallow_clone();
    let [first, second] = &mut weight.moments;
    let zeros = || gradient.zeros_like();
    let update = match training.optimizer {
        Optimizer::Sgd { learning_rate, momentum, weight_decay } => {
            let velocity = first.take().unwrap_or_else(zeros) * momentum + &gradient + &target * weight_decay;
            let update = &velocity * learning_rate;
            *first = Some(velocity);
            update
        }
        Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay } => {
            let gradient = &gradient + &target * weight_decay;
            let m = first.take().unwrap_or_else(zeros) * beta1 + &gradient * (1.0 - beta1);
            let v = second.take().unwrap_or_else(zeros) * beta2 + &gradient * &gradient * (1.0 - beta2);
            let m_hat = &m / (1.0 - beta1.powi(steps));
            let v_hat = &v / (1.0 - beta2.powi(steps));
            *first = Some(m);
            *second = Some(v);
            learning_rate * m_hat / (v_hat.sqrt() + epsilon)
        }
        Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay } => {
            let m = first.take().unwrap_or_else(zeros) * beta1 + &gradient * (1.0 - beta1);
            let v = second.take().unwrap_or_else(zeros) * beta2 + &gradient * &gradient * (1.0 - beta2);
            let m_hat = &m / (1.0 - beta1.powi(steps));
            let v_hat = &v / (1.0 - beta2.powi(steps));
            *first = Some(m);
            *second = Some(v);
            &target * (learning_rate * weight_decay) + learning_rate * m_hat / (v_hat.sqrt() + epsilon)
        }
    };
    let updated = &target - update;
    target.copy_(&updated);
    if training.precision != Precision::Fp32 {
        weight.value.copy_(&target);
    }
    weight.main = None;
    weight.value.zero_grad();
}
