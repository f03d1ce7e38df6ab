//! What frameworks need to know of a transformer: theirs are built of equal blocks between two ends.

use std::ops::RangeInclusive;

use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::{LayerKind, NormKind, TokenEmbedding, TransformerBlock};

/// A model of equal transformer blocks between an embedding and a final norm with a head.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transformer {
    /// Its embedding.
    pub embedding: TokenEmbedding,
    /// Each of its blocks.
    pub block: TransformerBlock,
    /// The final norm.
    pub norm: NormKind,
    /// Epsilon of the final norm.
    pub norm_epsilon: f64,
    /// The head's weight is the embedding's.
    pub has_tied_head: bool,
    /// Tokens of a sample.
    pub sequence_length: i64,
    /// Layers that are blocks, the first and the last.
    first_block: usize,
    last_block: usize,
}

impl Transformer {
    /// What a model is as a transformer.
    ///
    /// # Errors
    /// Why it is none, human-readable: it follows `the plan`.
    pub fn of(model: &Model) -> Result<Self, String> {
        let kinds: Vec<&LayerKind> = model.layers().iter().map(|layer| &layer.kind).collect();
        let [LayerKind::TokenEmbedding(embedding), blocks @ .., norm, head] = kinds.as_slice() else {
            return Err(format!("has a {} model, which is not a transformer with a head", model.family()));
        };
        let (norm, norm_epsilon) = match norm {
            LayerKind::LayerNorm { epsilon, .. } => (NormKind::LayerNorm, *epsilon),
            LayerKind::RmsNorm { epsilon, .. } => (NormKind::RmsNorm, *epsilon),
            _ => {
                return Err(format!(
                    "has a {} model, which has no norm directly before the head",
                    model.family()
                ));
            }
        };
        let LayerKind::LanguageModelHead { tied, .. } = head else {
            return Err(format!("has a {} model, which has no language-model head", model.family()));
        };
        let Some(LayerKind::TransformerBlock(block)) = blocks.first() else {
            return Err(format!("has a {} model, which has no transformer blocks", model.family()));
        };
        if blocks.iter().any(|kind| **kind != LayerKind::TransformerBlock(*block)) {
            return Err(format!("has a {} model, whose transformer blocks differ", model.family()));
        }
        let sequence_length = model.input().shape().first().copied().unwrap_or(0);
        Ok(Self {
            embedding: *embedding,
            block: *block,
            norm,
            norm_epsilon,
            has_tied_head: *tied,
            sequence_length,
            first_block: 1,
            last_block: blocks.len(),
        })
    }

    /// Layers that are blocks.
    pub fn blocks(&self) -> RangeInclusive<usize> {
        self.first_block..=self.last_block
    }

    /// How many layers there are: the blocks, the embedding before them, and norm and head behind.
    pub fn layer_count(&self) -> usize {
        self.block_count() + 3
    }

    /// How many blocks there are.
    pub fn block_count(&self) -> usize {
        self.last_block + 1 - self.first_block
    }
}
