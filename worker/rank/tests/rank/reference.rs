//! Training the whole model in one straightforward loop of plain tch, to compare pipelines with.
//!
//! It shares with the rank what defines the result (where parameters, data and dropout start) and
//! nothing of how it is computed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use loadmaster_proto::layer::LayerKind;
use loadmaster_proto::model::Model;
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
    name: String,
    value: Tensor,
    master: Option<Tensor>,
    moments: [Option<Tensor>; 2],
}

pub(crate) fn train(model: &Model, training: TrainingSpec, iterations: u32) -> Reference {
    let _turn = alone();
    tch::set_num_threads(1);
    let data = Data::new(model, &training, Device::Cpu);
    let maker = ParameterMaker { device: Device::Cpu, precision: training.precision, seed: training.seed };
    let mut weights: Vec<Vec<Weight>> = Vec::new();
    for (index, layer) in model.layers().iter().enumerate() {
        let parameters = layer.kind.parameters();
        let make = |(position, parameter)| {
            let made = maker.make(index, position, parameter).unwrap();
            Weight {
                name: format!("layers.{index}.{}", made.name),
                value: made.value,
                master: made.master,
                moments: [None, None],
            }
        };
        weights.push(parameters.iter().enumerate().map(make).collect());
    }

    let mut reference = Reference { losses: Vec::new(), gradients: Vec::new() };
    for iteration in 0..iterations {
        let mut mean = 0.0;
        for micro_batch in 0..training.micro_batches {
            let mut value = data.samples(iteration, micro_batch).unwrap();
            for (layer, kind) in model.layers().iter().map(|layer| layer.kind).enumerate() {
                Purpose::Dropout { iteration, micro_batch, layer }.set(training.seed);
                value = forward(kind, &weights, layer, &value);
            }
            let classes = value.size().last().copied().unwrap();
            let targets = data.targets(iteration, micro_batch).unwrap().reshape([-1]);
            let probabilities = value.to_kind(Kind::Float).reshape([-1, classes]).log_softmax(-1, None);
            let picked = probabilities.gather(1, &targets.unsqueeze(1), false);
            let loss = -picked.mean(None) / f64::from(training.micro_batches);
            loss.backward();
            mean += loss.double_value(&[]);
        }
        reference.losses.push(mean);
        if iteration == 0 {
            reference.gradients = weights
                .iter()
                .flatten()
                .map(|weight| (weight.name.clone(), weight.value.grad().copy()))
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

fn forward(kind: LayerKind, all: &[Vec<Weight>], layer: usize, input: &Tensor) -> Tensor {
    let w = |position: usize| &all[layer][position].value;
    match kind {
        LayerKind::Conv2d { stride, padding, .. } => input.conv2d(w(0), Some(w(1)), stride, padding, 1, 1),
        LayerKind::Relu => input.clamp_min(0.0),
        LayerKind::MaxPool2d { kernel, stride } => input.max_pool2d(kernel, stride, 0, 1, false),
        LayerKind::AdaptiveAvgPool2d { output } => input.adaptive_avg_pool2d([output, output]),
        LayerKind::Flatten => input.reshape([input.size()[0], -1]),
        LayerKind::Linear { .. } => input.matmul(&w(0).transpose(0, 1)) + w(1),
        LayerKind::Dropout { probability } => input.dropout(probability, true),
        LayerKind::TokenEmbedding { dropout, .. } => {
            let positions = Tensor::arange(input.size()[1], (Kind::Int64, Device::Cpu));
            let sum =
                w(0).index_select(0, &input.reshape([-1])).reshape([input.size()[0], input.size()[1], -1])
                    + w(1).index_select(0, &positions);
            sum.dropout(dropout, true)
        }
        LayerKind::TransformerBlock { hidden_size, heads, dropout, .. } => {
            let [samples, tokens] = [input.size()[0], input.size()[1]];
            let norm =
                |x: &Tensor, at: usize| x.layer_norm([hidden_size], Some(w(at)), Some(w(at + 1)), 1e-5, true);
            let affine = |x: &Tensor, at: usize| x.matmul(&w(at).transpose(0, 1)) + w(at + 1);
            let qkv =
                affine(&norm(input, 0), 2).reshape([samples, tokens, 3, heads, -1]).permute([2, 0, 3, 1, 4]);
            let (q, k, v) = (qkv.get(0), qkv.get(1), qkv.get(2));
            let scale = ((hidden_size / heads) as f64).sqrt();
            let future = Tensor::ones([tokens, tokens], (Kind::Bool, Device::Cpu)).triu(1);
            let scores = (q.matmul(&k.transpose(-2, -1)) / scale).masked_fill(&future, f64::NEG_INFINITY);
            let mixed = scores.softmax(-1, None).dropout(dropout, true).matmul(&v);
            let joined = mixed.transpose(1, 2).reshape([samples, tokens, hidden_size]);
            let hidden = input + affine(&joined, 4).dropout(dropout, true);
            let inner = affine(&norm(&hidden, 6), 8).gelu("tanh");
            let outer = affine(&inner, 10).dropout(dropout, true);
            hidden + outer
        }
        LayerKind::LayerNorm { hidden_size } => {
            input.layer_norm([hidden_size], Some(w(0)), Some(w(1)), 1e-5, true)
        }
        LayerKind::LanguageModelHead { tied, .. } => {
            let weight = if tied { &all[0][0].value } else { w(0) };
            input.matmul(&weight.transpose(0, 1))
        }
    }
}

fn step(weight: &mut Weight, training: TrainingSpec, steps: i32) {
    let gradient = weight.value.grad().to_kind(Kind::Float);
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
    };
    let updated = &target - update;
    target.copy_(&updated);
    if training.precision == Precision::Bf16 {
        weight.value.copy_(&target);
    }
    weight.value.zero_grad();
}
