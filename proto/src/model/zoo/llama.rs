//! Llama (Touvron et al., 2023).

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, in_range};
use crate::model::layer::{
    Activation, Layer, LayerKind, NormKind, Perceptron, TokenEmbedding, TransformerBlock,
};
use crate::model::{Model, ModelInput};

/// Widest MLP.
const MAX_FEED_FORWARD: i64 = 1 << 20;

/// Llama-style: embedding, pre-norm blocks with rotary positions, grouped queries and a gated MLP,
/// final norm, head; 6,738,415,616 parameters at the default sizes (Llama 2 7B).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Llama {
    /// Transformer blocks.
    pub blocks: i64,
    /// Hidden size.
    pub hidden_size: i64,
    /// Attention heads.
    pub heads: i64,
    /// Heads of keys and values.
    pub key_value_heads: i64,
    /// Width of the MLP.
    pub feed_forward_size: i64,
    /// Tokens per sample.
    pub sequence_length: i64,
    /// Vocabulary.
    pub vocabulary_size: i64,
    /// Base of the rotary positions.
    pub rotary_base: f64,
    /// The head shares the embedding's weight.
    pub tied_head: bool,
}

impl Default for Llama {
    fn default() -> Self {
        Self {
            blocks: 32,
            hidden_size: 4096,
            heads: 32,
            key_value_heads: 32,
            feed_forward_size: 11_008,
            sequence_length: 4096,
            vocabulary_size: 32_000,
            rotary_base: 10_000.0,
            tied_head: false,
        }
    }
}

impl Llama {
    /// The width that Llama gives an MLP of this hidden size: 8/3 of it, rounded up to a multiple
    /// of 256.
    pub fn feed_forward_size_for(hidden_size: i64) -> i64 {
        let width = hidden_size.clamp(1, MAX_FEED_FORWARD) * 8 / 3;
        (width + 255) / 256 * 256
    }
}

/// Llama's block.
pub(crate) fn block(
    hidden_size: i64,
    heads: i64,
    key_value_heads: i64,
    feed_forward_size: i64,
    rotary_base: f64,
) -> TransformerBlock {
    TransformerBlock {
        key_value_heads: Some(key_value_heads),
        perceptron: Perceptron::Gated,
        activation: Activation::Silu,
        norm: NormKind::RmsNorm,
        qkv_bias: false,
        attention_out_bias: false,
        mlp_bias: false,
        rotary_base: Some(rotary_base),
        ..TransformerBlock::gpt2(hidden_size, heads, feed_forward_size, 0.0)
    }
}

pub(super) fn build(options: &Llama) -> Result<Model, Invalid> {
    let (hidden_size, heads) = (options.hidden_size, options.heads);
    super::check(options.blocks, hidden_size, heads)?;
    let key_value_heads = in_range("key_value_heads", options.key_value_heads, 1..=heads)?;
    if heads % key_value_heads != 0 {
        return Err(invalid!("key_value_heads", "{key_value_heads} does not divide heads ({heads})"));
    }
    if (hidden_size / heads) % 2 != 0 {
        return Err(Invalid::field(
            "heads",
            format!(
                "{heads} heads have {} values each, but rotary position embeddings need an even number. Use another \
                 number of heads",
                hidden_size / heads
            ),
        ));
    }
    let width = in_range("feed_forward_size", options.feed_forward_size, 1..=MAX_FEED_FORWARD)?;
    let sequence_length = in_range("sequence_length", options.sequence_length, 1..=super::MAX_TOKENS)?;
    let vocabulary_size = super::vocabulary(options.vocabulary_size)?;
    let base = options.rotary_base;
    if !(base.is_finite() && base > 1.0) {
        return Err(invalid!("rotary_base", "{base} is not valid. Use a value above 1"));
    }

    let embedding = TokenEmbedding::gpt2(vocabulary_size, 0, hidden_size, 0.0);
    let block = block(hidden_size, heads, key_value_heads, width, base);
    let mut layers = super::trunk(embedding, block, options.blocks);
    layers.push(Layer {
        name: "norm".to_owned(),
        kind: LayerKind::RmsNorm { hidden_size, epsilon: block.epsilon },
    });
    layers.push(super::head(hidden_size, vocabulary_size, options.tied_head));
    Model::new("llama".to_owned(), ModelInput::Tokens { sequence_length, vocabulary_size }, layers)
}
