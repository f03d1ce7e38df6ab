//! The transformer block: attention, then an MLP, each with a normalisation and a residual.

use loadmaster_proto::model::layer::{
    Activation, NormKind, NormPosition, Perceptron as Form, TransformerBlock,
};
use tch::Tensor;

use super::affine::{Affine, Role};
use super::attention::Attention;
use super::dropout;
use super::norm::Norm;
use super::parameters::Parts;
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
