//! Layers.

use crate::error::{Invalid, required};
use crate::message;
use crate::model::layer::{
    AmoebaCell, DEFAULT_EPSILON, Layer, LayerKind, NormKind, NormPosition, Perceptron, TokenEmbedding,
    TransformerBlock,
};
use crate::wire::v1::layer::Kind;
use crate::wire::{ToWire, field, v1};

message! { Layer <=> v1::Layer }

impl From<&Layer> for v1::Layer {
    fn from(layer: &Layer) -> Self {
        Self {
            name: layer.name.clone(),
            kind: Some(layer.kind.into()),
            parameter_count: layer.kind.parameter_count().to_wire(),
        }
    }
}

impl TryFrom<v1::Layer> for Layer {
    type Error = Invalid;

    fn try_from(wire: v1::Layer) -> Result<Self, Invalid> {
        Ok(Self { name: wire.name, kind: required("kind", wire.kind)?.try_into()? })
    }
}

impl From<LayerKind> for Kind {
    fn from(kind: LayerKind) -> Self {
        match kind {
            LayerKind::Conv2d { in_channels, out_channels, kernel, stride, padding } => {
                Self::Conv2d(v1::Conv2d { in_channels, out_channels, kernel, stride, padding })
            }
            LayerKind::Relu => Self::Relu(v1::Relu {}),
            LayerKind::MaxPool2d { kernel, stride } => Self::MaxPool2d(v1::MaxPool2d { kernel, stride }),
            LayerKind::AdaptiveAvgPool2d { output } => {
                Self::AdaptiveAvgPool2d(v1::AdaptiveAvgPool2d { output })
            }
            LayerKind::Flatten => Self::Flatten(v1::Flatten {}),
            LayerKind::Linear { in_features, out_features } => {
                Self::Linear(v1::Linear { in_features, out_features })
            }
            LayerKind::Dropout { probability } => Self::Dropout(v1::Dropout { probability }),
            LayerKind::TokenEmbedding(embedding) => Self::TokenEmbedding(embedding.into()),
            LayerKind::TransformerBlock(block) => Self::TransformerBlock(block.into()),
            LayerKind::LayerNorm { hidden_size, epsilon } => {
                Self::LayerNorm(v1::LayerNorm { hidden_size, epsilon })
            }
            LayerKind::RmsNorm { hidden_size, epsilon } => {
                Self::RmsNorm(v1::RmsNorm { hidden_size, epsilon })
            }
            LayerKind::LanguageModelHead { hidden_size, vocabulary_size, tied } => {
                Self::LanguageModelHead(v1::LanguageModelHead { hidden_size, vocabulary_size, tied })
            }
            LayerKind::Pooler { hidden_size } => Self::Pooler(v1::Pooler { hidden_size }),
            LayerKind::ReluConvBatchNorm { in_channels, out_channels, kernel, stride, padding } => {
                Self::ReluConvBatchNorm(v1::ReluConvBatchNorm {
                    in_channels,
                    out_channels,
                    kernel,
                    stride,
                    padding,
                })
            }
            LayerKind::AmoebaCell(cell) => Self::AmoebaCell(cell.into()),
            LayerKind::ImageClassifier { channels, classes } => {
                Self::ImageClassifier(v1::ImageClassifier { channels, classes })
            }
            LayerKind::LatentTokens { latent_size, tokens, hidden_size } => {
                Self::LatentTokens(v1::LatentTokens { latent_size, tokens, hidden_size })
            }
            LayerKind::PixelShuffle { hidden_size, height, width } => {
                Self::PixelShuffle(v1::PixelShuffle { hidden_size, height, width })
            }
            LayerKind::TokensToImage { hidden_size, height, width, channels } => {
                Self::TokensToImage(v1::TokensToImage { hidden_size, height, width, channels })
            }
        }
    }
}

impl TryFrom<Kind> for LayerKind {
    type Error = Invalid;

    fn try_from(wire: Kind) -> Result<Self, Invalid> {
        Ok(match wire {
            Kind::Conv2d(v1::Conv2d { in_channels, out_channels, kernel, stride, padding }) => {
                Self::Conv2d { in_channels, out_channels, kernel, stride, padding }
            }
            Kind::Relu(v1::Relu {}) => Self::Relu,
            Kind::MaxPool2d(v1::MaxPool2d { kernel, stride }) => Self::MaxPool2d { kernel, stride },
            Kind::AdaptiveAvgPool2d(v1::AdaptiveAvgPool2d { output }) => Self::AdaptiveAvgPool2d { output },
            Kind::Flatten(v1::Flatten {}) => Self::Flatten,
            Kind::Linear(v1::Linear { in_features, out_features }) => {
                Self::Linear { in_features, out_features }
            }
            Kind::Dropout(v1::Dropout { probability }) => Self::Dropout { probability },
            Kind::TokenEmbedding(embedding) => Self::TokenEmbedding(embedding.try_into()?),
            Kind::TransformerBlock(block) => Self::TransformerBlock(field("transformer_block", block)?),
            Kind::LayerNorm(v1::LayerNorm { hidden_size, epsilon }) => {
                Self::LayerNorm { hidden_size, epsilon: epsilon_or_default(epsilon) }
            }
            Kind::RmsNorm(v1::RmsNorm { hidden_size, epsilon }) => {
                Self::RmsNorm { hidden_size, epsilon: epsilon_or_default(epsilon) }
            }
            Kind::LanguageModelHead(v1::LanguageModelHead { hidden_size, vocabulary_size, tied }) => {
                Self::LanguageModelHead { hidden_size, vocabulary_size, tied }
            }
            Kind::Pooler(v1::Pooler { hidden_size }) => Self::Pooler { hidden_size },
            Kind::ReluConvBatchNorm(v1::ReluConvBatchNorm {
                in_channels,
                out_channels,
                kernel,
                stride,
                padding,
            }) => Self::ReluConvBatchNorm { in_channels, out_channels, kernel, stride, padding },
            Kind::AmoebaCell(cell) => Self::AmoebaCell(cell.try_into()?),
            Kind::ImageClassifier(v1::ImageClassifier { channels, classes }) => {
                Self::ImageClassifier { channels, classes }
            }
            Kind::LatentTokens(v1::LatentTokens { latent_size, tokens, hidden_size }) => {
                Self::LatentTokens { latent_size, tokens, hidden_size }
            }
            Kind::PixelShuffle(v1::PixelShuffle { hidden_size, height, width }) => {
                Self::PixelShuffle { hidden_size, height, width }
            }
            Kind::TokensToImage(v1::TokensToImage { hidden_size, height, width, channels }) => {
                Self::TokensToImage { hidden_size, height, width, channels }
            }
        })
    }
}

message! {
    TokenEmbedding <=> v1::TokenEmbedding {
        vocabulary_size,
        positions,
        hidden_size,
        dropout,
        token_types,
        norm_epsilon,
    }
}

message! {
    AmoebaCell <=> v1::AmoebaCell {
        channels_before_previous,
        channels_previous,
        channels,
        reduction,
        after_reduction,
        single_input,
        last,
    }
}

message! { TransformerBlock <=> v1::TransformerBlock }

impl From<&TransformerBlock> for v1::TransformerBlock {
    fn from(block: &TransformerBlock) -> Self {
        let TransformerBlock {
            hidden_size,
            heads,
            feed_forward_size,
            dropout,
            attention_dropout,
            key_value_heads,
            head_size,
            perceptron,
            activation,
            norm,
            epsilon,
            norm_position,
            bidirectional,
            qkv_bias,
            attention_out_bias,
            mlp_bias,
            rotary_base,
            query_key_norm,
        } = *block;
        Self {
            hidden_size,
            heads,
            feed_forward_size,
            dropout,
            attention_dropout,
            key_value_heads: key_value_heads.to_wire(),
            head_size: head_size.to_wire(),
            gated: perceptron == Perceptron::Gated,
            activation: activation.to_wire(),
            rms_norm: norm == NormKind::RmsNorm,
            epsilon,
            post_norm: norm_position == NormPosition::Post,
            bidirectional,
            no_qkv_bias: !qkv_bias,
            no_attention_out_bias: !attention_out_bias,
            no_mlp_bias: !mlp_bias,
            rotary_base,
            query_key_norm,
        }
    }
}

impl TryFrom<v1::TransformerBlock> for TransformerBlock {
    type Error = Invalid;

    fn try_from(wire: v1::TransformerBlock) -> Result<Self, Invalid> {
        Ok(Self {
            hidden_size: wire.hidden_size,
            heads: wire.heads,
            feed_forward_size: wire.feed_forward_size,
            dropout: wire.dropout,
            attention_dropout: wire.attention_dropout,
            key_value_heads: field("key_value_heads", wire.key_value_heads)?,
            head_size: field("head_size", wire.head_size)?,
            perceptron: if wire.gated { Perceptron::Gated } else { Perceptron::TwoLayer },
            activation: field::<Option<_>, _>("activation", wire.activation)?.unwrap_or_default(),
            norm: if wire.rms_norm { NormKind::RmsNorm } else { NormKind::LayerNorm },
            epsilon: epsilon_or_default(wire.epsilon),
            norm_position: if wire.post_norm { NormPosition::Post } else { NormPosition::Pre },
            bidirectional: wire.bidirectional,
            qkv_bias: !wire.no_qkv_bias,
            attention_out_bias: !wire.no_attention_out_bias,
            mlp_bias: !wire.no_mlp_bias,
            rotary_base: wire.rotary_base,
            query_key_norm: wire.query_key_norm,
        })
    }
}

/// Zero is for what does not say.
fn epsilon_or_default(epsilon: f64) -> f64 {
    if epsilon == 0.0 { DEFAULT_EPSILON } else { epsilon }
}
