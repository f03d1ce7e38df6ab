//! Files as users have them: what is in them is imported, and what is missing is named.
//!
//! The files of `user_files/` are those of public questions, with details replaced. The expected figures are the models' published
//! ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::{Path, PathBuf};

use loadmaster_proto::model::import::{HuggingFaceConfig, MODEL_TYPES, ModelSource};

fn text(path: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/user_files");
    std::fs::read_to_string(folder.join(path)).unwrap()
}

fn source(config: String, ignore_unknown_keys: bool) -> ModelSource {
    ModelSource::HuggingFace(HuggingFaceConfig { config, sequence_length: None, ignore_unknown_keys })
}

/// Parameters and notes of a file.
fn model(path: &str) -> (u64, String) {
    let source = source(text(path), false);
    let model = source.build().unwrap_or_else(|invalid| panic!("{path}: {invalid}"));
    (model.parameter_count(), source.notes().join("; "))
}

fn refused(path: &str) -> String {
    source(text(path), false).build().unwrap_err().to_string()
}

#[test]
fn a_key_of_rotary_scaling_that_changes_angles_at_most_is_noted() {
    let (parameters, notes) = model("01-r1-qwen3-attn-factor/config.json");
    assert_eq!(parameters, 8_190_735_360);
    assert!(notes.contains("rope_scaling.attn_factor"), "{notes}");
}

#[test]
fn keys_of_saved_and_fine_tuned_checkpoints_are_noted() {
    for (file, named) in [
        ("smollm2.json", &["is_llama_config", "rope_interleaved"][..]),
        ("saved-by-transformers-4.46.json", &["_attn_implementation_autoset"]),
        ("unsloth.json", &["unsloth_version", "unsloth_fixed"]),
        ("classifier.json", &["num_labels", "LlamaForSequenceClassification has a head of its own"]),
    ] {
        let (parameters, notes) = model(&format!("02-llama-extra-keys/{file}"));
        assert_eq!(parameters, 1_711_376_384, "{file}");
        assert!(named.iter().all(|name| notes.contains(name)), "{file}: {notes}");
    }
}

#[test]
fn mixtures_of_experts_and_multimodal_models_are_refused_by_what_is_missing() {
    for file in ["Qwen3-235B-A22B.json", "Qwen3-30B-A3B.json"] {
        assert!(refused(&format!("04-qwen3-moe/{file}")).contains("mixtures of experts is missing"));
    }
    for file in ["Llama-4-Scout.json", "Qwen3-VL-8B.json", "gemma-4-26B-A4B.json"] {
        let why = refused(&format!("06-text-config-inside/{file}"));
        assert!(why.contains("multimodal") && why.contains("text_config"), "{why}");
    }
}

#[test]
fn a_quantized_checkpoint_is_planned_unquantized_unless_it_is_for_adapters() {
    let (parameters, notes) = model("07-fp8-checkpoint/Qwen3-32B-FP8.json");
    assert_eq!(parameters, 32_762_123_264);
    assert!(notes.contains("fp8") && notes.contains("unquantized"), "{notes}");
    let why = refused("07-fp8-checkpoint/bnb-4bit.json");
    assert!(why.contains("load_in_4bit") && why.contains("LoRA"), "{why}");
}

#[test]
fn infinity_as_python_writes_it_is_read() {
    let why = refused("08-infinity/nemotron-h-56b.json");
    assert!(why.contains("model_type") && why.contains("\"nemotron_h\" is not supported"), "{why}");
    let why = refused("08-infinity/llama-infinity.json");
    assert!(why.contains("time_step_limit"), "{why}");
    let ignoring = source(text("08-infinity/llama-infinity.json"), true);
    assert_eq!(ignoring.build().unwrap().parameter_count(), 584_320);
    assert!(ignoring.notes().join("; ").contains("time_step_limit"));
}

/// Configurations of models of 2025 and 2026 with their parameter counts, where `LOADMASTER_DATA` or the folder beside the
/// repository has them.
#[test]
fn published_configurations_are_imported_or_refused_by_their_type() {
    let folder = std::env::var_os("LOADMASTER_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"), PathBuf::from);
    let folder = folder.join("configs");
    let Ok(expected) = std::fs::read_to_string(folder.join("expect.tsv")) else {
        println!("SKIPPED: {} is not there; name its parent with LOADMASTER_DATA", folder.display());
        return;
    };
    let mut imported = 0;
    for line in expected.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [file, model_type, parameters, ..] = columns.as_slice() else { panic!("{line}") };
        let source = source(std::fs::read_to_string(folder.join(file)).unwrap(), false);
        match source.build() {
            Ok(model) => {
                assert_eq!(model.parameter_count().to_string(), *parameters, "{file}");
                imported += 1;
            }
            Err(invalid) => {
                assert!(!MODEL_TYPES.contains(model_type), "{file}: {invalid}");
                assert!(invalid.to_string().contains("model_type"), "{file}: {invalid}");
            }
        }
    }
    assert!(imported > 0);
}
