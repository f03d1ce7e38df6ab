//! Keeps `make train-memory` from rotting: tiny models, all the way. What it finds on larger ones is no test's business.

use std::path::Path;
use std::process::Command;

use loadmaster_tests::{Output, Program, binary, children, is_alive, wait_until};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

/// The rule that may do all.
const OURS: &str = "ours, all ways";

fn arguments(folder: &Path) -> Command {
    let mut command = Command::new(binary("bench"));
    command.args(["train", "--quick"]).arg("--output").arg(folder);
    command
}

fn read(folder: &Path, name: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder.join(name)).unwrap()).unwrap()
}

/// Whatever trained was predicted to the byte in every ledger.
fn assert_as_predicted(trial: &Value) {
    if !trial.is_null() {
        assert_eq!(trial["failure"], "", "{trial}");
        assert_eq!(trial["predicted"], trial["measured"], "{trial}");
    }
}

/// The largest models of all rules, their seconds, PipeDream and hidden copies; each table is kept.
#[test]
#[ignore = "slow: make test-slow"]
fn tiny_models_go_all_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let output = Output::of(&mut arguments(folder.path()));
    assert_eq!(output.code, 0, "{}", output.text());
    let largest = read(folder.path(), "largest.json");
    let largest = largest.as_array().unwrap();
    let blocks = |rule: &str| largest.iter().find(|of| of["rule"] == rule).unwrap()["size"].as_u64().unwrap();
    assert!(
        blocks(OURS) >= blocks("MPress's planner") && blocks(OURS) > blocks("recompute-only"),
        "{largest:?}"
    );
    assert!(blocks("recompute-only") > blocks("keep-only"), "{largest:?}");
    largest.iter().for_each(|of| assert_as_predicted(&of["trial"]));
    let ours = largest.iter().find(|of| of["rule"] == OURS).unwrap();
    assert!(
        ours["really"].as_str().unwrap().contains("cannot be trained on the connected workers"),
        "{ours}"
    );

    let seconds = read(folder.path(), "seconds.json");
    let counts: Vec<&Value> = seconds.as_array().unwrap().iter().map(|of| &of["slots"]).collect();
    assert_eq!(counts, [2, 4]);
    for plan in seconds.as_array().unwrap().iter().flat_map(|of| of["plans"].as_array().unwrap()) {
        assert_as_predicted(&plan["trial"]);
        assert_eq!(plan["trial"].is_null(), plan["seconds"].as_array().unwrap().is_empty(), "{plan}");
    }
    let pipedream = read(folder.path(), "pipedream.json");
    pipedream.as_array().unwrap().iter().for_each(|of| assert_as_predicted(&of["trial"]));
    assert_as_predicted(&read(folder.path(), "hidden.json")["trial"]);
    let text = std::fs::read_to_string(folder.path().join("train-memory.txt")).unwrap();
    for shown in ["recompute-only", "MPress's planner", "every layer again", "idle core", "≥ 3.700×"] {
        assert!(text.contains(shown) && output.stdout.contains(shown), "{shown} in\n{text}");
    }
}

/// All below a process.
fn descendants(pid: Pid) -> Vec<Pid> {
    children(pid).into_iter().flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

/// Waits until a rank is among what a program started: all of that.
fn with_a_rank(program: &mut Program) -> Vec<Pid> {
    wait_until("a rank runs", || {
        let all = descendants(program.pid());
        let has_rank = |pid: &Pid| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.starts_with("loadmaster-rank")
        };
        assert!(program.is_running(), "it ended early:\n{}", program.output());
        all.iter().any(has_rank).then_some(all)
    })
}

/// Whoever interrupts it gets the machine back at once: no planner, database, worker or rank stays.
#[test]
fn an_interruption_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = arguments(folder.path());
    command.arg("hidden");
    let mut program = Program::start("bench train", command, folder.path().join("log"));
    let found = with_a_rank(&mut program);
    program.signal(Signal::SIGTERM);
    assert_eq!(program.wait().code(), Some(130), "{}", program.output());
    wait_until("nothing is left", || found.iter().all(|&pid| !is_alive(pid)).then_some(()));
}

/// Neither does a test that is interrupted, which hears of it alone: what it started is in other process groups.
#[test]
fn an_interrupted_test_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = "slice::gpt2_is_profiled_stage_by_stage_for_one_f_one_b";
    command.args(["--exact", name, "--include-ignored"]);
    let mut test = Program::start("another test", command, folder.path().join("log"));
    let found = with_a_rank(&mut test);
    test.signal(Signal::SIGINT);
    assert_eq!(test.wait().code(), Some(130), "{}", test.output());
    wait_until("nothing is left", || found.iter().all(|&pid| !is_alive(pid)).then_some(()));
}
