//! Keeps the accuracy harness from rotting: its smallest study, all the way with real ranks, and the
//! imported plans. What `make accuracy` finds on larger ones is no test's business.

use std::path::Path;
use std::process::Command;

use loadmaster_tests::{Output, Program, binary, children, is_alive, wait_until};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

fn accuracy(folder: &Path, arguments: &[&str]) -> Output {
    Output::of(Command::new(binary("bench")).arg("accuracy").args(arguments).arg("--output").arg(folder))
}

/// Profile, hold out, predict, report; a second time nothing is measured again.
#[test]
fn the_smallest_study_goes_all_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let first = accuracy(folder.path(), &["--only", "tiny"]);
    assert!(first.code == 0, "{}", first.text());
    let said = first.text();
    assert!(!said.contains("problem:") && said.contains(" 0 failed"), "{said}");
    let csv = std::fs::read_to_string(folder.path().join("accuracy.csv")).unwrap();
    assert!(csv.lines().skip(1).any(|line| line.starts_with("tiny,gpt2,none,stages,component/")), "{csv}");
    assert!(std::fs::read_to_string(folder.path().join("accuracy.svg")).unwrap().ends_with("</svg>\n"));

    let second = accuracy(folder.path(), &["--only", "tiny"]);
    assert!(second.text().contains("measuring 0 runs"), "{}", second.text());
    assert_eq!(std::fs::read_to_string(folder.path().join("accuracy.csv")).unwrap(), csv);
}

/// A study keeps its goals, and says of how much; without its data it says that it was skipped.
fn keeps_its_goals(study: &str, words: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = accuracy(folder.path(), &["--only", study, "--strict"]);
    let said = output.text();
    if said.contains("SKIPPED") {
        eprintln!("{said}");
        return;
    }
    assert!(output.code == 0 && said.contains(words), "{said}");
}

/// The goal for imported tables holds wherever the published measurements are.
#[test]
fn imported_plans_are_predicted_within_the_goal() {
    keeps_its_goals("gh200", "14 plans");
}

/// The goals for iteration times hold wherever the published measurements are, asked of a real planner: errors,
/// and the rank of the truly fastest run among the predictions.
#[test]
#[ignore = "slow: make test-slow"]
fn iteration_times_are_predicted_within_the_goals() {
    keeps_its_goals("time", "14 real runs");
}

/// A name that nothing has is an error that lists the names.
#[test]
fn an_unknown_study_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = accuracy(folder.path(), &["--only", "no-such-study"]);
    assert_eq!(output.code, 1);
    assert!(output.text().contains("there are tiny, "), "{}", output.text());
}

/// The harness that trains in a folder, and its first children.
fn training(folder: &Path) -> (Program, Vec<Pid>) {
    let mut command = Command::new(binary("bench"));
    command.args(["accuracy", "--only", "gpt2-24", "--output"]).arg(folder);
    let harness = Program::start("accuracy", command, folder.join("log"));
    let ranks = wait_until("ranks run", || Some(children(harness.pid())).filter(|ranks| !ranks.is_empty()));
    (harness, ranks)
}

/// Whether a process has a handler for a signal.
fn handles(pid: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
    caught & 1 << (signal as i32 - 1) != 0
}

/// Whoever kills the harness outright does too.
#[test]
fn a_killed_harness_leaves_no_rank_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (mut harness, ranks) = training(folder.path());
    harness.kill();
    wait_until("the ranks are gone", || ranks.iter().all(|&pid| !is_alive(pid)).then_some(()));
}

/// Whoever interrupts the harness gets the machine back at once.
#[test]
fn an_interruption_leaves_no_rank_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (mut harness, ranks) = training(folder.path());
    assert!(handles(harness.pid(), Signal::SIGINT), "it starts ranks before it hears signals");
    harness.signal(Signal::SIGINT);
    assert_eq!(harness.wait().code(), Some(130), "{}", harness.output());
    wait_until("the ranks are gone", || ranks.iter().all(|&pid| !is_alive(pid)).then_some(()));
}
