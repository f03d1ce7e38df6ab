//! Whatever number or text a document has in place of another, it is refused by name or means something: no sum
//! overflows, and nothing that cannot be stored gets in.

use std::cell::Cell;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::Cluster;
use loadmaster_proto::cluster::import::{ClusterFormat, ImportOptions, import, import_while};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::import::{HuggingFaceConfig, LayerList, ModelSource};
use loadmaster_proto::model::zoo::{Vgg, Zoo};
use loadmaster_proto::profile::document::{DocumentError, ProfileDocument, Subject};
use loadmaster_proto::wire::reading::Wanted;
use loadmaster_proto::wire::v1;
use loadmaster_samples::{Bent, bent, foreign, own};
use serde_json::{Value, json};

/// What an error names must be where the document was bent, or what contradicts it.
fn check_named(bent: &Bent, field: &str, why: &str) {
    let root = |path: &str| path.split(['.', '[']).next().unwrap_or_default().to_owned();
    let (bent_root, named) = (root(&bent.path), root(field));
    // Model, settings and training are held against each other and against what is said of the model.
    let is_shared = ["model", "settings", "training"].contains(&bent_root.as_str());
    assert!(
        named == bent_root || is_shared && !named.is_empty(),
        "{} = {}: the error names {field:?}: {why}",
        bent.path,
        bent.value
    );
    assert!(!why.is_empty() && why.len() < 200_000);
}

fn invalid(error: DocumentError) -> Invalid {
    error.into()
}

/// What is made of a model must be finite.
fn check_model(model: &Model) {
    assert!(model.layers().iter().all(|layer| !layer.name.contains(char::is_control)));
    let _ = (model.parameter_count(), model.id(), v1::Model::from(model));
}

#[test]
fn a_profile_document_with_any_value_bent_is_refused_by_name_or_means_something() {
    let table: Value = serde_json::from_str(include_str!("../../deploy/profile/table.json")).unwrap();
    let (mut taken, mut refused) = (0, 0);
    for whole in [table, foreign(), own()] {
        ProfileDocument::parse(&whole.to_string()).unwrap();
        for bent in bent(&whole) {
            let document = match ProfileDocument::parse(&bent.text) {
                Ok(document) => document,
                Err(error) => {
                    let invalid = invalid(error);
                    let violation = &invalid.violations()[0];
                    // A number that no format holds is none of JSON's.
                    if !violation.description.starts_with("is not valid JSON") {
                        check_named(&bent, &violation.field, &violation.description);
                    }
                    refused += 1;
                    continue;
                }
            };
            taken += 1;
            let text = document.to_text().unwrap();
            assert!(!text.contains("\\u0000"), "{} = {}", bent.path, bent.value);
            assert_eq!(ProfileDocument::parse(&text).unwrap(), document, "{} = {}", bent.path, bent.value);
            let _ = (document.digest().unwrap(), document.model.id(), document.model.total_parameters());
            if let Subject::Known(model) = &document.model {
                check_model(model);
            }
            for of in &document.measurements {
                let wire = v1::Measurement::from(&of.measurement);
                assert!(wire.peak_allocated_bytes >= 0 && wire.iteration_seconds.is_finite());
            }
        }
    }
    assert!(taken > 100 && refused > 1_000, "{taken} taken, {refused} refused");
}

/// Nonsense that was taken before, each refused by the key that has it.
#[test]
fn nonsense_is_refused_by_its_key() {
    let cases = [
        ("/measurements/0/measurement/micro_batch_size", json!(0)),
        ("/measurements/0/measurement/in_flight", json!(0)),
        ("/measurements/0/measurement/iteration_seconds", json!(1e308)),
        ("/measurements/0/measurement/step_seconds", json!(1e300)),
        ("/measurements/0/measurement/peak_allocated", json!(u64::MAX)),
        ("/measurements/0/measurement/peak_reserved", json!(u64::MAX)),
        ("/measurements/0/measurement/static_bytes/gradients", json!(u64::MAX)),
        ("/measurements/0/measurement/capacity", json!(u64::MAX)),
        ("/measurements/0/measurement/layers/0/forward_seconds", json!(1e308)),
        ("/measurements/0/measurement/layers/0/layer", json!(7)),
        ("/measurements/0/measurement/environment/threads", json!(u32::MAX)),
        ("/measurements/0/measurement/environment/device_kind", json!("a/b")),
        ("/measurements/0/measurement/tape/layer", json!(7)),
        ("/measurements/0/measurement/tape/overhead", json!(u64::MAX)),
        ("/measurements/0/measurement/tape/content", json!("a\u{1b}b")),
        ("/settings/deadline_seconds", json!(0)),
        ("/settings/deadline_seconds", json!(u32::MAX)),
        ("/settings/min_capacity", json!(u64::MAX)),
        ("/settings/device_kind", json!("")),
        ("/settings/device_kind", json!("gpu\u{7f}")),
        ("/provenance/device_kind", json!("gpu/0")),
        ("/model/known/family", json!("a/b")),
        ("/model/known/layers/1/name", json!("a\nb")),
        ("/model/known/layers/1/name", json!("x".repeat(1_000))),
    ];
    for (pointer, value) in cases {
        let mut whole = own();
        *whole.pointer_mut(pointer).unwrap() = value;
        let refused = invalid(ProfileDocument::parse(&whole.to_string()).unwrap_err());
        let path = pointer.trim_start_matches('/').replace('/', ".");
        let path = path.replace(".0", "[0]").replace(".1", "[1]");
        assert_eq!(refused.violations()[0].field, path, "{refused}");
    }
    let blocks = "/measurements/0/measurement/tape/later/blocks";
    let mut whole = own();
    *whole.pointer_mut(blocks).unwrap() = json!([u64::MAX, u64::MAX]);
    let refused = invalid(ProfileDocument::parse(&whole.to_string()).unwrap_err());
    assert_eq!(refused.violations()[0].field, "measurements[0].measurement.tape.later.blocks", "{refused}");
    let mut whole = foreign();
    whole["model"]["opaque"]["layers"][1]["parameter_count"] = json!(u64::MAX);
    let refused = invalid(ProfileDocument::parse(&whole.to_string()).unwrap_err());
    assert_eq!(refused.violations()[0].field, "model.opaque.layers[1].parameter_count", "{refused}");
    let mut whole = foreign();
    whole["layer_table"]["layers"][0]["memory"][0]["added_bytes"] = json!(i64::MIN);
    let refused = invalid(ProfileDocument::parse(&whole.to_string()).unwrap_err());
    assert_eq!(refused.violations()[0].field, "layer_table.layers[0].memory[0].added_bytes", "{refused}");
    assert_eq!(invalid(ProfileDocument::parse("  ").unwrap_err()).to_string(), "is empty");
}

/// A short text must not stand for much memory, whatever it is made of.
#[test]
fn a_profile_document_that_explodes_is_refused_before_it_is_built() {
    let with = |key: &str, value: String| {
        let whole = own().to_string();
        format!("{}, \"{key}\": {value}}}", whole.strip_suffix('}').unwrap())
    };
    for (text, word) in [
        (with("stages", format!("[{}0]", "0,".repeat(5_000_000))), "more than 4000000 values"),
        (with("stages", format!("[{}0]", "{},".repeat(500_000))), "more than 400000 maps"),
        (
            with("stages", format!("{}0{}", "[".repeat(100), "]".repeat(100))),
            "nested levels of lists and maps",
        ),
        (with("stages", format!("[{{\"{}\": 0}}]", "k".repeat(1_000))), "a key of 1000 bytes"),
        (with("notes", format!("\"{}\"", "x".repeat(1 << 20))), "Use at most 65536"),
        (with("notes", "\"a\\u0000\"".to_owned()), "NUL"),
        (
            with(
                "more",
                format!("{{{}\"z\": 0}}", (0..100).map(|n| format!("\"k{n}\": 0, ")).collect::<String>()),
            ),
            "64 keys",
        ),
    ] {
        let refused = invalid(ProfileDocument::parse(&text).unwrap_err());
        assert!(refused.to_string().contains(word), "{word}: {refused}");
        assert!(!refused.violations()[0].field.is_empty(), "{refused}");
    }
}

/// No one waits for a document that no one wants.
#[test]
fn a_document_that_is_not_wanted_any_more_is_not_read() {
    let text = format!("[{}0]", "0,".repeat(100_000));
    let refused = invalid(ProfileDocument::parse_while(&text, &|| false).unwrap_err());
    assert!(refused.to_string().contains("the call was cancelled"), "{refused}");
}

/// Something that is read: how many things it has at least that are made one after the other, and how it is read.
type Reading = (&'static str, usize, Box<dyn Fn(Wanted<'_>) -> Result<(), Invalid>>);

/// Each form of a model.
fn model_readings() -> Vec<Reading> {
    let layer = |index: usize| json!({"name": format!("l{index}"), "kind": "linear", "in_features": 8, "out_features": 8});
    let layers = json!({
        "family": "long", "input": {"kind": "vector", "size": 8}, "layers": (0..1_500).map(layer).collect::<Vec<_>>(),
    });
    let list = |document: String| ModelSource::LayerList(LayerList { document });
    let config = json!({"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 8}).to_string();
    let sources = [
        ("the zoo", 1, ModelSource::Zoo(Zoo::Vgg11(Vgg::default()))),
        ("layers as JSON", 1_500, list(layers.to_string())),
        ("layers as YAML", 1_500, list(format!("# YAML, as all JSON is\n{layers}"))),
        ("config.json", 2, ModelSource::HuggingFace(HuggingFaceConfig { config, ..Default::default() })),
    ];
    let reading = |(what, things, source): (_, _, ModelSource)| -> Reading {
        (what, things, Box::new(move |wanted| source.build_while(wanted).map(drop)))
    };
    sources.into_iter().map(reading).collect()
}

/// A cluster of 100 nodes.
const WRITTEN: &str = "format: loadmaster.cluster/1\nkinds: [{name: H, memory: 80GiB}]\ntiers: [{level: leaf}]\n\
    domains: [{level: leaf, name: s, nodes: 'h[0-99]'}]\n\
    nodes: [{name: 'h[0-99]', kind: H, devices: 8, network: {bandwidth: 400Gb/s}}]\n";

/// Each form of a cluster, of 100 nodes where it says which there are.
fn cluster_readings() -> Vec<Reading> {
    let nodes = || 0..100;
    let instances: Vec<Value> =
        nodes().map(|node| json!({"id": format!("n{node}"), "network_layers": ["s"]})).collect();
    let xml = format!(
        "<system>{}<cpu><pci busid='0'><gpu dev='0' sm='90'/></pci></cpu></system>",
        "<!-- long -->".repeat(600)
    );
    let switches: String = nodes().map(|node| format!("SwitchName=s{node} Nodes=n{node}\n")).collect();
    let blocks: Vec<Value> =
        nodes().map(|node| json!({"block": format!("b{node}"), "nodes": format!("n{node}")})).collect();
    let topology = json!([{"topology": "t", "block": {"blocks": blocks}}]).to_string();
    let matrix = format!("{}      GPU0 GPU1\nGPU0  X NV18\nGPU1 NV18 X\n", "noise\n".repeat(100));
    let files = [
        ("written", 100, ClusterFormat::Loadmaster, WRITTEN.to_owned()),
        ("Topograph", 200, ClusterFormat::Topograph, json!({"instances": instances}).to_string()),
        ("NCCL", 4, ClusterFormat::NcclXml, xml),
        ("topology.conf", 200, ClusterFormat::SlurmConf, switches),
        ("topology.yaml", 200, ClusterFormat::SlurmYaml, topology),
        ("nvidia-smi", 100, ClusterFormat::NvidiaSmi, matrix),
    ];
    let options = |format| ImportOptions {
        device_kind: Some("NVIDIA H100 80GB HBM3".to_owned()),
        memory: Some(Bytes(80 << 30)),
        devices_per_node: (!matches!(format, ClusterFormat::NcclXml | ClusterFormat::NvidiaSmi)).then_some(8),
        ..ImportOptions::default()
    };
    let message = |wanted: Wanted<'_>| {
        let cluster = import(ClusterFormat::Loadmaster, WRITTEN, &ImportOptions::default())?;
        Cluster::from_wire_while(v1::Cluster::from(&cluster), wanted).map(drop)
    };
    let mut all: Vec<Reading> = vec![("a message", 100, Box::new(message))];
    all.extend(files.into_iter().map(|(what, things, format, text)| -> Reading {
        let options = options(format);
        (what, things, Box::new(move |wanted| import_while(format, &text, &options, wanted).map(drop)))
    }));
    all
}

/// A cancelled call is noticed before the next thing is made, whatever is read and however far that is.
#[test]
fn a_model_or_cluster_that_is_not_wanted_any_more_is_not_built() {
    for (what, things, read) in model_readings().into_iter().chain(cluster_readings()) {
        let looks = Cell::new(0);
        let read_while = |most: usize| {
            looks.set(0);
            read(&|| {
                looks.set(looks.get() + 1);
                looks.get() <= most
            })
        };
        read_while(usize::MAX).unwrap_or_else(|invalid| panic!("{what}: {invalid}"));
        let all = looks.get();
        assert!(all >= things, "{what}: {all} looks for {things} things");
        for most in [0, 1, all / 3, all / 2, all - 1].into_iter().filter(|&most| most < all) {
            let refused = read_while(most).unwrap_err();
            assert!(refused.to_string().contains("the call was cancelled"), "{what} after {most}: {refused}");
            assert_eq!(looks.get(), most + 1, "{what}: it went on");
        }
    }
}

#[test]
fn a_model_with_any_value_bent_is_refused_by_name_or_can_be_built() {
    let layers: Value = serde_yaml_ng::from_str(include_str!("../../deploy/models/layers.yaml")).unwrap();
    let config = json!({
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 32,
        "rms_norm_eps": 1e-5, "rope_theta": 1e4, "hidden_act": "silu", "tie_word_embeddings": false,
        "attention_dropout": 0.0
    });
    let list = |text: String| ModelSource::LayerList(LayerList { document: text });
    let hugging_face =
        |text: String| ModelSource::HuggingFace(HuggingFaceConfig { config: text, ..Default::default() });
    let sources: [(&Value, &dyn Fn(String) -> ModelSource); 2] = [(&layers, &list), (&config, &hugging_face)];
    for (whole, source) in sources {
        check_model(&source(whole.to_string()).build().unwrap());
        for bent in bent(whole) {
            match source(bent.text.clone()).build() {
                Ok(model) => check_model(&model),
                Err(refused) => assert!(!refused.violations()[0].field.is_empty(), "{refused}"),
            }
        }
    }
}

#[test]
fn a_cluster_with_any_value_bent_is_refused_by_name_or_is_one() {
    let whole: Value = serde_yaml_ng::from_str(include_str!("../../deploy/clusters/two-kinds.yaml")).unwrap();
    let read = |text: &str| import(ClusterFormat::Loadmaster, text, &ImportOptions::default());
    read(&whole.to_string()).unwrap();
    for bent in bent(&whole) {
        match read(&bent.text) {
            Ok(cluster) => {
                let names = cluster.nodes().iter().map(|node| &node.name);
                let kinds = cluster.kinds().iter().map(|kind| &kind.name);
                for name in names.chain(kinds) {
                    assert!(
                        !name.contains(|c: char| c.is_control() || c == '/'),
                        "{} = {}",
                        bent.path,
                        bent.value
                    );
                }
                assert_eq!(v1::Cluster::from(&cluster).nodes.len(), cluster.nodes().len());
            }
            Err(refused) => assert!(refused.violations()[0].field.starts_with("document"), "{refused}"),
        }
    }
}
