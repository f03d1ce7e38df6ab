//! Layers and their arithmetic: shapes, parameters, fingerprints.
//!
//! A shape is that of one sample: the batch axis comes in front of it. The JSON form of these types is
//! what is stored and what users write in layer lists. A field that has its default is left out of it,
//! so a layer that is described in two ways has one fingerprint.

mod amoeba;
mod checks;
mod embedding;
mod parameters;
mod shapes;
mod transformer;
mod wire;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use amoeba::{AmoebaCell, CellConvolution, Operation};
pub use embedding::TokenEmbedding;
pub use parameters::{Buffer, BufferContent, Init, Parameter, elements};
pub use transformer::{Activation, NormKind, NormPosition, Perceptron, TransformerBlock};

/// Largest extent of any axis and largest value of any size field.
pub const MAX_EXTENT: i64 = 1 << 31;

/// Most scalars of one tensor, of one sample where it has a batch axis.
pub const MAX_ELEMENTS: u64 = 1 << 40;

/// PyTorch's default epsilon of layer and batch normalisation.
pub const DEFAULT_EPSILON: f64 = 1e-5;

/// The shape of one sample of a tensor.
pub type Shape = Vec<i64>;

/// A unit that is never cut.
///
/// Its JSON is what users write in layer lists:
///
/// ```
/// use loadmaster_proto::model::layer::{Layer, LayerKind};
///
/// let layer: Layer =
///     serde_json::from_str(r#"{"name": "fc", "kind": "linear", "in_features": 8, "out_features": 4}"#)?;
/// assert_eq!(layer.kind, LayerKind::Linear { in_features: 8, out_features: 4 });
/// assert_eq!(layer.kind.parameter_count(), 8 * 4 + 4);
/// # Ok::<(), serde_json::Error>(())
/// ```
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
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
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
    /// Token embedding, with what is added to it.
    TokenEmbedding(TokenEmbedding),
    /// Attention, then an MLP, each normalised and with a residual.
    TransformerBlock(TransformerBlock),
    /// Normalisation over the last axis with scale and shift.
    LayerNorm {
        /// Size of the last axis.
        hidden_size: i64,
        /// Added to the variance.
        #[serde(default = "default_epsilon", skip_serializing_if = "is_default_epsilon")]
        epsilon: f64,
    },
    /// Division by the root of the mean square over the last axis, then scale.
    RmsNorm {
        /// Size of the last axis.
        hidden_size: i64,
        /// Added to the mean square.
        #[serde(default = "default_epsilon", skip_serializing_if = "is_default_epsilon")]
        epsilon: f64,
    },
    /// Projection to the vocabulary without a bias.
    LanguageModelHead {
        /// Hidden size.
        hidden_size: i64,
        /// Vocabulary.
        vocabulary_size: i64,
        /// The weight is the token embedding's.
        #[serde(default)]
        tied: bool,
    },
    /// The first token of a sequence, an affine map of it, tanh: BERT's summary of a sequence.
    Pooler {
        /// Hidden size.
        hidden_size: i64,
    },
    /// Rectifier, convolution without a bias, batch normalisation.
    ReluConvBatchNorm {
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
    /// A cell of AmoebaNet-D.
    AmoebaCell(AmoebaCell),
    /// Average over the whole image, then an affine map to classes.
    ImageClassifier {
        /// Channels.
        channels: i64,
        /// Classes.
        classes: i64,
    },
    /// A latent vector mapped to a sequence of tokens, with learned positions: how a generator begins.
    LatentTokens {
        /// Size of the latent vector.
        latent_size: i64,
        /// Tokens.
        tokens: i64,
        /// Hidden size.
        hidden_size: i64,
    },
    /// Twice the rows and columns at a quarter of the hidden size (pixel shuffle), plus learned positions.
    PixelShuffle {
        /// Hidden size of the input, a multiple of 4.
        hidden_size: i64,
        /// Rows of the input; tokens are in row-major order.
        height: i64,
        /// Columns of the input.
        width: i64,
    },
    /// Each token mapped to the channels of its pixel.
    TokensToImage {
        /// Hidden size.
        hidden_size: i64,
        /// Rows.
        height: i64,
        /// Columns.
        width: i64,
        /// Channels of the image.
        channels: i64,
    },
}

impl LayerKind {
    /// Identity of what is computed, for looking up measurements of identical layers: the first 16
    /// bytes of a SHA-256, in hexadecimal.
    pub fn fingerprint(&self) -> String {
        fingerprint(self)
    }

    /// The same layer with what is spelt out though it is the default left out.
    #[must_use]
    pub fn normalised(self) -> Self {
        match self {
            Self::TransformerBlock(block) => Self::TransformerBlock(block.normalised()),
            other => other,
        }
    }

    /// Whether it draws random numbers while training.
    pub fn is_random(&self) -> bool {
        match *self {
            Self::Dropout { probability } => probability > 0.0,
            Self::TokenEmbedding(embedding) => embedding.dropout > 0.0,
            Self::TransformerBlock(block) => block.dropout > 0.0 || block.attention_dropout() > 0.0,
            _ => false,
        }
    }

    /// The same layer without dropout.
    #[must_use]
    pub fn without_dropout(self) -> Self {
        match self {
            Self::Dropout { .. } => Self::Dropout { probability: 0.0 },
            Self::TokenEmbedding(of) => Self::TokenEmbedding(TokenEmbedding { dropout: 0.0, ..of }),
            Self::TransformerBlock(of) => {
                Self::TransformerBlock(TransformerBlock { dropout: 0.0, attention_dropout: None, ..of })
            }
            other => other,
        }
    }
}

fn default_epsilon() -> f64 {
    DEFAULT_EPSILON
}

fn is_default_epsilon(epsilon: &f64) -> bool {
    *epsilon == DEFAULT_EPSILON
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The first 16 bytes of the SHA-256 of a value's JSON, in hexadecimal: a short content id.
pub fn fingerprint<T: Serialize>(value: &T) -> String {
    // Serialising plain data to JSON cannot fail: there are no maps with other than text keys.
    let json = serde_json::to_vec(value).unwrap_or_default();
    Sha256::digest(json).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
