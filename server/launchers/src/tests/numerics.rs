//! Settings of a model that change values alone reach the files, or are named in a warning.

use std::collections::BTreeMap;

use loadmaster_proto::model::Model;
use loadmaster_proto::model::import::{HuggingFaceConfig, ModelSource};
use loadmaster_proto::plan::Plan;
use loadmaster_samples::{CutTransformer, Degrees, DescribedTransformer};

use crate::exporters;

use super::{ask, case};

/// A small Llama with what a configuration says besides, and a plan for it.
fn llama(besides: serde_json::Value, stages: Vec<usize>) -> (Plan, Model) {
    let case = case(stages, Degrees::All(1), Degrees::All(1));
    let model = DescribedTransformer {
        family: "llama".to_owned(),
        positions: 0,
        rotary_base: 500_000,
        key_value_heads: 12,
        feed_forward: 96,
        tied: false,
        ..case.model
    };
    let case = CutTransformer { model, ..case };
    let blocks: usize = case.stages.iter().sum();
    let mut config = serde_json::json!({
        "model_type": "llama", "hidden_size": 24, "intermediate_size": 96, "num_hidden_layers": blocks,
        "num_attention_heads": 12, "num_key_value_heads": 12, "vocab_size": 100, "max_position_embeddings": 16,
        "tie_word_embeddings": false, "rope_theta": 500_000.0,
    });
    for (key, value) in besides.as_object().unwrap() {
        config[key] = value.clone();
    }
    let source = ModelSource::HuggingFace(HuggingFaceConfig {
        config: config.to_string(),
        sequence_length: None,
        ignore_unknown_keys: false,
    });
    (case.plan(), source.build().unwrap())
}

/// Everything that an export writes: its command and its files; and its warnings.
fn exported(framework: &crate::Exporter, plan: &Plan, model: &Model) -> Option<(String, Vec<String>)> {
    let version = framework.target.version.to_string();
    let export = ask(framework.target.framework, &version, plan, Some(model)).ok()?;
    let files: BTreeMap<String, String> =
        export.files.into_iter().map(|file| (file.name, file.contents)).collect();
    let text = files.into_values().chain(export.command).collect::<Vec<String>>().join(" ");
    Some((text, export.warnings.into_iter().map(|of| of.message).collect()))
}

#[test]
fn megatron_gets_the_scaling_of_rotary_positions() {
    let scaling = serde_json::json!({"rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
    }});
    let (plan, model) = llama(scaling, vec![2, 2]);
    let megatron = exporters().iter().find(|of| of.target.framework.to_string() == "megatron").unwrap();
    let (text, warnings) = exported(megatron, &plan, &model).unwrap();
    assert!(text.contains("--use-rope-scaling --rope-scaling-factor 8"), "{text}");
    assert!(!warnings.iter().any(|told| told.contains("rotary positions are scaled")), "{warnings:?}");
    let linear = serde_json::json!({"rope_scaling": {"type": "linear", "factor": 2.0}});
    let (plan, model) = llama(linear, vec![2, 2]);
    assert!(exported(megatron, &plan, &model).unwrap().0.contains("--rotary-seq-len-interpolation-factor 2"));
}

/// Whatever an importer leaves to values alone: of each the files say it, or a warning names it, for every framework that takes the
/// plan. Without it nothing is said.
#[test]
fn every_export_sets_or_names_what_changes_values() {
    let facts = [
        (
            serde_json::json!({"rope_scaling": {"rope_type": "llama3", "factor": 3.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}),
            "3",
            "rotary positions are scaled",
        ),
        (
            serde_json::json!({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 777}}),
            "777",
            "rotary positions are scaled",
        ),
        (
            serde_json::json!({"rope_scaling": {"type": "linear", "factor": 7.0}}),
            "7",
            "rotary positions are scaled",
        ),
        (
            serde_json::json!({"rope_scaling": {"type": "linear", "factor": 2.5}}),
            "2.5",
            "rotary positions are scaled",
        ),
        (
            serde_json::json!({"rope_scaling": {"type": "dynamic", "factor": 5.0}}),
            "5",
            "rotary positions are scaled",
        ),
        (
            serde_json::json!({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 33}}),
            "33",
            "rotary positions are scaled",
        ),
        (
            serde_json::json!({"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [2.0]}}),
            "longrope",
            "rotary positions are scaled",
        ),
        (serde_json::json!({"initializer_range": 0.0625}), "0.0625", "standard deviation"),
    ];
    for stages in [vec![4], vec![2, 2]] {
        let (plain_plan, plain) = llama(serde_json::json!({}), stages.clone());
        for (besides, number, named) in &facts {
            let (plan, model) = llama(besides.clone(), stages.clone());
            assert_ne!(model.id(), plain.id(), "it is another model: {besides}");
            let mut said = 0;
            for exporter in exporters() {
                let Some((before, quiet)) = exported(exporter, &plain_plan, &plain) else { continue };
                assert!(!quiet.iter().any(|told| told.contains(named)), "{quiet:?}");
                let (after, warnings) = exported(exporter, &plan, &model).unwrap();
                let is_named = warnings.iter().any(|told| told.contains(named) && told.contains(number));
                // What is in the files now and was not before.
                let new = after.split_whitespace().filter(|word| !before.contains(*word));
                let is_set = new.into_iter().any(|word| word.contains(number));
                assert!(is_named || is_set, "{} {besides}: {warnings:?}", exporter.target.framework);
                said += 1;
            }
            assert!(said > 5, "{said} frameworks take the plan");
        }
    }
}
