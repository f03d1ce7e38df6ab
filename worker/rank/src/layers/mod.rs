//! Layers: tensors and what is computed with them.
//!
//! Shapes and initialisation come from `LayerKind::parameters`, the one place that defines them.

mod parameters;
mod transformer;

use loadmaster_proto::layer::LayerKind;
use tch::{TchError, Tensor};

pub use parameters::{ParameterMaker, Trained};
pub(crate) use parameters::{copy_of, kind};
use transformer::Block;

use crate::error::RankError;

/// A layer of a stage.
#[derive(Debug)]
pub struct Layer {
    index: usize,
    compute: Compute,
    is_random: bool,
}

/// What a layer computes, with its tensors.
#[derive(Debug)]
enum Compute {
    Conv2d { weight: Tensor, bias: Tensor, stride: i64, padding: i64 },
    Relu,
    MaxPool2d { kernel: i64, stride: i64 },
    AdaptiveAvgPool2d { output: i64 },
    Flatten,
    Linear { weight: Tensor, bias: Tensor },
    Dropout { probability: f64 },
    TokenEmbedding { token: Tensor, position: Tensor, dropout: f64 },
    Block(Box<Block>),
    LayerNorm { weight: Tensor, bias: Tensor },
    Head { weight: Tensor },
}

impl Layer {
    /// A layer that computes with `tensors`: those of `LayerKind::parameters`, in their order, and for a
    /// tied head the shared one.
    ///
    /// # Errors
    /// When there are too few tensors.
    pub fn new(index: usize, kind: LayerKind, tensors: Vec<Tensor>) -> Result<Self, RankError> {
        let mut tensors = tensors.into_iter();
        let mut next = || {
            tensors
                .next()
                .ok_or_else(|| RankError::Other(format!("layer {index} lacks one of its parameters")))
        };
        let compute = match kind {
            LayerKind::Conv2d { stride, padding, .. } => {
                Compute::Conv2d { weight: next()?, bias: next()?, stride, padding }
            }
            LayerKind::Relu => Compute::Relu,
            LayerKind::MaxPool2d { kernel, stride } => Compute::MaxPool2d { kernel, stride },
            LayerKind::AdaptiveAvgPool2d { output } => Compute::AdaptiveAvgPool2d { output },
            LayerKind::Flatten => Compute::Flatten,
            LayerKind::Linear { .. } => Compute::Linear { weight: next()?, bias: next()? },
            LayerKind::Dropout { probability } => Compute::Dropout { probability },
            LayerKind::TokenEmbedding { dropout, .. } => {
                Compute::TokenEmbedding { token: next()?, position: next()?, dropout }
            }
            LayerKind::TransformerBlock { heads, dropout, .. } => {
                Compute::Block(Box::new(Block::new(heads, dropout, next)?))
            }
            LayerKind::LayerNorm { .. } => Compute::LayerNorm { weight: next()?, bias: next()? },
            LayerKind::LanguageModelHead { .. } => Compute::Head { weight: next()? },
        };
        Ok(Self { index, compute, is_random: drops(kind) })
    }

    /// Index in the model.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Whether it draws random numbers.
    pub fn is_random(&self) -> bool {
        self.is_random
    }

    /// The forward pass: from the tensors at the edge before the layer to those behind it.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn forward(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, TchError> {
        match inputs {
            [input] => Ok(vec![self.forward_one(input)?]),
            _ => Err(TchError::Shape(format!("layer {} takes one tensor, not {}", self.index, inputs.len()))),
        }
    }

    fn forward_one(&self, input: &Tensor) -> Result<Tensor, TchError> {
        match &self.compute {
            Compute::Conv2d { weight, bias, stride, padding } => {
                input.f_conv2d(weight, Some(bias), [*stride, *stride], [*padding, *padding], [1, 1], 1)
            }
            Compute::Relu => input.f_relu(),
            Compute::MaxPool2d { kernel, stride } => {
                input.f_max_pool2d([*kernel, *kernel], [*stride, *stride], [0, 0], [1, 1], false)
            }
            Compute::AdaptiveAvgPool2d { output } => input.f_adaptive_avg_pool2d([*output, *output]),
            Compute::Flatten => input.f_flatten(1, -1),
            Compute::Linear { weight, bias } => input.f_linear(weight, Some(bias)),
            Compute::Dropout { probability } => dropout(input, *probability),
            Compute::TokenEmbedding { token, position, dropout: probability } => {
                let tokens = Tensor::f_embedding(token, input, -1, false, false)?;
                let length = input.size().last().copied().unwrap_or_default();
                let sum = tokens.f_add(&position.f_narrow(0, 0, length)?)?;
                drop(tokens);
                dropout(&sum, *probability)
            }
            Compute::Block(block) => block.forward(input),
            Compute::LayerNorm { weight, bias } => layer_norm(input, weight, bias),
            Compute::Head { weight } => input.f_linear(weight, None::<&Tensor>),
        }
    }
}

fn drops(kind: LayerKind) -> bool {
    match kind {
        LayerKind::Dropout { probability } => probability > 0.0,
        LayerKind::TokenEmbedding { dropout, .. } | LayerKind::TransformerBlock { dropout, .. } => {
            dropout > 0.0
        }
        _ => false,
    }
}

/// Dropout while training. Nothing is computed, copied or drawn when nothing is dropped.
fn dropout(input: &Tensor, probability: f64) -> Result<Tensor, TchError> {
    if probability > 0.0 { input.f_dropout(probability, true) } else { Ok(input.shallow_clone()) }
}

fn layer_norm(input: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor, TchError> {
    // PyTorch's default.
    const EPSILON: f64 = 1e-5;
    input.f_layer_norm(weight.size(), Some(weight), Some(bias), EPSILON, true)
}
