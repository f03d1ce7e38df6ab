//! Pins that a document comes back as it was written, and that each way of being wrong is named.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::accounting::Accounting;
use crate::model::zoo::{Gpt2, Zoo};

/// Two opaque layers with everything that a document can say of them.
fn example() -> Value {
    json!({
        "format": FORMAT,
        "provenance": {
            "source": "somebody's cluster", "tool": "somebody's profiler", "device_kind": "NVIDIA H200",
            "framework": "torch", "framework_version": "2.11.0", "ledger": "reserved"
        },
        "model": {"opaque": {"name": "Two Layers", "layers": [
            {"name": "first", "parameter_count": 10}, {"name": "second"}
        ]}},
        "training": {
            "precision": "bf16",
            "optimizer": {"kind": "adam", "learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999,
                          "epsilon": 1e-8, "weight_decay": 0.0},
            "schedule": "one_f_one_b", "micro_batch_size": 8, "micro_batches": 4, "recompute": "none", "seed": 0
        },
        "stages": [{
            "first_layer": 0, "last_layer": 1, "stage_index": 0, "stage_count": 1, "micro_batch_size": 8,
            "in_flight": 1, "peak_bytes": 1000, "ledger": "allocated", "forward_seconds": 0.5
        }],
        "layer_table": {"times_without_collectives": false, "layers": [{
            "first_layer": 0, "last_layer": 1,
            "times": [{"micro_batch_size": 1, "tensor_degree": 2, "forward_seconds": 0.25,
                       "backward_seconds": 0.5, "update_seconds": 0.125}],
            "bytes": [{"micro_batch_size": 1, "tensor_degree": 2, "parameter_bytes": 20,
                       "activation_bytes": 30, "output_bytes": 5}],
            "memory": [{"micro_batch_size": 4, "in_flight": 2, "degree": 1, "isolated_bytes": 100,
                        "added_bytes": -3}]
        }]}
    })
}

fn parsed(value: &Value) -> Result<ProfileDocument, DocumentError> {
    ProfileDocument::parse(&value.to_string())
}

#[test]
fn a_document_survives_its_text() {
    let document = parsed(&example()).unwrap();
    assert_eq!(ProfileDocument::parse(&document.to_text().unwrap()).unwrap(), document);
    assert_eq!(document.model.layer_names(), ["first", "second"]);
    assert_eq!(document.model.id().split_once("layers-").map(|(name, _)| name), Some("two-"));
    assert_eq!(document.stages[0].degree, 1);
    let table = document.layer_table.unwrap();
    assert_eq!(table.layer(1).and_then(|rows| rows.bytes_at(1, 2)).unwrap().activation_bytes, Some(30));
    assert!(table.layer(2).is_none() && table.has_metrics());
    assert_eq!(document.provenance.ledger, Accounting::Reserved);
}

/// Pins that files of this version stay readable, and that the shipped example is right.
#[test]
fn the_shipped_example_is_a_document() {
    let document = ProfileDocument::parse(include_str!("../../../../deploy/profile/table.json")).unwrap();
    assert_eq!(document.model.layer_count(), 4);
    assert!(document.layer_table.unwrap().layer(2).and_then(|rows| rows.bytes_at(1, 2)).is_some());
}

#[test]
fn an_element_of_a_list_is_one_line_and_keys_that_say_nothing_are_left_out() {
    let text = parsed(&example()).unwrap().to_text().unwrap();
    assert!(text.starts_with("{\n  \"format\": \"loadmaster.profile/1\",\n"), "{text}");
    let stage = text.lines().find(|line| line.contains("\"peak_bytes\":1000")).unwrap();
    assert!(stage.starts_with("    {") && stage.ends_with('}'), "{stage}");
    assert!(!text.contains("\"measurements\"") && text.ends_with("}\n"), "{text}");
}

#[test]
fn a_known_model_is_checked_as_any_model_is() {
    let model = Zoo::Gpt2(Gpt2::default()).build().unwrap();
    let mut value = example();
    value["model"] = json!({"known": serde_json::to_value(&model).unwrap()});
    value["layer_table"]["layers"][0]["last_layer"] = json!(model.layers().len() - 1);
    let document = parsed(&value).unwrap();
    assert_eq!(document.model.model().unwrap(), &model);
    value["model"]["known"]["layers"].as_array_mut().unwrap().remove(0);
    assert!(parsed(&value).unwrap_err().to_string().starts_with("model"), "{}", parsed(&value).unwrap_err());
}

/// Pins that the id follows from the content and not from how it was written down.
#[test]
fn the_digest_ignores_spaces_and_the_order_of_keys() {
    let document = parsed(&example()).unwrap();
    let again = ProfileDocument::parse(&serde_json::to_string_pretty(&example()).unwrap()).unwrap();
    assert_eq!(document.digest(), again.digest());
    let mut other = example();
    other["stages"][0]["peak_bytes"] = json!(1001);
    assert_ne!(document.digest(), parsed(&other).unwrap().digest());
}

#[test]
fn what_is_wrong_is_named() {
    let set = |path: &str, to: Value| {
        let mut value = example();
        value["layer_table"]["margin"] = json!(0.05);
        value["layer_table"]["copies_bytes_per_parameter"] = json!(8);
        *value.pointer_mut(path).unwrap() = to;
        value
    };
    let mut misspelt = example();
    misspelt["stages"][0]["peak_byte"] = json!(5);
    let mut momentum = example();
    momentum["training"]["optimizer"]["momentum"] = json!(0.9);
    let mut empty = example();
    empty["stages"] = json!([]);
    empty.as_object_mut().unwrap().remove("layer_table");
    let mut twice = example();
    let row = twice["layer_table"]["layers"][0]["times"][0].clone();
    twice["layer_table"]["layers"][0]["times"].as_array_mut().unwrap().push(row);
    for (value, words) in [
        (set("/format", json!("loadmaster.profile/2")), "format: \"loadmaster.profile/2\" is not"),
        (set("/stages/0/last_layer", json!(2)), "stages[0].last_layer: 2 is out of range. Use 0 to 1"),
        (set("/stages/0/peak_bytes", json!(-1)), "stages[0].peak_bytes"),
        (set("/stages/0/forward_seconds", json!(-1.0)), "stages[0].forward_seconds: -1"),
        (set("/stages/0/micro_batch_size", json!(0)), "stages[0].micro_batch_size: 0"),
        (
            set("/layer_table/layers/0/first_layer", json!(1)),
            "layer_table.layers[0].first_layer: 1 is not valid. Use 0",
        ),
        (set("/layer_table/layers/0/last_layer", json!(0)), "layer_table.layers: cover only 1 layers"),
        (set("/layer_table/layers/0/times/0/tensor_degree", json!(0)), "times[0].tensor_degree: 0"),
        (set("/layer_table/times_without_collectives", json!(1)), "layer_table.times_without_collectives"),
        (set("/layer_table/margin", json!(1.5)), "layer_table.margin: 1.5 is out of range. Use 0 to 1"),
        (set("/layer_table/copies_bytes_per_parameter", json!(65)), "copies_bytes_per_parameter: 65"),
        (set("/model/opaque/layers", json!([])), "model.opaque.layers: 0"),
        (set("/training/micro_batches", json!(0)), "training.micro_batches: 0"),
        (set("/provenance/tool", json!("")), "provenance.tool: is empty"),
        (misspelt, "stages[0].peak_byte: unknown field `peak_byte`"),
        (momentum, "training.optimizer: unknown field `momentum`"),
        (empty, "stages: is empty"),
        (twice, "times[1]: repeats a setting. Keep one row"),
    ] {
        let error = parsed(&value).unwrap_err().to_string();
        assert!(error.contains(words), "{error:?} lacks {words:?}");
    }
    let text = " ".repeat(MAX_DOCUMENT_BYTES + 1);
    assert!(matches!(ProfileDocument::parse(&text), Err(DocumentError::TooLong { .. })));
}

/// No one can tell from seconds of shards whether their collectives are among them, and a wrong guess counts
/// them twice or never: a document with such rows says so, and is refused by the key's name where it does not.
#[test]
fn times_of_shards_say_whether_collectives_are_in_them() {
    let mut silent = example();
    silent["layer_table"].as_object_mut().unwrap().remove("times_without_collectives");
    let error = parsed(&silent).unwrap_err().to_string();
    assert!(error.starts_with("layer_table.times_without_collectives: is required"), "{error}");
    for said in [true, false] {
        let mut value = example();
        value["layer_table"]["times_without_collectives"] = json!(said);
        let document = parsed(&value).unwrap();
        let again = ProfileDocument::parse(&document.to_text().unwrap()).unwrap();
        assert_eq!(again.layer_table.unwrap().times_without_collectives, Some(said));
    }
    silent["layer_table"]["layers"][0]["times"][0]["tensor_degree"] = json!(1);
    assert!(parsed(&silent).is_ok(), "whole layers sum nothing");
}

#[test]
fn an_opaque_chain_cannot_be_trained() {
    let document = parsed(&example()).unwrap();
    let error = document.model.model().unwrap_err().to_string();
    assert!(
        error.contains("has layer names, but no layer definitions")
            && error.contains("full model definition"),
        "{error}"
    );
}

proptest! {
    /// A bent document is an error or another document, which is written and read once more.
    #[test]
    fn bent_text_is_refused_or_means_something(position in 0_usize..2_000, byte in 0_u8..128) {
        let mut text = example().to_string().into_bytes();
        let position = position % text.len();
        text[position] = byte;
        let text = String::from_utf8(text).unwrap();
        if let Ok(document) = ProfileDocument::parse(&text) {
            prop_assert_eq!(ProfileDocument::parse(&document.to_text().unwrap()).unwrap(), document);
        }
    }
}
