//! Pins what a command is told, and what becomes of each thing that it may leave behind.

use std::fs;
use std::time::Duration;

use loadmaster_proto::accounting::Accounting;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::measure::failure::{FailureKind, RunFailure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::run::Progress;
use crate::testing::{lease, named, spec};

/// Two slots of a MiB each, for a run of two stages.
fn job() -> Job<RunSpec> {
    let mut lease = lease(2);
    for device in &mut lease.devices {
        device.capacity = Bytes(1 << 20);
    }
    Job { lease, task: spec(2) }
}

fn contact(progress: mpsc::Sender<Progress>) -> Contact {
    Contact { claim: named("one", 1), stop: CancellationToken::new(), progress }
}

fn name() -> CommandName {
    CommandName::parse("", "script").unwrap()
}

/// A shell script as a command; `$R` is the folder for results.
fn shell(script: &str) -> TrainingCommand {
    let script = format!("R=\"${{LOADMASTER_RUN%run.json}}results\"\n{script}");
    TrainingCommand {
        argv: ["sh", "-c", &script, "script", "{ranks}"].map(str::to_owned).to_vec(),
        environment: [("COLOUR".to_owned(), "blue".to_owned())].into(),
        working_directory: None,
        timeout: None,
        ledger: Accounting::Reserved,
    }
}

/// What a rank reports, with some keys changed (null removes one).
fn report(rank: usize, changes: Value) -> String {
    let mut file = json!({
        "format": "loadmaster.rank/1", "rank": rank, "ledger": "reserved", "framework": "torch",
        "framework_version": "2.11.0", "peak_bytes": 1000 + rank, "parameter_bytes": 40,
        "iteration_seconds": 0.5, "losses": [2.5, null],
        "layers": [{"layer": rank, "forward_seconds": 0.1, "backward_seconds": 0.2, "recompute_seconds": 0}]
    });
    for (key, value) in changes.as_object().into_iter().flatten() {
        match value {
            Value::Null => drop(file.as_object_mut().unwrap().remove(key)),
            value => file[key] = value.clone(),
        }
    }
    file.to_string()
}

fn writes(files: &[String]) -> String {
    let lines =
        files.iter().enumerate().map(|(rank, text)| format!("echo '{text}' >\"$R/rank-{rank}.json\"\n"));
    lines.collect()
}

async fn run_in(folder: &TempDir, command: &TrainingCommand) -> Outcome {
    let (progress, _progress) = mpsc::channel(16);
    run(&name(), command, &job(), folder.path(), &contact(progress)).await
}

async fn outcome(command: &TrainingCommand) -> Outcome {
    run_in(&tempfile::tempdir().unwrap(), command).await
}

async fn failure(command: &TrainingCommand) -> RunFailure {
    match outcome(command).await {
        Outcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn every_rank_is_measured_in_the_ledger_that_the_command_states() {
    let script = writes(&[report(0, json!({})), report(1, json!({"peak_reserved_bytes": 5000}))]);
    let Outcome::Measured(measurements) = outcome(&shell(&script)).await else { panic!("it failed") };
    let [first, second] = measurements.as_slice() else { panic!("{measurements:?}") };
    assert_eq!((first.peak_allocated, first.peak_ledger), (Bytes(1000), Accounting::Reserved));
    assert_eq!((first.peak_reserved, second.peak_reserved), (Some(Bytes(1000)), Some(Bytes(5000))));
    assert_eq!((first.stage_index, second.stage_index, second.stage.first_layer), (0, 1, 1));
    assert!(first.losses[1].is_nan() && first.static_bytes.parameters == 40);
    let environment = &second.environment;
    assert_eq!((environment.command.as_str(), environment.framework.as_str()), ("script", "torch"));
    assert_eq!(
        (environment.framework_version.as_str(), environment.libtorch_version.as_str()),
        ("2.11.0", "")
    );
}

#[tokio::test]
async fn a_command_is_told_the_run_and_gets_its_own_environment() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "{}echo \"$1 $COLOUR [$CUDA_VISIBLE_DEVICES] $PWD\" >\"$R/told\"",
        writes(&[report(0, json!({})), report(1, json!({}))])
    );
    assert!(matches!(run_in(&folder, &shell(&script)).await, Outcome::Measured(_)));
    let told = fs::read_to_string(folder.path().join("results/told")).unwrap();
    let here = folder.path().canonicalize().unwrap();
    assert_eq!(told.trim(), format!("2 blue [] {}", here.display()));
    let run: Value = serde_json::from_slice(&fs::read(folder.path().join("run.json")).unwrap()).unwrap();
    assert_eq!((&run["format"], &run["run"]), (&json!("loadmaster.run/1"), &json!("runs/one")));
    assert_eq!(
        (&run["solo"], &run["stage_count"], &run["ledger"]),
        (&json!(false), &json!(2), &json!("reserved"))
    );
    assert_eq!(run["stages"][1]["ranks"], json!([1]));
    assert_eq!(run["ranks"][1]["device"]["capacity_bytes"], json!(1 << 20));
    assert_eq!(run["ranks"][1]["device"]["cuda_index"], Value::Null);
    assert_eq!(run["training"]["micro_batch_size"], json!(job().task.strategy.training.micro_batch_size));
}

#[tokio::test]
async fn out_of_memory_counts_however_the_command_ends() {
    let lack =
        json!({"peak_bytes": null, "out_of_memory": {"phase": "backward", "layer": 1, "asked_bytes": 7}});
    for end in ["exit 0", "exit 1", "kill -KILL $$"] {
        let script = format!("{}{end}", writes(&[report(0, json!({})), report(1, lack.clone())]));
        let failure = failure(&shell(&script)).await;
        let FailureKind::OutOfMemory { out_of_memory } = &failure.kind else { panic!("{failure:?}") };
        assert_eq!((out_of_memory.asked, out_of_memory.allowed), (Bytes(7), Bytes(1 << 20)));
        assert_eq!((out_of_memory.ledger, failure.stage_index), (Accounting::Reserved, Some(1)));
        assert!(failure.message.contains("backward of layer 1"), "{}", failure.message);
    }
}

/// Pins that no broken result becomes a measurement, and that the message names file and key.
#[tokio::test]
async fn a_broken_result_is_named() {
    let good = report(0, json!({}));
    for (second, words) in [
        (report(1, json!({"rank": 0})), "rank: 0 differs from the rank in the file name. Use 1."),
        (report(1, json!({"ledger": "allocated"})), "in the worker's configuration. Use reserved."),
        (report(1, json!({"peak_bytes": null})), "peak_bytes: is missing"),
        (report(1, json!({"peak_bytes": 0})), "peak_bytes: 0 is not"),
        (report(1, json!({"peak_bytes": -1})), "peak_bytes: invalid value"),
        (report(1, json!({"peak_byte": 5})), "unknown field `peak_byte`"),
        (report(1, json!({"iteration_seconds": null})), "iteration_seconds: is missing"),
        (report(1, json!({"iteration_seconds": -0.5})), "iteration_seconds: -0.5 is"),
        (report(1, json!({"format": "x"})), "format: \"x\" is not"),
        (
            report(
                1,
                json!({"layers": [{"layer": 0, "forward_seconds": 0, "backward_seconds": 0,
                                      "recompute_seconds": 0}]}),
            ),
            "layers[0].layer: 0 is not",
        ),
        (report(1, json!({"framework": "x".repeat(200)})), "framework: is too long"),
        ("{".to_owned(), "EOF while parsing"),
    ] {
        let failure = failure(&shell(&writes(&[good.clone(), second]))).await;
        assert_eq!((&failure.kind, failure.stage_index), (&FailureKind::Exited { code: 0 }, Some(1)));
        assert!(failure.message.contains("rank-1.json is not valid"), "{}", failure.message);
        assert!(failure.message.contains(words), "{:?} lacks {words:?}", failure.message);
    }
    let missing = failure(&shell(&writes(std::slice::from_ref(&good)))).await;
    assert!(missing.message.contains("rank-1.json is missing"), "{}", missing.message);
    let script =
        format!("{}head -c 5000000 /dev/zero >\"$R/rank-1.json\"", writes(std::slice::from_ref(&good)));
    let huge = failure(&shell(&script)).await;
    assert!(huge.message.contains("has 5000000 bytes, more than"), "{}", huge.message);
    // Reading a pipe would keep the daemon waiting for ever.
    let pipe = failure(&shell(&format!("{}mkfifo \"$R/rank-1.json\"", writes(&[good])))).await;
    assert!(pipe.message.contains("is not a regular file"), "{}", pipe.message);
}

#[tokio::test]
async fn each_bad_end_is_told_apart_and_quotes_the_command() {
    let script =
        format!("{}echo no cupboard >&2; exit 3", writes(&[report(0, json!({})), report(1, json!({}))]));
    let code = failure(&shell(&script)).await;
    assert_eq!(code.kind, FailureKind::Exited { code: 3 });
    assert!(code.message.contains("script ended with code 3: no cupboard"), "{}", code.message);
    let signal = failure(&shell("kill -SEGV $$")).await;
    assert_eq!(signal.kind, FailureKind::Crashed { signal: 11 });
    assert_eq!(failure(&shell("exec /does/not/exist")).await.kind, FailureKind::NotStarted);
    let missing = TrainingCommand { argv: vec!["/does/not/exist".to_owned()], ..shell("") };
    let missing = failure(&missing).await;
    assert_eq!(missing.kind, FailureKind::NotStarted);
    assert!(missing.message.contains("/does/not/exist: No such file"), "{}", missing.message);
}

/// Pins that a command which does not end is killed with its children at its own limit.
#[tokio::test]
async fn a_command_past_its_limit_is_killed_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo 'loadmaster: progress 0.5 forward'; sleep 1000 & echo $! >\"$R/child\"; wait";
    let command = TrainingCommand { timeout: Some(Duration::from_secs(2)), ..shell(script) };
    let Outcome::Failed(failure) = run_in(&folder, &command).await else { panic!("it did not fail") };
    assert_eq!(failure.kind, FailureKind::Hung);
    assert!(failure.message.contains("deadline of 2 s"), "{}", failure.message);
    let child = fs::read_to_string(folder.path().join("results/child")).unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
    assert!(stat.is_empty() || stat.contains(") Z "), "the child lives: {stat}");
}

/// Pins that a framework's workers, which have sessions of their own, do not outlive the run: neither when it
/// is killed nor when it ends without them.
#[tokio::test]
async fn workers_in_sessions_of_their_own_end_with_the_command() {
    let start = "setsid sleep 1000 & echo $! >\"$R/child\"";
    let killed =
        TrainingCommand { timeout: Some(Duration::from_secs(2)), ..shell(&format!("{start}; wait")) };
    let left = shell(&format!("({start})"));
    for command in [killed, left] {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(run_in(&folder, &command).await, Outcome::Failed(_)));
        let child = fs::read_to_string(folder.path().join("results/child")).unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "the child lives: {stat}");
    }
}

#[tokio::test]
async fn progress_is_passed_on_and_a_stop_ends_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let command = shell("echo 'loadmaster: progress 0.25 backward'; exec sleep 1000");
    let (sender, mut heard) = mpsc::channel(16);
    let contact = contact(sender);
    let (job, name) = (job(), name());
    let run = run(&name, &command, &job, folder.path(), &contact);
    let stopper = async {
        let progress = heard.recv().await.unwrap();
        contact.stop.cancel();
        progress
    };
    let (outcome, progress) = tokio::join!(run, stopper);
    assert!(matches!(outcome, Outcome::Stopped));
    assert_eq!(progress.fraction, 0.25);
}

#[test]
fn a_gpu_is_visible_once_and_in_the_order_of_the_ranks() {
    let gpu = |uuid: &str| Device { uuid: uuid.into(), ..job().lease.devices[0].clone() };
    assert_eq!(visible_devices(&[gpu("GPU-b"), gpu("GPU-a"), gpu("GPU-b")]), ["GPU-b", "GPU-a"]);
    assert!(visible_devices(&job().lease.devices).is_empty());
}
