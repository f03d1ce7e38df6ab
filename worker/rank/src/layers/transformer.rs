//! The transformer block: attention, then a perceptron, each with a normalisation and a residual.

use loadmaster_proto::model::layer::{NormKind, NormPosition, TransformerBlock};
use tch::Tensor;

use super::attention::Attention;
use super::norm::Norm;
use super::parts::Parts;
use super::perceptron::Perceptron;
use crate::error::RankError;

/// The tensors of a block.
#[derive(Debug)]
pub(super) struct Block {
    attention: Attention,
    perceptron: Perceptron,
    norms: [Norm; 2],
    position: NormPosition,
}

impl Block {
    /// Takes the tensors in the order of `LayerKind::parameters`.
    pub(super) fn new(kind: &TransformerBlock, parts: &mut Parts) -> Result<Self, RankError> {
        let norm = |parts: &mut Parts| match kind.norm {
            NormKind::LayerNorm => parts.layer_norm(kind.epsilon),
            NormKind::RmsNorm => parts.rms_norm(kind.epsilon),
        };
        let (attention, perceptron, norms);
        match kind.norm_position {
            NormPosition::Pre => {
                let first = norm(parts)?;
                attention = Attention::new(kind, parts)?;
                norms = [first, norm(parts)?];
                perceptron = Perceptron::new(kind, parts)?;
            }
            NormPosition::Post => {
                attention = Attention::new(kind, parts)?;
                let first = norm(parts)?;
                perceptron = Perceptron::new(kind, parts)?;
                norms = [first, norm(parts)?];
            }
        }
        Ok(Self { attention, perceptron, norms, position: kind.norm_position })
    }

    /// From samples × tokens × hidden to the same.
    pub(super) fn forward(&self, input: &Tensor) -> Result<Tensor, RankError> {
        let [first, second] = &self.norms;
        match self.position {
            NormPosition::Pre => {
                let hidden = input.f_add(&self.attention.forward(first.forward(input)?)?)?;
                let perceptron = self.perceptron.forward(second.forward(&hidden)?)?;
                Ok(hidden.f_add(&perceptron)?)
            }
            NormPosition::Post => {
                let hidden = first.forward(&input.f_add(&self.attention.forward(input.shallow_clone())?)?)?;
                let perceptron = self.perceptron.forward(hidden.shallow_clone())?;
                second.forward(&hidden.f_add(&perceptron)?)
            }
        }
    }
}
