//! Models come from the zoo, from lists of layers and from Hugging Face configurations, and all of them can
//! be trained.

use std::path::{Path, PathBuf};

use loadmaster_proto::wire::v1;
use loadmaster_tests::{Planner, Worker, WorkerOptions, call, cli, json};
use tempfile::TempDir;

/// The example that users copy.
fn layer_list() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/models/layers.yaml");
    path.to_str().unwrap().to_owned()
}

const QWEN3: &str = r#"{
    "model_type": "qwen3", "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 16, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 100,
    "max_position_embeddings": 64, "torch_dtype": "bfloat16"
}"#;

fn file(folder: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn models_are_imported_from_files() {
    let planner = Planner::start();
    let folder = tempfile::tempdir().unwrap();
    let list = json(&planner, &["model", "import", &layer_list()]);
    assert_eq!(list["layerCount"], 5);
    assert_eq!(list["parameterCount"], "5354");
    let config = file(&folder, "config.json", QWEN3);
    let config = config.to_str().unwrap();
    let imported = json(&planner, &["model", "import", config, "--sequence-length", "16"]);
    assert_eq!(imported["input"]["tokens"]["sequenceLength"], "16");
    assert_eq!(imported["family"], "qwen3");

    // What was imported is kept with its source, and is the same model when it comes again.
    let name = imported["name"].as_str().unwrap();
    let shown = json(&planner, &["model", "show", name]);
    assert_eq!(shown["source"]["huggingFace"]["config"], QWEN3);
    assert_eq!(shown["layers"], imported["layers"]);
    let again = json(&planner, &["model", "import", config, "--format", "hf", "--sequence-length", "16"]);
    assert_eq!(again["name"], imported["name"]);
}

/// A model is deleted once no profile references it.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_deleted_once_nothing_references_it() {
    let planner = Planner::start();
    let model = json(&planner, &["model", "create", "--model", "vgg11", "--image-size", "32"]);
    let name = model["name"].as_str().unwrap();
    let request = v1::CreateProfileRequest {
        subject: Some(v1::create_profile_request::Subject::Model(name.to_owned())),
        training: Some(v1::TrainingSpec {
            micro_batch_size: 2,
            micro_batch_count: 2,
            ..v1::TrainingSpec::default()
        }),
        device_kind: "cpu".to_owned(),
        profile_id: "needs-it".to_owned(),
        ..v1::CreateProfileRequest::default()
    };
    call(&planner.channel().await, request).await.unwrap();
    let refused = cli(&planner, &["model", "delete", name]);
    assert!(refused.code != 0 && refused.stderr.contains("profiles/needs-it"), "{refused:?}");
    assert!(refused.stderr.contains("RESOURCE_IN_USE"), "{refused:?}");
    let other = json(&planner, &["model", "create", "--model", "vgg11", "--image-size", "64"]);
    let name = other["name"].as_str().unwrap();
    assert_eq!(cli(&planner, &["model", "delete", name]).code, 0);
    assert_eq!(cli(&planner, &["model", "show", name]).code, 3);
}

/// What `model show -o layers` prints is what `model import` reads: it is the same model under the same name.
#[test]
fn a_model_is_printed_as_the_list_that_it_can_be_imported_from() {
    let (planner, other) = (Planner::start(), Planner::start());
    let folder = tempfile::tempdir().unwrap();
    let config = file(&folder, "config.json", QWEN3);
    let sources: [&[&str]; 2] = [
        &["model", "import", config.to_str().unwrap(), "--sequence-length", "16"],
        &["model", "create", "--model", "vgg11", "--image-size", "32"],
    ];
    for source in sources {
        let name = json(&planner, source)["name"].as_str().unwrap().to_owned();
        let printed = cli(&planner, &["model", "show", &name, "-o", "layers"]);
        assert_eq!(printed.code, 0, "{}", printed.stderr);
        let path = file(&folder, "layers.json", &printed.stdout);
        assert_eq!(json(&other, &["model", "import", path.to_str().unwrap()])["name"], name.as_str());
    }
    let listed = cli(&planner, &["model", "list", "-o", "layers"]);
    assert!(listed.code == 2 && listed.stderr.contains("model show"), "{}", listed.stderr);
}

/// Scaled rotary positions are kept beside the layers, which they do not change; every answer with the model has a note.
#[test]
fn scaling_of_rotary_positions_is_told() {
    let planner = Planner::start();
    let folder = tempfile::tempdir().unwrap();
    let scaled = QWEN3.replace(
        "\"head_dim\": 16",
        "\"head_dim\": 16, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0}",
    );
    let path = file(&folder, "scaled.json", &scaled);
    let imported = json(&planner, &["model", "import", path.to_str().unwrap()]);
    let shown = json(&planner, &["model", "show", imported["name"].as_str().unwrap()]);
    for model in [&imported, &shown] {
        assert!(model["notes"][0].as_str().is_some_and(|note| note.contains("llama3")), "{model}");
    }
    let plain = file(&folder, "plain.json", QWEN3);
    let plain = json(&planner, &["model", "import", plain.to_str().unwrap()]);
    assert_eq!(plain["notes"].as_array().map(Vec::len), Some(0), "{plain}");
    assert_eq!(plain["parameterCount"], imported["parameterCount"], "{imported}");
    assert_ne!(plain["name"], imported["name"], "exports of the two differ");
}

#[test]
fn what_a_file_says_wrong_is_named_by_its_path() {
    let planner = Planner::start();
    let folder = tempfile::tempdir().unwrap();
    let list = std::fs::read_to_string(layer_list()).unwrap();
    let cases = [
        ("l.yaml", list.replace("kernel: 3", "kernel: wide"), "layers[0].kernel"),
        ("l.yaml", list.replace("512", "511"), "layers[4] (fc1)"),
        ("c.json", QWEN3.replace("head_dim", "v_head_dim"), "v_head_dim"),
        ("c.json", QWEN3.replace("qwen3", "qwen9"), "model_type"),
    ];
    for (name, text, path) in cases {
        let file = file(&folder, name, &text);
        let output = cli(&planner, &["model", "import", file.to_str().unwrap()]);
        assert_eq!(output.code, 2, "{path}: {}", output.stderr);
        assert!(output.stderr.contains(path), "{path}: {}", output.stderr);
    }
    assert!(json(&planner, &["model", "list"])["models"].as_array().is_none_or(Vec::is_empty));
}

/// Unknown keys are refused with the name of the file, unless they are to be ignored; then the notes name them.
#[test]
fn unknown_keys_are_refused_by_file_and_key_or_ignored() {
    let planner = Planner::start();
    let folder = tempfile::tempdir().unwrap();
    let with_key = QWEN3.replacen('{', "{\"time_step_limit\": [0.0, Infinity],", 1);
    let path = file(&folder, "mine.json", &with_key);
    let path = path.to_str().unwrap();
    let refused = cli(&planner, &["model", "import", path, "--dry-run"]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("{path}: time_step_limit")), "{}", refused.stderr);
    assert!(refused.stderr.contains("--ignore-unknown-keys"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("PATH"), "{}", refused.stderr);
    let imported = json(&planner, &["model", "import", path, "--ignore-unknown-keys"]);
    assert!(imported["notes"].to_string().contains("time_step_limit"), "{imported}");
    let shown = json(&planner, &["model", "show", imported["name"].as_str().unwrap()]);
    assert_eq!(shown["notes"], imported["notes"]);
    let chunks =
        ["model", "chunks", "--model-file", path, "--sequence-length", "16", "--ignore-unknown-keys"];
    assert_eq!(cli(&planner, &chunks).code, 0);
}

/// Two tensors between cells, a mean square as loss, grouped queries: through daemon, ranks and store.
#[test]
fn models_of_every_source_are_profiled() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    let folder = tempfile::tempdir().unwrap();
    let config = file(&folder, "config.json", QWEN3);
    let amoebanet = "amoebanet_d --cells 3 --filters 8 --image-size 32 --classes 10";
    let transgan = "transgan --latent-size 8 --hidden-size 32 --heads 2 --bottom-size 2 --blocks 1,1,1";
    let sources = [
        format!("--model {amoebanet}"),
        format!("--model {transgan}"),
        format!("--model-file {} --sequence-length 16", config.display()),
        format!("--model-file {}", layer_list()),
    ];
    for source in sources {
        let mut run = vec!["profile", "run", "--micro-batch-size", "2", "--micro-batches", "2"];
        run.extend(source.split(' '));
        let profile = json(&planner, &run);
        assert_eq!(profile["state"], "COMPLETE", "{source}: {profile}");
    }
}
