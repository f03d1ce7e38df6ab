//! The architectures: which keys they read, with which defaults, and what they are built of.

use serde_json::Value;

use super::fields::Fields;
use super::{MODEL_TYPES, rotary};
use crate::error::{Invalid, in_range};
use crate::model::layer::{Activation, Layer, LayerKind, NormKind, TokenEmbedding, TransformerBlock};
use crate::model::numerics::Numerics;
use crate::model::zoo::{bert, llama};
use crate::model::{Loss, Model, ModelInput};

/// A model but for its sequence length.
pub(super) struct Architecture {
    /// Most tokens per sample.
    pub(super) longest: i64,
    /// Tokens that a token sees at most, where that is limited.
    window: Option<Window>,
    embedding: TokenEmbedding,
    block: TransformerBlock,
    blocks: i64,
    end: End,
    /// What changes values alone.
    pub(super) numerics: Numerics,
}

/// A limit of attention, by the key that sets it.
struct Window {
    key: &'static str,
    tokens: i64,
}

/// What follows the blocks.
enum End {
    /// BERT's pooler.
    Pooler,
    /// A normalisation and the language-model head.
    Head { tied: bool },
}

impl Architecture {
    pub(super) fn model(self, family: &str, sequence_length: i64) -> Result<Model, Invalid> {
        if let Some(Window { key, tokens }) = self.window
            && sequence_length > tokens
        {
            return Err(Invalid::field(
                format!("config.{key}"),
                format!(
                    "limits attention to {tokens} tokens, which is not supported with a sequence length of \
                     {sequence_length}. Use a sequence length of at most {tokens}"
                ),
            ));
        }
        let TokenEmbedding { vocabulary_size, hidden_size, .. } = self.embedding;
        let mut layers = super::super::super::zoo::trunk(self.embedding, self.block, self.blocks);
        let loss = match self.end {
            End::Pooler => {
                layers.push(Layer { name: "pooler".to_owned(), kind: LayerKind::Pooler { hidden_size } });
                Loss::MeanSquare
            }
            End::Head { tied } => {
                let epsilon = self.block.epsilon;
                let kind = match self.block.norm {
                    NormKind::LayerNorm => LayerKind::LayerNorm { hidden_size, epsilon },
                    NormKind::RmsNorm => LayerKind::RmsNorm { hidden_size, epsilon },
                };
                layers.push(Layer { name: "norm".to_owned(), kind });
                layers.push(super::super::super::zoo::head(hidden_size, vocabulary_size, tied));
                Loss::CrossEntropy
            }
        };
        let input = ModelInput::Tokens { sequence_length, vocabulary_size };
        let model = Model::new(family.to_owned(), input, layers)
            .map_err(|invalid| invalid!("config", "does not describe a valid model: {invalid}"))?;
        Ok(model.with_loss(loss).with_numerics(self.numerics))
    }
}

pub(super) fn read(model_type: &str, fields: &mut Fields) -> Result<Architecture, Invalid> {
    match model_type {
        "gpt2" => gpt2(fields),
        "bert" => bert(fields),
        "llama" => Decoder::LLAMA.read(fields),
        "mistral" => Decoder::MISTRAL.read(fields),
        "qwen2" => Decoder::QWEN2.read(fields),
        "qwen3" => Decoder::QWEN3.read(fields),
        "" => Err(Invalid::field("model_type", "is required")),
        other => Err(Invalid::field(
            "model_type",
            format!("{other:?} is not supported{}. Use {}", missing(other, fields), MODEL_TYPES.join(", ")),
        )),
    }
}

/// Returns the capability that a model of another type needs, where its keys or its name reveal it.
fn missing(model_type: &str, fields: &Fields) -> &'static str {
    const EXPERTS: [&str; 4] =
        ["num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size"];
    if fields.peek("text_config").is_some() {
        return ": multimodal models are not supported. Import the object in `text_config`, which is the language model";
    }
    if model_type.contains("moe") || EXPERTS.iter().any(|key| fields.peek(key).is_some()) {
        return ": mixtures of experts are not supported";
    }
    ""
}

/// Notes that a file of a decoder is for another head than the language-model head that is planned.
pub(super) fn remark_on_head(model_type: &str, fields: &mut Fields) {
    const HEADS: [&str; 4] =
        ["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice"];
    let classes = fields.peek("architectures").and_then(Value::as_array);
    let other = classes
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .find(|class| model_type != "bert" && HEADS.iter().any(|head| class.ends_with(head)));
    if let Some(class) = other.map(str::to_owned) {
        fields.remark(format!(
            "{class} has no language-model head. The plan replaces the head of {class} with a language-model head"
        ));
    }
}

fn gpt2(fields: &mut Fields) -> Result<Architecture, Invalid> {
    let hidden_size = fields.size(&["n_embd", "hidden_size"], 768)?;
    let heads = fields.size(&["n_head", "num_attention_heads"], 12)?;
    let width = fields.size(&["n_inner"], 4 * hidden_size)?;
    let positions = fields.size(&["n_positions", "max_position_embeddings", "n_ctx"], 1024)?;
    let vocabulary_size = fields.size(&["vocab_size"], 50_257)?;
    let block = TransformerBlock {
        attention_dropout: Some(fields.number("attn_pdrop", 0.1)?),
        activation: activation(fields, "activation_function", "gelu_new")?,
        epsilon: fields.number("layer_norm_epsilon", 1e-5)?,
        ..TransformerBlock::gpt2(hidden_size, heads, width, fields.number("resid_pdrop", 0.1)?)
    };
    let dropout = fields.number("embd_pdrop", 0.1)?;
    Ok(Architecture {
        longest: positions,
        window: None,
        embedding: TokenEmbedding::gpt2(vocabulary_size, positions, hidden_size, dropout),
        block,
        blocks: blocks(fields, &["n_layer", "num_hidden_layers"], 12)?,
        end: End::Head { tied: fields.flag("tie_word_embeddings", true)? },
        numerics: Numerics::default(),
    })
}

fn bert(fields: &mut Fields) -> Result<Architecture, Invalid> {
    let hidden_size = fields.size(&["hidden_size"], 768)?;
    let heads = fields.size(&["num_attention_heads"], 12)?;
    let width = fields.size(&["intermediate_size"], 3072)?;
    let positions = fields.size(&["max_position_embeddings"], 512)?;
    let vocabulary_size = fields.size(&["vocab_size"], 30_522)?;
    let dropout = fields.number("hidden_dropout_prob", 0.1)?;
    let epsilon = fields.number("layer_norm_eps", bert::EPSILON)?;
    let embedding = TokenEmbedding {
        token_types: fields.size(&["type_vocab_size"], 2)?,
        norm_epsilon: Some(epsilon),
        ..TokenEmbedding::gpt2(vocabulary_size, positions, hidden_size, dropout)
    };
    let block = TransformerBlock {
        attention_dropout: Some(fields.number("attention_probs_dropout_prob", 0.1)?),
        activation: activation(fields, "hidden_act", "gelu")?,
        epsilon,
        ..bert::block(hidden_size, heads, width, dropout)
    };
    // The decoder that could be tied is no part of it.
    fields.flag("tie_word_embeddings", true)?;
    Ok(Architecture {
        longest: positions,
        window: None,
        embedding,
        block,
        blocks: blocks(fields, &["num_hidden_layers"], 12)?,
        end: End::Pooler,
        numerics: Numerics::default(),
    })
}

/// The defaults of a class of Llama-like decoders, and in what the classes differ.
struct Decoder {
    vocabulary_size: i64,
    feed_forward_size: i64,
    /// None: as many as heads.
    key_value_heads: Option<i64>,
    /// None: hidden size / heads.
    head_size: Option<i64>,
    longest: i64,
    biases: Biases,
    window: Sliding,
    query_key_norm: bool,
}

/// Which biases a class has.
#[derive(PartialEq)]
enum Biases {
    /// What `attention_bias` and `mlp_bias` say, no unless they do.
    ByKey,
    /// What `attention_bias` says; the MLP has none.
    AttentionByKey,
    /// Of queries, keys and values.
    Qkv,
    /// None.
    None,
}

/// Where a class limits attention to a window.
enum Sliding {
    Never,
    /// `sliding_window`, 4,096 unless it is given; null turns it off.
    Always,
    /// The same, where `use_sliding_window` says so and `max_window_layers` or `layer_types` leave layers.
    ByFlag,
}

impl Decoder {
    const LLAMA: Self = Self {
        vocabulary_size: 32_000,
        feed_forward_size: 11_008,
        key_value_heads: None,
        head_size: None,
        longest: 2048,
        biases: Biases::ByKey,
        window: Sliding::Never,
        query_key_norm: false,
    };
    const MISTRAL: Self = Self {
        feed_forward_size: 14_336,
        key_value_heads: Some(8),
        longest: 131_072,
        biases: Biases::None,
        window: Sliding::Always,
        ..Self::LLAMA
    };
    const QWEN2: Self = Self {
        vocabulary_size: 151_936,
        feed_forward_size: 22_016,
        key_value_heads: Some(32),
        longest: 32_768,
        biases: Biases::Qkv,
        window: Sliding::ByFlag,
        ..Self::LLAMA
    };
    const QWEN3: Self =
        Self { head_size: Some(128), biases: Biases::AttentionByKey, query_key_norm: true, ..Self::QWEN2 };

    fn read(&self, fields: &mut Fields) -> Result<Architecture, Invalid> {
        let hidden_size = fields.size(&["hidden_size", "n_embd"], 4096)?;
        let heads = fields.size(&["num_attention_heads", "n_head"], 32)?;
        let key_value_heads = self.key_value_heads(fields, heads)?;
        let width = fields.size(&["intermediate_size"], self.feed_forward_size)?;
        let vocabulary_size = fields.size(&["vocab_size"], self.vocabulary_size)?;
        let blocks = blocks(fields, &["num_hidden_layers", "n_layer"], 32)?;
        let head_size = fields.optional_size(&["head_dim"])?.or(self.head_size);
        let longest = fields.size(&["max_position_embeddings", "n_positions"], self.longest)?;
        let attention_bias = match self.biases {
            Biases::ByKey | Biases::AttentionByKey => fields.flag("attention_bias", false)?,
            Biases::Qkv | Biases::None => false,
        };
        let (base, rotary_scaling) = rotary::positions(fields, 10_000.0)?;
        let block = TransformerBlock {
            head_size,
            attention_dropout: Some(fields.number("attention_dropout", 0.0)?),
            activation: activation(fields, "hidden_act", "silu")?,
            epsilon: fields.number("rms_norm_eps", 1e-6)?,
            qkv_bias: attention_bias || self.biases == Biases::Qkv,
            attention_out_bias: attention_bias,
            mlp_bias: self.biases == Biases::ByKey && fields.flag("mlp_bias", false)?,
            query_key_norm: self.query_key_norm,
            ..llama::block(hidden_size, heads, key_value_heads, width, base)
        };
        Ok(Architecture {
            longest,
            window: self.window(fields, blocks)?,
            embedding: TokenEmbedding::gpt2(vocabulary_size, 0, hidden_size, 0.0),
            block,
            blocks,
            end: End::Head { tied: fields.flag("tie_word_embeddings", false)? },
            numerics: Numerics { rotary_scaling, ..Numerics::default() },
        })
    }

    /// A null means as many as heads, whatever the class's default.
    fn key_value_heads(&self, fields: &mut Fields, heads: i64) -> Result<i64, Invalid> {
        let default = if fields.is_null("num_key_value_heads") { None } else { self.key_value_heads };
        fields.size(&["num_key_value_heads"], default.unwrap_or(heads))
    }

    fn window(&self, fields: &mut Fields, blocks: i64) -> Result<Option<Window>, Invalid> {
        let is_off = fields.is_null("sliding_window");
        let (key, tokens) = ("sliding_window", 4096);
        let window = |tokens: i64| (!is_off).then_some(Window { key, tokens });
        match self.window {
            Sliding::Never => Ok(None),
            Sliding::Always => Ok(window(fields.size(&[key], tokens)?)),
            Sliding::ByFlag => {
                let is_used = fields.flag("use_sliding_window", false)?;
                let tokens = fields.size(&[key], tokens)?;
                let full = fields.size_from_zero("max_window_layers", 28)?;
                let types = fields.texts("layer_types")?;
                if let Some(other) = types.iter().find(|kind| !LAYER_TYPES.contains(&kind.as_str())) {
                    return Err(Invalid::field(
                        "layer_types",
                        format!("{other:?} is none of {}", LAYER_TYPES.join(" and ")),
                    ));
                }
                let slides = if types.is_empty() {
                    full < blocks
                } else {
                    types.iter().any(|kind| kind == LAYER_TYPES[1])
                };
                Ok(window(tokens).filter(|_| is_used && slides))
            }
        }
    }
}

/// What `layer_types` may contain.
const LAYER_TYPES: [&str; 2] = ["full_attention", "sliding_attention"];

fn blocks(fields: &mut Fields, names: &[&str], default: i64) -> Result<i64, Invalid> {
    let blocks = fields.size(names, default)?;
    in_range(names.first().copied().unwrap_or_default(), blocks, 1..=super::super::super::zoo::MAX_BLOCKS)
}

fn activation(fields: &mut Fields, key: &str, default: &str) -> Result<Activation, Invalid> {
    match fields.text(key, default)?.as_str() {
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Ok(Activation::GeluTanh),
        "gelu" => Ok(Activation::Gelu),
        "silu" | "swish" => Ok(Activation::Silu),
        "relu" => Ok(Activation::Relu),
        other => Err(Invalid::field(
            key,
            format!(
                "{other:?} is not supported. Use gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, silu, swish or relu"
            ),
        )),
    }
}
