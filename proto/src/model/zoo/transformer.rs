//! What the transformers of the zoo and the imported ones have in common.

use crate::error::{Invalid, in_range};
use crate::model::layer::{Layer, LayerKind, TokenEmbedding, TransformerBlock};

/// Most tokens per sample, and most learned positions.
pub(crate) const MAX_TOKENS: i64 = 1 << 20;
/// Most blocks; the layers around them must fit into a model, too.
pub(crate) const MAX_BLOCKS: i64 = 9_000;
/// Largest hidden size.
const MAX_HIDDEN_SIZE: i64 = 65_536;
/// Most attention heads.
const MAX_HEADS: i64 = 1_024;
/// Largest vocabulary.
const MAX_VOCABULARY: i64 = 10_000_000;

/// Checks what every transformer has.
pub(super) fn check(blocks: i64, hidden_size: i64, heads: i64) -> Result<(), Invalid> {
    in_range("blocks", blocks, 1..=MAX_BLOCKS)?;
    in_range("hidden_size", hidden_size, 1..=MAX_HIDDEN_SIZE)?;
    in_range("heads", heads, 1..=MAX_HEADS)?;
    if hidden_size % heads != 0 {
        return Err(Invalid::field("heads", format!("is {heads}, must divide hidden_size ({hidden_size})")));
    }
    Ok(())
}

pub(super) fn vocabulary(size: i64) -> Result<i64, Invalid> {
    in_range("vocabulary_size", size, 2..=MAX_VOCABULARY)
}

/// The embedding and equal blocks.
pub(crate) fn trunk(embedding: TokenEmbedding, block: TransformerBlock, blocks: i64) -> Vec<Layer> {
    let mut layers = vec![Layer { name: "embedding".to_owned(), kind: LayerKind::TokenEmbedding(embedding) }];
    layers.extend(
        (0..blocks)
            .map(|index| Layer { name: format!("block.{index}"), kind: LayerKind::TransformerBlock(block) }),
    );
    layers
}

/// The projection to the vocabulary.
pub(crate) fn head(hidden_size: i64, vocabulary_size: i64, tied: bool) -> Layer {
    Layer {
        name: "head".to_owned(),
        kind: LayerKind::LanguageModelHead { hidden_size, vocabulary_size, tied },
    }
}
