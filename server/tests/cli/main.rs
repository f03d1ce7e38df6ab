//! The `loadmaster` program against a planner with canned answers: exit codes, what is printed where,
//! paging, progress, detaching and a planner that goes away.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what fails here fails the test")]

mod fake;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

use fake::Fake;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const RUN: [&str; 10] = [
    "profile",
    "run",
    "--model",
    "vgg11",
    "--micro-batch-size",
    "8",
    "--micro-batches",
    "4",
    "--device-count",
    "4",
];

fn loadmaster(address: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadmaster"));
    command
        .env_clear()
        .env("LOADMASTER_ADDRESS", address)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run(fake: &Fake, line: &str) -> Output {
    loadmaster(fake.address()).args(line.split(' ')).output().expect("the program starts")
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn each_kind_of_error_has_its_exit_code() {
    let fake = Fake::start();
    for (line, exit) in [
        ("profile show good", 0),
        ("profile show broken", 1),
        ("profile show wrong", 2),
        ("profile show NOT_AN_ID", 2),
        ("profile run", 2),
        ("profile show missing", 3),
        ("profile show forbidden", 4),
        ("profile show incomplete", 6),
        ("profile show slow --timeout 300ms", 7),
    ] {
        let output = run(&fake, line);
        assert_eq!(code(&output), Some(exit), "{line}: {}", stderr(&output));
        assert_eq!(output.stdout.is_empty(), exit != 0, "{line}: data and nothing else on stdout");
    }
}

#[test]
fn an_error_names_reason_fields_and_help() {
    let output = run(&Fake::start(), "profile show wrong");
    assert_eq!(
        stderr(&output),
        "error: the request is not valid\n\x20 reason: INVALID_SPEC (INVALID_ARGUMENT)\n\x20 training.micro_batch_size: 0 is out of range. Use 1 to 1000000\n\x20 devices: is required\n\x20 help: training settings https://example.org/training\n"
    );
}

#[test]
fn without_a_planner_the_user_learns_how_to_start_one() {
    let fake = Fake::start();
    let address = fake.address().to_owned();
    drop(fake);
    let output = loadmaster(&address).args(["worker", "list"]).output().unwrap();
    assert_eq!(code(&output), Some(1));
    let text = stderr(&output);
    assert!(text.contains(&format!("no planner responds at {address}: ")), "{text}");
    assert!(text.contains("Connection refused"), "{text}");
    assert!(text.contains("`loadmaster serve`"), "{text}");
}

#[test]
fn lists_follow_pages_up_to_the_limit() {
    let fake = Fake::start();
    let names = |line: &str| stdout(&run(&fake, line)).lines().map(str::to_owned).collect::<Vec<_>>();
    let all = names("profile list --limit 0 -o name");
    assert_eq!(all.len(), 120);
    assert_eq!(all[0], "profiles/p000");
    assert_eq!(all[119], "profiles/p119");
    assert_eq!(names("profile list --limit 70 -o name"), all[..70]);
    assert_eq!(names("profile list -o name").len(), 50);
    let output = run(&fake, "profile list --limit 70 -o name");
    assert!(stderr(&output).contains("only the first 70 rows are shown. Use --limit 0 for all."));
}

#[test]
fn a_list_is_one_json_document() {
    let output = run(&Fake::start(), "profile list --limit 0 -o json");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["profiles"].as_array().unwrap().len(), 120);
    assert_eq!(document["nextPageToken"], "");
}

#[test]
fn without_a_terminal_nothing_is_coloured_and_ascii_is_enough() {
    let output = run(&Fake::start(), "profile show good");
    assert!(output.stdout.is_ascii(), "{}", stdout(&output));
    assert!(!output.stdout.contains(&0x1b));
}

#[test]
fn progress_is_lines_on_stderr_and_the_result_is_on_stdout() {
    let fake = Fake::start();
    let output = loadmaster(fake.address()).args(RUN).args(["-o", "name"]).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "profiles/good\n");
    let text = stderr(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines.first(),
        Some(&"profiles/good    0 %  0 of 4 runs done  waiting for a worker"),
        "{text}"
    );
    assert_eq!(lines.last(), Some(&"profiles/good  100 %  4 of 4 runs done"), "{text}");
    assert!(lines.len() <= 4, "rate-limited: {text}");
}

#[test]
fn quiet_means_no_progress() {
    let fake = Fake::start();
    let output = loadmaster(fake.address()).args(RUN).args(["-q", "-o", "name"]).output().unwrap();
    assert_eq!((code(&output), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn no_wait_prints_the_operation() {
    let fake = Fake::start();
    let output = loadmaster(fake.address()).args(RUN).arg("--no-wait").output().unwrap();
    assert_eq!((code(&output), stdout(&output).as_str()), (Some(0), "operations/good\n"));
}

#[test]
fn ctrl_c_detaches_and_says_how_to_come_back() {
    let fake = Fake::start();
    let mut child = loadmaster(fake.address()).args(["operation", "wait", "forever"]).spawn().unwrap();
    let mut reader = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    reader.read_line(&mut text).unwrap();
    assert!(text.contains("profiles/forever"), "{text}");

    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{text}");
    assert!(text.contains("detached: operations/forever continues."), "{text}");
    assert!(text.contains("loadmaster operation wait operations/forever\n"), "{text}");
    assert!(text.contains("loadmaster operation cancel operations/forever\n"), "{text}");
}

#[test]
fn waiting_can_end_before_the_operation() {
    let output = run(&Fake::start(), "operation wait forever --wait-timeout 600ms");
    assert_eq!(code(&output), Some(7));
    assert!(stderr(&output).contains("loadmaster operation wait operations/forever"));
}

#[test]
fn an_operation_that_fails_fails_the_command_with_its_reason() {
    let output = run(&Fake::start(), "operation wait failing");
    assert_eq!(code(&output), Some(6));
    let text = stderr(&output);
    assert!(text.contains("error: operations/failing failed: layer 3 was never measured\n"), "{text}");
    assert!(text.contains("reason: PROFILE_NOT_READY (FAILED_PRECONDITION)\n"), "{text}");
}

#[test]
fn waiting_survives_a_planner_that_restarts() {
    let fake = Fake::start();
    let mut child =
        loadmaster(fake.address()).args(["operation", "wait", "patient", "-o", "name"]).spawn().unwrap();
    let mut reader = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    reader.read_line(&mut text).unwrap();

    let address = fake.stop();
    while !text.contains("does not answer") {
        assert_ne!(reader.read_line(&mut text).unwrap(), 0, "{text}");
    }
    let fake = Fake::start_at(address);
    fake.finish_patient();
    reader.read_to_string(&mut text).unwrap();
    let mut made = String::new();
    child.stdout.take().unwrap().read_to_string(&mut made).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text}");
    assert!(text.contains("the planner is reachable"), "{text}");
    assert_eq!(made, "profiles/patient\n");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let fake = Fake::start();
    let line = ["profile", "list", "--limit", "0", "-o", "json"];
    let mut child = loadmaster(fake.address()).args(line).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn help_lists_the_exit_codes_and_needs_no_planner() {
    let output = loadmaster("http://127.0.0.1:1").arg("--help").output().unwrap();
    assert_eq!(code(&output), Some(0));
    assert!(stdout(&output).contains("it does not fit"));
    let output = loadmaster("http://127.0.0.1:1").args(["completion", "bash"]).output().unwrap();
    assert!(stdout(&output).contains("_loadmaster"));
}
