//! Handing a layer its tensors, one part after the other.

use tch::Tensor;

use super::affine::{Affine, Convolution, Role, Split};
use super::norm::{BatchNorm, Norm};
use crate::error::RankError;

/// A layer's tensors, handed out in the order of `LayerKind::parameters` and `LayerKind::buffers`.
#[derive(Debug)]
pub(super) struct Parts {
    layer: usize,
    parameters: std::vec::IntoIter<(Tensor, Option<Split>)>,
    buffers: std::vec::IntoIter<Tensor>,
}

impl Parts {
    /// Parameters come with those among whom they are split.
    pub(super) fn new(layer: usize, parameters: Vec<(Tensor, Option<Split>)>, buffers: Vec<Tensor>) -> Self {
        Self { layer, parameters: parameters.into_iter(), buffers: buffers.into_iter() }
    }

    /// The next trained tensor.
    pub(super) fn parameter(&mut self) -> Result<Tensor, RankError> {
        Ok(self.split_parameter()?.0)
    }

    /// The next trained tensor, and among whom it is split.
    pub(super) fn split_parameter(&mut self) -> Result<(Tensor, Option<Split>), RankError> {
        let layer = self.layer;
        let lacking = || RankError::Other(format!("layer {layer} lacks one of its parameters"));
        self.parameters.next().ok_or_else(lacking)
    }

    /// The next tensor that is not trained.
    pub(super) fn buffer(&mut self) -> Result<Tensor, RankError> {
        let layer = self.layer;
        let lacking = || RankError::Other(format!("layer {layer} lacks one of its buffers"));
        self.buffers.next().ok_or_else(lacking)
    }

    pub(super) fn affine(&mut self, role: Role, has_bias: bool) -> Result<Affine, RankError> {
        let (weight, split) = self.split_parameter()?;
        let bias = if has_bias { Some(self.parameter()?) } else { None };
        Ok(Affine { weight, bias, role, split })
    }

    pub(super) fn convolution(
        &mut self,
        stride: [i64; 2],
        padding: [i64; 2],
        has_bias: bool,
    ) -> Result<Convolution, RankError> {
        let (weight, split) = self.split_parameter()?;
        let bias = if has_bias { Some(self.parameter()?) } else { None };
        Ok(Convolution { weight, bias, stride, padding, split })
    }

    pub(super) fn layer_norm(&mut self, epsilon: f64) -> Result<Norm, RankError> {
        Ok(Norm::Layer { weight: self.parameter()?, bias: self.parameter()?, epsilon })
    }

    pub(super) fn rms_norm(&mut self, epsilon: f64) -> Result<Norm, RankError> {
        Ok(Norm::RootMeanSquare { weight: self.parameter()?, epsilon })
    }

    pub(super) fn batch_norm(&mut self) -> Result<BatchNorm, RankError> {
        Ok(BatchNorm {
            weight: self.parameter()?,
            bias: self.parameter()?,
            running_mean: self.buffer()?,
            running_variance: self.buffer()?,
        })
    }
}
