//! BERT (Devlin et al., 2018).

use serde::{Deserialize, Serialize};

use super::share;
use crate::error::{Invalid, in_range};
use crate::model::layer::{Activation, Layer, LayerKind, NormPosition, TokenEmbedding, TransformerBlock};
use crate::model::{Model, ModelInput};

/// BERT's epsilon of layer normalisation.
pub(crate) const EPSILON: f64 = 1e-12;
/// Types of tokens: first and second segment.
const TOKEN_TYPES: i64 = 2;

/// BERT(L, H): embedding with normalisation, post-norm bidirectional blocks, pooler, dropout, classifier;
/// 109,483,778 parameters at the default sizes (BERT base with two classes).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bert {
    /// L: transformer blocks.
    pub blocks: i64,
    /// H: hidden size.
    pub hidden_size: i64,
    /// Attention heads.
    pub heads: i64,
    /// Tokens per sample.
    pub sequence_length: i64,
    /// Learned positions.
    pub positions: i64,
    /// Vocabulary.
    pub vocabulary_size: i64,
    /// Classes of a sequence.
    pub classes: i64,
    /// Dropout everywhere.
    pub dropout: f64,
}

impl Default for Bert {
    fn default() -> Self {
        Self {
            blocks: 12,
            hidden_size: 768,
            heads: 12,
            sequence_length: 512,
            positions: 512,
            vocabulary_size: 30_522,
            classes: 2,
            dropout: 0.1,
        }
    }
}

/// BERT's block: post-norm, every token sees every other one, exact GELU.
pub(crate) fn block(hidden_size: i64, heads: i64, feed_forward_size: i64, dropout: f64) -> TransformerBlock {
    TransformerBlock {
        activation: Activation::Gelu,
        epsilon: EPSILON,
        norm_position: NormPosition::Post,
        bidirectional: true,
        ..TransformerBlock::gpt2(hidden_size, heads, feed_forward_size, dropout)
    }
}

pub(super) fn build(options: &Bert) -> Result<Model, Invalid> {
    let (hidden_size, dropout) = (options.hidden_size, options.dropout);
    super::check(options.blocks, hidden_size, options.heads)?;
    let positions = in_range("positions", options.positions, 1..=super::MAX_TOKENS)?;
    let sequence_length = in_range("sequence_length", options.sequence_length, 1..=positions)?;
    let vocabulary_size = super::vocabulary(options.vocabulary_size)?;
    let classes = in_range("classes", options.classes, 1..=1_000_000)?;
    share("dropout", dropout)?;

    let embedding = TokenEmbedding {
        token_types: TOKEN_TYPES,
        norm_epsilon: Some(EPSILON),
        ..TokenEmbedding::gpt2(vocabulary_size, positions, hidden_size, dropout)
    };
    let block = block(hidden_size, options.heads, 4 * hidden_size, dropout);
    let mut layers = super::trunk(embedding, block, options.blocks);
    for (name, kind) in [
        ("pooler", LayerKind::Pooler { hidden_size }),
        ("dropout", LayerKind::Dropout { probability: dropout }),
        ("classifier", LayerKind::Linear { in_features: hidden_size, out_features: classes }),
    ] {
        layers.push(Layer { name: name.to_owned(), kind });
    }
    Model::new("bert".to_owned(), ModelInput::Tokens { sequence_length, vocabulary_size }, layers)
}
