//! Any framework: a training command of a worker's operator is profiled, predicted and validated like
//! Loadmaster's own ranks, and profiles travel as documents, whoever measured them.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use loadmaster_tests::{
    Planner, TINY_GPT2, Worker, WorkerOptions, bytes, cli, json, profile, stages, uncertain,
};
use serde_json::{Value, json as document};
use tempfile::TempDir;

/// A worker whose operator offers the shipped stand-in script as a command.
fn worker_with_stand_in(planner: &Planner) -> (Worker, TempDir) {
    let python = std::process::Command::new("python3").arg("--version").output();
    assert!(python.is_ok_and(|python| python.status.success()), "this test needs python3: install it");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/command/stand_in.py").canonicalize();
    let script = script.expect("the shipped script is there");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("worker.toml");
    let text = format!(
        "[custom_profilers.stand-in]\nargv = ['python3', '-B', '{}']\naccounting = 'allocated'\ntimeout = '5m'\n",
        script.display()
    );
    std::fs::write(&path, text).expect("a file can be written");
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, private).expect("permissions can be set");
    let options = WorkerOptions::slots("3x64MiB").with(&format!("--config {}", path.display()));
    (Worker::start(planner, &options), folder)
}

/// Profiles six layers with the command.
fn profiled_by_command(planner: &Planner) -> Value {
    let options = "--id scripted --custom-profiler stand-in --profiling-mode per-stage --device-count 3";
    profile(planner, TINY_GPT2, &format!("{options} --micro-batch-size 32 --micro-batches 2"))
}

fn predicted(plan: &Value) -> Vec<u64> {
    plan["stages"]
        .as_array()
        .expect("a plan has stages")
        .iter()
        .map(|of| bytes(&of["predictedPeak"]["bytes"]))
        .collect()
}

fn written(folder: &TempDir, name: &str, document: &Value) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, document.to_string()).expect("a file can be written");
    path
}

#[test]
fn a_command_is_profiled_predicted_and_validated() {
    let planner = Planner::start();
    let (_worker, folder) = worker_with_stand_in(&planner);
    let profile = profiled_by_command(&planner);
    assert_eq!(
        (profile["state"].as_str(), profile["customProfiler"].as_str()),
        (Some("COMPLETE"), Some("stand-in"))
    );
    let measured = json(&planner, &["profile", "measurements", "scripted", "--limit", "0"]);
    for of in measured["measurements"].as_array().expect("it was measured") {
        assert_eq!(of["environment"]["framework"], "stand-in");
        assert_eq!(of["environment"]["customProfiler"], "stand-in");
        assert_eq!(of["environment"]["libtorchVersion"], "", "Loadmaster's rank had no part in it");
        assert_eq!(of["peakAccounting"], "MEMORY_ACCOUNTING_ALLOCATED");
    }

    // The plan is validated by the command that measured the profile, and the script's bytes add up.
    // Nobody knows what the command's processes hold besides.
    let plan = uncertain(&planner, &["plan", "recommend", "--profile", "scripted", "--devices", "3x64MiB"]);
    let validated = json(&planner, &["plan", "trial", plan["name"].as_str().expect("a plan has a name")]);
    for stage in stages(&validated) {
        let error = stage["errorRatio"].as_f64().expect("a validated stage has an error");
        assert!(error.abs() < 0.02, "{stage}");
    }
    let trial = validated["trials"][0]["run"].as_str().expect("a trial is a run");
    assert_eq!(json(&planner, &["run", "show", trial])["spec"]["customProfiler"], "stand-in");

    // The same profile out of a file gives the same plan, under another profile's name.
    let file = folder.path().join("scripted.json");
    let file = file.to_str().expect("a path is text");
    let exported = cli(&planner, &["profile", "export", "scripted", "--to", file]);
    assert_eq!(exported.code, 0, "{}", exported.stderr);
    let copy = json(&planner, &["profile", "import", file, "--id", "copy"]);
    assert_eq!(copy["name"], "profiles/copy");
    assert_eq!(copy["layerMemory"], json(&planner, &["profile", "show", "scripted"])["layerMemory"]);
    let planned = uncertain(&planner, &["plan", "recommend", "--profile", "copy", "--devices", "3x64MiB"]);
    assert_eq!(predicted(&planned), predicted(&plan));
    let adopted = uncertain(&planner, &["plan", "recommend", "--profile", file, "--devices", "3x64MiB"]);
    assert_eq!(predicted(&adopted), predicted(&plan));
}

#[test]
fn a_command_that_nobody_offers_is_told_while_it_waits_and_a_campaign_that_it_cannot_do_is_refused() {
    let planner = Planner::start();
    let (_worker, _folder) = worker_with_stand_in(&planner);
    let worker = cli(&planner, &["worker", "show", "test"]);
    assert!(worker.stdout.contains("stand-in"), "{}", worker.stdout);
    let run = format!("profile run {TINY_GPT2} --micro-batch-size 4 --micro-batches 2");
    let refused = cli(&planner, &format!("{run} --profiling-mode per-layer --custom-profiler stand-in"));
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(refused.stderr.contains("which needs allocation traces"), "{}", refused.stderr);

    let waits = "--id waits --profiling-mode per-stage --custom-profiler other --device-count 2 --no-wait";
    let begun = cli(&planner, &format!("{run} {waits}"));
    assert_eq!(begun.code, 0, "{}", begun.stderr);
    let operations = json(&planner, &["operation", "list"]);
    let operation = operations["operations"][0]["name"].as_str().expect("an operation has a name").to_owned();
    let shown = json(&planner, &["operation", "show", &operation]);
    let message = shown["metadata"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("offers the custom profiler other"), "{shown}");
}

/// Pins that all that the default predictor needs is in the document: a planner that never saw a worker
/// predicts the same bytes and seconds from the same measurements.
#[test]
fn a_profile_with_traces_predicts_the_same_on_another_planner() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    profile(&planner, TINY_GPT2, "--id traced --micro-batch-size 4 --micro-batches 2");
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("traced.json");
    let file = file.to_str().expect("a path is text");
    assert_eq!(cli(&planner, &["profile", "export", "traced", "--to", file]).code, 0);

    let elsewhere = Planner::start();
    let asked = "--pipeline-layout 2-2-2 --schedule 1f1b --micro-batch-size 6 --capacity 1GiB";
    let predict = |planner: &Planner, profile: &str| {
        let mut answer = json(planner, &format!("plan predict --profile {profile} {asked}"));
        answer["profile"] = Value::Null;
        answer
    };
    let here = predict(&planner, "traced");
    assert!(here["predictor"].as_str().is_some_and(|name| name.starts_with("component/")), "{here}");
    assert_eq!(predict(&elsewhere, file), here);
    let imported = json(&elsewhere, &["profile", "import", file, "--id", "traced"]);
    assert_eq!(
        (imported["name"].as_str(), imported["state"].as_str()),
        (Some("profiles/traced"), Some("COMPLETE"))
    );
    assert_eq!(predict(&elsewhere, "traced"), here);
}

/// A table of another tool: four layers of a chain that nobody here can build.
fn table() -> Value {
    document!({
        "format": "loadmaster.profile/1",
        "provenance": {
            "source": "a published table", "tool": "a profiler", "tool_version": "7", "ledger": "reserved",
            "device_kind": "NVIDIA H200"
        },
        "model": {"opaque": {"name": "published", "layers": [
            {"name": "embedding"}, {"name": "block 1"}, {"name": "block 2"}, {"name": "head"}
        ]}},
        "training": {
            "precision": "fp32",
            "optimizer": {"kind": "adam", "learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999,
                          "epsilon": 1e-8, "weight_decay": 0.0},
            "schedule": "gpipe", "micro_batch_size": 2, "micro_batches": 4, "recompute": "none", "seed": 0
        },
        "layer_table": {"layers": [{
            "first_layer": 0, "last_layer": 3,
            "bytes": [{"micro_batch_size": 1, "tensor_degree": 1, "parameter_bytes": 1 << 20,
                       "activation_bytes": 1 << 16, "input_bytes": 4096, "output_bytes": 4096}],
            "times": [{"micro_batch_size": 1, "tensor_degree": 1, "forward_seconds": 0.25,
                       "backward_seconds": 0.5, "update_seconds": 0.125}]
        }]}
    })
}

/// Pins that a published table is enough to plan with, straight from its file, and that what it cannot
/// answer is an error of its own and not a number.
#[test]
fn another_tools_table_is_planned_with_and_its_limits_are_named() {
    let planner = Planner::start();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = written(&folder, "table.json", &table());
    let file = path.to_str().expect("a path is text");
    let fits = json(
        &planner,
        &["plan", "predict", "--profile", file, "--pipeline-layout", "2-2", "--capacity", "1GiB"],
    );
    let stage = &fits["stages"][0];
    assert!(
        bytes(&stage["peak"]["bytes"]) >= 2 * 4 * (1 << 20),
        "weights, gradients and Adam's state: {fits}"
    );
    assert_eq!(stage["peak"]["accounting"], "MEMORY_ACCOUNTING_RESERVED");
    assert_eq!(stage["firstLayerName"], "embedding");

    let profiles = json(&planner, &["profile", "list"]);
    let name = profiles["profiles"][0]["name"].as_str().expect("it was stored").to_owned();
    assert!(name.starts_with("profiles/published-"), "{name}");
    let again = json(&planner, &["profile", "import", file]);
    assert_eq!(again["name"].as_str(), Some(name.as_str()), "the same document is the same profile");
    assert_eq!(again["provenance"]["tool"], "a profiler");
    let shown = cli(&planner, &["profile", "show", &name]);
    assert!(shown.stdout.contains("a published table"), "{}\n{}", shown.stdout, shown.stderr);

    let plan = json(&planner, &["plan", "recommend", "--profile", &name, "--devices", "2x1GiB"]);
    let plan = plan["name"].as_str().expect("a plan has a name");
    let trial = cli(&planner, &["plan", "trial", plan]);
    assert!(trial.code != 0 && trial.stderr.contains("MODEL_SHAPES_UNKNOWN"), "{}", trial.stderr);
    let component =
        ["plan", "predict", "--profile", &name, "--pipeline-layout", "2-2", "--predictor", "component"];
    let component = cli(&planner, &component);
    assert_eq!(component.code, 6, "{}", component.stderr);
    assert!(component.stderr.contains("PROFILE_INCOMPLETE"), "{}", component.stderr);

    let mut without = table();
    without["layer_table"]["layers"][0].as_object_mut().expect("rows").remove("bytes");
    let path = written(&folder, "times.json", &without);
    let file = path.to_str().expect("a path is text");
    let lacks = cli(&planner, &["plan", "predict", "--profile", file, "--pipeline-layout", "2-2"]);
    assert_eq!(lacks.code, 6, "{}", lacks.stderr);
    assert!(lacks.stderr.contains("`bytes` rows"), "{}", lacks.stderr);

    let mut misspelt = table();
    misspelt["layer_table"]["layers"][0]["times"][0]["forward_second"] = document!(1);
    let path = written(&folder, "misspelt.json", &misspelt);
    let misspelt = cli(&planner, &["profile", "import", path.to_str().expect("a path is text"), "--dry-run"]);
    assert_eq!(misspelt.code, 2, "{}", misspelt.stderr);
    assert!(misspelt.stderr.contains("layer_table.layers[0].times[0].forward_second"), "{}", misspelt.stderr);
}
