//! Published configurations have their published parameters, and what cannot be computed is refused.

use super::*;
use crate::model::layer::LayerKind;
use crate::model::numerics::Numerics;

fn model(config: &str, sequence_length: Option<i64>) -> Result<Model, Invalid> {
    super::model(&source(config, sequence_length), &always)
}

fn source(config: &str, sequence_length: Option<i64>) -> HuggingFaceConfig {
    HuggingFaceConfig { config: config.to_owned(), sequence_length, ignore_unknown_keys: false }
}

fn notes(config: &str) -> Vec<String> {
    super::notes(&source(config, None))
}

const GPT2: &str = r#"{
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
    "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null,
    "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
    "summary_use_proj": true,
    "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
    "vocab_size": 50257
}"#;
const BERT: &str = r#"{
    "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1,
    "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads": 12,
    "num_hidden_layers": 12, "pad_token_id": 0, "position_embedding_type": "absolute",
    "transformers_version": "4.6.0.dev0", "type_vocab_size": 2, "use_cache": true, "vocab_size": 30522
}"#;
const LLAMA2: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008,
    "max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": null, "tie_word_embeddings": false, "torch_dtype": "float16",
    "transformers_version": "4.31.0.dev0", "use_cache": true, "vocab_size": 32000
}"#;
const LLAMA3: &str = r#"{
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": 128001, "hidden_act": "silu", "hidden_size": 4096,
    "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 8192,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 500000.0,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.40.0.dev0",
    "use_cache": true, "vocab_size": 128256
}"#;
const MISTRAL: &str = r#"{
    "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
    "sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 32000
}"#;
const QWEN2: &str = r#"{
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
    "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28,
    "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
    "use_cache": true, "use_mrope": false, "use_sliding_window": false, "vocab_size": 152064
}"#;
const QWEN3: &str = r#"{
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288,
    "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
    "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true,
    "use_sliding_window": false, "vocab_size": 151936
}"#;

fn imported(config: &str) -> Model {
    model(config, None).unwrap_or_else(|invalid| panic!("{invalid}: {config}"))
}

/// The one violation.
fn refused(config: &str, sequence_length: Option<i64>) -> (String, String) {
    let invalid = model(config, sequence_length).unwrap_err();
    let [violation] = invalid.violations() else { panic!("{invalid}") };
    (violation.field.clone(), violation.description.clone())
}

/// This configuration with some keys set.
fn with(config: &str, keys: serde_json::Value) -> String {
    let mut config: Value = serde_json::from_str(config).unwrap();
    for (key, value) in keys.as_object().unwrap() {
        config[key] = value.clone();
    }
    config.to_string()
}

#[test]
fn published_configurations_have_their_published_parameters() {
    for (config, per_block, total) in [
        (GPT2, 7_087_872, 124_439_808),
        (BERT, 7_087_872, 109_482_240),
        (LLAMA2, 202_383_360, 6_738_415_616),
        (LLAMA3, 218_112_000, 8_030_261_248),
        (MISTRAL, 218_112_000, 7_241_732_096),
        (QWEN2, 233_057_792, 7_615_616_512),
        (QWEN3, 192_946_432, 8_190_735_360),
    ] {
        let model = imported(config);
        assert_eq!(model.layers()[1].kind.parameter_count(), per_block, "{}", model.family());
        assert_eq!(model.parameter_count(), total, "{}", model.family());
    }
}

#[test]
fn what_a_file_leaves_out_has_the_default_of_its_class() {
    let gpt2 = imported(r#"{"model_type": "gpt2"}"#);
    assert_eq!(gpt2, imported(GPT2));
    assert!(gpt2.has_tied_head(), "tied unless it says otherwise");
    assert_eq!(imported(r#"{"model_type": "bert"}"#), imported(BERT));
    let groups = |config: &str| match imported(config).layers()[1].kind {
        LayerKind::TransformerBlock(block) => block.key_value_heads(),
        _ => 0,
    };
    assert_eq!(groups(r#"{"model_type": "llama"}"#), 32);
    assert_eq!(groups(r#"{"model_type": "llama", "num_attention_heads": 16}"#), 16);
    assert_eq!(groups(r#"{"model_type": "mistral"}"#), 8);
    assert_eq!(groups(r#"{"model_type": "mistral", "num_key_value_heads": null}"#), 32);
}

#[test]
fn aliases_are_read_and_must_agree() {
    let aliases = with(
        r#"{"model_type": "gpt2"}"#,
        serde_json::json!({
            "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64
        }),
    );
    let names = with(
        r#"{"model_type": "gpt2"}"#,
        serde_json::json!({
            "n_embd": 96, "n_layer": 2, "n_head": 4, "n_positions": 64
        }),
    );
    assert_eq!(imported(&aliases), imported(&names));
    let both = with(&aliases, serde_json::json!({"n_embd": 128}));
    assert_eq!(refused(&both, None).0, "config.hidden_size");
}

#[test]
fn the_sequence_is_the_longest_up_to_a_limit_unless_it_is_asked_for() {
    assert_eq!(imported(GPT2).input().shape(), [1024]);
    assert_eq!(imported(QWEN3).input().shape(), [DEFAULT_MAX_SEQUENCE_LENGTH]);
    assert_eq!(model(QWEN3, Some(8192)).unwrap().input().shape(), [8192]);
    assert_eq!(refused(GPT2, Some(1025)).0, "sequence_length");
    assert_eq!(refused(GPT2, Some(0)).0, "sequence_length");
}

#[test]
fn a_window_is_refused_where_it_bites() {
    assert_eq!(imported(MISTRAL).input().shape(), [4096], "as long as the window");
    assert_eq!(refused(MISTRAL, Some(8192)).0, "config.sliding_window");
    let unlimited = with(MISTRAL, serde_json::json!({"sliding_window": null}));
    assert!(model(&unlimited, Some(8192)).is_ok());

    let windowed = serde_json::json!({"use_sliding_window": true, "sliding_window": 512});
    assert!(model(&with(QWEN2, windowed.clone()), None).is_ok(), "max_window_layers leaves no layer");
    let some = with(&with(QWEN2, windowed), serde_json::json!({"max_window_layers": 20}));
    assert_eq!(refused(&some, None).0, "config.sliding_window");
    assert!(model(&some, Some(512)).is_ok());
    let types = serde_json::json!({"layer_types": ["full_attention", "linear_attention"]});
    assert_eq!(refused(&with(QWEN3, types), None).0, "config.layer_types");
}

#[test]
fn rotary_bases_are_read_in_every_version() {
    let base = |keys| match imported(&with(LLAMA2, keys)).layers()[1].kind {
        LayerKind::TransformerBlock(block) => block.rotary_base,
        _ => None,
    };
    assert_eq!(base(serde_json::json!({})), Some(10_000.0));
    assert_eq!(base(serde_json::json!({"rope_theta": 5e5})), Some(5e5));
    let version5 = serde_json::json!({"rope_parameters": {"rope_type": "default", "rope_theta": 7e4}});
    assert_eq!(base(version5), Some(7e4));
    let twice = serde_json::json!({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}});
    assert_eq!(refused(&with(LLAMA3, twice), None).0, "config.rope_parameters");
}

/// Scaling that changes angles alone is kept beside the layers, with a note: these are the ones without it, to the byte, at any
/// length. What would change more, and unknown keys, are refused by their keys.
#[test]
fn scaling_of_angles_is_kept_and_told() {
    let scalings = [
        serde_json::json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                           "original_max_position_embeddings": 8192}),
        serde_json::json!({"type": "linear", "factor": 2.0}),
        serde_json::json!({"type": "dynamic", "factor": 4.0}),
        serde_json::json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096,
                           "attention_factor": null, "beta_fast": 32, "beta_slow": 1, "truncate": false}),
        serde_json::json!({"type": "longrope", "short_factor": [1.0, 1.1], "long_factor": [2, 3.5]}),
        serde_json::json!({"type": "su", "short_factor": [1.0, 1.1], "long_factor": [2, 3.5]}),
        serde_json::json!({"type": "mrope", "mrope_section": [16, 24, 24]}),
    ];
    for scaling in scalings {
        let both =
            scaling.get("rope_type").or_else(|| scaling.get("type")).unwrap().as_str().unwrap().to_owned();
        let config = with(LLAMA3, serde_json::json!({"rope_scaling": scaling}));
        for length in [16, 8192] {
            let scaled = model(&config, Some(length)).unwrap();
            // A text has the same position on all axes of `mrope`, so nothing is scaled.
            let Some(kept) = scaled.numerics().rotary_scaling.clone() else {
                assert_eq!(both, "mrope");
                continue;
            };
            assert_eq!(kept.kind, if both == "su" { "longrope" } else { both.as_str() });
            assert_eq!(kept.parameter("factor"), scaling["factor"].as_f64());
            let numbers = scaling["long_factor"].as_array().map_or(0, Vec::len);
            assert_eq!(kept.long_factor.len(), numbers);
            // What is stored and sent keeps it.
            let stored: Model = serde_json::from_value(serde_json::to_value(&scaled).unwrap()).unwrap();
            let sent = Model::try_from(crate::wire::v1::Model::from(&scaled)).unwrap();
            assert_eq!((&stored, &sent), (&scaled, &scaled));
            let plain = scaled.with_numerics(Numerics::default());
            assert_eq!(plain, model(LLAMA3, Some(length)).unwrap());
        }
        let notes = notes(&config);
        assert!(notes.len() == 1 && notes[0].contains(&both), "{notes:?}");
        let version5 = with(LLAMA3, serde_json::json!({"rope_scaling": null, "rope_parameters": scaling}));
        assert_eq!((imported(&version5), self::notes(&version5)), (imported(&config), notes));
    }
    assert!(
        notes(LLAMA3).is_empty()
            && notes(r#"{"model_type": "llama", "rope_scaling": {"rope_type": "default"}}"#).is_empty()
    );
    for (scaling, key) in [
        (serde_json::json!({"rope_type": "spiral", "factor": 2.0}), "rope_type"),
        (serde_json::json!({"type": "linear", "factor": 2.0, "brand_new": 32}), "brand_new"),
        (serde_json::json!({"type": "linear", "factor": "two"}), "factor"),
        (serde_json::json!({"type": "longrope", "short_factor": 1.0}), "short_factor"),
        (serde_json::json!({"rope_type": "llama3", "partial_rotary_factor": 0.5}), "partial_rotary_factor"),
    ] {
        let (field, description) = refused(&with(LLAMA3, serde_json::json!({"rope_scaling": scaling})), None);
        assert_eq!(field, format!("config.rope_scaling.{key}"), "{description}");
    }
}

#[test]
fn what_is_not_supported_is_named_by_its_key() {
    for (config, key, value) in [
        (LLAMA2, "num_local_experts", serde_json::json!(8)),
        (LLAMA2, "kv_lora_rank", serde_json::json!(512)),
        (LLAMA2, "quantization_config", serde_json::json!({"load_in_4bit": true})),
        (LLAMA2, "quantization_config", serde_json::json!("fp8")),
        (LLAMA2, "brand_new_attention", serde_json::json!("on")),
        (LLAMA2, "hidden_act", serde_json::json!("tanh")),
        (LLAMA2, "hidden_size", serde_json::json!("big")),
        (LLAMA2, "num_hidden_layers", serde_json::json!(0)),
        (LLAMA2, "tie_word_embeddings", serde_json::json!(1)),
        (BERT, "position_embedding_type", serde_json::json!("relative_key")),
        (BERT, "is_decoder", serde_json::json!(true)),
        (GPT2, "scale_attn_by_inverse_layer_idx", serde_json::json!(true)),
        (GPT2, "scale_attn_weights", serde_json::json!(false)),
        (GPT2, "model_type", serde_json::json!("gpt5")),
    ] {
        let (field, description) = refused(&with(config, serde_json::json!({key: value})), None);
        assert_eq!(field, format!("config.{key}"), "{description}");
    }
    let several = with(LLAMA2, serde_json::json!({"num_experts": 4, "v_head_dim": 3}));
    assert_eq!(model(&several, None).unwrap_err().violations().len(), 2, "all of them at once");
    let heads = with(LLAMA2, serde_json::json!({"num_key_value_heads": 5}));
    let (field, description) = refused(&heads, None);
    assert_eq!(field, "config");
    assert!(description.contains("key_value_heads"), "{description}");
    assert_eq!(refused("{", None).0, "config");
    assert_eq!(refused("[]", None).0, "config");
    assert_eq!(refused("{}", None).0, "config.model_type");
}

/// Keys of rotary scaling that another type has, or that vision models read, change angles at most.
#[test]
fn keys_of_rotary_scaling_that_transformers_does_not_read_are_noted() {
    for scaling in [
        serde_json::json!({"rope_type": "yarn", "factor": 4.0, "attn_factor": 0.878}),
        serde_json::json!({"type": "dynamic", "factor": 4.0, "alpha": 1000.0}),
        serde_json::json!({"type": "linear", "factor": 2.0, "beta_fast": 32}),
        serde_json::json!({"rope_type": "default", "mrope_section": [16, 24, 24]}),
    ] {
        let unread = ["attn_factor", "alpha", "beta_fast", "mrope_section"];
        let key = unread.into_iter().find(|key| scaling.get(key).is_some()).unwrap();
        let config = with(LLAMA3, serde_json::json!({"rope_scaling": scaling}));
        // Scaling is kept beside the layers.
        assert_eq!(imported(&config).with_numerics(Numerics::default()), imported(LLAMA3));
        let notes = notes(&config);
        assert!(notes.last().unwrap().ends_with(&format!("rope_scaling.{key}")), "{notes:?}");
    }
}

/// `fixtures/written.json` has, per family, all keys with their defaults that `to_json_string` of versions 4.40.2, 4.44.2,
/// 4.46.3, 4.48.3, 4.51.3, 4.53.3, 4.55.4, 4.57.6, 5.0.0, 5.6.2, 5.12.1 and 5.24.0 of Transformers wrote.
#[test]
fn every_key_that_transformers_writes_is_accepted() {
    let written: serde_json::Map<String, Value> =
        serde_json::from_str(include_str!("fixtures/written.json")).unwrap();
    assert_eq!(written.len(), MODEL_TYPES.len());
    for (family, keys) in &written {
        let only_type = serde_json::json!({"model_type": family});
        let heads = keys.get("num_key_value_heads").cloned();
        let bare = match heads {
            // Versions differ in this default alone.
            Some(heads) => with(&only_type.to_string(), serde_json::json!({"num_key_value_heads": heads})),
            None => only_type.to_string(),
        };
        assert_eq!(imported(&keys.to_string()), imported(&bare), "{family}");
    }
}

#[test]
fn unknown_keys_are_refused_or_noted_as_the_caller_wants() {
    let config = with(
        LLAMA3,
        serde_json::json!({
            "brand_new": 1, "rope_scaling": {"type": "linear", "factor": 2.0, "brand_new": 1}
        }),
    );
    let mut ignoring = source(&config, None);
    ignoring.ignore_unknown_keys = true;
    let layers_alone = super::model(&ignoring, &always).unwrap().with_numerics(Numerics::default());
    assert_eq!(layers_alone, imported(LLAMA3));
    let last = super::notes(&ignoring).pop().unwrap();
    assert!(last.contains("rope_scaling.brand_new") && last.contains(", brand_new"), "{last}");
    let (field, why) = refused(&config, None);
    assert!(field == "config.rope_scaling.brand_new" && why.contains("`ignore_unknown_keys`"), "{why}");
    // Known keys that change the arithmetic are refused all the same.
    ignoring.config = with(LLAMA3, serde_json::json!({"num_local_experts": 8}));
    assert!(super::model(&ignoring, &always).is_err());
}

#[test]
fn a_quantized_checkpoint_is_planned_unquantized() {
    for method in ["fp8", "compressed-tensors", "modelopt", "gptq", "awq"] {
        let quantized = serde_json::json!({"quantization_config": {"quant_method": method, "bits": 4}});
        let config = with(LLAMA3, quantized);
        assert_eq!(imported(&config), imported(LLAMA3));
        assert!(notes(&config)[0].contains(method), "{:?}", notes(&config));
    }
    let (_, why) =
        refused(&with(LLAMA3, serde_json::json!({"quantization_config": {"load_in_4bit": true}})), None);
    assert!(why.contains("LoRA"), "{why}");
}

#[test]
fn literals_of_python_are_read() {
    let config = LLAMA2.replacen('{', "{\"time_step_limit\": [0.0, Infinity], ", 1);
    assert_eq!(refused(&config, None).0, "config.time_step_limit");
    let config = LLAMA2.replacen("1e-05", "NaN", 1);
    let (field, why) = refused(&config, None);
    assert!(field == "config.rms_norm_eps" && why.contains("NaN"), "{field}: {why}");
}

#[test]
fn what_another_type_of_model_lacks_is_named() {
    for (keys, capability) in [
        (serde_json::json!({"model_type": "qwen3_moe", "num_experts": 8}), "mixtures of experts"),
        (serde_json::json!({"model_type": "mixtral", "num_local_experts": 8}), "mixtures of experts"),
        (serde_json::json!({"model_type": "qwen3_vl", "text_config": {}}), "multimodal"),
        (serde_json::json!({"model_type": "mamba"}), "\"mamba\" is not supported. Use"),
    ] {
        let (field, why) = refused(&keys.to_string(), None);
        assert!(field == "config.model_type" && why.contains(capability), "{why}");
    }
}
