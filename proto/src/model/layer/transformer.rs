//! The transformer block, of which GPT-2's, BERT's and Llama's are instances.

use serde::{Deserialize, Serialize};

use super::checks::{epsilon, share, size};
use super::parameters::{Buffer, BufferContent, GPT_INIT, Init, Parameter, parameter};
use super::{DEFAULT_EPSILON, MAX_EXTENT, Shape, default_epsilon, is_default, is_default_epsilon};
use crate::choice;
use crate::error::{Invalid, in_range};
use crate::wire::v1;

/// Attention, then an MLP, each with a normalisation and a residual.
///
/// The fields that follow `dropout` are GPT-2's unless they say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerBlock {
    /// Hidden size.
    pub hidden_size: i64,
    /// Attention heads.
    pub heads: i64,
    /// Width of the MLP.
    pub feed_forward_size: i64,
    /// Dropout of the residuals.
    pub dropout: f64,
    /// Dropout of the attention weights; `dropout` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention_dropout: Option<f64>,
    /// Heads of keys and values, shared by several query heads each; `heads` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_value_heads: Option<i64>,
    /// Size of a head; the hidden size divided by the heads unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_size: Option<i64>,
    /// The MLP's form.
    #[serde(default, skip_serializing_if = "is_default")]
    pub perceptron: Perceptron,
    /// The MLP's non-linearity.
    #[serde(default, skip_serializing_if = "is_default")]
    pub activation: Activation,
    /// Kind of normalisation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub norm: NormKind,
    /// Epsilon of the normalisations.
    #[serde(default = "default_epsilon", skip_serializing_if = "is_default_epsilon")]
    pub epsilon: f64,
    /// Where the normalisations are.
    #[serde(default, skip_serializing_if = "is_default")]
    pub norm_position: NormPosition,
    /// Every token sees every other one, not only those before it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bidirectional: bool,
    /// Queries, keys and values have biases.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub qkv_bias: bool,
    /// The attention's output map has a bias.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub attention_out_bias: bool,
    /// The MLP's maps have biases.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub mlp_bias: bool,
    /// Base of the rotary positions of queries and keys, where they have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary_base: Option<f64>,
    /// Queries and keys are normalised over each head (root mean square), as in Qwen3.
    #[serde(default, skip_serializing_if = "is_default")]
    pub query_key_norm: bool,
}

/// The form of an MLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Perceptron {
    /// out(act(in(x))).
    #[default]
    TwoLayer,
    /// out(act(gate(x)) · in(x)).
    Gated,
}

/// A non-linearity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// GELU by its approximation with tanh.
    #[default]
    GeluTanh,
    /// GELU.
    Gelu,
    /// x · sigmoid(x).
    Silu,
    /// max(x, 0).
    Relu,
}

choice! { Activation = v1::Activation { GeluTanh, Gelu, Silu, Relu } }

/// A kind of normalisation over the last axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// Mean and variance, scale and shift.
    #[default]
    LayerNorm,
    /// Root mean square, scale.
    RmsNorm,
}

/// Where a block normalises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormPosition {
    /// What enters attention and MLP.
    #[default]
    Pre,
    /// The sum with the residual.
    Post,
}

impl TransformerBlock {
    /// GPT-2's block: pre-norm, causal, all biases, a two-layer MLP with GELU.
    pub fn gpt2(hidden_size: i64, heads: i64, feed_forward_size: i64, dropout: f64) -> Self {
        Self {
            hidden_size,
            heads,
            feed_forward_size,
            dropout,
            attention_dropout: None,
            key_value_heads: None,
            head_size: None,
            perceptron: Perceptron::TwoLayer,
            activation: Activation::GeluTanh,
            norm: NormKind::LayerNorm,
            epsilon: DEFAULT_EPSILON,
            norm_position: NormPosition::Pre,
            bidirectional: false,
            qkv_bias: true,
            attention_out_bias: true,
            mlp_bias: true,
            rotary_base: None,
            query_key_norm: false,
        }
    }

    /// Heads of keys and values.
    pub fn key_value_heads(&self) -> i64 {
        self.key_value_heads.unwrap_or(self.heads)
    }

    /// Size of a head.
    pub fn head_size(&self) -> i64 {
        self.head_size.unwrap_or_else(|| self.hidden_size / self.heads.max(1))
    }

    /// Scalars of a token's queries.
    pub fn query_size(&self) -> i64 {
        self.heads.saturating_mul(self.head_size())
    }

    /// Scalars of a token's keys, and as many of its values.
    pub fn key_value_size(&self) -> i64 {
        self.key_value_heads().saturating_mul(self.head_size())
    }

    /// Dropout of the attention weights.
    pub fn attention_dropout(&self) -> f64 {
        self.attention_dropout.unwrap_or(self.dropout)
    }

    /// Whether queries, keys and values come from one map (in this order) rather than three. One map is
    /// faster; but where queries and keys are changed before they meet, its output would live on for the
    /// values alone.
    pub fn has_fused_qkv(&self) -> bool {
        self.rotary_base.is_none() && !self.query_key_norm
    }

    pub(super) fn normalised(self) -> Self {
        let default = Self { key_value_heads: None, head_size: None, attention_dropout: None, ..self };
        Self {
            key_value_heads: self.key_value_heads.filter(|&heads| heads != default.key_value_heads()),
            head_size: self.head_size.filter(|&size| size != default.head_size()),
            attention_dropout: self.attention_dropout.filter(|&share| share != default.dropout),
            ..self
        }
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        let Self { hidden_size, heads, .. } = *self;
        size("hidden_size", hidden_size)?;
        size("heads", heads)?;
        size("feed_forward_size", self.feed_forward_size)?;
        if self.head_size.is_none() && hidden_size % heads != 0 {
            return Err(invalid!("heads", "{heads} does not divide hidden_size ({hidden_size})"));
        }
        size("head_size", self.head_size())?;
        size("key_value_heads", self.key_value_heads())?;
        if heads % self.key_value_heads() != 0 {
            return Err(Invalid::field(
                "key_value_heads",
                format!("{} does not divide heads ({heads})", self.key_value_heads()),
            ));
        }
        in_range("heads × head_size", self.query_size(), 1..=MAX_EXTENT)?;
        share("dropout", self.dropout)?;
        share("attention_dropout", self.attention_dropout())?;
        epsilon("epsilon", self.epsilon)?;
        if let Some(base) = self.rotary_base {
            if !(base.is_finite() && base > 1.0) {
                return Err(invalid!("rotary_base", "{base} is not valid. Use a value above 1"));
            }
            if self.head_size() % 2 != 0 {
                let size = self.head_size();
                return Err(invalid!(
                    "head_size",
                    "{size} is odd, but rotary position embeddings need an even size. Use an even number"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn output_shape(&self, input: &[i64]) -> Result<Shape, String> {
        match *input {
            [_, hidden] if hidden == self.hidden_size => Ok(input.to_vec()),
            _ => Err(format!("tokens with a hidden size of {}", self.hidden_size)),
        }
    }

    /// In the order in which they are used.
    pub(super) fn parameters(&self) -> Vec<Parameter> {
        let norm = |names: [&'static str; 2]| norm(self.norm, names, self.hidden_size);
        let norms = [norm(["norm1.weight", "norm1.bias"]), norm(["norm2.weight", "norm2.bias"])];
        let [norm1, norm2] = norms;
        match self.norm_position {
            NormPosition::Pre => [norm1, self.attention(), norm2, self.perceptron()].concat(),
            NormPosition::Post => [self.attention(), norm1, self.perceptron(), norm2].concat(),
        }
    }

    fn attention(&self) -> Vec<Parameter> {
        let (hidden, queries, keys) = (self.hidden_size, self.query_size(), self.key_value_size());
        let mut parameters = Vec::new();
        if self.has_fused_qkv() {
            let names = ["attention.qkv.weight", "attention.qkv.bias"];
            parameters.extend(affine(names, hidden, queries + 2 * keys, self.qkv_bias));
        } else {
            let maps = [
                (["attention.query.weight", "attention.query.bias"], queries),
                (["attention.key.weight", "attention.key.bias"], keys),
                (["attention.value.weight", "attention.value.bias"], keys),
            ];
            for (names, outputs) in maps {
                parameters.extend(affine(names, hidden, outputs, self.qkv_bias));
            }
        }
        if self.query_key_norm {
            for name in ["attention.query_norm.weight", "attention.key_norm.weight"] {
                parameters.push(parameter(name, &[self.head_size()], Init::Ones));
            }
        }
        let names = ["attention.out.weight", "attention.out.bias"];
        parameters.extend(affine(names, queries, hidden, self.attention_out_bias));
        parameters
    }

    fn perceptron(&self) -> Vec<Parameter> {
        let (hidden, width) = (self.hidden_size, self.feed_forward_size);
        let mut parameters = Vec::new();
        if self.perceptron == Perceptron::Gated {
            parameters.extend(affine(["mlp.gate.weight", "mlp.gate.bias"], hidden, width, self.mlp_bias));
        }
        parameters.extend(affine(["mlp.in.weight", "mlp.in.bias"], hidden, width, self.mlp_bias));
        parameters.extend(affine(["mlp.out.weight", "mlp.out.bias"], width, hidden, self.mlp_bias));
        parameters
    }

    /// The tables of rotary positions, tokens × half a head.
    pub(super) fn buffers(&self, inputs: &[Shape]) -> Vec<Buffer> {
        let Some(base) = self.rotary_base else { return Vec::new() };
        let tokens = inputs.first().and_then(|input| input.first()).copied().unwrap_or_default();
        let shape = vec![tokens, self.head_size() / 2];
        vec![
            Buffer { name: "rotary.cosine", shape: shape.clone(), content: BufferContent::Cosines { base } },
            Buffer { name: "rotary.sine", shape, content: BufferContent::Sines { base } },
        ]
    }
}

fn norm(kind: NormKind, [weight, bias]: [&'static str; 2], size: i64) -> Vec<Parameter> {
    let mut parameters = vec![parameter(weight, &[size], Init::Ones)];
    if kind == NormKind::LayerNorm {
        parameters.push(parameter(bias, &[size], Init::Zeros));
    }
    parameters
}

fn affine([weight, bias]: [&'static str; 2], inputs: i64, outputs: i64, has_bias: bool) -> Vec<Parameter> {
    let mut parameters = vec![parameter(weight, &[outputs, inputs], GPT_INIT)];
    if has_bias {
        parameters.push(parameter(bias, &[outputs], Init::Zeros));
    }
    parameters
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}
