//! The optimizer's rules on a device, of all elements of a part of a chunk in one pass.
//!
//! On CPU slots that is the pass of the host ([`HostStep`](super::host_step::HostStep)). On a GPU a kernel does the same in fp64:
//! results of both are the nearest numbers or those beside them.
//!
//! [`step_tensor_wise`] is the optimizer's step as plain training does it: libtorch's operations, tensor by tensor. Its bits are
//! those of plain training, which is what it is for: a test of chunks is then one of chunks alone.

use loadmaster_proto::training::Optimizer;
use tch::{Kind, Tensor};

use super::lists::{Lists, Scalar};
use crate::error::RankError;
use crate::ffi;
use crate::ffi::{StepNumbers, StepRule};
use crate::optimizer::{OptimizerState, update};

/// What a GPU needs to know of the `steps`-th step of a training, counted from 1.
pub(super) fn numbers(rule: Optimizer, steps: i32) -> StepNumbers {
    let plain = StepNumbers {
        rule: StepRule::PlainSgd,
        rate: 0.0,
        decay: 0.0,
        kept: [0.0; 2],
        epsilon: 0.0,
        shrink: 1.0,
    };
    // Both sides of Adam's fraction are multiplied by the root of what the second moment lacks because it began at zero.
    let adam = |learning_rate: f64, kept: [f64; 2], epsilon: f64| {
        let [first, second] = kept.map(|kept| 1.0 - kept.powi(steps));
        let root = second.sqrt();
        let rate = learning_rate * root / first;
        StepNumbers { rule: StepRule::Adam, rate, kept, epsilon: epsilon * root, ..plain }
    };
    match rule {
        Optimizer::Sgd { learning_rate: rate, momentum, weight_decay: decay } => {
            let rule = if momentum == 0.0 { StepRule::PlainSgd } else { StepRule::Sgd };
            StepNumbers { rule, rate, decay, kept: [momentum, 0.0], ..plain }
        }
        Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay: decay } => {
            StepNumbers { decay, ..adam(learning_rate, [beta1, beta2], epsilon) }
        }
        Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay } => StepNumbers {
            shrink: 1.0 - learning_rate * weight_decay,
            ..adam(learning_rate, [beta1, beta2], epsilon)
        },
    }
}

/// Updates one tensor's elements.
///
/// # Errors
/// What libtorch says.
pub(super) fn step_tensor_wise<L: Scalar>(
    lists: Lists<'_, L>,
    rule: Optimizer,
    steps: i32,
) -> Result<(), RankError> {
    // None of it is memory of the device.
    ffi::aside(|| {
        let _no_grad = tch::no_grad_guard();
        let Lists { parameters, weights, first, second } = lists;
        let gradients: Vec<f32> = parameters.iter().map(|gradient| gradient.read()).collect();
        let gradients = Tensor::f_from_slice(&gradients)?;
        let values = Tensor::f_from_slice(weights)?;
        let kept = |moment: &[f32]| {
            // As plain training, which has none before the first step.
            let is_there = steps > 1 && !moment.is_empty();
            is_there.then(|| Tensor::f_from_slice(moment)).transpose()
        };
        let mut state = OptimizerState { first: kept(first)?, second: kept(second)? };
        update(rule, steps, &mut state, &values, &gradients)?;
        for (tensor, list) in
            [(Some(&values), &mut *weights), (state.first.as_ref(), first), (state.second.as_ref(), second)]
        {
            if let Some(tensor) = tensor {
                let count = list.len();
                tensor.f_to_kind(Kind::Float)?.f_copy_data(list, count)?;
            }
        }
        parameters.iter_mut().zip(&*weights).for_each(|(parameter, &weight)| *parameter = L::round(weight));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::bytes::Bytes;
    use loadmaster_proto::cluster::device::Backend;
    use loadmaster_proto::measure::rank::RankDevice;
    use sha2::{Digest, Sha256};
    use tch::{Kind, Tensor};

    use super::*;
    use crate::ffi::{StepKernels, StepLists};
    use crate::memory::Memory;

    const RULES: [Optimizer; 5] = [
        Optimizer::Sgd { learning_rate: 0.03, momentum: 0.0, weight_decay: 0.01 },
        Optimizer::Sgd { learning_rate: 0.03, momentum: 0.9, weight_decay: 0.0 },
        Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.0 },
        Optimizer::Adam { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-6, weight_decay: 0.1 },
        Optimizer::AdamW { learning_rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1 },
    ];

    /// One element in fp64, as papers write the rules. Weight, first and second.
    fn expected(rule: Optimizer, steps: i32, [weight, first, second]: [f64; 3], gradient: f64) -> [f64; 3] {
        let adam = |rate: f64, beta1: f64, beta2: f64, epsilon: f64, weight: f64, gradient: f64| {
            let (m, v) = (
                beta1 * first + (1.0 - beta1) * gradient,
                beta2 * second + (1.0 - beta2) * gradient * gradient,
            );
            let (mean, square) = (m / (1.0 - beta1.powi(steps)), v / (1.0 - beta2.powi(steps)));
            [weight - rate * mean / (square.sqrt() + epsilon), m, v]
        };
        match rule {
            Optimizer::Sgd { learning_rate, momentum, weight_decay } => {
                let velocity = momentum * first + gradient + weight_decay * weight;
                let kept = if momentum == 0.0 { first } else { velocity };
                [weight - learning_rate * velocity, kept, second]
            }
            Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay } => {
                adam(learning_rate, beta1, beta2, epsilon, weight, gradient + weight_decay * weight)
            }
            Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay } => adam(
                learning_rate,
                beta1,
                beta2,
                epsilon,
                weight * (1.0 - learning_rate * weight_decay),
                gradient,
            ),
        }
    }

    fn numbers_of(tensor: &Tensor) -> Vec<f64> {
        Vec::try_from(tensor.to_device(tch::Device::Cpu).to_kind(Kind::Double)).unwrap()
    }

    /// The kernels are of the source as it is now.
    #[test]
    fn what_the_driver_compiles_is_made_of_the_source() {
        let source = Sha256::digest(include_bytes!("../../../shim/gpu/step.cu"));
        let source: String = source.iter().map(|byte| format!("{byte:02x}")).collect();
        let kernels = include_str!("../../../shim/gpu/step.ptx");
        assert!(kernels.ends_with(&format!("SHA-256 {source}\n")), "run worker/rank/shim/gpu/make.sh");
    }

    /// Every rule in both formats, several steps, of as many elements as one thread or many have: each number is the nearest to
    /// that of fp64, or the one beside it. Skipped, loudly, without a GPU.
    #[test]
    fn a_gpu_steps_as_fp64_does() {
        let device = RankDevice {
            backend: Backend::Cuda,
            kind: "test GPU".to_owned(),
            ordinal: 0,
            capacity: Bytes(1 << 31),
            physical: Bytes(1 << 37),
            driver_version: String::new(),
        };
        let Ok(memory) = Memory::open(&device) else { return println!("skipped: no CUDA device") };
        let kernels = StepKernels::new(memory.gpu().unwrap()).unwrap();
        tch::manual_seed(5);
        for (rule, kind) in RULES.into_iter().flat_map(|rule| [(rule, Kind::Float), (rule, Kind::BFloat16)]) {
            for elements in [1_i64, 1_000, 5_000_003] {
                let random = |kind| Tensor::randn([elements], (Kind::Float, memory.device())).to_kind(kind);
                let [weights, first] = [random(Kind::Float), random(Kind::Float) * 1e-2];
                let second = random(Kind::Float).square() * 1e-4;
                for steps in [1, 2, 7] {
                    let gradients = random(kind);
                    let before = [&weights, &first, &second].map(numbers_of);
                    let gradient = numbers_of(&gradients);
                    // In the gradients' own place, as chunks have them.
                    let lists = StepLists {
                        gradients: &gradients,
                        parameters: &gradients,
                        weights: &weights,
                        first: Some(&first),
                        second: Some(&second),
                    };
                    let there = memory.counts().unwrap().allocated;
                    memory.reset_peak().unwrap();
                    kernels.update(numbers(rule, steps), lists).unwrap();
                    assert_eq!(memory.counts().unwrap().allocated_peak, there, "no block more");
                    let after = [&weights, &first, &second].map(numbers_of);
                    for at in 0..elements as usize {
                        let now = expected(rule, steps, [0, 1, 2].map(|list| before[list][at]), gradient[at]);
                        for (list, expected) in now.into_iter().enumerate() {
                            let found = after[list][at];
                            let off = (found - expected).abs();
                            let ulp = f64::from((expected as f32).abs().next_up())
                                - f64::from((expected as f32).abs());
                            assert!(
                                off <= ulp,
                                "{rule:?} {kind:?} {steps}: {at} of list {list}: {found} not {expected}"
                            );
                        }
                    }
                    assert!(
                        gradients.equal(&weights.to_kind(kind)),
                        "{rule:?} {kind:?}: parameters are rounded weights"
                    );
                }
            }
        }
    }
}
