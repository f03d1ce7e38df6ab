//! The command line as a new user meets it: errors in its own words, costs before they are paid, and what comes next.

use std::process::Command;

use loadmaster_tests::{Planner, TINY_GPT2, Worker, WorkerOptions, binary, cli, json, profile};
use serde_json::Value;

/// Every refusal comes from the planner, which knows fields alone.
#[test]
fn errors_of_the_planner_name_the_options_that_were_typed() {
    let planner = Planner::start();
    let profile =
        "profile run --model gpt2 --device-kind cpu --micro-batch-size 2 --micro-batches 4 --dry-run";
    let options = [
        (format!("{profile} --heads 5"), "--heads: is 5, must divide --hidden-size (768)"),
        (format!("{profile} --dropout 2"), "--dropout: is 2"),
        (format!("{profile} --learning-rate -1"), "--learning-rate: is -1"),
        (format!("{profile} --momentum 2"), "--momentum: is 2"),
        (format!("{profile} --id No"), "--id: \"No\" is not an id"),
        (format!("{profile} --profiling-mode per-stage"), "--devices: is required"),
        (format!("{profile} --profile-micro-batch-sizes 1,2,4"), "--profile-micro-batch-sizes: "),
        ("cluster create --nodes n --devices-per-node 1 --device-kind cpu --memory 1GiB --usable-memory 2GiB".to_owned(),
         "--usable-memory: is 2.00 GiB"),
    ];
    for (line, told) in options {
        let output = cli(&planner, &line);
        assert_eq!(output.code, 2, "{line}: {}", output.stderr);
        assert!(output.stderr.starts_with(&format!("error: {told}")), "{line}: {}", output.stderr);
    }
}

/// Before anything was measured nobody knows; afterwards the estimate says what it rests on.
#[test]
fn a_dry_run_says_what_it_costs_and_a_profile_what_comes_next() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    let profile = format!("profile run --id p --micro-batch-size 2 --micro-batches 2 {TINY_GPT2}");
    let before = cli(&planner, &format!("{profile} --dry-run"));
    assert!(before.stderr.contains("not known how long"), "{}", before.stderr);

    let made = cli(&planner, &profile);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let next = made.stderr.lines().last().unwrap().strip_prefix("next:  loadmaster ").unwrap().to_owned();
    assert_eq!(next, "plan recommend --profile p --devices 4x1GiB");
    let planned = cli(&planner, &next);
    assert_eq!(planned.code, 0, "{}", planned.stderr);

    let other = format!("{} --dry-run --fresh", profile.replace("--id p", "--id q"));
    let after = cli(&planner, &other);
    assert!(after.stderr.contains("device-seconds: at the pace of the"), "{}", after.stderr);
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
        "cluster create --id lab --nodes n[1-2] --devices-per-node 1 --device-kind cpu --memory 1GiB",
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
    assert!(stderr.contains("no planner answers at http://127.255.255.254:7433"), "{stderr}");
}
