//! Files as users have them: what is in them is imported, and what is missing is named.
//!
//! The files of `user_files/` are those of public questions, with details replaced. The expected figures are the models' published
//! ones, and the layouts are counted by hand.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::{Path, PathBuf};

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::Cluster;
use loadmaster_proto::cluster::import::{ClusterFormat, ImportOptions, import};
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
        ("classifier.json", &["num_labels", "LlamaForSequenceClassification has no language-model head"]),
    ] {
        let (parameters, notes) = model(&format!("02-llama-extra-keys/{file}"));
        assert_eq!(parameters, 1_711_376_384, "{file}");
        assert!(named.iter().all(|name| notes.contains(name)), "{file}: {notes}");
    }
}

#[test]
fn mixtures_of_experts_and_multimodal_models_are_refused_by_what_is_missing() {
    for file in ["Qwen3-235B-A22B.json", "Qwen3-30B-A3B.json"] {
        assert!(refused(&format!("04-qwen3-moe/{file}")).contains("mixtures of experts are not supported"));
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

/// Configurations of models of 2025 and 2026 with their parameter counts, where `LOADMASTER_DATA` has them.
#[test]
fn published_configurations_are_imported_or_refused_by_their_type() {
    let folder = std::env::var_os("LOADMASTER_DATA").map(|folder| PathBuf::from(folder).join("configs"));
    let Some(folder) = folder.filter(|folder| folder.join("expect.tsv").exists()) else {
        println!(
            "SKIPPED: published configurations: the folder that LOADMASTER_DATA names has no configs/expect.tsv. \
             deploy/guide/results/data.md describes how to make it from ai-dynamo/aiconfigurator."
        );
        return;
    };
    let expected = std::fs::read_to_string(folder.join("expect.tsv")).unwrap();
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
                // One file names the quantization of more than 20,000 layers one by one.
                let why = invalid.to_string();
                assert!(
                    why.contains("model_type") || why.contains("has more than 20000 keys. Remove some"),
                    "{file}: {why}"
                );
            }
        }
    }
    assert!(imported > 0);
}

fn options(topology: Option<&str>) -> ImportOptions {
    ImportOptions {
        device_kind: Some("NVIDIA H100 80GB HBM3".to_owned()),
        memory: Some(Bytes(186 << 30)),
        devices_per_node: Some(4),
        topology: topology.map(str::to_owned),
        ..ImportOptions::default()
    }
}

fn cluster(text: &str, topology: Option<&str>) -> Cluster {
    let format = ClusterFormat::detect(text).unwrap();
    import(format, text, &options(topology)).unwrap_or_else(|invalid| panic!("{invalid}: {text}"))
}

/// Domains of a level: name and nodes of each, those below it included.
fn domains(cluster: &Cluster, level: &str) -> Vec<(String, Vec<String>)> {
    let tier = cluster.tiers().iter().position(|tier| tier.level == level).unwrap();
    let of = |index: usize| {
        let nodes = cluster.nodes().iter().enumerate();
        let inside = nodes.filter(|(node, _)| cluster.domain_of(*node, tier) == Some(index));
        inside.map(|(_, node)| node.name.clone()).collect()
    };
    let all = cluster.domains().iter().enumerate().filter(|(_, domain)| domain.level == level);
    all.map(|(index, domain)| (domain.name.clone(), of(index))).collect()
}

#[test]
fn blocks_are_read_as_scontrol_prints_them() {
    let gb200 = cluster(&text("16-scontrol-show-topology-blocks/gb200.txt"), None);
    let blocks = domains(&gb200, "block");
    assert_eq!(blocks.iter().map(|(_, nodes)| nodes.len()).collect::<Vec<_>>(), [18, 18]);
    assert_eq!((blocks[1].0.as_str(), blocks[1].1[0].as_str()), ("block02", "node0019"));
    assert_eq!(gb200.tiers().len(), 1);

    let gb300 = cluster(&text("16-scontrol-show-topology-blocks/gb300-aggregated.txt"), None);
    let blocks = domains(&gb300, "block");
    assert_eq!(blocks[0].1, ["10.0.71.103", "10.0.88.115"]);
    assert_eq!(blocks[1].1, ["10.0.79.152", "10.0.93.120"]);
    let groups = domains(&gb300, "block-x2");
    assert_eq!(groups.iter().map(|(_, nodes)| nodes.len()).collect::<Vec<_>>(), [4]);
}

/// `scontrol show topology node=NAME` leaves blocks out; their indices keep the groups.
#[test]
fn some_of_the_blocks_keep_their_groups() {
    let some = "BlockName=b1 BlockIndex=1 Nodes=n[3-4] BlockSize=2\n\
                BlockName=b3 BlockIndex=3 Nodes=n[7-8] BlockSize=2\n\
                AggregatedBlock=b[2-3] BlockIndex=5 Nodes=n[5-8] BlockSize=4\n";
    let groups = domains(&cluster(some, None), "block-x2");
    assert_eq!(groups.iter().map(|(_, nodes)| nodes.len()).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn empty_blocks_keep_groups_aligned_and_are_skipped() {
    let cluster = cluster(&text("18-empty-blocks/cloud_topology.yaml"), Some("topology/block"));
    let blocks = domains(&cluster, "block");
    let sizes: Vec<(&str, usize)> = blocks.iter().map(|(name, nodes)| (name.as_str(), nodes.len())).collect();
    assert_eq!(sizes, [("a-b0", 3), ("a-b1", 1), ("b-b0", 1)]);
    let groups = domains(&cluster, "block-x32");
    assert_eq!(groups.iter().map(|(_, nodes)| nodes.len()).collect::<Vec<_>>(), [4, 1]);
    // A block without `nodes` is an empty one.
    let bare = "- topology: t\n  block:\n    block_sizes: [1, 2]\n    blocks:\n      - block: a\n      - {block: 7, nodes: n1}\n";
    assert_eq!(domains(&self::cluster(bare, None), "block"), [("7".to_owned(), vec!["n1".to_owned()])]);
}

/// Three levels, as `scontrol show topology` prints the first example of Slurm's guide, and what it prints of one node.
#[test]
fn trees_are_read_as_scontrol_prints_them() {
    let all = "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=tux[0-1]\n\
               SwitchName=s1 Level=0 LinkSpeed=1 Nodes=tux[2-3]\n\
               SwitchName=s4 Level=1 LinkSpeed=1 Nodes=tux[0-3] Switches=s[0-1]\n\
               SwitchName=s6 Level=2 LinkSpeed=1 Nodes=tux[0-3] Switches=s4\n";
    let conf = "SwitchName=s0 Nodes=tux[0-1]\nSwitchName=s1 Nodes=tux[2-3]\nSwitchName=s4 Switches=s[0-1]\n\
                SwitchName=s6 Switches=s4\n";
    assert_eq!(cluster(all, None), cluster(conf, None));
    let of_one_node = "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=tux[0-1]\n\
                       SwitchName=s4 Level=1 LinkSpeed=1 Nodes=tux[0-3] Switches=s[0-1]\n";
    let some = cluster(of_one_node, None);
    assert_eq!(domains(&some, "switch-0")[0].1, ["tux0", "tux1"]);
    assert_eq!(domains(&some, "switch-1")[0].1.len(), 4);
    assert!(some.warnings().is_empty(), "{:?}", some.warnings());
}

/// The second example of Slurm's guide: four switches that each join all leaves.
#[test]
fn planes_of_a_network_are_one_switch() {
    let leaves =
        "SwitchName=s0 Nodes=tux[0-3]   LinkSpeed=900\nSwitchName=s1 Nodes=tux[4-7]   LinkSpeed=900\n";
    let planes =
        "SwitchName=s4 Switches=s[0-1]  LinkSpeed=1800\nSwitchName=s5 Switches=s[0-1]  LinkSpeed=1800\n";
    let two = cluster(&format!("{leaves}{planes}"), None);
    let one = cluster(&format!("{leaves}SwitchName=s4 Switches=s[0-1]\n"), None);
    assert_eq!(two, one);
    // Planes may have a switch above them.
    let core = cluster(&format!("{leaves}{planes}SwitchName=s6 Switches=s[4-5]\n"), None);
    assert_eq!(domains(&core, "switch-2")[0].1.len(), 8);
}

#[test]
fn keywords_have_any_case_and_values_may_be_quoted() {
    let plain =
        "SwitchName=s0 Nodes=n[1-2] LinkSpeed=1\nSwitchName=s1 Nodes=n3\nSwitchName=s2 Switches=s[0-1]\n";
    let other = "switchname = s0 NODES=\"n[1-2]\" \\\n  LinkSpeed = 1 # a comment\nSwitchName=s1 nodes=n3\n\n\
                 SWITCHNAME=s2 switches=s[0-1]\n";
    assert_eq!(cluster(other, None), cluster(plain, None));
    let wrong = import(ClusterFormat::SlurmConf, "SwitchName=s0 Ports=3\n", &options(None)).unwrap_err();
    assert!(wrong.to_string().contains("\"Ports\" is not a keyword"), "{wrong}");
}

#[test]
fn rings_and_toruses_are_islands() {
    let conf = "RingName=ring0 Nodes=node[01-08]\nRingName=ring1 Nodes=node[09-16]\n";
    let printed =
        "RingName=ring0 Nodes=node[01-08] RingSize=8\nRingName=ring1 Nodes=node[09-16] RingSize=8\n";
    let yaml = "- topology: t\n  ring:\n    rings:\n      - {ring: ring0, nodes: \"node[01-08]\"}\n      - {ring: ring1, nodes: \"node[09-16]\"}\n";
    let ring = cluster(conf, None);
    assert_eq!(ring, cluster(printed, None));
    assert_eq!(ring, cluster(yaml, None));
    assert!(
        ring.warnings()[0].message.contains("ring0, ring1 have no common switch"),
        "{:?}",
        ring.warnings()
    );
    assert_ne!(ring.island_of(0), ring.island_of(15));

    let yaml = "- topology: t\n  torus3d:\n    toruses:\n      - name: pod1\n        dims: {x: 4, y: 2, z: 1}\n        regions:\n\
                \x20         - {anchor: {x: 0, y: 0, z: 0}, dims: {x: 4, y: 2, z: 1}, nodes: \"n[1-8]\"}\n\
                \x20       placements:\n          - {dims: {x: 2, y: 2, z: 1}}\n";
    let printed =
        "TorusName=pod1 Dims=4x2x1 Nodes=n[1-8]\n  TorusName=pod1 PlacementDims=2x2x1(4) Anchors=2\n";
    let torus = cluster(yaml, None);
    assert_eq!(torus, cluster(printed, None));
    assert!(torus.warnings()[0].message.contains("placements have 4 nodes"), "{:?}", torus.warnings());
}

#[test]
fn switches_without_a_common_switch_are_islands() {
    let islands = cluster(&text("21-islands/topology.conf"), None);
    let of = |name: &str| {
        islands.nodes().iter().position(|node| node.name == name).and_then(|at| islands.island_of(at))
    };
    assert_eq!(of("tux0"), of("tux3"));
    assert_eq!(of("tux4"), of("tux7"));
    assert_ne!(of("tux0"), of("tux4"));
    assert!(
        islands.warnings()[0].message.contains("s4, s5 have no common switch"),
        "{:?}",
        islands.warnings()
    );
    let joined = text("21-islands/topology.conf") + "SwitchName=s6 Switches=s[4-5]\n";
    let joined = cluster(&joined, None);
    assert!(joined.warnings().is_empty(), "{:?}", joined.warnings());
    // Slurm's blocks are joined whatever their groups are.
    let blocks = cluster("BlockName=a Nodes=n1\nBlockName=b Nodes=n2\n", None);
    assert_eq!((blocks.island_of(0), blocks.warnings().len()), (None, 0));
}
