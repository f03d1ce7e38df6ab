//! The embedding of tokens.

use loadmaster_proto::model::layer::TokenEmbedding;
use tch::Tensor;

use super::affine::Split;
use super::dropout;
use super::norm::Norm;
use super::parameters::Parts;
use crate::collective::vocabulary;
use crate::error::RankError;
use crate::movement::Movement;

/// The tensors of a token embedding.
#[derive(Debug)]
pub(super) struct Embedding {
    token: Tensor,
    /// Among whom the rows of `token` are split.
    split: Option<Split>,
    position: Option<Tensor>,
    token_type: Option<Tensor>,
    norm: Option<Norm>,
    dropout: f64,
    movement: Movement,
}

impl Embedding {
    pub(super) fn new(kind: &TokenEmbedding, parts: &mut Parts) -> Result<Self, RankError> {
        let (token, split) = parts.split_parameter()?;
        Ok(Self {
            token,
            split,
            position: (kind.positions > 0).then(|| parts.parameter()).transpose()?,
            token_type: (kind.token_types > 0).then(|| parts.parameter()).transpose()?,
            norm: kind.norm_epsilon.map(|epsilon| parts.layer_norm(epsilon)).transpose()?,
            dropout: kind.dropout,
            movement: parts.movement.clone(),
        })
    }

    /// From samples × tokens to samples × tokens × hidden.
    pub(super) fn forward(&self, input: &Tensor) -> Result<Tensor, RankError> {
        // The sum is made in place: autograd needs none of its parts.
        let mut sum = match &self.split {
            Some(Split { group, extent }) => vocabulary::embed(group, &self.token, input, *extent)?,
            None => match self.movement.embed(&self.token, input)? {
                Some(rows) => rows,
                None => Tensor::f_embedding(&self.token, input, -1, false, false)?,
            },
        };
        if let Some(position) = &self.position {
            let length = input.size().last().copied().unwrap_or_default();
            drop(sum.f_add_(&position.f_narrow(0, 0, length)?)?);
        }
        if let Some(token_type) = &self.token_type {
            // Every token is of the first segment.
            drop(sum.f_add_(&token_type.f_select(0, 0)?)?);
        }
        if let Some(norm) = &self.norm {
            sum = norm.forward(&sum)?;
        }
        dropout(sum, self.dropout)
    }
}
