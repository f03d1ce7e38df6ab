//! The tensors of a layer: those that are trained, and the buffers that are not.

use super::{LayerKind, Shape};

/// A named trained tensor of a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// Name within the layer, for example `weight` or `attention.qkv.bias`.
    pub name: &'static str,
    /// Shape.
    pub shape: Shape,
    /// How it is initialised.
    pub init: Init,
}

/// How a parameter starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Init {
    /// Uniform in ±bound.
    Uniform {
        /// The bound.
        bound: f64,
    },
    /// Normal with mean 0.
    Normal {
        /// Standard deviation.
        deviation: f64,
    },
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
}

/// A named tensor of a layer that it holds from start to end but that is not trained. It has the number
/// format of the parameters that layers compute with, and neither gradient nor optimizer state.
#[derive(Debug, Clone, PartialEq)]
pub struct Buffer {
    /// Name within the layer, for example `norm.running_mean`.
    pub name: &'static str,
    /// Shape.
    pub shape: Shape,
    /// What is in it at the start.
    pub content: BufferContent,
}

/// What is in a buffer at the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BufferContent {
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
    /// cos(t / base^(2k / d)) for row t and column k of d/2 columns: rotary positions.
    Cosines {
        /// The base.
        base: f64,
    },
    /// The sines of the same angles.
    Sines {
        /// The base.
        base: f64,
    },
}

impl Parameter {
    /// The module of its layer that it is a tensor of: `attention.qkv` of `attention.qkv.weight`. A weight and its bias
    /// have one module; what is called otherwise, like the tables of an embedding, is one by itself.
    pub fn module(&self) -> &'static str {
        let (above, own) = self.name.rsplit_once('.').unwrap_or(("", self.name));
        match own {
            "weight" | "bias" => above,
            _ => self.name,
        }
    }

    /// Number of scalars.
    pub fn elements(&self) -> u64 {
        elements(&self.shape)
    }
}

impl Buffer {
    /// Number of scalars.
    pub fn elements(&self) -> u64 {
        elements(&self.shape)
    }
}

/// Number of scalars of a shape; `u64::MAX` where it is larger.
pub fn elements(shape: &[i64]) -> u64 {
    let extents = shape.iter().map(|&extent| u64::try_from(extent).unwrap_or(0));
    extents.fold(1, u64::saturating_mul)
}

impl LayerKind {
    /// Its trained tensors, in a fixed order. A tied head has none of its own.
    pub fn parameters(&self) -> Vec<Parameter> {
        match *self {
            Self::Conv2d { in_channels, out_channels, kernel, .. } => {
                let init = fan_in(square(in_channels, kernel));
                vec![
                    parameter("weight", &[out_channels, in_channels, kernel, kernel], init),
                    parameter("bias", &[out_channels], init),
                ]
            }
            Self::Linear { in_features, out_features } => affine(in_features, out_features),
            Self::Pooler { hidden_size } => vec![
                parameter("weight", &[hidden_size, hidden_size], GPT_INIT),
                parameter("bias", &[hidden_size], Init::Zeros),
            ],
            Self::ImageClassifier { channels, classes } => affine(channels, classes),
            Self::TokenEmbedding(embedding) => embedding.parameters(),
            Self::TransformerBlock(block) => block.parameters(),
            Self::AmoebaCell(cell) => cell.parameters(),
            Self::LayerNorm { hidden_size, .. } => vec![
                parameter("weight", &[hidden_size], Init::Ones),
                parameter("bias", &[hidden_size], Init::Zeros),
            ],
            Self::RmsNorm { hidden_size, .. } => vec![parameter("weight", &[hidden_size], Init::Ones)],
            Self::ReluConvBatchNorm { in_channels, out_channels, kernel, .. } => {
                let init = fan_in(square(in_channels, kernel));
                let weight = parameter("weight", &[out_channels, in_channels, kernel, kernel], init);
                [vec![weight], batch_norm(["norm.weight", "norm.bias"], out_channels).into()].concat()
            }
            Self::LatentTokens { latent_size, tokens, hidden_size } => {
                let mut parameters = affine(latent_size, tokens.saturating_mul(hidden_size));
                parameters.push(parameter("position", &[tokens, hidden_size], Init::Zeros));
                parameters
            }
            Self::PixelShuffle { hidden_size, height, width } => {
                let tokens = height.saturating_mul(width).saturating_mul(4);
                vec![parameter("position", &[tokens, hidden_size / 4], Init::Zeros)]
            }
            Self::TokensToImage { hidden_size, channels, .. } => affine(hidden_size, channels),
            Self::LanguageModelHead { tied: false, .. } => vec![self.head_weight()],
            Self::LanguageModelHead { tied: true, .. }
            | Self::Relu
            | Self::MaxPool2d { .. }
            | Self::AdaptiveAvgPool2d { .. }
            | Self::Flatten
            | Self::Dropout { .. } => Vec::new(),
        }
    }

    /// The tensors that it holds without training them, in a fixed order, when tensors of shapes
    /// `inputs` enter it.
    pub fn buffers(&self, inputs: &[Shape]) -> Vec<Buffer> {
        match *self {
            Self::ReluConvBatchNorm { out_channels, .. } => {
                batch_norm_buffers(["norm.running_mean", "norm.running_variance"], out_channels).into()
            }
            Self::AmoebaCell(cell) => cell.buffers(),
            Self::TransformerBlock(block) => block.buffers(inputs),
            _ => Vec::new(),
        }
    }

    /// The tensor that a tied head shares with the token embedding, if this is one.
    pub fn shared_parameter(&self) -> Option<Parameter> {
        matches!(self, Self::LanguageModelHead { tied: true, .. }).then(|| self.head_weight())
    }

    /// Number of its own trained scalars.
    pub fn parameter_count(&self) -> u64 {
        self.parameters().iter().map(Parameter::elements).fold(0, u64::saturating_add)
    }

    fn head_weight(&self) -> Parameter {
        match *self {
            Self::LanguageModelHead { hidden_size, vocabulary_size, .. } => {
                parameter("weight", &[vocabulary_size, hidden_size], GPT_INIT)
            }
            _ => parameter("weight", &[], Init::Zeros),
        }
    }
}

/// GPT-2's and BERT's initialisation of weights.
pub(super) const GPT_INIT: Init = Init::Normal { deviation: 0.02 };

/// PyTorch's default for convolutions and linear maps.
pub(super) fn fan_in(inputs: i64) -> Init {
    Init::Uniform { bound: 1.0 / (inputs as f64).sqrt() }
}

pub(super) fn parameter(name: &'static str, shape: &[i64], init: Init) -> Parameter {
    Parameter { name, shape: shape.to_vec(), init }
}

/// Scale and shift of a batch normalisation.
pub(super) fn batch_norm([weight, bias]: [&'static str; 2], channels: i64) -> [Parameter; 2] {
    [parameter(weight, &[channels], Init::Ones), parameter(bias, &[channels], Init::Zeros)]
}

/// Running mean and variance of a batch normalisation.
pub(super) fn batch_norm_buffers([mean, variance]: [&'static str; 2], channels: i64) -> [Buffer; 2] {
    [
        Buffer { name: mean, shape: vec![channels], content: BufferContent::Zeros },
        Buffer { name: variance, shape: vec![channels], content: BufferContent::Ones },
    ]
}

fn affine(inputs: i64, outputs: i64) -> Vec<Parameter> {
    let init = fan_in(inputs);
    vec![parameter("weight", &[outputs, inputs], init), parameter("bias", &[outputs], init)]
}

fn square(channels: i64, kernel: i64) -> i64 {
    channels.saturating_mul(kernel).saturating_mul(kernel)
}
