//! Models as lists of layers in JSON or YAML.
//!
//! ```yaml
//! family: mine
//! input: {kind: image, channels: 3, height: 32, width: 32}
//! layers:
//!   - {name: conv1, kind: conv2d, in_channels: 3, out_channels: 8, kernel: 3, stride: 1, padding: 1}
//!   - {name: relu1, kind: relu}
//!   - {name: flatten, kind: flatten}
//!   - {name: fc1, kind: linear, in_features: 8192, out_features: 10}
//! loss: cross_entropy
//! ```
//!
//! It is the form in which Loadmaster stores models, read strictly: a field that is not known is refused,
//! and what is wrong is named by its path.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Invalid, required};
use crate::model::layer::{Layer, LayerKind};
use crate::model::numerics::Numerics;
use crate::model::{Loss, MAX_LAYERS, Model, ModelInput};
use crate::name::checked_name;
use crate::wire::reading::meter::Limits;
use crate::wire::reading::{self, Wanted};

/// Longest name of a family or a layer, bytes.
const MAX_NAME: usize = 100;
/// Most fields of anything with a kind: far more than any kind has.
const MAX_FIELDS: usize = 64;
/// The fields of a model.
const FIELDS: [&str; 5] = ["family", "input", "layers", "loss", "numerics"];
/// Kinds of layers without fields, for which serde does not look for unknown ones.
const BARE_KINDS: [LayerKind; 2] = [LayerKind::Relu, LayerKind::Flatten];

/// # Errors
/// Names what is wrong by its path in the document.
pub(super) fn model(document: &str, wanted: Wanted<'_>) -> Result<Model, Invalid> {
    let mut fields = match reading::json_or_yaml(document, &Limits::BUILT, wanted)? {
        Value::Object(fields) => fields,
        other => {
            return Err(invalid!("", "{} is not a model. Use a map of {FIELDS:?}", form(&other)));
        }
    };
    if let Some(unknown) = fields.keys().find(|key| !FIELDS.contains(&key.as_str())) {
        return Err(invalid!(unknown, "is not a field of a model. Use {FIELDS:?}"));
    }
    let family = name("family", required("family", fields.remove("family"))?)?;
    let input = match required("input", fields.remove("input"))? {
        Value::Object(input) => tagged::<ModelInput>(&input).map_err(|invalid| invalid.under("input"))?,
        other => {
            return Err(invalid!("input", "{} is not a map. Use a map of fields", form(&other)));
        }
    };
    let layers = match required("layers", fields.remove("layers"))? {
        Value::Array(layers) if layers.len() <= MAX_LAYERS => layers,
        Value::Array(layers) => {
            return Err(invalid!("layers", "{} layers are too many. Use at most {MAX_LAYERS}", layers.len()));
        }
        other => {
            return Err(invalid!("layers", "{} is not a list. Use a list of layers", form(&other)));
        }
    };
    let layers: Vec<Layer> = layers
        .into_iter()
        .enumerate()
        .map(|(index, value)| {
            reading::check(wanted)?;
            layer(value).map_err(|invalid| invalid.under(&format!("layers[{index}]")))
        })
        .collect::<Result<_, _>>()?;
    let loss: Loss = match fields.remove("loss") {
        Some(loss) => Loss::deserialize(loss).map_err(|error| Invalid::field("loss", error.to_string()))?,
        None => Loss::default(),
    };
    let numerics = match fields.remove("numerics") {
        Some(numerics) => Numerics::deserialize(numerics)
            .map_err(|error| Invalid::field("", error.to_string()))
            .and_then(Numerics::checked)
            .map_err(|invalid| invalid.under("numerics"))?,
        None => Numerics::default(),
    };
    Ok(Model::new(family, input, layers)?.with_loss(loss).with_numerics(numerics))
}

fn layer(value: Value) -> Result<Layer, Invalid> {
    let mut fields = match value {
        Value::Object(fields) => fields,
        other => {
            return Err(invalid!("", "{} is not a map. Use a map of fields", form(&other)));
        }
    };
    let name = name("name", required("name", fields.remove("name"))?)?;
    required("kind", fields.get("kind"))?;
    let kind = kind(fields)?;
    Ok(Layer { name, kind })
}

fn kind(fields: Map<String, Value>) -> Result<LayerKind, Invalid> {
    let kind = tagged(&fields)?;
    match fields.keys().find(|key| *key != "kind") {
        Some(unknown) if BARE_KINDS.contains(&kind) => {
            Err(Invalid::field(unknown, "is not valid: layers of this kind have no fields. Remove it"))
        }
        _ => Ok(kind),
    }
}

/// One of several kinds of things, told apart by the field `kind`.
fn tagged<T: DeserializeOwned>(fields: &Map<String, Value>) -> Result<T, Invalid> {
    // To find the one to blame takes time that grows with their square.
    if fields.len() > MAX_FIELDS {
        return Err(invalid!(
            "",
            "has {} fields, more than any layer kind has. Remove the fields that the kind does not have",
            fields.len()
        ));
    }
    let read =
        |fields: &Map<String, Value>| T::deserialize(fields).map_err(|error| plain(&error.to_string()));
    read(fields).map_err(|description| {
        // The field that the description is about: without it, the complaint would be another one. Serde
        // does not say, because it looks for the kind first and keeps the other fields in a buffer.
        let is_there = !description.starts_with("missing field");
        let blamed = fields.keys().filter(|_| is_there).find(|key| {
            let mut rest = fields.clone();
            rest.remove(key.as_str());
            read(&rest).err().as_ref() != Some(&description)
        });
        Invalid::field(blamed.cloned().unwrap_or_default(), description)
    })
}

/// Serde's words with Rust's types in plain ones.
fn plain(description: &str) -> String {
    description
        .replace("expected i64", "expected a whole number")
        .replace("expected f64", "expected a number")
}

fn name(field: &str, value: Value) -> Result<String, Invalid> {
    match value {
        Value::String(name) => checked_name(field, &name, MAX_NAME).map(|()| name),
        other => Err(invalid!(field, "{} is not a text", form(&other))),
    }
}

/// What a value is, human-readable.
fn form(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::zoo::{AmoebaNet, Bert, Llama, TransGan, Zoo};
    use crate::wire::reading::always;

    const YAML: &str = "
family: mine
input: {kind: image, channels: 3, height: 32, width: 32}
layers:
  - {name: conv1, kind: conv2d, in_channels: 3, out_channels: 8, kernel: 3, stride: 1, padding: 1}
  - {name: relu1, kind: relu}
  - {name: flatten, kind: flatten}
  - {name: fc1, kind: linear, in_features: 8192, out_features: 10}
";

    fn read(document: &str) -> Result<Model, Invalid> {
        model(document, &always)
    }

    fn refused(document: &str) -> (String, String) {
        let invalid = read(document).unwrap_err();
        let [violation] = invalid.violations() else { panic!("{invalid}") };
        (violation.field.clone(), violation.description.clone())
    }

    #[test]
    fn yaml_and_json_are_the_same_model() {
        let model = read(YAML).unwrap();
        assert_eq!(model.edge(4), [[10]]);
        assert_eq!(read(&serde_json::to_string(&model).unwrap()).unwrap(), model);
        assert_eq!(read(&serde_yaml_ng::to_string(&model).unwrap()).unwrap(), model);
    }

    /// The form in which models are stored is the one that is documented.
    #[test]
    fn every_family_can_be_written_as_a_list_of_layers() {
        for zoo in [
            Zoo::Bert(Bert::default()),
            Zoo::Llama(Llama { key_value_heads: 4, ..Llama::default() }),
            Zoo::AmoebaNetD(AmoebaNet::default()),
            Zoo::TransGan(TransGan::default()),
        ] {
            let built = zoo.build().unwrap();
            assert_eq!(read(&serde_json::to_string_pretty(&built).unwrap()).unwrap(), built);
        }
    }

    /// A layer that is described in two ways has one fingerprint: its measurements are shared.
    #[test]
    fn what_is_spelt_out_though_it_is_the_default_changes_nothing() {
        let document = |more: &str| {
            format!(
                "{{family: mine, input: {{kind: tokens, sequence_length: 4, vocabulary_size: 9}}, layers: [
                   {{name: e, kind: token_embedding, vocabulary_size: 9, positions: 4, hidden_size: 8,
                     dropout: 0.0}},
                   {{name: b, kind: transformer_block, hidden_size: 8, heads: 2, feed_forward_size: 16,
                     dropout: 0.0{more}}}]}}"
            )
            .replace("{family", " {family")
        };
        // YAML, because JSON requires quoted keys: the parser distinguishes the two formats by the first character.
        let yaml = |more: &str| read(&format!("# yaml\n{}", document(more))).unwrap();
        let spelt = ", key_value_heads: 2, head_size: 4, attention_dropout: 0.0, qkv_bias: true, epsilon: 0.00001, norm: \
                     layer_norm, bidirectional: false";
        assert_eq!(yaml(spelt).layers()[1].kind.fingerprint(), yaml("").layers()[1].kind.fingerprint());
        assert_ne!(yaml(", key_value_heads: 1").id(), yaml("").id());
    }

    /// References to references would make a short text a huge value.
    #[test]
    fn a_document_that_unfolds_without_end_is_refused() {
        let mut levels = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let before = format!("*a{}", level - 1);
            levels += &format!("a{level}: &a{level} [{}]\n", [before.as_str(); 10].join(", "));
        }
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), ["*a"; 1000].join(", "));
        // The parser counts references, and Loadmaster what they unfold to.
        for (document, word) in [(levels, "repetition"), (long, "aliases are expanded")] {
            let (_, description) = refused(&document);
            assert!(description.contains(word), "{description}");
        }
        assert_eq!(refused(&"[".repeat(10_000)).0, "");
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        for (from, to, field, word) in [
            ("family: mine", "", "family", "required"),
            ("family: mine", "family: 3", "family", "a number"),
            ("family: mine", "family: mine\ncolour: red", "colour", "layers"),
            ("family: mine", "family: mine\nloss: hinge", "loss", "hinge"),
            ("channels: 3", "channels: three", "input.channels", "three"),
            ("channels: 3", "channels: 0", "input.channels", "0"),
            ("channels: 3", "channels: 4", "layers[0] (conv1)", "3 channels"),
            ("kind: image", "kind: sound", "input.kind", "sound"),
            ("name: conv1, ", "", "layers[0].name", "required"),
            ("kind: conv2d, ", "", "layers[0].kind", "required"),
            ("kind: conv2d", "kind: conv3d", "layers[0].kind", "conv3d"),
            ("kernel: 3, ", "", "layers[0]", "kernel"),
            ("kernel: 3", "kernel: wide", "layers[0].kernel", "a whole number"),
            ("kernel: 3", "kernel: 3, dilation: 2", "layers[0].dilation", "dilation"),
            ("kernel: 3", "kernel: -3", "layers[0] (conv1).kernel", "-3"),
            ("kernel: 3", "kernel: 2000000000", "layers[0] (conv1)", "out of range"),
            ("kind: relu", "kind: relu, slope: 0.1", "layers[1].slope", "have no fields"),
            ("in_features: 8192", "in_features: 8193", "layers[3] (fc1)", "8193 features"),
            ("{name: relu1, kind: relu}", "relu", "layers[1]", "a map"),
            ("input: {", "input: {{", "", "YAML"),
        ] {
            let document = YAML.replacen(from, to, 1);
            assert_ne!(document, YAML, "{from}");
            let (at, description) = refused(&document);
            assert_eq!(at, field, "{to}: {description}");
            assert!(description.contains(word), "{to}: {description}");
        }
        assert_eq!(refused("[]").0, "");
        assert_eq!(refused("{\"family\": \"x\"").0, "");
    }
}
