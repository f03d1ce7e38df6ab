//! Killed processes lose and double nothing; what cannot succeed is reported as what it is.

use std::time::Duration;

use loadmaster_tests::{
    Planner, PlannerOptions, Worker, WorkerOptions, binary, cli, json, script, wait_until,
};
use serde_json::Value;
use tempfile::TempDir;

/// A small profile: three stages, every run a pipeline of three ranks.
const PROFILE: [&str; 26] = [
    "profile",
    "run",
    "--id",
    "p",
    "--model",
    "gpt2",
    "--blocks",
    "3",
    "--hidden-size",
    "32",
    "--heads",
    "2",
    "--sequence-length",
    "16",
    "--vocabulary-size",
    "100",
    "--micro-batch-size",
    "2",
    "--micro-batches",
    "2",
    "--devices",
    "3",
    "--profile-micro-batch-sizes",
    "1",
    "--campaign",
    "paper",
];

/// A rank program that does `before` and then trains for real.
fn slowed_rank(folder: &TempDir, before: &str) -> std::path::PathBuf {
    let rank = binary("loadmaster-rank");
    let body = format!("if [ \"$1\" = train ]; then {before}; fi\nexec {} \"$@\"", rank.display());
    script(folder.path(), "rank.sh", &body)
}

fn start_profile(planner: &Planner) -> String {
    let mut arguments = PROFILE.to_vec();
    arguments.push("--no-wait");
    json(planner, &arguments)["name"].as_str().unwrap().to_owned()
}

fn runs(planner: &Planner) -> Vec<Value> {
    json(planner, &["run", "list", "--limit", "0"])["runs"].as_array().cloned().unwrap_or_default()
}

fn in_state(planner: &Planner, state: &str) -> usize {
    runs(planner).iter().filter(|run| run["state"] == state).count()
}

/// Every run succeeded once: a measurement for each of its devices, no more.
fn assert_nothing_lost_or_doubled(planner: &Planner) {
    let all = runs(planner);
    assert!(!all.is_empty());
    let mut total = 0;
    for run in &all {
        let run = json(planner, &["run", "show", run["name"].as_str().unwrap()]);
        assert_eq!(run["state"], "SUCCEEDED", "{run}");
        let measurements = run["measurements"].as_array().map_or(0, Vec::len);
        assert_eq!(Some(measurements as u64), run["deviceCount"].as_u64(), "{run}");
        total += measurements;
    }
    let measured = json(planner, &["profile", "measurements", "p", "--limit", "0"]);
    assert_eq!(measured["measurements"].as_array().map(Vec::len), Some(total));
}

#[test]
fn a_killed_workers_runs_are_done_again_by_the_next_one() {
    let folder = TempDir::new().unwrap();
    let planner = Planner::start();
    let options = WorkerOptions {
        slots: "3x512MiB".to_owned(),
        rank: slowed_rank(&folder, "sleep 1"),
        ..WorkerOptions::default()
    };
    let mut worker = Worker::start(&planner, &options);
    let operation = start_profile(&planner);
    wait_until("a run trains", || (worker.ranks().len() == 3).then_some(()));
    let ranks = worker.ranks();
    worker.program().kill();
    for rank in ranks {
        wait_until("the ranks die with their daemon", || {
            nix::sys::signal::kill(rank, None).is_err().then_some(())
        });
    }

    let _next = Worker::start(&planner, &WorkerOptions { name: "next".to_owned(), ..options });
    let profile = json(&planner, &["operation", "wait", &operation]);
    assert_eq!(profile["state"], "COMPLETE", "{profile}");
    assert_nothing_lost_or_doubled(&planner);
    let expired = runs(&planner).iter().any(|run| {
        run["failures"].as_array().is_some_and(|all| all.iter().any(|f| f["kind"] == "LEASE_EXPIRED"))
    });
    assert!(expired, "the history says that a lease expired");
}

#[test]
fn a_killed_planner_goes_on_where_it_was_and_its_worker_comes_back() {
    let folder = TempDir::new().unwrap();
    let mut planner = Planner::start();
    let options = WorkerOptions {
        slots: "3x512MiB".to_owned(),
        rank: slowed_rank(&folder, "sleep 0.3"),
        ..WorkerOptions::default()
    };
    let worker = Worker::start(&planner, &options);
    let operation = start_profile(&planner);
    wait_until("a run trains while others are done", || {
        (in_state(&planner, "SUCCEEDED") > 0 && worker.ranks().len() == 3).then_some(())
    });
    let done_before = in_state(&planner, "SUCCEEDED");
    planner.kill();
    std::thread::sleep(Duration::from_millis(500));
    planner.restart();
    assert!(in_state(&planner, "SUCCEEDED") >= done_before, "stored results survive");
    let profile = json(&planner, &["operation", "wait", &operation]);
    assert_eq!(profile["state"], "COMPLETE", "{profile}");
    assert_nothing_lost_or_doubled(&planner);
}

#[test]
fn a_cancelled_operation_stops_its_ranks_and_frees_the_devices() {
    let folder = TempDir::new().unwrap();
    let planner = Planner::start();
    let options = WorkerOptions {
        slots: "3x512MiB".to_owned(),
        rank: slowed_rank(&folder, "sleep 600"),
        ..WorkerOptions::default()
    };
    let worker = Worker::start(&planner, &options);
    let operation = start_profile(&planner);
    wait_until("a run is held", || (worker.ranks().len() == 3).then_some(()));
    assert_eq!(cli(&planner, &["operation", "cancel", &operation]).code, 0);
    wait_until("the ranks are gone", || worker.ranks().is_empty().then_some(()));
    wait_until("every run is cancelled", || {
        (in_state(&planner, "QUEUED") + in_state(&planner, "RUNNING") == 0).then_some(())
    });
    let shown = wait_until("the operation has ended", || {
        let shown = json(&planner, &["operation", "show", &operation]);
        (shown["done"] == true).then_some(shown)
    });
    assert_eq!(shown["error"]["code"], 1, "CANCELLED: {shown}");
    wait_until("run folders are removed", || {
        let entries = std::fs::read_dir(worker.work_dir()).map(Iterator::count).unwrap_or(0);
        (entries <= 1).then_some(())
    });
}

#[test]
fn out_of_memory_is_a_result_with_its_bytes_and_never_retried() {
    let planner = Planner::start();
    let options = WorkerOptions { slots: "3x1MiB".to_owned(), ..WorkerOptions::default() };
    let _worker = Worker::start(&planner, &options);
    // The embedding alone is larger than a device, and every partitioning has it.
    let mut arguments = PROFILE;
    let vocabulary = arguments.iter().position(|argument| *argument == "100").unwrap();
    arguments[vocabulary] = "20000";
    let output = cli(&planner, &arguments);
    assert_ne!(output.code, 0, "{}", output.stdout);
    assert!(output.stderr.contains("OUT_OF_MEMORY"), "{}", output.stderr);
    for run in runs(&planner) {
        assert_eq!(run["state"], "OUT_OF_MEMORY", "{run}");
        assert_eq!(run["attempts"], 1);
        let oom = &run["failures"][0]["outOfMemory"];
        let bytes = |field: &str| oom[field].as_str().unwrap().parse::<i64>().unwrap();
        assert_eq!(bytes("allowedBytes"), 1 << 20);
        assert!(bytes("heldBytes") + bytes("askedBytes") > bytes("allowedBytes"), "{oom}");
        assert_eq!(oom["ledger"], "LEDGER_ALLOCATED");
    }
}

#[test]
fn a_segfault_parks_the_run_after_three_attempts_and_says_so() {
    let folder = TempDir::new().unwrap();
    let planner = Planner::start();
    let options = WorkerOptions {
        slots: "3x512MiB".to_owned(),
        rank: slowed_rank(&folder, "kill -SEGV $$"),
        ..WorkerOptions::default()
    };
    let _worker = Worker::start(&planner, &options);
    let output = cli(&planner, &PROFILE);
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stderr.contains("SIGSEGV"), "{}", output.stderr);
    for run in runs(&planner) {
        assert_eq!(run["state"], "PARKED");
        assert_eq!(run["attempts"], 3);
        let failures = run["failures"].as_array().unwrap();
        assert_eq!(failures.len(), 3);
        assert!(failures.iter().all(|failure| failure["kind"] == "CRASHED" && failure["code"] == 11));
    }
}

#[test]
fn a_hang_is_noticed_killed_and_reported_as_one() {
    let folder = TempDir::new().unwrap();
    let planner = Planner::start();
    let options = WorkerOptions {
        slots: "3x512MiB".to_owned(),
        rank: slowed_rank(&folder, "sleep 600"),
        arguments: ["--hang-timeout", "1s"].map(str::to_owned).to_vec(),
        ..WorkerOptions::default()
    };
    let worker = Worker::start(&planner, &options);
    let operation = start_profile(&planner);
    let run = wait_until("a hang is reported", || {
        runs(&planner).into_iter().find(|run| run["failures"].as_array().is_some_and(|all| !all.is_empty()))
    });
    assert_eq!(run["failures"][0]["kind"], "HUNG", "{run}");
    assert_eq!(cli(&planner, &["operation", "cancel", &operation]).code, 0);
    wait_until("nothing is left behind", || worker.ranks().is_empty().then_some(()));
}

#[test]
fn the_planner_enforces_a_deadline_although_heartbeats_continue() {
    let folder = TempDir::new().unwrap();
    let planner = Planner::start();
    let options = WorkerOptions {
        slots: "3x512MiB".to_owned(),
        rank: slowed_rank(&folder, "sleep 600"),
        ..WorkerOptions::default()
    };
    let worker = Worker::start(&planner, &options);
    let mut arguments = PROFILE.to_vec();
    arguments.extend(["--run-deadline", "2", "--no-wait"]);
    let operation = json(&planner, &arguments)["name"].as_str().unwrap().to_owned();
    let run = wait_until("the deadline is noticed", || {
        runs(&planner).into_iter().find(|run| run["failures"].as_array().is_some_and(|all| !all.is_empty()))
    });
    assert_eq!(run["failures"][0]["kind"], "HUNG", "{run}");
    assert_eq!(cli(&planner, &["operation", "cancel", &operation]).code, 0);
    wait_until("nothing is left behind", || worker.ranks().is_empty().then_some(()));
}

#[test]
fn a_worker_that_drains_finishes_its_run_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    // A lease that outlasts the test: only the worker's own report can end the run.
    let planner = Planner::start_with(PlannerOptions::default());
    let options = WorkerOptions {
        slots: "3x512MiB".to_owned(),
        rank: slowed_rank(&folder, "sleep 1"),
        ..WorkerOptions::default()
    };
    let mut worker = Worker::start(&planner, &options);
    let operation = start_profile(&planner);
    wait_until("a run trains", || (worker.ranks().len() == 3).then_some(()));
    let status = worker.program().stop();
    assert!(status.success(), "{status}");
    assert_eq!(in_state(&planner, "SUCCEEDED"), 1, "the run that it held was finished");
    assert_eq!(in_state(&planner, "RUNNING"), 0);
    let shown = json(&planner, &["worker", "show", "test"]);
    assert_eq!(shown["state"], "GONE");
    assert_eq!(cli(&planner, &["operation", "cancel", &operation]).code, 0);
}
