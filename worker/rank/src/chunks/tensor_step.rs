//! The optimizer's step as plain training does it: libtorch's operations, tensor by tensor. Its bits are those of plain
//! training, which is what it is for: a test of chunks is then one of chunks alone.

use loadmaster_proto::training::Optimizer;
use tch::{Kind, Tensor};

use super::lists::{Lists, Scalar};
use crate::error::RankError;
use crate::ffi;
use crate::optimizer::{OptimizerState, update};

/// Updates one tensor's elements.
///
/// # Errors
/// What libtorch says.
pub(super) fn step<L: Scalar>(lists: Lists<'_, L>, rule: Optimizer, steps: i32) -> Result<(), RankError> {
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
