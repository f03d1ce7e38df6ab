//! Holds the documentation of profile documents (`deploy/profile/keys.md`) to the code: every key that is read has
//! a row, every row is of a key that is read, and the row of a key with a list of values names all of them.
//!
//! Keys are found in two ways, neither of which is a second list. Reading a document with a key too many fails
//! where its type is strict, and the error lists the keys that are known there; writing a document that has
//! everything shows the others.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::{BTreeMap, BTreeSet};

use loadmaster_proto::model::zoo::{AmoebaNet, Bert, Llama, TransGan, Vgg, Zoo};
use loadmaster_proto::profile::document::ProfileDocument;
use loadmaster_samples::{document, foreign, own};
use serde_json::{Map, Value, json};

const DOCUMENTED: &str = include_str!("../../deploy/profile/keys.md");
/// A key and a value that nothing has.
const PROBE: &str = "probe_of_a_test";

/// Keys by their paths, with the values that they may have where these are listed.
type Keys = BTreeMap<String, BTreeSet<String>>;

/// Documents that have every kind of everything between them.
fn documents() -> Vec<Value> {
    let zoo = [
        Zoo::Vgg11(Vgg { image_size: 32, ..Vgg::default() }),
        Zoo::Bert(Bert::default()),
        Zoo::Llama(Llama::default()),
        Zoo::AmoebaNetD(AmoebaNet { cells: 3, filters: 16, image_size: 64, classes: 10 }),
        Zoo::TransGan(TransGan::default()),
    ];
    let known = zoo.into_iter().map(|zoo| {
        let model = zoo.build().unwrap();
        let bytes = json!([{"micro_batch_size": 1, "tensor_degree": 1}]);
        let rows = json!([{"first_layer": 0, "last_layer": model.layers().len() - 1, "bytes": bytes}]);
        let known = json!({"known": serde_json::to_value(&model).unwrap()});
        document(known, "adam", json!({"layer_table": {"layers": rows}}))
    });
    [foreign(), own()].into_iter().chain(known).collect()
}

/// What stands between backticks.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// What an error says that it would have taken instead of the probe.
fn expected(value: &Value, what: &str) -> Option<BTreeSet<String>> {
    let error = ProfileDocument::parse(&value.to_string()).err()?.to_string();
    let (_, listed) = error.split_once(&format!("unknown {what} `{PROBE}`, expected "))?;
    let (listed, _) = listed.split_once(" at line").unwrap_or((listed, ""));
    Some(quoted(listed))
}

/// The path of an object among its siblings: objects of several kinds are distinguished by their `kind`.
fn of_kind(path: &str, object: &Map<String, Value>) -> String {
    match object.get("kind").and_then(Value::as_str) {
        Some(kind) => format!("{path}.{kind}"),
        None => path.to_owned(),
    }
}

/// Goes through `value`, which is at `pointer` of `whole` and documented as `path`.
fn walk(
    whole: &Value,
    pointer: &str,
    value: &Value,
    path: &str,
    keys: &mut Keys,
    seen: &mut BTreeSet<String>,
) {
    match value {
        Value::Object(object) => {
            let path = of_kind(path, object);
            let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            if seen.insert(path.clone()) {
                let mut probed = whole.clone();
                probed.pointer_mut(pointer).unwrap()[PROBE] = json!(1);
                for key in expected(&probed, "field").unwrap_or_default() {
                    keys.entry(below(&key)).or_default();
                }
            }
            for (key, value) in object {
                let (pointer, path) = (format!("{pointer}/{key}"), below(key));
                let values = keys.entry(path.clone()).or_default();
                if value.is_string() && values.is_empty() {
                    let mut probed = whole.clone();
                    *probed.pointer_mut(&pointer).unwrap() = json!(PROBE);
                    values.extend(expected(&probed, "variant").unwrap_or_default());
                }
                walk(whole, &pointer, value, &path, keys, seen);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(whole, &format!("{pointer}/{index}"), item, &format!("{path}[]"), keys, seen);
            }
        }
        _ => {}
    }
}

/// The row in which a key is documented: things of one form have one set of rows.
fn row_of(path: &str) -> String {
    let path =
        path.replace("settings.training.", "training.").replace("environment.after.", "environment.before.");
    let passages = ["first.", "later.", "without_graph.", "untrained_input[]."];
    let path = passages.iter().fold(path, |path, of| path.replace(&format!(".tape.{of}"), ".tape.passage."));
    for tagged in ["training.optimizer", "model.known.input", "model.known.layers[]"] {
        if let Some((_, shared @ ("kind" | "name"))) =
            path.strip_prefix(&format!("{tagged}.")).and_then(|rest| rest.split_once('.'))
        {
            return format!("{tagged}.{shared}");
        }
    }
    path
}

/// Every key that the code reads.
fn read() -> Keys {
    let (mut keys, mut seen) = (Keys::new(), BTreeSet::new());
    for document in documents() {
        let parsed = ProfileDocument::parse(&document.to_string()).unwrap();
        // As it is written: with the keys that the sample leaves out.
        let written = serde_json::to_value(&parsed).unwrap();
        walk(&written, "", &written, "", &mut keys, &mut seen);
    }
    let mut rows = Keys::new();
    for (path, values) in keys {
        rows.entry(row_of(&path)).or_default().extend(values);
    }
    rows
}

/// Every row: the key between the first backticks, and its text.
fn documented() -> BTreeMap<String, String> {
    let rows = DOCUMENTED.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let key = line.split('`').nth(1).unwrap().to_owned();
        (key, line.to_owned())
    })
    .collect()
}

#[test]
fn every_key_that_is_read_is_documented_and_every_documented_key_is_read() {
    let (read, documented) = (read(), documented());
    let missing: Vec<&String> = read.keys().filter(|key| !documented.contains_key(*key)).collect();
    assert!(missing.is_empty(), "deploy/profile/keys.md has no row of {missing:#?}");
    let unknown: Vec<&String> = documented.keys().filter(|key| !read.contains_key(*key)).collect();
    assert!(unknown.is_empty(), "deploy/profile/keys.md has rows of keys that nothing reads: {unknown:#?}");
}

#[test]
fn the_row_of_a_key_with_certain_values_names_them_all() {
    let (read, documented) = (read(), documented());
    for (key, values) in &read {
        let named = quoted(&documented[key]);
        let missing: Vec<&String> = values.iter().filter(|value| !named.contains(*value)).collect();
        assert!(missing.is_empty(), "the row of {key} does not name {missing:?}");
    }
    assert!(read["training.precision"].contains("bf16_fp32_gradients"), "values are found");
}

/// The samples reach everything: all kinds of layers, inputs and optimizers, and keys that only an error message lists.
#[test]
fn the_keys_that_the_issue_names_are_among_them() {
    let read = read();
    for key in [
        "layer_table.times_without_collectives",
        "layer_table.margin",
        "layer_table.copies_bytes_per_parameter",
        "layer_table.overhead_bytes",
        "layer_table.layers[].bytes[].transient_bytes",
        "layer_table.layers[].bytes[].exchanged_bytes",
        "model.known.layers[].transformer_block.rotary_base",
        "training.optimizer.adamw.weight_decay",
        "measurements[].measurement.tape.passage.blocks",
    ] {
        assert!(read.contains_key(key), "{key}");
    }
    let found = |path: &str| -> BTreeSet<String> {
        let below = read.keys().filter_map(|key| key.strip_prefix(path)?.strip_prefix('.'));
        below.filter_map(|rest| Some(rest.split_once('.')?.0.to_owned())).collect()
    };
    for path in ["model.known.input", "training.optimizer"] {
        assert_eq!(found(path), read[&format!("{path}.kind")], "{path}: samples of all kinds");
    }
    let mut kinds = found("model.known.layers[]");
    kinds.extend(["relu", "flatten"].map(str::to_owned));
    assert_eq!(kinds, read["model.known.layers[].kind"], "samples of all kinds; two have no fields");
}
