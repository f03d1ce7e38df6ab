//! The transformer block: causal attention, then a two-layer perceptron, each behind a normalisation
//! and with a residual.

use tch::{TchError, Tensor};

use super::{dropout, layer_norm};
use crate::error::RankError;

/// Weight and bias.
#[derive(Debug)]
struct Affine {
    weight: Tensor,
    bias: Tensor,
}

impl Affine {
    fn linear(&self, input: &Tensor) -> Result<Tensor, TchError> {
        input.f_linear(&self.weight, Some(&self.bias))
    }

    fn norm(&self, input: &Tensor) -> Result<Tensor, TchError> {
        layer_norm(input, &self.weight, &self.bias)
    }
}

/// The tensors of a block.
#[derive(Debug)]
pub(super) struct Block {
    heads: i64,
    dropout: f64,
    norm1: Affine,
    qkv: Affine,
    attention_out: Affine,
    norm2: Affine,
    mlp_in: Affine,
    mlp_out: Affine,
}

impl Block {
    /// Takes the tensors in the order of `LayerKind::parameters`.
    pub(super) fn new(
        heads: i64,
        dropout: f64,
        mut next: impl FnMut() -> Result<Tensor, RankError>,
    ) -> Result<Self, RankError> {
        let mut affine = || Ok::<_, RankError>(Affine { weight: next()?, bias: next()? });
        Ok(Self {
            heads,
            dropout,
            norm1: affine()?,
            qkv: affine()?,
            attention_out: affine()?,
            norm2: affine()?,
            mlp_in: affine()?,
            mlp_out: affine()?,
        })
    }

    pub(super) fn forward(&self, input: &Tensor) -> Result<Tensor, TchError> {
        let hidden = input.f_add(&self.attention(input)?)?;
        let perceptron = self.perceptron(&hidden)?;
        hidden.f_add(&perceptron)
    }

    fn attention(&self, input: &Tensor) -> Result<Tensor, TchError> {
        let qkv = self.qkv.linear(&self.norm1.norm(input)?)?;
        let heads: Vec<Tensor> =
            qkv.f_chunk(3, -1)?.iter().map(|part| self.split_heads(part)).collect::<Result<_, _>>()?;
        drop(qkv);
        let [query, key, value] = heads.as_slice() else {
            return Err(TchError::Shape("attention needs queries, keys and values".to_owned()));
        };
        let mixed = Tensor::f_scaled_dot_product_attention(
            query,
            key,
            value,
            None::<&Tensor>,
            self.dropout,
            true,
            None,
            false,
        )?;
        drop(heads);
        let joined = mixed.f_transpose(1, 2)?.f_reshape(input.size())?;
        drop(mixed);
        dropout(&self.attention_out.linear(&joined)?, self.dropout)
    }

    fn perceptron(&self, hidden: &Tensor) -> Result<Tensor, TchError> {
        let inner = self.mlp_in.linear(&self.norm2.norm(hidden)?)?;
        let active = inner.f_gelu("tanh")?;
        drop(inner);
        dropout(&self.mlp_out.linear(&active)?, self.dropout)
    }

    /// From samples × tokens × hidden to samples × heads × tokens × size of a head.
    fn split_heads(&self, part: &Tensor) -> Result<Tensor, TchError> {
        let size = part.size();
        let [samples, tokens, hidden] = size.as_slice() else {
            return Err(TchError::Shape(format!("attention takes samples, tokens, hidden, not {size:?}")));
        };
        part.f_view([*samples, *tokens, self.heads, hidden / self.heads])?.f_transpose(1, 2)
    }
}
