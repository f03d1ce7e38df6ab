//! The gradients of a data-parallel stage: every replica steps with the sum of all.

use loadmaster_proto::training::gradient_buckets::{BUCKET_BYTES, buckets};
use tch::Tensor;

use super::{Group, Reduction};
use crate::error::RankError;
use crate::tape;

/// Replaces every gradient by its sum over all replicas, bucket by bucket.
///
/// # Errors
/// Out of memory, or another replica is gone.
pub fn sum_gradients(group: &Group, gradients: Vec<Tensor>) -> Result<(), RankError> {
    let _no_grad = tch::no_grad_guard();
    let mut sizes = Vec::with_capacity(gradients.len());
    for gradient in &gradients {
        sizes.push((gradient.numel() * gradient.f_kind()?.elt_size_in_bytes()) as u64);
    }
    for bucket in buckets(&sizes, BUCKET_BYTES) {
        match gradients.get(bucket.gradients).unwrap_or_default() {
            [alone] => group.all_reduce(alone, Reduction::Sum)?,
            several => sum_together(group, several)?,
        }
    }
    Ok(())
}

fn sum_together(group: &Group, gradients: &[Tensor]) -> Result<(), RankError> {
    let flat: Vec<Tensor> =
        gradients.iter().map(|gradient| gradient.f_view([-1])).collect::<Result<_, _>>()?;
    let buffer = {
        let _communication = tape::Communication::begin();
        Tensor::f_cat(&flat, 0)?
    };
    group.all_reduce(&buffer, Reduction::Sum)?;
    let mut start = 0;
    for mut gradient in flat {
        let length = gradient.size1()?;
        gradient.f_copy_(&buffer.f_narrow(0, start, length)?)?;
        start += length;
    }
    Ok(())
}
