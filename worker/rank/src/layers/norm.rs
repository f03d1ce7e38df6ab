//! Normalisations.

use loadmaster_proto::model::layer::DEFAULT_EPSILON;
use tch::Tensor;

use super::ForwardKind;
use crate::collective::{Group, operators};
use crate::error::RankError;

/// A normalisation over the last axis.
#[derive(Debug)]
pub(super) enum Norm {
    /// Mean and variance, scale and shift.
    Layer { weight: Tensor, bias: Tensor, epsilon: f64 },
    /// Root of the mean square, scale.
    RootMeanSquare { weight: Tensor, epsilon: f64 },
}

impl Norm {
    /// The same for use on what is split over the shards of a stage: each finds a part of the gradients of
    /// scale and shift, which are added up.
    pub(super) fn shared_by(&self, group: &Group) -> Result<Self, RankError> {
        Ok(match self {
            Self::Layer { weight, bias, epsilon } => Self::Layer {
                weight: operators::enter(group, weight)?,
                bias: operators::enter(group, bias)?,
                epsilon: *epsilon,
            },
            Self::RootMeanSquare { weight, epsilon } => {
                Self::RootMeanSquare { weight: operators::enter(group, weight)?, epsilon: *epsilon }
            }
        })
    }

    pub(super) fn forward(&self, input: &Tensor) -> Result<Tensor, RankError> {
        let normalised = match self {
            Self::Layer { weight, bias, epsilon } => {
                input.f_layer_norm(weight.size(), Some(weight), Some(bias), *epsilon, true)
            }
            Self::RootMeanSquare { weight, epsilon } => {
                input.f_rms_norm(weight.size(), Some(weight), *epsilon)
            }
        };
        Ok(normalised?)
    }
}

/// Batch normalisation in training: by the statistics of the micro-batch, which also move the running ones.
#[derive(Debug)]
pub(super) struct BatchNorm {
    pub(super) weight: Tensor,
    pub(super) bias: Tensor,
    pub(super) running_mean: Tensor,
    pub(super) running_variance: Tensor,
}

impl BatchNorm {
    /// A forward pass that is done again leaves the running statistics alone: they have moved already.
    pub(super) fn forward(&self, input: &Tensor, pass: ForwardKind) -> Result<Tensor, RankError> {
        // PyTorch's default.
        const MOMENTUM: f64 = 0.1;
        let momentum = match pass {
            ForwardKind::First => MOMENTUM,
            ForwardKind::Again => 0.0,
        };
        Ok(input.f_batch_norm(
            Some(&self.weight),
            Some(&self.bias),
            Some(&self.running_mean),
            Some(&self.running_variance),
            true,
            momentum,
            DEFAULT_EPSILON,
            true,
        )?)
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;
    use crate::tensor::copy_of;

    /// A micro-batch moves the running statistics once, however often its forward pass is done, and the
    /// pass that is done again yields the same.
    #[test]
    fn a_repeated_pass_moves_no_running_statistics() -> Result<(), RankError> {
        let options = (Kind::Float, Device::Cpu);
        let norm = BatchNorm {
            weight: Tensor::f_ones([2], options)?,
            bias: Tensor::f_zeros([2], options)?,
            running_mean: Tensor::f_zeros([2], options)?,
            running_variance: Tensor::f_ones([2], options)?,
        };
        let input = Tensor::f_arange(24, options)?.f_reshape([3, 2, 2, 2])?;
        let first = norm.forward(&input, ForwardKind::First)?;
        // A tenth of the means, 9.5 and 13.5.
        let moved = copy_of(&norm.running_mean)?;
        assert!(moved.allclose(&Tensor::from_slice(&[0.95_f32, 1.35]), 1e-5, 1e-6, false), "{moved}");
        let variance = copy_of(&norm.running_variance)?;
        let again = norm.forward(&input, ForwardKind::Again)?;
        assert!(again.equal(&first));
        assert!(norm.running_mean.equal(&moved) && norm.running_variance.equal(&variance));
        Ok(())
    }
}
