//! The models that Galvatron has itself, as it describes them.

use loadmaster_proto::model::layer::{Activation, NormKind, NormPosition, Perceptron};
use loadmaster_proto::warning::{Warning, WarningCode};
use serde_json::json;

use crate::export_parts::ExportedFile;
use crate::manifest::Flag;
use crate::memory::PaddedVocabulary;
use crate::transformer::Transformer;

/// A model of Galvatron's.
pub(super) struct Known {
    /// Its folder below `galvatron/models`.
    pub(super) folder: &'static str,
    /// The name of one of its sizes, whose description gives way to this model's.
    pub(super) size: &'static str,
    /// The description.
    pub(super) file: ExportedFile,
    /// What the description does not say.
    pub(super) flags: Vec<Flag>,
    /// What it pads the vocabulary to; none where it does not.
    pub(super) vocabulary: Option<PaddedVocabulary>,
    /// What it does otherwise than the model.
    pub(super) warnings: Vec<Warning>,
}

/// Rows of the vocabulary that its GPT pads to.
const PADDED_TO: u64 = 128;

/// The base of the rotary positions of its Llama, which nothing changes.
const ROTARY_BASE: f64 = 10_000.0;

/// A transformer as one of them, whose ends have so many shards; none where it is none.
pub(super) fn of(transformer: &Transformer, ends: u32) -> Option<Known> {
    let Transformer { embedding, block, .. } = transformer;
    if block.norm_position == NormPosition::Post
        || block.bidirectional
        || block.query_key_norm
        || block.head_size.is_some()
        || block.norm != transformer.norm
        || embedding.token_types > 0
        || embedding.norm_epsilon.is_some()
    {
        return None;
    }
    let biases = [block.qkv_bias, block.attention_out_bias, block.mlp_bias];
    match (block.perceptron, block.activation, block.norm) {
        (Perceptron::TwoLayer, Activation::Gelu | Activation::GeluTanh, NormKind::LayerNorm)
            if biases == [true; 3]
                && block.rotary_base.is_none()
                && embedding.positions == transformer.sequence_length
                && block.key_value_heads() == block.heads
                && block.feed_forward_size == 4 * block.hidden_size =>
        {
            Some(gpt(transformer, ends))
        }
        (Perceptron::Gated, Activation::Silu, NormKind::RmsNorm)
            if biases == [false; 3]
                && block.rotary_base.is_some()
                && embedding.positions == 0
                && block.dropout == 0.0
                && block.attention_dropout() == 0.0
                && !transformer.has_tied_head =>
        {
            Some(llama(transformer))
        }
        _ => None,
    }
}

/// The keys are those of transformers' `GPT2Config`.
fn gpt(transformer: &Transformer, ends: u32) -> Known {
    let (embedding, block) = (transformer.embedding, transformer.block);
    let description = json!({
        "n_layer": transformer.block_count(),
        "n_embd": block.hidden_size,
        "n_head": block.heads,
        "n_positions": embedding.positions,
        "vocab_size": embedding.vocabulary_size,
        "layer_norm_epsilon": block.epsilon,
        "embd_pdrop": embedding.dropout,
        "resid_pdrop": block.dropout,
        "attn_pdrop": block.attention_dropout(),
    });
    let size = "gpt-1.5b";
    let mut flags = vec![vec![format!("--model_size={size}")]];
    if !transformer.has_tied_head {
        flags.push(vec!["--untie-embeddings-and-output-weights".to_owned()]);
    }
    let vocabulary = PaddedVocabulary::of(transformer, PADDED_TO, ends);
    let warnings = vocabulary.map(|vocabulary| vocabulary.warning("Galvatron's GPT"));
    let file = ExportedFile::json("model.json", &description);
    Known { folder: "gpt_hf", size, file, flags, vocabulary, warnings: warnings.into_iter().collect() }
}

fn llama(transformer: &Transformer) -> Known {
    let block = transformer.block;
    let description = json!({
        "dim": block.hidden_size,
        "ffn_dim": block.feed_forward_size,
        "n_heads": block.heads,
        "n_kv_heads": block.key_value_heads(),
        "n_layers": transformer.block_count(),
        "norm_eps": block.epsilon,
        "vocab_size": transformer.embedding.vocabulary_size,
        "n_positions": transformer.sequence_length,
    });
    let size = "llama-7b";
    let warnings = block.rotary_base.filter(|&base| base != ROTARY_BASE).map(|base| {
        WarningCode::TrainingDiffers.says(format!(
            "Galvatron's Llama has the rotary base {ROTARY_BASE}, but the model has {base}. Set the model's base where \
             LlamaModel_tensor_parallel.py makes its RotaryEmbedding"
        ))
    });
    Known {
        folder: "llama_hf",
        size,
        file: ExportedFile::json("model.json", &description),
        flags: vec![vec![format!("--model_size={size}")]],
        vocabulary: None,
        warnings: warnings.into_iter().collect(),
    }
}
