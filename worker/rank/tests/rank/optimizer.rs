//! The optimizer step is libtorch's.

use loadmaster_proto::training::Optimizer;
use loadmaster_rank::layers::Trained;
use loadmaster_rank::optimizer::Stepper;
use tch::nn::{self, OptimizerConfig};
use tch::{Device, Kind, Tensor};

/// A gradient that changes from step to step, the same for both.
fn gradient(step: i64, weight: &Tensor) -> Tensor {
    let ramp = Tensor::arange(weight.numel() as i64, (Kind::Float, Device::Cpu)).reshape(weight.size());
    (ramp * 0.1 + step as f64).sin() + weight.detach() * 0.3
}

fn assert_same_as_libtorch(rule: Optimizer, config: impl OptimizerConfig, weight_decay: f64) {
    let start = || (Tensor::arange(12, (Kind::Float, Device::Cpu)).reshape([3, 4]) * 0.25).cos();

    let store = nn::VarStore::new(Device::Cpu);
    let mut theirs = store.root().zeros("weight", &[3, 4]);
    tch::no_grad(|| theirs.copy_(&start()));
    let mut libtorch = config.build(&store, 0.05).unwrap();
    libtorch.set_weight_decay(weight_decay);

    let ours = Trained { layer: 0, name: "weight", value: start().set_requires_grad(true), master: None };
    let mut stepper = Stepper::new(rule, 1);

    for step in 0..6 {
        let loss = (&theirs * gradient(step, &theirs)).sum(Kind::Float);
        libtorch.backward_step(&loss);
        (&ours.value * gradient(step, &ours.value)).sum(Kind::Float).backward();
        stepper.step(std::slice::from_ref(&ours)).unwrap();
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
