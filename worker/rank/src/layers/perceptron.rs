//! The perceptron of a transformer block.

use loadmaster_proto::model::layer::{Activation, Perceptron as Form, TransformerBlock};
use tch::Tensor;

use super::affine::{Affine, Role};
use super::dropout;
use super::parts::Parts;
use crate::error::RankError;

/// The tensors of a perceptron.
#[derive(Debug)]
pub(super) struct Perceptron {
    gate: Option<Affine>,
    inner: Affine,
    out: Affine,
    activation: Activation,
    dropout: f64,
}

impl Perceptron {
    pub(super) fn new(kind: &TransformerBlock, parts: &mut Parts) -> Result<Self, RankError> {
        let gate = match kind.perceptron {
            Form::Gated => Some(parts.affine(Role::Column, kind.mlp_bias)?),
            Form::TwoLayer => None,
        };
        Ok(Self {
            gate,
            inner: parts.affine(Role::Column, kind.mlp_bias)?,
            out: parts.affine(Role::Row, kind.mlp_bias)?,
            activation: kind.activation,
            dropout: kind.dropout,
        })
    }

    /// Of the last axis. Takes the input, so that it lives no longer than needed.
    pub(super) fn forward(&self, input: Tensor) -> Result<Tensor, RankError> {
        let input = self.inner.enter(input)?;
        let active = match &self.gate {
            None => {
                let inner = self.inner.forward(&input)?;
                drop(input);
                activate(&inner, self.activation)?
            }
            Some(gate) => {
                let gate = activate(&gate.forward(&input)?, self.activation)?;
                let inner = self.inner.forward(&input)?;
                drop(input);
                gate.f_mul(&inner)?
            }
        };
        let output = self.out.forward(&active)?;
        drop(active);
        dropout(output, self.dropout)
    }
}

fn activate(input: &Tensor, activation: Activation) -> Result<Tensor, RankError> {
    let active = match activation {
        Activation::GeluTanh => input.f_gelu("tanh"),
        Activation::Gelu => input.f_gelu("none"),
        Activation::Silu => input.f_silu(),
        Activation::Relu => input.f_relu(),
    };
    Ok(active?)
}
