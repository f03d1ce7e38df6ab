//! From nothing to a served plan: profile, recommend, validate, all through the command line.

use loadmaster_tests::{Planner, SMALL_GPT2, Worker, WorkerOptions, bytes, cli, json, profile};
use serde_json::Value;

/// Every stage has a prediction, a measurement of a real training run, and a finite error.
fn assert_validated(plan: &Value, stages: usize) {
    let rows = plan["stages"].as_array().expect("a plan has stages");
    assert_eq!(rows.len(), stages);
    for stage in rows {
        assert!(bytes(&stage["predictedPeak"]["bytes"]) > 0, "{stage}");
        assert_eq!(stage["predictedPeak"]["accounting"], "MEMORY_ACCOUNTING_ALLOCATED");
        assert_eq!(stage["predictedPeak"]["origin"], "FIGURE_ORIGIN_PREDICTED");
        assert!(bytes(&stage["measuredPeak"]["bytes"]) > 0, "{stage}");
        assert_eq!(stage["measuredPeak"]["origin"], "FIGURE_ORIGIN_MEASURED");
        assert!(stage["measuredPeak"]["producer"].as_str().unwrap().starts_with("runs/"));
        let error = stage["errorRatio"].as_f64().expect("a validated stage has an error");
        assert!(error.abs() < 1.0, "prediction and measurement are of the same size: {stage}");
    }
    let losses = plan["trials"][0]["losses"].as_array().expect("a trial reports its losses");
    assert!(losses.len() >= 2 && losses.iter().all(|loss| loss.as_f64().is_some_and(f64::is_finite)));
}

/// The whole path with CAPTURE's campaign: real pipelines of four ranks.
#[test]
fn vgg11_is_profiled_planned_and_validated_by_real_pipelines() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    let model = "--model vgg11 --image-size 32 --classes 10 --classifier-width 32";
    let options =
        "--id vgg --device-count 4 --profiling-mode whole-pipeline --micro-batch-size 4 --micro-batches 2";
    let profile = profile(&planner, model, &format!("{options} --profile-micro-batch-sizes 2"));
    assert_eq!(profile["name"], "profiles/vgg");
    assert_eq!(profile["runCounts"]["totalCount"], profile["runCounts"]["succeededCount"]);

    let recommend =
        ["plan", "recommend", "--profile", "vgg", "--devices", "4x1GiB", "--micro-batch-size", "2"];
    let plan = json(&planner, &recommend);
    assert_eq!(json(&planner, &recommend)["name"], plan["name"], "the same request gives the same plan");
    let name = plan["name"].as_str().unwrap();
    let validated = json(&planner, &["plan", "trial", name]);
    assert_eq!(validated["name"], plan["name"]);
    assert_validated(&validated, 4);

    let table = cli(&planner, &["plan", "show", name]);
    assert_eq!(table.code, 0);
    for word in ["predicted", "measured", "MiB", "allocated"] {
        assert!(table.stdout.contains(word), "{word} is not in\n{}", table.stdout);
    }
}

/// Stages measured alone, at several micro-batches in flight, predict a 1F1B pipeline.
#[test]
#[ignore = "slow: make test-slow"]
fn gpt2_is_profiled_stage_by_stage_for_one_f_one_b() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::slots("3x1GiB"));
    let options =
        "--id gpt --micro-batch-size 4 --micro-batches 6 --device-count 3 --profiling-mode per-stage";
    let training = "--schedule 1f1b --recompute layer --optimizer adam";
    profile(&planner, SMALL_GPT2, &format!("{options} {training}"));

    let plan = json(&planner, &["plan", "recommend", "--profile", "gpt", "--devices", "3x1GiB"]);
    let validated = json(&planner, &["plan", "trial", plan["name"].as_str().unwrap()]);
    assert_validated(&validated, 3);

    // What an operator looks at afterwards.
    let runs = json(&planner, &["run", "list", "--limit", "0"]);
    let runs = runs["runs"].as_array().unwrap();
    assert!(runs.iter().all(|run| run["state"] == "SUCCEEDED"));
    let shown = json(&planner, &["run", "show", runs[0]["name"].as_str().unwrap()]);
    assert_eq!(shown["measurements"].as_array().map(Vec::len), Some(3), "{shown}");
    let measured = json(&planner, &["profile", "measurements", "gpt", "--limit", "0"]);
    assert!(measured["measurements"].as_array().unwrap().len() > 4);
    assert_eq!(json(&planner, &["model", "list"])["models"].as_array().map(Vec::len), Some(1));
}
