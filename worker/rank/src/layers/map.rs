//! Layers that make one tensor of one tensor.

use std::fmt;

use loadmaster_proto::model::layer::LayerKind;
use tch::Tensor;

use super::affine::Role;
use super::amoeba::ReluConvNorm;
use super::embedding::Embedding;
use super::parameters::Parts;
use super::transformer::Block;
use super::{ForwardKind, dropout, tokens};
use crate::error::RankError;

type Forward = dyn Fn(&Tensor, ForwardKind) -> Result<Tensor, RankError> + Send;

/// What a layer computes, with its tensors.
pub(super) struct Map(Box<Forward>);

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Map")
    }
}

impl Map {
    fn of(forward: impl Fn(&Tensor) -> Result<Tensor, RankError> + Send + 'static) -> Self {
        Self(Box::new(move |input, _| forward(input)))
    }

    /// Takes the tensors in the order of `LayerKind::parameters`. A head may keep its output split: the loss knows
    /// how to go on.
    pub(super) fn new(
        kind: LayerKind,
        parts: &mut Parts,
        keeps_output_split: bool,
    ) -> Result<Self, RankError> {
        Ok(match kind {
            LayerKind::Conv2d { stride, padding, .. } => {
                let convolution = parts.convolution([stride, stride], [padding, padding], true)?;
                Self::of(move |input| convolution.forward(input))
            }
            LayerKind::Relu => Self::of(|input| Ok(input.f_relu()?)),
            LayerKind::MaxPool2d { kernel, stride } => Self::of(move |input| {
                Ok(input.f_max_pool2d([kernel, kernel], [stride, stride], [0, 0], [1, 1], false)?)
            }),
            LayerKind::AdaptiveAvgPool2d { output } => {
                Self::of(move |input| Ok(input.f_adaptive_avg_pool2d([output, output])?))
            }
            LayerKind::Flatten => Self::of(|input| Ok(input.f_flatten(1, -1)?)),
            LayerKind::Linear { .. } => {
                let map = parts.affine(Role::Gathered, true)?;
                Self::of(move |input| map.forward(input))
            }
            LayerKind::Dropout { probability } => {
                Self::of(move |input| dropout(input.shallow_clone(), probability))
            }
            LayerKind::TokenEmbedding(embedding) => {
                let embedding = Embedding::new(&embedding, parts)?;
                Self::of(move |input| embedding.forward(input))
            }
            LayerKind::TransformerBlock(block) => {
                let block = Block::new(&block, parts)?;
                Self::of(move |input| block.forward(input))
            }
            LayerKind::LayerNorm { epsilon, .. } => {
                let norm = parts.layer_norm(epsilon)?;
                Self::of(move |input| norm.forward(input))
            }
            LayerKind::RmsNorm { epsilon, .. } => {
                let norm = parts.rms_norm(epsilon)?;
                Self::of(move |input| norm.forward(input))
            }
            LayerKind::LanguageModelHead { .. } if keeps_output_split => {
                let map = parts.affine(Role::Column, false)?;
                Self::of(move |input| map.forward(&map.enter(input.shallow_clone())?))
            }
            LayerKind::LanguageModelHead { .. } => {
                let map = parts.affine(Role::Gathered, false)?;
                Self::of(move |input| map.forward(input))
            }
            LayerKind::Pooler { .. } => {
                let map = parts.affine(Role::Gathered, true)?;
                Self::of(move |input| tokens::pool(&map, input))
            }
            LayerKind::ReluConvBatchNorm { stride, padding, .. } => {
                let stem = ReluConvNorm::new([stride, stride], [padding, padding], parts)?;
                Self(Box::new(move |input, pass| stem.forward(input, pass)))
            }
            LayerKind::AmoebaCell(_) => {
                return Err(RankError::Other("an AmoebaNet cell needs two inputs".to_owned()));
            }
            LayerKind::ImageClassifier { .. } => {
                let map = parts.affine(Role::Gathered, true)?;
                Self::of(move |input| tokens::classify(&map, input))
            }
            LayerKind::LatentTokens { .. } => {
                let (map, position) = (parts.affine(Role::Gathered, true)?, parts.parameter()?);
                Self::of(move |input| tokens::of_latent(&map, &position, input))
            }
            LayerKind::PixelShuffle { height, width, .. } => {
                let position = parts.parameter()?;
                Self::of(move |input| tokens::shuffle([height, width], &position, input))
            }
            LayerKind::TokensToImage { height, width, .. } => {
                let map = parts.affine(Role::Gathered, true)?;
                Self::of(move |input| tokens::to_image(&map, [height, width], input))
            }
        })
    }

    pub(super) fn forward(&self, input: &Tensor, pass: ForwardKind) -> Result<Tensor, RankError> {
        (self.0)(input, pass)
    }
}
