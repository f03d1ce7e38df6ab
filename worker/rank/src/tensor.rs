//! Tensors as such: their number formats and shapes, their copies, and their bytes in ordinary host memory.
//!
//! What waits to be sent or used lies in host memory outside libtorch's allocators, so a device's peak
//! does not depend on how far ahead or behind a neighbour is.

use std::ops::Range;

use loadmaster_proto::training::Precision;
use tch::{Device, Kind, TchError, Tensor};

/// Number format and shape of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// Number format.
    pub kind: Kind,
    /// Shape, samples included.
    pub shape: Vec<i64>,
}

impl Form {
    /// A row of scalars of 4 bytes.
    pub(crate) fn of_bytes(bytes: u64) -> Self {
        Self { kind: Kind::Float, shape: vec![i64::try_from(bytes / 4).unwrap_or(i64::MAX)] }
    }

    /// The same with other rows.
    pub(crate) fn with_rows(&self, rows: &Range<i64>) -> Self {
        let mut shape = self.shape.clone();
        if let Some(first) = shape.first_mut() {
            *first = rows.end - rows.start;
        }
        Self { kind: self.kind, shape }
    }

    /// Bytes of such a tensor.
    pub(crate) fn bytes(&self) -> u64 {
        self.elements() * self.kind.elt_size_in_bytes() as u64
    }

    pub(crate) fn elements(&self) -> u64 {
        self.shape.iter().map(|&extent| u64::try_from(extent).unwrap_or(0)).product()
    }
}

/// The number format of activations, of the parameters that layers compute with, and of what crosses edges.
pub(crate) fn kind(precision: Precision) -> Kind {
    match precision {
        Precision::Fp32 => Kind::Float,
        Precision::Bf16 | Precision::Bf16Fp32Gradients => Kind::BFloat16,
    }
}

/// The number format in which gradients of parameters are added up.
pub(crate) fn gradient_kind(precision: Precision) -> Kind {
    if precision.has_main_gradients() { Kind::Float } else { kind(precision) }
}

/// A copy with memory of its own.
pub(crate) fn copy_of(tensor: &Tensor) -> Result<Tensor, TchError> {
    let mut copy = tensor.f_empty_like()?;
    copy.f_copy_(tensor)?;
    Ok(copy)
}

/// The bytes of a tensor.
pub(crate) fn to_host(tensor: &Tensor) -> Result<Vec<u8>, TchError> {
    let elements = tensor.numel();
    let mut bytes = vec![0; elements * tensor.f_kind()?.elt_size_in_bytes()];
    tensor.f_copy_data_u8(&mut bytes, elements)?;
    Ok(bytes)
}

/// A tensor of these bytes.
pub(crate) fn to_device(bytes: &[u8], form: &Form, device: Device) -> Result<Tensor, TchError> {
    let tensor = Tensor::f_from_data_size(bytes, &form.shape, form.kind)?;
    if device == Device::Cpu { Ok(tensor) } else { tensor.f_to(device) }
}
