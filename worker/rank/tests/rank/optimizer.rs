//! The optimizer step is libtorch's.

use loadmaster_proto::training::Optimizer;
use loadmaster_rank::layers::Trained;
use loadmaster_rank::movement::Movement;
use loadmaster_rank::optimizer::Stepper;
use tch::nn::{self, OptimizerConfig};
use tch::{Device, Kind, Tensor};

/// A gradient that changes from step to step, the same for both.
fn gradient(step: i64, weight: &Tensor) -> Tensor {
    let ramp = Tensor::arange(weight.numel() as i64, (Kind::Float, Device::Cpu)).reshape(weight.size());
    (ramp * 0.1 + step as f64).sin() + weight.detach() * 0.3
}

fn trained(start: Tensor) -> Trained {
    Trained { layer: 0, name: "weight", value: start.set_requires_grad(true), master: None, main: None }
}

fn assert_same_as_libtorch(rule: Optimizer, config: impl OptimizerConfig, weight_decay: f64) {
    let start = || (Tensor::arange(12, (Kind::Float, Device::Cpu)).reshape([3, 4]) * 0.25).cos();

    let store = nn::VarStore::new(Device::Cpu);
    let mut theirs = store.root().zeros("weight", &[3, 4]);
    tch::no_grad(|| theirs.copy_(&start()));
    let mut libtorch = config.build(&store, 0.05).unwrap();
    libtorch.set_weight_decay(weight_decay);

    let ours = trained(start());
    let mut stepper = Stepper::new(rule, 1);

    for step in 0..6 {
        let loss = (&theirs * gradient(step, &theirs)).sum(Kind::Float);
        libtorch.backward_step(&loss);
        (&ours.value * gradient(step, &ours.value)).sum(Kind::Float).backward();
        stepper.step(std::slice::from_ref(&ours), &Movement::default()).unwrap();
        assert!(ours.gradient().unwrap().is_none(), "the step forgets the gradient");
        let difference = (&ours.value - &theirs).abs().max().double_value(&[]);
        assert!(difference < 1e-6, "{rule:?} step {step}: {difference}");
    }
}

#[test]
fn sgd_is_libtorchs() {
    for (momentum, weight_decay) in [(0.0, 0.0), (0.9, 0.0), (0.8, 0.1)] {
        let rule = Optimizer::Sgd { learning_rate: 0.05, momentum, weight_decay };
        let config = nn::Sgd { momentum, dampening: 0.0, wd: weight_decay, nesterov: false };
        assert_same_as_libtorch(rule, config, weight_decay);
    }
}

#[test]
fn adam_is_libtorchs() {
    for weight_decay in [0.0, 0.1] {
        let rule =
            Optimizer::Adam { learning_rate: 0.05, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay };
        let config = nn::Adam { beta1: 0.9, beta2: 0.99, wd: weight_decay, eps: 1e-8, amsgrad: false };
        assert_same_as_libtorch(rule, config, weight_decay);
    }
}

#[test]
fn adamw_is_libtorchs() {
    for weight_decay in [0.0, 0.3] {
        let rule =
            Optimizer::AdamW { learning_rate: 0.05, beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay };
        let config = nn::AdamW { beta1: 0.9, beta2: 0.99, wd: weight_decay, eps: 1e-8, amsgrad: false };
        assert_same_as_libtorch(rule, config, weight_decay);
    }
}

/// Against the paper's update (Loshchilov and Hutter, algorithm 2) in a plain loop over doubles: weights shrink by a
/// share of themselves, which Adam's moments never see.
#[test]
fn adamw_is_the_papers_update() {
    let (rate, beta1, beta2, epsilon, weight_decay) = (0.02, 0.8, 0.95, 1e-6, 0.4);
    let rule = Optimizer::AdamW { learning_rate: rate, beta1, beta2, epsilon, weight_decay };
    let ours = trained(Tensor::from_slice(&[0.5_f32, -2.0, 3.0, 0.0]));
    let mut stepper = Stepper::new(rule, 1);
    let mut weights = [0.5_f64, -2.0, 3.0, 0.0];
    let (mut first, mut second) = ([0.0; 4], [0.0; 4]);
    for step in 1..=8 {
        let gradients: [f64; 4] = std::array::from_fn(|index| (f64::from(step) + index as f64).sin());
        let given = Tensor::from_slice(&gradients.map(|gradient| gradient as f32));
        (&ours.value * given).sum(Kind::Float).backward();
        stepper.step(std::slice::from_ref(&ours), &Movement::default()).unwrap();
        for index in 0..4 {
            let gradient = gradients[index];
            first[index] = beta1 * first[index] + (1.0 - beta1) * gradient;
            second[index] = beta2 * second[index] + (1.0 - beta2) * gradient * gradient;
            let mean = first[index] / (1.0 - beta1.powi(step));
            let variance = second[index] / (1.0 - beta2.powi(step));
            weights[index] -= rate * (mean / (variance.sqrt() + epsilon) + weight_decay * weights[index]);
            let value = ours.value.double_value(&[index as i64]);
            assert!((value - weights[index]).abs() < 1e-5, "step {step}: {value} {}", weights[index]);
        }
    }
}
