//! Layers and their arithmetic: shapes, parameters, fingerprints.
//!
//! A shape is that of one sample: the batch axis comes in front of it.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Invalid;

/// Largest extent of any axis and largest value of any size field.
pub const MAX_EXTENT: i64 = 1 << 31;

/// The shape of one sample of a tensor.
pub type Shape = Vec<i64>;

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

impl Parameter {
    /// Number of scalars.
    pub fn elements(&self) -> u64 {
        elements(&self.shape)
    }
}

/// Number of scalars of a shape.
pub fn elements(shape: &[i64]) -> u64 {
    shape.iter().map(|&extent| u64::try_from(extent).unwrap_or(0)).product()
}

/// A unit that is never cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// Name within its model.
    pub name: String,
    /// What it computes.
    #[serde(flatten)]
    pub kind: LayerKind,
}

/// What a layer computes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum LayerKind {
    /// Two-dimensional convolution with a square kernel and a bias.
    Conv2d {
        /// Input channels.
        in_channels: i64,
        /// Output channels.
        out_channels: i64,
        /// Kernel height and width.
        kernel: i64,
        /// Step.
        stride: i64,
        /// Zero padding on each side.
        padding: i64,
    },
    /// max(x, 0), out of place.
    Relu,
    /// Two-dimensional maximum pooling.
    MaxPool2d {
        /// Window height and width.
        kernel: i64,
        /// Step.
        stride: i64,
    },
    /// Average pooling to a fixed square output.
    AdaptiveAvgPool2d {
        /// Output height and width.
        output: i64,
    },
    /// Everything but the batch axis becomes one axis.
    Flatten,
    /// Affine map of the last axis, with a bias.
    Linear {
        /// Input features.
        in_features: i64,
        /// Output features.
        out_features: i64,
    },
    /// Zeroes a share of the values while training.
    Dropout {
        /// The share.
        probability: f64,
    },
    /// Token and learned position embedding, summed, then dropout.
    TokenEmbedding {
        /// Rows of the token table.
        vocabulary_size: i64,
        /// Rows of the position table.
        positions: i64,
        /// Columns of both.
        hidden_size: i64,
        /// Dropout after the sum.
        dropout: f64,
    },
    /// Pre-norm transformer block with causal attention: attention, then a two-layer perceptron with
    /// GELU, each with a residual.
    TransformerBlock {
        /// Hidden size.
        hidden_size: i64,
        /// Attention heads.
        heads: i64,
        /// Width of the perceptron.
        feed_forward_size: i64,
        /// Dropout of attention and residuals.
        dropout: f64,
    },
    /// Normalisation over the last axis with scale and shift.
    LayerNorm {
        /// Size of the last axis.
        hidden_size: i64,
    },
    /// Projection to the vocabulary without a bias.
    LanguageModelHead {
        /// Hidden size.
        hidden_size: i64,
        /// Vocabulary.
        vocabulary_size: i64,
        /// The weight is the token embedding's.
        tied: bool,
    },
}

impl LayerKind {
    /// The shapes of the tensors that leave the layer when tensors of shapes `inputs` enter it: one,
    /// unless the layer is a cell of a network whose cells also read their predecessor's input.
    ///
    /// # Errors
    /// When the layer cannot take such inputs, or a hyper-parameter is out of range.
    pub fn output_shapes(&self, inputs: &[Shape]) -> Result<Vec<Shape>, Invalid> {
        self.check()?;
        match inputs {
            [input] => Ok(vec![self.output_shape(input)?]),
            _ => Err(Invalid::field("", format!("takes one tensor, {} enter it", inputs.len()))),
        }
    }

    fn output_shape(&self, input: &[i64]) -> Result<Shape, Invalid> {
        let refuse = |wanted: String| {
            Err(Invalid::field("", format!("takes {wanted}, its input is of shape {input:?}")))
        };
        let pooled = |extent: i64, kernel: i64, stride: i64, padding: i64| {
            (extent + 2 * padding - kernel).div_euclid(stride) + 1
        };
        let shape = match (*self, input) {
            (Self::Conv2d { in_channels, out_channels, kernel, stride, padding }, &[c, h, w]) => {
                if c != in_channels {
                    return refuse(format!("{in_channels} channels"));
                }
                vec![out_channels, pooled(h, kernel, stride, padding), pooled(w, kernel, stride, padding)]
            }
            (Self::MaxPool2d { kernel, stride }, &[c, h, w]) => {
                vec![c, pooled(h, kernel, stride, 0), pooled(w, kernel, stride, 0)]
            }
            (Self::AdaptiveAvgPool2d { output }, &[c, _, _]) => vec![c, output, output],
            (Self::Conv2d { .. } | Self::MaxPool2d { .. } | Self::AdaptiveAvgPool2d { .. }, _) => {
                return refuse("channels, height and width".to_owned());
            }
            (Self::Relu | Self::Dropout { .. }, _) => input.to_vec(),
            (Self::Flatten, _) => vec![input.iter().product()],
            (Self::Linear { in_features, out_features }, &[.., last]) if last == in_features => {
                replace_last(input, out_features)
            }
            (Self::Linear { in_features, .. }, _) => return refuse(format!("{in_features} features")),
            (Self::TokenEmbedding { positions, hidden_size, .. }, &[length]) => {
                if length > positions {
                    return refuse(format!("at most {positions} tokens"));
                }
                vec![length, hidden_size]
            }
            (Self::TokenEmbedding { .. }, _) => return refuse("a sequence of tokens".to_owned()),
            (
                Self::TransformerBlock { hidden_size, .. }
                | Self::LayerNorm { hidden_size }
                | Self::LanguageModelHead { hidden_size, .. },
                input,
            ) => match (input.last(), *self) {
                (Some(&last), Self::LanguageModelHead { vocabulary_size, .. }) if last == hidden_size => {
                    replace_last(input, vocabulary_size)
                }
                (Some(&last), _) if last == hidden_size => input.to_vec(),
                _ => return refuse(format!("a hidden size of {hidden_size}")),
            },
        };
        if let Some(extent) = shape.iter().find(|&&extent| !(1..=MAX_EXTENT).contains(&extent)) {
            return Err(Invalid::field(
                "",
                format!("yields {shape:?} from an input of shape {input:?}: {extent} is not an extent"),
            ));
        }
        Ok(shape)
    }

    /// Its trained tensors, in a fixed order. A tied head has none of its own.
    pub fn parameters(&self) -> Vec<Parameter> {
        match *self {
            Self::Conv2d { in_channels, out_channels, kernel, .. } => {
                let init = fan_in(in_channels * kernel * kernel);
                vec![
                    parameter("weight", &[out_channels, in_channels, kernel, kernel], init),
                    parameter("bias", &[out_channels], init),
                ]
            }
            Self::Linear { in_features, out_features } => {
                let init = fan_in(in_features);
                vec![
                    parameter("weight", &[out_features, in_features], init),
                    parameter("bias", &[out_features], init),
                ]
            }
            Self::TokenEmbedding { vocabulary_size, positions, hidden_size, .. } => vec![
                parameter("token", &[vocabulary_size, hidden_size], GPT_INIT),
                parameter("position", &[positions, hidden_size], GPT_INIT),
            ],
            Self::TransformerBlock { hidden_size: h, feed_forward_size: f, .. } => vec![
                parameter("norm1.weight", &[h], Init::Ones),
                parameter("norm1.bias", &[h], Init::Zeros),
                parameter("attention.qkv.weight", &[3 * h, h], GPT_INIT),
                parameter("attention.qkv.bias", &[3 * h], Init::Zeros),
                parameter("attention.out.weight", &[h, h], GPT_INIT),
                parameter("attention.out.bias", &[h], Init::Zeros),
                parameter("norm2.weight", &[h], Init::Ones),
                parameter("norm2.bias", &[h], Init::Zeros),
                parameter("mlp.in.weight", &[f, h], GPT_INIT),
                parameter("mlp.in.bias", &[f], Init::Zeros),
                parameter("mlp.out.weight", &[h, f], GPT_INIT),
                parameter("mlp.out.bias", &[h], Init::Zeros),
            ],
            Self::LayerNorm { hidden_size } => vec![
                parameter("weight", &[hidden_size], Init::Ones),
                parameter("bias", &[hidden_size], Init::Zeros),
            ],
            Self::LanguageModelHead { tied: false, .. } => vec![self.head_weight()],
            Self::LanguageModelHead { tied: true, .. }
            | Self::Relu
            | Self::MaxPool2d { .. }
            | Self::AdaptiveAvgPool2d { .. }
            | Self::Flatten
            | Self::Dropout { .. } => Vec::new(),
        }
    }

    /// The tensor that a tied head shares with the token embedding, if this is one.
    pub fn shared_parameter(&self) -> Option<Parameter> {
        matches!(self, Self::LanguageModelHead { tied: true, .. }).then(|| self.head_weight())
    }

    /// Number of its own trained scalars.
    pub fn parameter_count(&self) -> u64 {
        self.parameters().iter().map(Parameter::elements).sum()
    }

    /// Identity of what is computed, for looking up measurements of identical layers: the first 16
    /// bytes of a SHA-256, in hexadecimal.
    pub fn fingerprint(&self) -> String {
        fingerprint(self)
    }

    fn head_weight(&self) -> Parameter {
        match *self {
            Self::LanguageModelHead { hidden_size, vocabulary_size, .. } => {
                parameter("weight", &[vocabulary_size, hidden_size], GPT_INIT)
            }
            _ => parameter("weight", &[], Init::Zeros),
        }
    }

    fn check(&self) -> Result<(), Invalid> {
        let size = |field: &str, value: i64| crate::error::in_range(field, value, 1..=MAX_EXTENT).map(drop);
        let share = |field: &str, value: f64| {
            if (0.0..1.0).contains(&value) {
                Ok(())
            } else {
                Err(Invalid::field(field, format!("is {value}, must be 0 to below 1")))
            }
        };
        match *self {
            Self::Conv2d { in_channels, out_channels, kernel, stride, padding } => {
                size("in_channels", in_channels)?;
                size("out_channels", out_channels)?;
                size("kernel", kernel)?;
                size("stride", stride)?;
                crate::error::in_range("padding", padding, 0..=MAX_EXTENT).map(drop)
            }
            Self::MaxPool2d { kernel, stride } => {
                size("kernel", kernel)?;
                size("stride", stride)
            }
            Self::AdaptiveAvgPool2d { output } => size("output", output),
            Self::Linear { in_features, out_features } => {
                size("in_features", in_features)?;
                size("out_features", out_features)
            }
            Self::Dropout { probability } => share("probability", probability),
            Self::TokenEmbedding { vocabulary_size, positions, hidden_size, dropout } => {
                size("vocabulary_size", vocabulary_size)?;
                size("positions", positions)?;
                size("hidden_size", hidden_size)?;
                share("dropout", dropout)
            }
            Self::TransformerBlock { hidden_size, heads, feed_forward_size, dropout } => {
                size("hidden_size", hidden_size)?;
                size("heads", heads)?;
                size("feed_forward_size", feed_forward_size)?;
                if hidden_size % heads != 0 {
                    return Err(Invalid::field(
                        "heads",
                        format!("is {heads}, must divide the hidden size {hidden_size}"),
                    ));
                }
                share("dropout", dropout)
            }
            Self::LayerNorm { hidden_size } => size("hidden_size", hidden_size),
            Self::LanguageModelHead { hidden_size, vocabulary_size, .. } => {
                size("hidden_size", hidden_size)?;
                size("vocabulary_size", vocabulary_size)
            }
            Self::Relu | Self::Flatten => Ok(()),
        }
    }
}

/// GPT-2's initialisation of weights.
const GPT_INIT: Init = Init::Normal { deviation: 0.02 };

/// PyTorch's default for convolutions and linear maps.
fn fan_in(inputs: i64) -> Init {
    Init::Uniform { bound: 1.0 / (inputs as f64).sqrt() }
}

fn parameter(name: &'static str, shape: &[i64], init: Init) -> Parameter {
    Parameter { name, shape: shape.to_vec(), init }
}

fn replace_last(shape: &[i64], extent: i64) -> Shape {
    let mut shape = shape.to_vec();
    if let Some(last) = shape.last_mut() {
        *last = extent;
    }
    shape
}

/// The first 16 bytes of the SHA-256 of a value's JSON, in hexadecimal: a short content id.
pub fn fingerprint<T: Serialize>(value: &T) -> String {
    // Serialising plain data to JSON cannot fail: there are no maps with other than text keys.
    let json = serde_json::to_vec(value).unwrap_or_default();
    Sha256::digest(json).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
