//! Linear maps and convolutions: a weight, perhaps a bias, and the part they play in a split layer.

use tch::Tensor;

use crate::collective::{Group, operators};
use crate::error::RankError;

/// The ranks that hold the slices of a tensor.
#[derive(Debug, Clone)]
pub struct Split {
    /// The ranks.
    pub group: Group,
    /// Extent of the axis that is split, of all slices together.
    pub extent: i64,
}

/// How a layer's map is split over the ranks of a tensor-parallel stage (Megatron's two ways).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Every rank holds all of it.
    Replicated,
    /// Each rank holds some outputs: all of the input enters (see [`Affine::enter`]), a slice of the output
    /// leaves.
    Column,
    /// Each rank holds some inputs: a slice of the input enters, a part of the output's sum leaves. The
    /// bias is added once, to the sum.
    Row,
    /// As `Column`, but the slices of the output are put together, so that whoever follows sees all.
    Gathered,
}

/// A linear map of the last axis.
#[derive(Debug)]
pub struct Affine {
    /// Outputs × inputs.
    pub weight: Tensor,
    /// Outputs.
    pub bias: Option<Tensor>,
    /// How it is split, if it is.
    pub role: Role,
    /// Among whom it is split.
    pub split: Option<Split>,
}

impl Affine {
    /// What enters a `Column` map: once for all maps that take the same input, so that the shards add up
    /// its gradient once.
    ///
    /// # Errors
    /// When libtorch refuses.
    pub fn enter(&self, input: Tensor) -> Result<Tensor, RankError> {
        match &self.split {
            Some(split) => operators::enter(&split.group, &input),
            None => Ok(input),
        }
    }

    /// The map of the last axis.
    ///
    /// # Errors
    /// What libtorch says, or another shard is gone.
    pub fn forward(&self, input: &Tensor) -> Result<Tensor, RankError> {
        match (&self.split, self.role) {
            (Some(split), Role::Row) => {
                let part = input.f_linear(&self.weight, None::<&Tensor>)?;
                let mut sum = operators::reduce(&split.group, part)?;
                if let Some(bias) = &self.bias {
                    drop(sum.f_add_(bias)?);
                }
                Ok(sum)
            }
            (Some(Split { group, extent }), Role::Gathered) => {
                let entered = operators::enter(group, input)?;
                let part = entered.f_linear(&self.weight, self.bias.as_ref())?;
                drop(entered);
                let axis = part.dim().saturating_sub(1);
                operators::gather(group, part, axis, *extent)
            }
            (None, _) | (Some(_), Role::Replicated | Role::Column) => {
                Ok(input.f_linear(&self.weight, self.bias.as_ref())?)
            }
        }
    }
}

/// A two-dimensional convolution.
#[derive(Debug)]
pub struct Convolution {
    /// Output channels × input channels × rows × columns of the kernel.
    pub weight: Tensor,
    /// Output channels.
    pub bias: Option<Tensor>,
    /// Step down and to the right.
    pub stride: [i64; 2],
    /// Zero padding above and below, left and right.
    pub padding: [i64; 2],
    /// Among whom its output channels are split; they are put together again.
    pub split: Option<Split>,
}

impl Convolution {
    /// The convolution of samples × channels × rows × columns.
    ///
    /// # Errors
    /// What libtorch says, or another shard is gone.
    pub fn forward(&self, input: &Tensor) -> Result<Tensor, RankError> {
        let convolve = |input: &Tensor| {
            input.f_conv2d(&self.weight, self.bias.as_ref(), self.stride, self.padding, [1, 1], 1)
        };
        match &self.split {
            None => Ok(convolve(input)?),
            Some(Split { group, extent }) => {
                let part = convolve(&operators::enter(group, input)?)?;
                operators::gather(group, part, 1, *extent)
            }
        }
    }
}
