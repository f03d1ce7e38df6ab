//! Killed processes lose and double nothing; what cannot succeed is reported as what it is.

use std::time::Duration;

use loadmaster_proto::wire::v1;
use loadmaster_tests::{
    Planner, TINY_GPT2, Worker, WorkerOptions, binary, call, cli, is_alive, json, script, wait_until,
};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use tempfile::TempDir;
use tonic::Code;
use tonic_types::StatusExt;

/// A small profile: every run a pipeline of up to three ranks.
fn profile() -> String {
    let sizes = "--micro-batch-size 2 --micro-batches 2 --profile-micro-batch-sizes 1";
    format!("profile run --id p --device-count 3 --profiling-mode whole-pipeline {sizes} {TINY_GPT2}")
}

/// A worker of three slots whose ranks do `before` and then train for real.
fn slowed_worker(folder: &TempDir, before: &str) -> WorkerOptions {
    let rank = binary("loadmaster-rank");
    let body = format!("if [ \"$1\" = train ]; then {before}; fi\nexec {} \"$@\"", rank.display());
    let rank = script(folder.path(), "rank.sh", &body);
    WorkerOptions { rank, ..WorkerOptions::slots("3x512MiB") }
}

fn start_profile(planner: &Planner) -> String {
    json(planner, &format!("{} --no-wait", profile()))["name"].as_str().unwrap().to_owned()
}

fn runs(planner: &Planner) -> Vec<Value> {
    json(planner, &["run", "list", "--limit", "0"])["runs"].as_array().cloned().unwrap_or_default()
}

/// The first run whose history has a failure.
fn first_failed_run(planner: &Planner) -> Value {
    wait_until("a failure is reported", || {
        runs(planner).into_iter().find(|run| run["failures"].as_array().is_some_and(|all| !all.is_empty()))
    })
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
    let options = slowed_worker(&folder, "sleep 1");
    let mut worker = Worker::start(&planner, &options);
    let operation = start_profile(&planner);
    wait_until("a run trains", || (worker.ranks().len() == 3).then_some(()));
    let ranks = worker.ranks();
    worker.program().kill();
    for rank in ranks {
        wait_until("the ranks die with their daemon", || (!is_alive(rank)).then_some(()));
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
    let options = slowed_worker(&folder, "sleep 0.3");
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

/// Runs go on while there is no database, and what they measured is stored by the next one.
#[test]
fn a_killed_embedded_postgres_is_started_again_and_nothing_is_lost() {
    let folder = TempDir::new().unwrap();
    let mut planner = Planner::start();
    let worker = Worker::start(&planner, &slowed_worker(&folder, "sleep 0.3"));
    let operation = start_profile(&planner);
    for _ in 0..2 {
        wait_until("a run trains", || (worker.ranks().len() == 3).then_some(()));
        let killed = planner.postmaster().unwrap();
        kill(killed, Signal::SIGKILL).unwrap();
        wait_until("another Postgres answers", || {
            let other = planner.postmaster().is_some_and(|now| now != killed && is_alive(now));
            (other && cli(&planner, &["run", "list"]).code == 0).then_some(())
        });
    }
    let profile = json(&planner, &["operation", "wait", &operation]);
    assert_eq!(profile["state"], "COMPLETE", "{profile}");
    assert_nothing_lost_or_doubled(&planner);
    assert!(planner.program().output().contains("embedded PostgreSQL ended unexpectedly"));
}

/// Meanwhile calls are told that it is the database, and for the moment; in the end the planner gives up.
#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_postgres_that_cannot_be_started_again_ends_its_planner() {
    let mut planner = Planner::start();
    let channel = planner.channel().await;
    let configuration = planner.data_dir().join("postgres").join("postgresql.conf");
    std::fs::write(configuration, "no such setting = 1\n").unwrap();
    kill(planner.postmaster().unwrap(), Signal::SIGKILL).unwrap();
    let refused = loop {
        if let Err(status) = call(&channel, v1::ListModelsRequest::default()).await {
            break status;
        }
    };
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert_eq!(refused.get_details_error_info().unwrap().reason, "DATABASE_UNAVAILABLE");
    let status = planner.program().wait();
    assert_eq!(status.code(), Some(1), "{status}");
    let output = planner.program().output();
    let last = output.lines().rev().find(|line| line.starts_with("error:")).unwrap();
    assert!(last.contains("restarted 5 times") && last.contains("postgres.log"), "{output}");
}

/// The lease outlasts the test: the end follows from the worker's word, not from an expired lease.
#[test]
fn a_cancelled_operation_stops_its_ranks_and_frees_the_devices() {
    let folder = TempDir::new().unwrap();
    let planner = Planner::start_with(&["--lease-duration", "3600s", "--heartbeat-interval", "0.5s"]);
    let options = slowed_worker(&folder, "sleep 600");
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
    let _worker = Worker::start(&planner, &WorkerOptions::slots("3x1MiB"));
    // The embedding alone is larger than a device, and every partitioning has it. What fits without it is
    // measured, at smaller micro-batch sizes if need be, and the rest is missing for this reason.
    let larger = profile().replace("--vocabulary-size 100", "--vocabulary-size 20000");
    let output = cli(&planner, &larger);
    assert_ne!(output.code, 0, "{}", output.stdout);
    assert!(output.stderr.contains("OUT_OF_MEMORY"), "{}", output.stderr);
    let profile = json(&planner, &["profile", "show", "p"]);
    assert_eq!(profile["state"], "INCOMPLETE", "{profile}");
    let runs = runs(&planner);
    let is_whole = |run: &&Value| run["spec"]["pipelineLayout"].is_object();
    assert!(runs.iter().any(|run| run["state"] == "SUCCEEDED"), "layers that fit are measured");
    assert!(runs.iter().any(|run| is_whole(&run)), "{runs:?}");
    assert!(runs.iter().filter(is_whole).all(|run| run["state"] == "OUT_OF_MEMORY"), "{runs:?}");
    for run in runs.iter().filter(|run| run["state"] == "OUT_OF_MEMORY") {
        assert_eq!(run["attemptCount"], 1);
        let oom = &run["failures"][0]["outOfMemory"];
        let bytes = |field: &str| oom[field].as_str().unwrap().parse::<i64>().unwrap();
        assert_eq!(bytes("allowedBytes"), 1 << 20);
        assert!(bytes("heldBytes") + bytes("requestedBytes") > bytes("allowedBytes"), "{oom}");
        assert_eq!(oom["accounting"], "MEMORY_ACCOUNTING_ALLOCATED");
    }
}

/// A rank that ends so whatever it trains is not started for every run three times.
#[test]
fn a_segfault_in_run_after_run_stops_the_campaign_and_says_so() {
    let folder = TempDir::new().unwrap();
    let planner = Planner::start();
    // One slot: runs that fail together on a host count as one.
    let options = WorkerOptions { slots: "1x512MiB".to_owned(), ..slowed_worker(&folder, "kill -SEGV $$") };
    let _worker = Worker::start(&planner, &options);
    let run = format!("profile run --id p --micro-batch-size 2 --micro-batches 2 {TINY_GPT2}");
    let output = cli(&planner, &run);
    assert_eq!(output.code, 1, "{}", output.stderr);
    for part in ["3 runs failed with the same error", "SIGSEGV", "loadmaster profile resume p"] {
        assert!(output.stderr.contains(part), "no {part:?} in {}", output.stderr);
    }
    let runs = runs(&planner);
    let failures: Vec<&Value> =
        runs.iter().flat_map(|run| run["failures"].as_array().into_iter().flatten()).collect();
    assert!(failures.iter().all(|failure| failure["kind"] == "CRASHED" && failure["exitCode"] == 11));
    assert_eq!(failures.len(), 3, "{failures:?}");
    assert!(runs.len() > 3 && runs.iter().all(|run| run["state"] == "CANCELLED"), "{runs:?}");
}

/// A run that always crashes costs itself alone where others succeed between.
#[test]
fn a_segfault_parks_its_run_after_three_attempts_and_the_others_go_on() {
    let folder = TempDir::new().unwrap();
    let planner = Planner::start();
    let rank = binary("loadmaster-rank");
    let body = format!(
        "[ \"$1\" = train ] || exec {rank} \"$@\"\nspec=$(cat)\n\
         case \"$spec\" in *'\"first_layer\":0,\"last_layer\":0,'*) kill -SEGV $$;; esac\n\
         printf '%s' \"$spec\" | {rank} \"$@\"",
        rank = rank.display()
    );
    let rank = script(folder.path(), "rank.sh", &body);
    let _worker = Worker::start(&planner, &WorkerOptions { rank, ..WorkerOptions::default() });
    let run = format!("profile run --id p --micro-batch-size 2 --micro-batches 2 {TINY_GPT2}");
    let output = cli(&planner, &run);
    assert_ne!(output.code, 0, "{}", output.stdout);
    let (failed, others): (Vec<Value>, Vec<Value>) =
        runs(&planner).into_iter().partition(|run| run["state"] == "FAILED");
    assert!(!failed.is_empty() && others.len() > failed.len(), "{failed:?} {others:?}");
    assert!(others.iter().all(|run| run["state"] == "SUCCEEDED"), "{others:?}");
    for run in failed {
        assert_eq!(run["attemptCount"], 3);
        let failures = run["failures"].as_array().unwrap();
        assert_eq!(failures.len(), 3);
        assert!(failures.iter().all(|failure| failure["kind"] == "CRASHED" && failure["exitCode"] == 11));
        assert!(failures[0]["message"].as_str().unwrap().contains("SIGSEGV"), "{run}");
    }
}

#[test]
fn a_hang_is_noticed_killed_and_reported_as_one() {
    let folder = TempDir::new().unwrap();
    let planner = Planner::start();
    let worker = Worker::start(&planner, &slowed_worker(&folder, "sleep 600").with("--hang-timeout 1s"));
    it_hung(&planner, &worker, &start_profile(&planner));
}

/// A run of an operation is killed as one that hung, and nothing is left once it is cancelled.
fn it_hung(planner: &Planner, worker: &Worker, operation: &str) {
    let run = first_failed_run(planner);
    assert_eq!(run["failures"][0]["kind"], "HUNG", "{run}");
    assert_eq!(cli(planner, &["operation", "cancel", operation]).code, 0);
    wait_until("nothing is left behind", || worker.ranks().is_empty().then_some(()));
}

#[test]
fn the_planner_enforces_a_deadline_although_heartbeats_continue() {
    let folder = TempDir::new().unwrap();
    let planner = Planner::start();
    let worker = Worker::start(&planner, &slowed_worker(&folder, "sleep 600"));
    let begun = json(&planner, &format!("{} --run-time-limit 2s --no-wait", profile()));
    it_hung(&planner, &worker, begun["name"].as_str().unwrap());
}

#[test]
fn a_worker_that_drains_finishes_its_run_and_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    // A lease that outlasts the test: only the worker's own report can end the run.
    let planner = Planner::start_with(&[]);
    let options = slowed_worker(&folder, "sleep 1");
    let mut worker = Worker::start(&planner, &options);
    let operation = start_profile(&planner);
    wait_until("a run trains", || (worker.ranks().len() == 3).then_some(()));
    let refused = cli(&planner, &["worker", "delete", "test"]);
    assert!(refused.code == 1 && refused.stderr.contains("WORKER_IN_USE"), "{}", refused.stderr);
    let status = worker.program().stop();
    assert!(status.success(), "{status}");
    assert_eq!(in_state(&planner, "SUCCEEDED"), 1, "the run that it held was finished");
    assert_eq!(in_state(&planner, "RUNNING"), 0);
    let shown = json(&planner, &["worker", "show", "test"]);
    assert_eq!(shown["state"], "GONE");
    assert_eq!(cli(&planner, &["operation", "cancel", &operation]).code, 0);
    let deleted = cli(&planner, &["worker", "delete", "test"]);
    assert_eq!(deleted.code, 0, "{}", deleted.stderr);
    assert_eq!(cli(&planner, &["worker", "show", "test"]).code, 3);
    assert_eq!(in_state(&planner, "SUCCEEDED"), 1, "what it did stays");
}
