//! Keys that no architecture reads: which do not matter, which matter unless they have a certain value,
//! and which cannot be computed.
//!
//! The lists contain every key that versions 4.40 to 5 of Transformers write for the supported families, and keys
//! that training tools add.

use serde_json::{Value, json};

/// Keys that do not change what is computed in training: names, tokens of generation, labels, versions,
/// the number format (which belongs to the training specification), starts of parameters, outputs.
const IGNORED: [&str; 46] = [
    "_attn_implementation",
    "_name_or_path",
    "architectures",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "classifier_dropout",
    "decoder_start_token_id",
    "directionality",
    "do_sample",
    "dtype",
    "eos_token_id",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "keys_to_ignore_at_inference",
    "label2id",
    "max_length",
    "name_or_path",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "pad_token_id",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "return_dict",
    "sep_token_id",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "task_specific_params",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "unk_token_id",
    "use_cache",
];

/// Keys that change neither arithmetic nor memory, but are not a matter of course: options of generation, marks of
/// tools, and keys that Transformers reads for other families alone. A note names them.
const NOTED: [&str; 37] = [
    "attention_bias",
    "cross_attention_hidden_size",
    "diversity_penalty",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "flash_attn",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "is_llama_config",
    "layer_types",
    "length_penalty",
    "max_window_layers",
    "min_length",
    "mlp_bias",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_scores",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "rope_interleaved",
    "sliding_window",
    "suppress_tokens",
    "temperature",
    "tf_legacy_loss",
    "top_k",
    "top_p",
    "typical_p",
    "use_bfloat16",
    "use_flash_attention",
    "use_flash_attention_2",
    "use_flash_attn",
    "use_sliding_window",
];

/// Beginnings of keys that are noted likewise: private attributes of Transformers, and marks of tools.
const NOTED_BEGINNINGS: [&str; 2] = ["_", "unsloth_"];

/// What a key stands for that cannot be computed, unless it is null, 0, false or empty.
const REFUSED: [(&str, &str); 22] = [
    ("add_cross_attention", "cross-attention"),
    ("chunk_size_feed_forward", "chunked feed-forward layers"),
    ("decoder_sparse_step", "a mixture of experts"),
    ("first_k_dense_replace", "a mixture of experts"),
    ("is_decoder", "a decoder of an encoder-decoder model"),
    ("is_encoder_decoder", "an encoder-decoder model"),
    ("kv_lora_rank", "multi-head latent attention"),
    ("moe_intermediate_size", "a mixture of experts"),
    ("n_routed_experts", "a mixture of experts"),
    ("num_experts", "a mixture of experts"),
    ("num_experts_per_tok", "a mixture of experts"),
    ("num_local_experts", "a mixture of experts"),
    ("num_nextn_predict_layers", "multi-token prediction"),
    ("pruned_heads", "pruned heads"),
    ("q_lora_rank", "multi-head latent attention"),
    ("qk_nope_head_dim", "multi-head latent attention"),
    ("qk_rope_head_dim", "multi-head latent attention"),
    ("reorder_and_upcast_attn", "attention in another number format"),
    ("scale_attn_by_inverse_layer_idx", "attention scaled by the layer's index"),
    ("tie_encoder_decoder", "an encoder-decoder model"),
    ("use_mrope", "rotary positions of several axes"),
    ("v_head_dim", "multi-head latent attention"),
];

/// What becomes of a key that no architecture reads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// It is a matter of course and does not matter.
    Silent,
    /// It does not matter, and a note names it.
    Noted,
    /// It stands for something that cannot be computed.
    Refused(String),
    /// It may matter or not.
    Unknown,
}

/// Returns what becomes of a key that no architecture has read.
pub(super) fn treatment(key: &str, value: &Value) -> Treatment {
    if IGNORED.contains(&key) || value.is_null() {
        return Treatment::Silent;
    }
    if NOTED.contains(&key) || NOTED_BEGINNINGS.iter().any(|begin| key.starts_with(begin)) {
        return Treatment::Noted;
    }
    if let Some((_, feature)) = REFUSED.iter().find(|(refused, _)| *refused == key) {
        return match is_neutral(value) {
            true => Treatment::Silent,
            false => Treatment::Refused(format!(
                "{} is set, but {feature} is not supported. Use another model",
                short(value)
            )),
        };
    }
    let only = match key {
        "scale_attn_weights" => json!(true),
        "position_embedding_type" => json!("absolute"),
        _ => return Treatment::Unknown,
    };
    match *value == only {
        true => Treatment::Silent,
        false => Treatment::Refused(format!("{} is not supported. Use {only}", short(value))),
    }
}

/// Null, 0, false and empty turn nothing on.
fn is_neutral(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

fn short(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    }
}
