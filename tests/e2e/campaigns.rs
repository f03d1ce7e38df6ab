//! Profiling campaigns from the outside: what is measured once is reused, what was interrupted is resumed,
//! what does not fit is repeated smaller, and the profile says what it cost.

use std::process::{Child, Command};

use loadmaster_tests::{Planner, TINY_GPT2, Worker, WorkerOptions, binary, cli, json, script, wait_until};
use serde_json::Value;
use tempfile::TempDir;

/// `profile run` of a tiny GPT-2 with these options.
pub(crate) fn run(id: &str, options: &[&str]) -> String {
    let options = options.join(" ");
    format!("profile run --id {id} --micro-batch-size 4 --micro-batches 3 {TINY_GPT2} {options}")
}

/// Bytes are enough for what is tested here: on a busy machine all results are disturbed.
const REUSE: &str = "--reuse-contended";

fn count(profile: &Value, field: &str) -> u64 {
    profile["runCounts"][field].as_u64().unwrap_or(0)
}

/// The predictors that have all that they need.
fn able(profile: &Value) -> Vec<&str> {
    let predictors = profile["predictorNeeds"].as_array().unwrap();
    let able = predictors.iter().filter(|of| of["missing"].as_array().is_none_or(Vec::is_empty));
    able.map(|of| of["predictor"].as_str().unwrap()).collect()
}

/// The default campaign: a run per distinct layer and size, whatever the depth; all of it is reused by another
/// profile, also of another schedule and of a deeper model, and made again only when that is asked for.
#[test]
fn distinct_layers_are_measured_once_for_every_profile_and_model() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    let first = json(&planner, &run("first", &[]));
    assert_eq!(first["state"], "COMPLETE", "{first}");
    assert_eq!(
        count(&first, "succeededCount"),
        2 * 4 + 3,
        "embedding, block, norm and head at two sizes, and checks"
    );
    assert_eq!((first["reusedRunCount"].as_i64(), able(&first)), (Some(0), vec!["component"]));
    assert!(first["deviceSeconds"].as_f64().unwrap() > 0.0);
    assert_eq!(first["environments"].as_array().map(Vec::len), Some(1), "{first}");

    let again = json(&planner, &run("again", &[REUSE]));
    assert_eq!((count(&again, "totalCount"), again["reusedRunCount"].as_i64()), (0, Some(11)), "{again}");
    assert_eq!((again["state"].as_str(), again["deviceSeconds"].as_f64()), (Some("COMPLETE"), Some(0.0)));
    assert_eq!(again["savedDeviceSeconds"], first["deviceSeconds"]);
    let measured =
        |id| json(&planner, &["profile", "measurements", id, "--limit", "0"])["measurements"].clone();
    let (of_first, of_again) = (measured("first"), measured("again"));
    let names = |list: &Value| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|measurement| measurement["name"].clone()).collect()
    };
    assert_eq!(names(&of_first), names(&of_again));
    let table = cli(&planner, &["profile", "show", "again"]).stdout;
    assert!(table.contains("11 reused") && table.contains("reuse saved"), "{table}");

    // Another schedule and recompute policy: the layers are the same, the checks are not.
    let other = json(&planner, &run("other", &["--schedule", "1f1b", "--recompute", "layer", REUSE]));
    assert_eq!((count(&other, "totalCount"), other["reusedRunCount"].as_i64()), (3, Some(8)), "{other}");

    // A deeper model of equal layers, whose last ones are elsewhere in the chain.
    let deeper = json(&planner, &run("deeper", &[REUSE]).replace("--blocks 3", "--blocks 7"));
    assert_eq!(
        (deeper["state"].as_str(), deeper["reusedRunCount"].as_i64()),
        (Some("COMPLETE"), Some(8)),
        "{deeper}"
    );
    let of_deeper = measured("deeper");
    let last = of_deeper.as_array().unwrap().iter().filter_map(|of| of["stage"]["lastLayer"].as_i64()).max();
    assert_eq!(last, Some(9), "the head is layer 9 of 7 blocks");

    let fresh = json(&planner, &run("fresh", &["--ignore-stored-runs"]));
    assert_eq!((count(&fresh, "succeededCount"), fresh["reusedRunCount"].as_i64()), (11, Some(0)), "{fresh}");
    let other_precision = json(&planner, &run("other-precision", &["--precision", "bf16", REUSE]));
    assert_eq!(other_precision["reusedRunCount"].as_i64(), Some(0), "{other_precision}");
}

/// A dry run tells what it would cost, and that CPU slots wait until there are cores for them.
#[test]
fn a_dry_run_says_what_would_be_queued_and_reused() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    let said = |id: &str| cli(&planner, &run(id, &["--dry-run", REUSE])).stderr;
    let at_once = std::thread::available_parallelism().unwrap().get().min(4);
    let cost = format!("would queue 11 runs on cpu devices, at most {at_once} at once.");
    assert!(said("a").contains(&cost), "{}", said("a"));
    json(&planner, &run("a", &[]));
    assert!(said("b").contains("would queue 0 runs and reuse 11"), "{}", said("b"));
}

/// While somebody else computes on all cores, bytes are measured and seconds are not: the profile says so, its
/// bytes serve whoever asks for no more, and everybody else measures again.
#[test]
fn what_was_measured_on_a_busy_host_is_flagged_and_not_reused_for_its_seconds() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::default());
    let burners = Burners::start();
    let profile = json(&planner, &run("busy", &[]));
    drop(burners);
    assert_eq!(
        (profile["state"].as_str(), able(&profile)),
        (Some("COMPLETE"), vec!["component"]),
        "{profile}"
    );
    let contended = profile["contendedMeasurementCount"].as_u64().unwrap_or(0);
    assert!(contended > 0 && profile["externalCpuShare"].as_f64().unwrap() > 0.1, "{profile}");
    let table = cli(&planner, &["profile", "show", "busy"]).stdout;
    let warning = format!("of the CPU cores during {contended} of the measurements");
    assert!(table.contains(&warning) && table.contains("`--reuse-contended`"), "{table}");
    let table = cli(&planner, &["profile", "measurements", "busy", "--limit", "0"]).stdout;
    assert_eq!(table.matches(" (contended)").count() as u64, contended, "{table}");

    let said = |options: &[&str]| cli(&planner, &run("next", &[&["--dry-run"], options].concat())).stderr;
    let again = format!("would queue {contended} runs");
    assert!(said(&[]).contains(&again), "{}", said(&[]));
    assert!(said(&[REUSE]).contains("would queue 0 runs and reuse 11"), "{}", said(&[REUSE]));
}

/// Processes that compute on all cores until they are dropped.
struct Burners(Vec<Child>);

impl Burners {
    fn start() -> Self {
        let cores = std::thread::available_parallelism().unwrap().get();
        let burn = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        Self((0..cores).map(|_| burn()).collect())
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for burner in &mut self.0 {
            let _ = burner.kill();
            let _ = burner.wait();
        }
    }
}

/// A cancelled profile goes on where it was; nothing is measured twice.
#[test]
fn a_cancelled_profile_is_resumed_without_measuring_anything_twice() {
    let folder = TempDir::new().unwrap();
    let planner = Planner::start();
    let slow = format!(
        "if [ \"$1\" = train ]; then sleep 0.5; fi\nexec {} \"$@\"",
        binary("loadmaster-rank").display()
    );
    let rank = script(folder.path(), "rank.sh", &slow);
    let _worker = Worker::start(&planner, &WorkerOptions { rank, ..WorkerOptions::slots("1x1GiB") });
    let operation = json(&planner, &run("p", &["--no-wait"]))["name"].as_str().unwrap().to_owned();
    let done = |operation: &str| {
        let shown = json(&planner, &["operation", "show", operation]);
        shown["metadata"]["runCounts"]["succeededCount"].as_u64().unwrap_or(0)
    };
    wait_until("some runs are done", || (done(&operation) >= 3).then_some(()));
    let running = json(&planner, &["operation", "show", &operation]);
    assert!(running["metadata"]["remainingSeconds"].as_f64().is_some_and(|left| left > 0.0), "{running}");
    assert_eq!(cli(&planner, &["operation", "cancel", &operation]).code, 0);
    let cancelled = wait_until("the profile is cancelled", || {
        let profile = json(&planner, &["profile", "show", "p"]);
        (profile["state"] == "CANCELLED").then_some(profile)
    });
    assert!(!cancelled["missing"].as_array().unwrap().is_empty(), "it says what is missing: {cancelled}");

    let resumed = json(&planner, &["profile", "resume", "p"]);
    assert_eq!(resumed["state"], "COMPLETE", "{resumed}");
    assert_ne!(resumed["operation"], operation.as_str());
    assert_eq!(count(&resumed, "succeededCount"), 11, "{resumed}");
    let output = cli(&planner, &["profile", "resume", "p"]);
    assert_ne!(output.code, 0);
    assert!(output.stderr.contains("PROFILE_NOT_RESUMABLE"), "{}", output.stderr);
}

/// Layers that do not fit at the wanted sizes are measured at smaller ones, by themselves.
#[test]
fn what_does_not_fit_is_measured_at_smaller_micro_batches() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::slots("2x6MiB"));
    let profile = json(&planner, &run("small", &["--profile-micro-batch-sizes", "64,128"]));
    assert!(count(&profile, "outOfMemoryCount") > 0, "{profile}");
    assert!(profile["reducedBatchRunCount"].as_u64().unwrap() > 0, "{profile}");
    assert_eq!(profile["state"], "COMPLETE", "{profile}");
    let runs = json(&planner, &["run", "list", "--limit", "0"]);
    let shrunk: Vec<&Value> = runs["runs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|run| run["originalRun"].as_str().is_some_and(|from| from.starts_with("runs/")))
        .collect();
    assert_eq!(shrunk.len() as u64, profile["reducedBatchRunCount"].as_u64().unwrap());
    let table = cli(&planner, &["profile", "show", "small"]).stdout;
    assert!(table.contains("repeated at a smaller micro-batch"), "{table}");
}

/// CAPTURE's campaign over sub-meshes: single devices, data and tensor parallelism of degree 2, whole
/// partitionings each.
#[test]
#[ignore = "slow: make test-slow"]
fn the_papers_campaign_measures_every_scenario_that_the_devices_allow() {
    let planner = Planner::start();
    let _worker = Worker::start(&planner, &WorkerOptions::slots("6x1GiB"));
    let options =
        ["--profiling-mode", "whole-pipeline", "--device-count", "6", "--profile-micro-batch-sizes", "2,4"];
    let profile = json(&planner, &run("paper", &[&options[..], &["--scale-from-single-devices"]].concat()));
    assert_eq!(profile["state"], "COMPLETE", "{profile}");
    assert_eq!(able(&profile), ["capture"]);
    let scenarios: Vec<String> = profile["scenarios"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| {
            format!(
                "{} {} {}",
                of["parallelism"].as_str().unwrap(),
                of["parallelSize"],
                of["microBatchSizes"]
            )
        })
        .collect();
    assert_eq!(scenarios, ["PARALLELISM_NONE 1 [2,4]", "PARALLELISM_DATA 2 [4]", "PARALLELISM_TENSOR 2 [4]"]);
    let layers = profile["layerMemory"].as_array().unwrap();
    assert!(layers.iter().all(|layer| layer["isolatedBytes"].is_string()), "{profile}");
}
