//! The command line as a new user meets it: errors in its own words, costs before they are paid, and what comes next.

use std::process::Command;

use loadmaster_tests::{Planner, TINY_GPT2, Worker, WorkerOptions, binary, cli, json, profile, uneven_chain};
use serde_json::Value;

/// Every refusal comes from the planner, which knows fields alone.
#[test]
fn errors_of_the_planner_name_the_options_that_were_typed() {
    let planner = Planner::start();
    let profile =
        "profile run --model gpt2 --device-kind cpu --micro-batch-size 2 --micro-batches 4 --dry-run";
    let options = [
        (format!("{profile} --heads 5"), "--heads: 5 does not divide --hidden-size (768)"),
        (format!("{profile} --dropout 2"), "--dropout: 2 is out of range"),
        (format!("{profile} --learning-rate -1"), "--learning-rate: -1 is not valid"),
        (format!("{profile} --momentum 2"), "--momentum: 2 is out of range"),
        (format!("{profile} --id No"), "--id: \"No\" is not a valid id"),
        (format!("{profile} --profiling-mode per-stage"), "--device-count: required"),
        (format!("{profile} --profile-micro-batch-sizes 1,2,4"), "--profile-micro-batch-sizes: "),
        ("cluster create --nodes n --devices-per-node 1 --device-kind cpu --device-memory 1GiB --usable-memory 2GiB".to_owned(),
         "--usable-memory: 2.00 GiB is not valid"),
    ];
    for (line, told) in options {
        let output = cli(&planner, &line);
        assert_eq!(output.code, 2, "{line}: {}", output.stderr);
        assert!(output.stderr.starts_with(&format!("error: {told}")), "{line}: {}", output.stderr);
    }
}

/// The first lines that users of other tools type work, or are answered with the line to type.
#[test]
fn what_is_typed_first_works_or_is_answered_with_what_to_type() {
    let planner = Planner::start();
    for line in ["status", "plan ls", "plans list", "profiles ls", "workers ls", "operations list"] {
        let output = cli(&planner, line);
        assert_eq!(output.code, 0, "{line}: {}", output.stderr);
    }
    let recommend = "plan recommend --profile p";
    for (line, told) in [
        ("plan describe 7f3c".to_owned(), "plans/7f3c"),
        ("recommend --profile p --gpus 8xH100".to_owned(), "profiles/p"),
        ("estimate gpt2".to_owned(), "loadmaster predict"),
        ("login".to_owned(), "LOADMASTER_ADDRESS"),
        ("plan gpt2".to_owned(), "loadmaster profile run --model gpt2 "),
        ("plan recommend --model gpt2 --gpus 8".to_owned(), "loadmaster profile run --model gpt2 "),
        ("plan list --since 7".to_owned(), "Write 7d"),
        (format!("{recommend} --gpus 8"), "8xH100"),
        (format!("{recommend} --devices 8"), "8x80GiB"),
        (format!("{recommend} --devices 8x80"), "8x80GiB"),
        (format!("{recommend} --devices 8xH100"), "--gpus 8xH100"),
        ("plan predict --profile p --stage 0..1 --capacity 80".to_owned(), "80GiB"),
        (
            "cluster create --id c --nodes n --devices-per-node 1 --device-kind cpu --device-memory 80"
                .to_owned(),
            "80GiB",
        ),
        (format!("{recommend} --gpus 8xH100 --zero 3"), "ZeRO-3 and FSDP are not planned"),
        (format!("{recommend} --gpus 8xH100 --recompute selective"), "--optimizations recompute"),
        (format!("{recommend} --gpus 8xH100 --schedule interleaved"), "--virtual-stages 2"),
        ("profile run --model gpt2 --precision fp16".to_owned(), "use bf16"),
    ] {
        let output = cli(&planner, &line);
        assert!(output.code != 0 && output.stderr.contains(told), "{line}: {}", output.stderr);
    }
}

/// GPUs are named by any of their names in the planner's catalog, which has their memory.
#[test]
fn gpus_are_named_by_kind() {
    let planner = Planner::start();
    let mut file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    let document = uneven_chain(6, "NVIDIA H100 80GB HBM3", [1, 8]).to_string();
    std::io::Write::write_all(&mut file, document.as_bytes()).unwrap();
    json(&planner, &["profile", "import", "--id", "table", file.path().to_str().unwrap()]);

    let recommend =
        "recommend --profile table --hourly-price H100=2 --tp 1 --dp 1 --pp 2..4 --objective throughput";
    let plan = json(&planner, &format!("{recommend} --gpus 4xh100"));
    let group = &plan["devices"][0];
    assert_eq!((&group["kind"], &group["count"]), (&"NVIDIA H100 80GB HBM3".into(), &4.into()), "{plan}");
    assert_eq!(group["capacityBytes"], (81_080_i64 << 20).to_string(), "{plan}");
    assert_eq!(plan["hourlyPrice"], 8.0, "{plan}");
    let same = json(&planner, &format!("plan {recommend} --devices 4x81080MiB"));
    assert_eq!(plan["name"], same["name"]);
    let words: Vec<&str> = recommend.split(' ').chain(["problem.devices=[{count: 4, kind: H100}]"]).collect();
    assert_eq!(json(&planner, &words)["name"], same["name"]);
    let fits = json(&planner, "predict --profile table --pipeline-layout 4-4 --gpus 2xH100-SXM");
    assert_eq!(
        fits["verdict"],
        json(&planner, "predict --profile table --pipeline-layout 4-4 --capacity 81080MiB")["verdict"]
    );

    for (gpus, told) in
        [("4xH1000", "Use one of H100"), ("4xH800", "no memory size"), ("4xA100", "measured on")]
    {
        let refused = cli(&planner, &format!("plan recommend --profile table --gpus {gpus}"));
        assert!(refused.code == 2 && refused.stderr.contains(told), "{gpus}: {}", refused.stderr);
        assert!(refused.stderr.contains("--gpus"), "{gpus}: {}", refused.stderr);
    }
    // A field of a request file is named with the file.
    let wrong = cli(&planner, "plan recommend --profile table --gpus 4xH100 search.layer_group_count=-1");
    assert!(wrong.stderr.contains(".yaml: search.layer_group_count"), "{}", wrong.stderr);
}

/// Before anything was measured nobody knows; afterwards the estimate says what it rests on.
#[test]
fn a_dry_run_says_what_it_costs_and_a_profile_what_comes_next() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    let profile = format!("profile run --id p --micro-batch-size 2 --micro-batches 2 {TINY_GPT2}");
    let before = cli(&planner, &format!("{profile} --dry-run"));
    assert!(before.stderr.contains("the duration of the runs is not known"), "{}", before.stderr);

    let made = cli(&planner, &profile);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let next = made.stderr.lines().last().unwrap().strip_prefix("next:  loadmaster ").unwrap().to_owned();
    assert_eq!(next, "plan recommend --profile p --devices 4x1GiB");
    let planned = cli(&planner, &next);
    assert_eq!(planned.code, 0, "{}", planned.stderr);

    let other = format!("{} --dry-run --ignore-stored-runs", profile.replace("--id p", "--id q"));
    let after = cli(&planner, &other);
    assert!(after.stderr.contains("device-seconds: estimated from the time of the"), "{}", after.stderr);
    assert!(after.stderr.contains("newest runs of this model"), "{}", after.stderr);
    let profile = json(&planner, &other)["response"].clone();
    assert!(profile["estimatedSeconds"].as_f64().unwrap() > 0.0, "{profile}");
    // Blocks of another model that have 10,000 times the weights take more than what runs of this one took.
    let larger = "--model gpt2 --blocks 2 --hidden-size 3200 --heads 4";
    let larger = format!("profile run --micro-batch-size 2 --micro-batches 2 --dry-run {larger}");
    let larger = json(&planner, &larger)["response"].clone();
    assert!(larger["estimateOrigin"].as_str().unwrap().contains("runs of other models"), "{larger}");
    let seconds = |profile: &Value| profile["estimatedDeviceSeconds"].as_f64().unwrap();
    assert!(seconds(&larger) > 10.0 * seconds(&profile), "{larger} {profile}");
    assert!(profile["estimatedDeviceSeconds"].as_f64() >= profile["estimatedSeconds"].as_f64(), "{profile}");
}

/// A file has no pictures that would name the nodes.
#[test]
fn a_table_in_a_file_names_the_nodes_of_a_plan() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    profile(&planner, TINY_GPT2, "--id p --micro-batch-size 2 --micro-batches 2");
    let made = cli(
        &planner,
        "cluster create --id lab --nodes n[1-2] --devices-per-node 1 --device-kind cpu --device-memory 1GiB",
    );
    assert_eq!(made.code, 0, "{}", made.stderr);
    let plan = cli(&planner, "plan recommend --profile p --cluster lab -o name").stdout;
    let shown = cli(&planner, &format!("plan show {plan} -o table")).stdout;
    assert!(shown.contains("n1/0") && shown.contains("n2/0"), "{shown}");
}

/// The planner's port is the usual one where an address names none.
#[test]
fn a_host_without_a_port_means_the_usual_one() {
    let output = Command::new(binary("loadmaster"))
        .args(["plan", "list", "--address", "127.255.255.254"])
        .output()
        .expect("the command line can be started");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("no planner responds at http://127.255.255.254:7433"), "{stderr}");
}
