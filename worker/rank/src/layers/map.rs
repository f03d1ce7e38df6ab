//! Layers that make one tensor of one tensor.

use loadmaster_proto::model::layer::LayerKind;
use tch::Tensor;

use super::affine::{Affine, Convolution, Role};
use super::amoeba::ReluConvNorm;
use super::embedding::Embedding;
use super::norm::Norm;
use super::parts::Parts;
use super::transformer::Block;
use super::{dropout, tokens};
use crate::error::RankError;
use crate::timing::ForwardKind;

/// What a layer computes, with its tensors.
#[derive(Debug)]
pub(super) enum Map {
    Convolution(Convolution),
    Relu,
    MaxPool2d {
        kernel: i64,
        stride: i64,
    },
    AdaptiveAvgPool2d {
        output: i64,
    },
    Flatten,
    Affine(Affine),
    /// A map whose output stays split: the loss knows how to go on.
    SplitHead(Affine),
    Dropout {
        probability: f64,
    },
    Embedding(Embedding),
    Block(Box<Block>),
    Norm(Norm),
    Pooler(Affine),
    ReluConvNorm(Box<ReluConvNorm>),
    ImageClassifier(Affine),
    LatentTokens {
        map: Affine,
        position: Tensor,
    },
    PixelShuffle {
        position: Tensor,
        size: [i64; 2],
    },
    TokensToImage {
        map: Affine,
        size: [i64; 2],
    },
}

impl Map {
    /// Takes the tensors in the order of `LayerKind::parameters`. A head may keep its output split.
    pub(super) fn new(
        kind: LayerKind,
        parts: &mut Parts,
        keeps_output_split: bool,
    ) -> Result<Self, RankError> {
        Ok(match kind {
            LayerKind::Conv2d { stride, padding, .. } => {
                Self::Convolution(parts.convolution([stride, stride], [padding, padding], true)?)
            }
            LayerKind::Relu => Self::Relu,
            LayerKind::MaxPool2d { kernel, stride } => Self::MaxPool2d { kernel, stride },
            LayerKind::AdaptiveAvgPool2d { output } => Self::AdaptiveAvgPool2d { output },
            LayerKind::Flatten => Self::Flatten,
            LayerKind::Linear { .. } => Self::Affine(parts.affine(Role::Gathered, true)?),
            LayerKind::Dropout { probability } => Self::Dropout { probability },
            LayerKind::TokenEmbedding(embedding) => Self::Embedding(Embedding::new(&embedding, parts)?),
            LayerKind::TransformerBlock(block) => Self::Block(Box::new(Block::new(&block, parts)?)),
            LayerKind::LayerNorm { epsilon, .. } => Self::Norm(parts.layer_norm(epsilon)?),
            LayerKind::RmsNorm { epsilon, .. } => Self::Norm(parts.rms_norm(epsilon)?),
            LayerKind::LanguageModelHead { .. } if keeps_output_split => {
                Self::SplitHead(parts.affine(Role::Column, false)?)
            }
            LayerKind::LanguageModelHead { .. } => Self::Affine(parts.affine(Role::Gathered, false)?),
            LayerKind::Pooler { .. } => Self::Pooler(parts.affine(Role::Gathered, true)?),
            LayerKind::ReluConvBatchNorm { stride, padding, .. } => {
                Self::ReluConvNorm(Box::new(ReluConvNorm::new([stride, stride], [padding, padding], parts)?))
            }
            LayerKind::AmoebaCell(_) => {
                return Err(RankError::Other("a cell is no map of one tensor".to_owned()));
            }
            LayerKind::ImageClassifier { .. } => Self::ImageClassifier(parts.affine(Role::Gathered, true)?),
            LayerKind::LatentTokens { .. } => {
                Self::LatentTokens { map: parts.affine(Role::Gathered, true)?, position: parts.parameter()? }
            }
            LayerKind::PixelShuffle { height, width, .. } => {
                Self::PixelShuffle { position: parts.parameter()?, size: [height, width] }
            }
            LayerKind::TokensToImage { height, width, .. } => {
                Self::TokensToImage { map: parts.affine(Role::Gathered, true)?, size: [height, width] }
            }
        })
    }

    pub(super) fn forward(&self, input: &Tensor, pass: ForwardKind) -> Result<Tensor, RankError> {
        Ok(match self {
            Self::Convolution(convolution) => convolution.forward(input)?,
            Self::Relu => input.f_relu()?,
            Self::MaxPool2d { kernel, stride } => {
                input.f_max_pool2d([*kernel, *kernel], [*stride, *stride], [0, 0], [1, 1], false)?
            }
            Self::AdaptiveAvgPool2d { output } => input.f_adaptive_avg_pool2d([*output, *output])?,
            Self::Flatten => input.f_flatten(1, -1)?,
            Self::Affine(affine) => affine.forward(input)?,
            Self::SplitHead(affine) => affine.forward(&affine.enter(input.shallow_clone())?)?,
            Self::Dropout { probability } => dropout(input.shallow_clone(), *probability)?,
            Self::Embedding(embedding) => embedding.forward(input)?,
            Self::Block(block) => block.forward(input)?,
            Self::Norm(norm) => norm.forward(input)?,
            Self::Pooler(map) => tokens::pool(map, input)?,
            Self::ReluConvNorm(stem) => stem.forward(input, pass)?,
            Self::ImageClassifier(map) => tokens::classify(map, input)?,
            Self::LatentTokens { map, position } => tokens::of_latent(map, position, input)?,
            Self::PixelShuffle { position, size } => tokens::shuffle(*size, position, input)?,
            Self::TokensToImage { map, size } => tokens::to_image(map, *size, input)?,
        })
    }
}
