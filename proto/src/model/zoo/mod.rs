//! Models that Loadmaster knows by name, and what their transformers have in common with imported ones.

mod amoebanet;
pub(crate) mod bert;
mod gpt2;
pub(crate) mod llama;
mod transgan;
mod vgg;
mod wire;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, in_range};
use crate::model::Model;
use crate::model::layer::{Layer, LayerKind, TokenEmbedding, TransformerBlock};

pub use amoebanet::AmoebaNet;
pub use bert::Bert;
pub use gpt2::Gpt2;
pub use llama::Llama;
pub use transgan::TransGan;
pub use vgg::Vgg;

/// Names of all families, as users write them.
pub const FAMILIES: [&str; 6] = ["vgg11", "gpt2", "bert", "llama", "amoebanet_d", "transgan"];

/// A family with its hyper-parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "family", rename_all = "lowercase")]
pub enum Zoo {
    /// See [`Vgg`].
    Vgg11(Vgg),
    /// See [`Gpt2`].
    Gpt2(Gpt2),
    /// See [`Bert`].
    Bert(Bert),
    /// See [`Llama`].
    Llama(Llama),
    /// See [`AmoebaNet`].
    #[serde(rename = "amoebanet_d")]
    AmoebaNetD(AmoebaNet),
    /// See [`TransGan`].
    TransGan(TransGan),
}

impl Zoo {
    /// The family's name.
    pub fn family(&self) -> &'static str {
        match self {
            Self::Vgg11(_) => "vgg11",
            Self::Gpt2(_) => "gpt2",
            Self::Bert(_) => "bert",
            Self::Llama(_) => "llama",
            Self::AmoebaNetD(_) => "amoebanet_d",
            Self::TransGan(_) => "transgan",
        }
    }

    /// The same with another value of a parameter that counts something, such as `blocks`.
    ///
    /// ```
    /// use loadmaster_proto::model::zoo::{Gpt2, Zoo};
    ///
    /// let larger = Zoo::Gpt2(Gpt2::default()).with("blocks", 96)?;
    /// assert_eq!(larger, Zoo::Gpt2(Gpt2 { blocks: 96, ..Gpt2::default() }));
    /// # Ok::<(), loadmaster_proto::error::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// The family has no such parameter; says which ones it has.
    pub fn with(&self, parameter: &str, value: u64) -> Result<Self, Invalid> {
        let unreadable = |error: serde_json::Error| Invalid::field("parameter", error.to_string());
        let mut fields = serde_json::to_value(self).map_err(unreadable)?;
        let Some(all) = fields.as_object_mut() else {
            return Err(Invalid::field(
                "parameter",
                "cannot be set, because models of this family have no parameters. Use a model of another family",
            ));
        };
        match all.get_mut(parameter) {
            Some(field) if field.is_u64() || field.is_i64() => *field = value.into(),
            _ => {
                let counts: Vec<&str> = all
                    .iter()
                    .filter(|(_, value)| value.is_u64() || value.is_i64())
                    .map(|(name, _)| name.as_str())
                    .collect();
                let why = format!(
                    "{parameter:?} is not a parameter of {}. Use {}",
                    self.family(),
                    counts.join(", ")
                );
                return Err(Invalid::field("parameter", why));
            }
        }
        serde_json::from_value(fields).map_err(unreadable)
    }

    /// Builds the model.
    ///
    /// # Errors
    /// When a hyper-parameter is out of range; the violation names it.
    pub fn build(&self) -> Result<Model, Invalid> {
        match self {
            Self::Vgg11(options) => vgg::build(options),
            Self::Gpt2(options) => gpt2::build(options),
            Self::Bert(options) => bert::build(options),
            Self::Llama(options) => llama::build(options),
            Self::AmoebaNetD(options) => amoebanet::build(options),
            Self::TransGan(options) => transgan::build(options),
        }
    }
}

fn share(field: &str, value: f64) -> Result<(), Invalid> {
    if (0.0..1.0).contains(&value) {
        Ok(())
    } else {
        Err(invalid!(field, "{value} is out of range. Use 0 or more, and less than 1"))
    }
}

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
fn check(blocks: i64, hidden_size: i64, heads: i64) -> Result<(), Invalid> {
    in_range("blocks", blocks, 1..=MAX_BLOCKS)?;
    in_range("hidden_size", hidden_size, 1..=MAX_HIDDEN_SIZE)?;
    in_range("heads", heads, 1..=MAX_HEADS)?;
    if hidden_size % heads != 0 {
        return Err(invalid!("heads", "{heads} does not divide hidden_size ({hidden_size}). Use a divisor"));
    }
    Ok(())
}

fn vocabulary(size: i64) -> Result<i64, Invalid> {
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
