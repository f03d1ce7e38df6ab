//! Tensors that layers hold without training them.

use loadmaster_proto::model::layer::{Buffer, BufferContent};
use tch::{Device, Kind, TchError, Tensor};

use super::parameters::ParameterMaker;
use crate::tensor::kind;

impl ParameterMaker {
    /// A buffer with its content at the start, in the number format that layers compute with.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub fn buffer(&self, buffer: &Buffer) -> Result<Tensor, TchError> {
        let _no_grad = tch::no_grad_guard();
        let (shape, kind) = (buffer.shape.as_slice(), kind(self.precision));
        match buffer.content {
            BufferContent::Zeros => Tensor::f_zeros(shape, (kind, self.device)),
            BufferContent::Ones => Tensor::f_ones(shape, (kind, self.device)),
            BufferContent::Cosines { base } => angles(shape, base, self.device)?.f_cos()?.f_to_kind(kind),
            BufferContent::Sines { base } => angles(shape, base, self.device)?.f_sin()?.f_to_kind(kind),
        }
    }
}

/// Angles of rotary positions: t / base^(2k / d) for row t and column k of d/2 columns.
fn angles(shape: &[i64], base: f64, device: Device) -> Result<Tensor, TchError> {
    let [rows, columns] = shape else {
        return Err(TchError::Shape(format!("rotary positions take tokens and pairs, not {shape:?}")));
    };
    let options = (Kind::Double, device);
    let exponents = Tensor::f_arange(*columns, options)?.f_div_scalar(-*columns as f64)?;
    let frequencies = Tensor::f_pow_scalar(base, &exponents)?;
    Tensor::f_outer(&Tensor::f_arange(*rows, options)?, &frequencies)
}
