//! A transformer as Megatron-Core's GPT model, and an optimizer in Megatron's words: its flags, Bridge's file and accelerate's plugin
//! describe the same.

use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::{Activation, NormPosition, Perceptron};
use loadmaster_proto::training::Optimizer;

use crate::StageRefusal;
use crate::transformer::Transformer;

/// Position embeddings of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::framework) enum Positions {
    None,
    /// How many are learned.
    Learned(i64),
    /// The base.
    Rotary(i64),
}

/// Which maps of a block have biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::framework) enum Biases {
    All,
    None,
    /// Those to queries, keys and values.
    Queries,
}

/// What its GPT model asks besides sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::framework) struct Gpt {
    pub(in crate::framework) positions: Positions,
    pub(in crate::framework) biases: Biases,
    /// `SwiGLU`; else two layers with GELU.
    pub(in crate::framework) is_gated: bool,
}

impl Gpt {
    /// # Errors
    /// What the GPT model cannot be.
    pub(in crate::framework) fn of(transformer: &Transformer) -> Result<Self, Vec<StageRefusal>> {
        Self::described(transformer).map_err(|what| {
            vec![StageRefusal::of_plan(format!("has a model {what}, unlike Megatron's GPT model"))]
        })
    }

    fn described(transformer: &Transformer) -> Result<Self, &'static str> {
        let Transformer { embedding, block, .. } = transformer;
        if block.norm_position == NormPosition::Post || block.bidirectional {
            return Err("with norms after the residual additions, or without causal attention");
        }
        if embedding.token_types > 0 || embedding.norm_epsilon.is_some() {
            return Err("with token types, or with a norm after the embedding");
        }
        if block.norm != transformer.norm || block.epsilon != transformer.norm_epsilon {
            return Err("whose final norm differs from the norms of its blocks");
        }
        let positions = match (block.rotary_base, embedding.positions) {
            (None, 0) => Positions::None,
            (None, positions) => Positions::Learned(positions),
            (Some(base), 0) => {
                Positions::Rotary(whole(base).ok_or("with a rotary base that is not a whole number")?)
            }
            (Some(_), _) => return Err("with both learned and rotary positions"),
        };
        let is_gated = match (block.perceptron, block.activation) {
            (Perceptron::Gated, Activation::Silu) => true,
            (Perceptron::TwoLayer, Activation::Gelu | Activation::GeluTanh) => false,
            _ => return Err("whose MLPs are neither SwiGLU nor two layers with GELU"),
        };
        let biases = match (block.qkv_bias, block.attention_out_bias, block.mlp_bias) {
            (true, true, true) => Biases::All,
            (false, false, false) => Biases::None,
            (true, false, false) => Biases::Queries,
            _ => return Err("with biases in only some of a block's linear layers"),
        };
        Ok(Self { positions, biases, is_gated })
    }
}

/// A number that is whole, as Megatron reads it.
fn whole(number: f64) -> Option<i64> {
    // Below 2^53 every whole number is one.
    (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as i64)
}

/// How Megatron-Core's GPT model scales rotary positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum MegatronScaling {
    /// As Llama 3: `--use-rope-scaling` with this factor.
    Llama3(f64),
    /// Positions divided by this number: `--rotary-seq-len-interpolation-factor`.
    Interpolated(i64),
}

impl MegatronScaling {
    /// What Megatron has words for; none where it has none, or nothing is scaled.
    pub(crate) fn of(model: Option<&Model>) -> Option<Self> {
        let scaling = model?.numerics().rotary_scaling.as_ref()?;
        let factor = scaling.parameter("factor").filter(|&factor| factor > 0.0)?;
        match scaling.kind.as_str() {
            "llama3" => Some(Self::Llama3(factor)),
            "linear" if factor.fract() == 0.0 && factor < 1e9 => Some(Self::Interpolated(factor as i64)),
            _ => None,
        }
    }
}

/// An update rule; its step size is no part of a plan.
pub(in crate::framework) struct Rule {
    /// `sgd` or `adam`.
    pub(in crate::framework) name: &'static str,
    /// Its settings, by their names in Megatron's configuration.
    pub(in crate::framework) settings: Vec<(&'static str, f64)>,
    /// Weights decay beside the update rather than through their gradients. Of SGD without momentum that is the same.
    pub(in crate::framework) decouples_decay: bool,
}

impl Rule {
    /// That of a plan.
    pub(in crate::framework) fn of(optimizer: Optimizer) -> Self {
        let decay = |weight_decay: f64| ("weight_decay", weight_decay);
        match optimizer {
            Optimizer::Sgd { momentum, weight_decay, .. } => Self {
                name: "sgd",
                settings: vec![("sgd_momentum", momentum), decay(weight_decay)],
                decouples_decay: false,
            },
            Optimizer::Adam { beta1, beta2, epsilon, weight_decay, .. }
            | Optimizer::AdamW { beta1, beta2, epsilon, weight_decay, .. } => Self {
                name: "adam",
                settings: vec![
                    ("adam_beta1", beta1),
                    ("adam_beta2", beta2),
                    ("adam_eps", epsilon),
                    decay(weight_decay),
                ],
                decouples_decay: matches!(optimizer, Optimizer::AdamW { .. }),
            },
        }
    }

    /// Whether it is what Megatron's flags say, whose Adam is `AdamW`: without decay both are one.
    pub(in crate::framework) fn is_said_by_flags(&self) -> bool {
        self.name == "sgd" || self.decouples_decay || self.settings.contains(&("weight_decay", 0.0))
    }
}
