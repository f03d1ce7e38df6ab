//! `TransGAN`'s generator (Jiang et al., 2021).

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, in_range};
use crate::model::layer::{Activation, Layer, LayerKind, TransformerBlock};
use crate::model::{Loss, Model, ModelInput};

/// Channels of the generated image.
const IMAGE_CHANNELS: i64 = 3;
/// Upsampling divides the hidden size by this and multiplies the tokens with it.
const SHRINK: i64 = 4;

/// The generator alone: a latent vector becomes tokens; three groups of pre-norm bidirectional blocks,
/// with pixel shuffle between them; the tokens become pixels. Learned absolute positions, as in the first
/// version of the paper. It is trained to reproduce random images (mean square), because its own loss
/// comes from a second network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransGan {
    /// Size of the latent vector.
    pub latent_size: i64,
    /// Hidden size of the first group.
    pub hidden_size: i64,
    /// Attention heads.
    pub heads: i64,
    /// Height and width of the first group's image; the generated one is four times as large.
    pub bottom_size: i64,
    /// Blocks of the three groups.
    pub blocks: [i64; 3],
}

impl Default for TransGan {
    /// TransGAN-XL on CIFAR-10: images of 32 × 32.
    fn default() -> Self {
        Self { latent_size: 256, hidden_size: 1024, heads: 4, bottom_size: 8, blocks: [5, 4, 2] }
    }
}

pub(super) fn build(options: &TransGan) -> Result<Model, Invalid> {
    let latent_size = in_range("latent_size", options.latent_size, 1..=65_536)?;
    let heads = in_range("heads", options.heads, 1..=1_024)?;
    let mut hidden_size = in_range("hidden_size", options.hidden_size, 1..=65_536)?;
    let mut size = in_range("bottom_size", options.bottom_size, 1..=256)?;
    let factor = SHRINK * SHRINK * heads;
    if hidden_size % factor != 0 {
        return Err(Invalid::field(
            "hidden_size",
            format!(
                "{hidden_size} is not a multiple of {factor} ({} × heads). Use a multiple",
                SHRINK * SHRINK
            ),
        ));
    }

    let mut layers = vec![Layer {
        name: "latent".to_owned(),
        kind: LayerKind::LatentTokens { latent_size, tokens: size * size, hidden_size },
    }];
    for (group, &blocks) in (1..).zip(&options.blocks) {
        in_range("blocks", blocks, 1..=1_000)?;
        if group > 1 {
            layers.push(Layer {
                name: format!("upsample{}", group - 1),
                kind: LayerKind::PixelShuffle { hidden_size, height: size, width: size },
            });
            size *= 2;
            hidden_size /= SHRINK;
        }
        let block = TransformerBlock {
            bidirectional: true,
            activation: Activation::Gelu,
            qkv_bias: false,
            ..TransformerBlock::gpt2(hidden_size, heads, 4 * hidden_size, 0.0)
        };
        layers.extend((1..=blocks).map(|index| Layer {
            name: format!("group{group}.block{index}"),
            kind: LayerKind::TransformerBlock(block),
        }));
    }
    layers.push(Layer {
        name: "image".to_owned(),
        kind: LayerKind::TokensToImage { hidden_size, height: size, width: size, channels: IMAGE_CHANNELS },
    });
    let model = Model::new("transgan".to_owned(), ModelInput::Vector { size: latent_size }, layers)?;
    Ok(model.with_loss(Loss::MeanSquare))
}
