//! The points where the passes of a tensor-parallel stage meet, as operators of autograd.
//!
//! They are Megatron's. What enters a split region is the same on all shards, and its gradient is the sum
//! of theirs ([`enter`]). What leaves it is the sum of what they have ([`reduce`]) or is put together from
//! it ([`gather`]), and its gradient is the same on all shards.

use std::sync::{Mutex, PoisonError};

use loadmaster_proto::training::shard::Shard;
use tch::Tensor;

use super::{Group, Reduction};
use crate::error::RankError;
use crate::ffi::{self, GradientUse};
use crate::tape;
use crate::tensor::copy_of;

/// What went wrong in a backward pass: libtorch carries no errors of ours.
static FAILURE: Mutex<Option<RankError>> = Mutex::new(None);

/// The cause of `error`, where that is only libtorch's word for a failure in one of these operators.
pub fn cause_of(error: RankError) -> RankError {
    FAILURE.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(error)
}

/// Keeps what went wrong in a backward pass for [`cause_of`].
pub(crate) fn keep_cause(error: RankError) {
    *FAILURE.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
}

/// `output` as a function of `input` with this backward pass, where autograd needs one.
pub(crate) fn with_backward(
    input: &Tensor,
    output: &Tensor,
    backward: impl FnOnce(Tensor) -> Result<Tensor, RankError> + Send + 'static,
) -> Result<Tensor, RankError> {
    with_backward_of(input, output, GradientUse::Changed, backward)
}

/// The same where the backward pass does no more than this with the gradient.
pub(crate) fn with_backward_of(
    input: &Tensor,
    output: &Tensor,
    gradient: GradientUse,
    backward: impl FnOnce(Tensor) -> Result<Tensor, RankError> + Send + 'static,
) -> Result<Tensor, RankError> {
    let kept = move |gradient: Tensor| {
        let _no_grad = tch::no_grad_guard();
        backward(gradient).map_err(keep_cause).ok()
    };
    Ok(ffi::with_backward(input, output, gradient, kept)?)
}

/// Into a split region: nothing forward, the sum of the shards' gradients backward.
///
/// # Errors
/// When libtorch refuses.
pub fn enter(group: &Group, input: &Tensor) -> Result<Tensor, RankError> {
    let group = group.clone();
    with_backward(input, input, move |gradient| {
        group.all_reduce(&gradient, Reduction::Sum)?;
        Ok(gradient)
    })
}

/// Out of a split region: the sum over the shards forward, in place; nothing backward.
///
/// # Errors
/// When another shard is gone.
pub fn reduce(group: &Group, part: Tensor) -> Result<Tensor, RankError> {
    let sum = part.f_detach()?;
    group.all_reduce(&sum, Reduction::Sum)?;
    with_backward(&part, &sum, Ok)
}

/// Out of a split region: the shards' parts of an axis of `extent` put together forward, this shard's part
/// of the gradient backward.
///
/// # Errors
/// Out of memory, or another shard is gone.
pub fn gather(group: &Group, part: Tensor, axis: usize, extent: i64) -> Result<Tensor, RankError> {
    let own = group.own();
    let axis_index = i64::try_from(axis).unwrap_or(i64::MAX);
    let whole = {
        let _no_grad = tch::no_grad_guard();
        let _communication = tape::Communication::begin();
        let shapes: Vec<Vec<i64>> = (0..own.degree)
            .map(|index| {
                let range = Shard { index, ..own }.range(extent);
                let mut shape = part.size();
                if let Some(length) = shape.get_mut(axis) {
                    *length = range.end - range.start;
                }
                shape
            })
            .collect();
        // One buffer for all parts, so that what is allocated does not depend on how many there are.
        let elements = |shape: &Vec<i64>| shape.iter().product::<i64>();
        let buffer =
            Tensor::f_empty([shapes.iter().map(elements).sum::<i64>()], (part.f_kind()?, part.device()))?;
        let mut parts = Vec::with_capacity(shapes.len());
        let mut start = 0;
        for shape in &shapes {
            parts.push(buffer.f_narrow(0, start, elements(shape))?.f_view(shape.as_slice())?);
            start += elements(shape);
        }
        if let Some(place) = parts.get_mut(own.index as usize) {
            place.f_copy_(&part)?;
        }
        group.all_gather(&parts)?;
        Tensor::f_cat(&parts, axis_index)?
    };
    let range = own.range(extent);
    with_backward(&part, &whole, move |gradient| {
        Ok(copy_of(&gradient.f_narrow(axis_index, range.start, range.end - range.start)?)?)
    })
}
