//! Whether a layer's hyper-parameters are in range.

use super::{LayerKind, MAX_ELEMENTS, MAX_EXTENT};
use crate::error::{Invalid, in_range};

impl LayerKind {
    /// # Errors
    /// Names the first field that is out of range.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        self.check_fields()?;
        for parameter in self.parameters() {
            let extents = || parameter.shape.iter().all(|extent| (1..=MAX_EXTENT).contains(extent));
            if parameter.elements() > MAX_ELEMENTS || !extents() {
                let (name, shape) = (parameter.name, &parameter.shape);
                return Err(invalid!(
                    "",
                    "has the parameter {name} of shape {shape:?}, which is out of range. Use 1 to {MAX_EXTENT} per \
                     dimension, and at most {MAX_ELEMENTS} values"
                ));
            }
        }
        Ok(())
    }

    fn check_fields(&self) -> Result<(), Invalid> {
        match *self {
            Self::Conv2d { in_channels, out_channels, kernel, stride, padding }
            | Self::ReluConvBatchNorm { in_channels, out_channels, kernel, stride, padding } => {
                size("in_channels", in_channels)?;
                size("out_channels", out_channels)?;
                size("kernel", kernel)?;
                size("stride", stride)?;
                in_range("padding", padding, 0..=MAX_EXTENT).map(drop)
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
            Self::TokenEmbedding(embedding) => embedding.check(),
            Self::TransformerBlock(block) => block.check(),
            Self::AmoebaCell(cell) => cell.check(),
            Self::LayerNorm { hidden_size, epsilon: value }
            | Self::RmsNorm { hidden_size, epsilon: value } => {
                size("hidden_size", hidden_size)?;
                epsilon("epsilon", value)
            }
            Self::LanguageModelHead { hidden_size, vocabulary_size, .. } => {
                size("hidden_size", hidden_size)?;
                size("vocabulary_size", vocabulary_size)
            }
            Self::Pooler { hidden_size } => size("hidden_size", hidden_size),
            Self::ImageClassifier { channels, classes } => {
                size("channels", channels)?;
                size("classes", classes)
            }
            Self::LatentTokens { latent_size, tokens, hidden_size } => {
                size("latent_size", latent_size)?;
                size("tokens", tokens)?;
                size("hidden_size", hidden_size)
            }
            Self::PixelShuffle { hidden_size, height, width } => {
                size("hidden_size", hidden_size)?;
                if hidden_size % 4 != 0 {
                    return Err(invalid!("hidden_size", "{hidden_size} is not a multiple of 4"));
                }
                size("height", height)?;
                size("width", width)
            }
            Self::TokensToImage { hidden_size, height, width, channels } => {
                size("hidden_size", hidden_size)?;
                size("height", height)?;
                size("width", width)?;
                size("channels", channels)
            }
            Self::Relu | Self::Flatten => Ok(()),
        }
    }
}

pub(super) fn size(field: &str, value: i64) -> Result<(), Invalid> {
    in_range(field, value, 1..=MAX_EXTENT).map(drop)
}

pub(super) fn share(field: &str, value: f64) -> Result<(), Invalid> {
    if (0.0..1.0).contains(&value) {
        Ok(())
    } else {
        Err(invalid!(field, "{value} is out of range. Use 0 or more, and less than 1"))
    }
}

pub(super) fn epsilon(field: &str, value: f64) -> Result<(), Invalid> {
    if value > 0.0 && value <= 1.0 {
        Ok(())
    } else {
        Err(invalid!(field, "{value} is out of range. Use a value above 0 and at most 1"))
    }
}
