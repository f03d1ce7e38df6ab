//! Keys that no architecture reads: which do not matter, which matter unless they have a certain value,
//! and which cannot be computed.

use serde_json::{Value, json};

/// Keys that do not change what is computed in training: names, tokens of generation, labels, versions,
/// the number format (which belongs to the training specification), starts of parameters, outputs.
const IGNORED: [&str; 47] = [
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
    "initializer_range",
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

/// What a key stands for that cannot be computed, unless it is null, 0, false or empty.
const REFUSED: [(&str, &str); 23] = [
    ("add_cross_attention", "cross-attention"),
    ("chunk_size_feed_forward", "a feed-forward layer in chunks"),
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
    ("quantization_config", "quantised weights"),
    ("reorder_and_upcast_attn", "attention in another number format"),
    ("scale_attn_by_inverse_layer_idx", "attention scaled by the layer's index"),
    ("tie_encoder_decoder", "an encoder-decoder model"),
    ("use_mrope", "rotary positions of several axes"),
    ("v_head_dim", "multi-head latent attention"),
];

/// Why a model with this key cannot be built; nothing where the key does not matter.
pub(super) fn objection(key: &str, value: &Value) -> Option<String> {
    if IGNORED.contains(&key) || value.is_null() {
        return None;
    }
    if let Some((_, feature)) = REFUSED.iter().find(|(refused, _)| *refused == key) {
        let text = || format!("is {}, but {feature} is not supported", short(value));
        return (!is_neutral(value)).then(text);
    }
    let only = match key {
        "scale_attn_weights" => json!(true),
        "position_embedding_type" => json!("absolute"),
        _ => {
            return Some(
                "is not known, and it may change what is computed: remove it if it does not".to_owned(),
            );
        }
    };
    (*value != only).then(|| format!("is {}, only {only} is supported", short(value)))
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
