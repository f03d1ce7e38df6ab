//! GPT-2.

use serde::{Deserialize, Serialize};

use super::share;
use crate::error::{Invalid, in_range};
use crate::model::layer::{DEFAULT_EPSILON, Layer, LayerKind, TokenEmbedding, TransformerBlock};
use crate::model::{Model, ModelInput};

/// GPT-2: embedding, pre-norm blocks, final norm, head; 124,439,808 parameters at the default sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gpt2 {
    /// Transformer blocks.
    pub blocks: i64,
    /// Hidden size.
    pub hidden_size: i64,
    /// Attention heads.
    pub heads: i64,
    /// Tokens per sample.
    pub sequence_length: i64,
    /// Learned positions.
    pub positions: i64,
    /// Vocabulary.
    pub vocabulary_size: i64,
    /// The head has a weight of its own.
    pub untied_head: bool,
    /// Dropout everywhere.
    pub dropout: f64,
}

impl Default for Gpt2 {
    fn default() -> Self {
        Self {
            blocks: 12,
            hidden_size: 768,
            heads: 12,
            sequence_length: 1024,
            positions: 1024,
            vocabulary_size: 50_257,
            untied_head: false,
            dropout: 0.1,
        }
    }
}

pub(super) fn build(options: &Gpt2) -> Result<Model, Invalid> {
    let (hidden_size, dropout) = (options.hidden_size, options.dropout);
    super::check(options.blocks, hidden_size, options.heads)?;
    let positions = in_range("positions", options.positions, 1..=super::MAX_TOKENS)?;
    let sequence_length = in_range("sequence_length", options.sequence_length, 1..=positions)?;
    let vocabulary_size = super::vocabulary(options.vocabulary_size)?;
    share("dropout", dropout)?;

    let embedding = TokenEmbedding::gpt2(vocabulary_size, positions, hidden_size, dropout);
    let block = TransformerBlock::gpt2(hidden_size, options.heads, 4 * hidden_size, dropout);
    let mut layers = super::trunk(embedding, block, options.blocks);
    layers.push(Layer {
        name: "norm".to_owned(),
        kind: LayerKind::LayerNorm { hidden_size, epsilon: DEFAULT_EPSILON },
    });
    layers.push(super::head(hidden_size, vocabulary_size, !options.untied_head));
    Model::new("gpt2".to_owned(), ModelInput::Tokens { sequence_length, vocabulary_size }, layers)
}
