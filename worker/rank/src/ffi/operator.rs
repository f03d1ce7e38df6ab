//! Autograd operators whose passes are written in Rust.

use std::ffi::c_void;

use tch::Tensor;
use torch_sys::C_tensor;

use super::{ShimError, check};

/// The backward pass of an operator: from the gradient of its output to that of its input.
type Backward = Box<dyn FnOnce(Tensor) -> Option<Tensor> + Send>;

unsafe extern "C" {
    fn shim_with_backward(
        input: *const C_tensor,
        output: *const C_tensor,
        changes: bool,
        closure: *mut c_void,
        run: unsafe extern "C" fn(*mut c_void, *mut C_tensor) -> *mut C_tensor,
        forget: unsafe extern "C" fn(*mut c_void),
        result: *mut *mut C_tensor,
    ) -> i32;
    fn shim_fill(tensor: *const C_tensor, bytes: *const c_void, count: u64) -> i32;
}

// A panic in either of these two ends the process: Rust lets none out of an `extern "C"` function.

unsafe extern "C" fn run(closure: *mut c_void, gradient: *mut C_tensor) -> *mut C_tensor {
    // SAFETY: the shim hands over a pointer made in `with_backward`, once.
    let backward = *unsafe { Box::from_raw(closure.cast::<Backward>()) };
    // SAFETY: the shim gives a tensor of its own away.
    let gradient = unsafe { Tensor::from_ptr(gradient) };
    backward(gradient).map_or(std::ptr::null_mut(), |mut result| {
        let owned = result.as_mut_ptr();
        // The shim frees it.
        std::mem::forget(result);
        owned
    })
}

unsafe extern "C" fn forget(closure: *mut c_void) {
    // SAFETY: the shim hands over a pointer made in `with_backward`, once, instead of running it.
    drop(unsafe { Box::from_raw(closure.cast::<Backward>()) });
}

/// What a backward pass does with the gradient that it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GradientUse {
    /// Reads it.
    Read,
    /// Changes it in place.
    Changed,
}

/// A tensor with the data of `output`, which was computed from `input` outside autograd, whose backward
/// pass is `backward`; `backward` is dropped where autograd is off or `input` is not trained. It gets a
/// contiguous gradient at the start of its storage, which nothing else sees if it is [`GradientUse::Changed`],
/// and returns none where it failed, which ends the whole backward pass with an error. What it returns may be
/// undefined: then there is no gradient.
///
/// # Errors
/// When libtorch refuses.
pub fn with_backward(
    input: &Tensor,
    output: &Tensor,
    gradient: GradientUse,
    backward: impl FnOnce(Tensor) -> Option<Tensor> + Send + 'static,
) -> Result<Tensor, ShimError> {
    let backward: Backward = Box::new(backward);
    // A closure has a wide pointer, the box around it a thin one.
    let closure = Box::into_raw(Box::new(backward)).cast::<c_void>();
    let mut result = std::ptr::null_mut();
    // SAFETY: both tensors are valid during the call; the shim takes the closure, to pass it to exactly one
    // of the two functions once; on success `result` is a tensor of ours.
    check(unsafe {
        let changes = gradient == GradientUse::Changed;
        shim_with_backward(input.as_ptr(), output.as_ptr(), changes, closure, run, forget, &raw mut result)
    })?;
    // SAFETY: the shim made the tensor for us.
    Ok(unsafe { Tensor::from_ptr(result) })
}

/// Copies bytes, in the layout of a contiguous tensor, into a tensor. Allocates no other tensor.
///
/// # Errors
/// When their number is not the tensor's.
pub fn fill(tensor: &Tensor, bytes: &[u8]) -> Result<(), ShimError> {
    // SAFETY: tensor and bytes are valid during the call, and the shim only reads the bytes.
    check(unsafe { shim_fill(tensor.as_ptr(), bytes.as_ptr().cast::<c_void>(), bytes.len() as u64) })
}
