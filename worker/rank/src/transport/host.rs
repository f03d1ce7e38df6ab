//! Between a tensor on the device and bytes in ordinary host memory.
//!
//! What waits to be sent or used lies in host memory outside libtorch's allocators, so a device's peak
//! does not depend on how far ahead or behind a neighbour is.

use tch::{Device, TchError, Tensor};

use super::Form;

impl Form {
    /// Bytes of such a tensor.
    pub(super) fn bytes(&self) -> u64 {
        self.elements() * self.kind.elt_size_in_bytes() as u64
    }

    pub(super) fn elements(&self) -> u64 {
        self.shape.iter().map(|&extent| u64::try_from(extent).unwrap_or(0)).product()
    }
}

/// The bytes of a tensor.
pub(crate) fn to_host(tensor: &Tensor) -> Result<Vec<u8>, TchError> {
    let elements = tensor.numel();
    let mut bytes = vec![0; elements * tensor.f_kind()?.elt_size_in_bytes()];
    tensor.f_copy_data_u8(&mut bytes, elements)?;
    Ok(bytes)
}

/// A tensor of these bytes.
pub(super) fn to_device(bytes: &[u8], form: &Form, device: Device) -> Result<Tensor, TchError> {
    let tensor = Tensor::f_from_data_size(bytes, &form.shape, form.kind)?;
    if device == Device::Cpu { Ok(tensor) } else { tensor.f_to(device) }
}
