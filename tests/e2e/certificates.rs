//! Answers held to every plan that there is, on a few of the instances of `make certificates`.

use std::path::Path;
use std::process::{Command, Output};

fn certificates(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_certificates"))
        .args(arguments)
        .arg("--output")
        .arg(folder)
        .output()
        .expect("the program can be started")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Whatever is asked, no answer is beaten by a plan that it says there is not, and none is refused that has one.
#[test]
fn no_answer_is_beaten_by_a_plan_that_it_rules_out() {
    let folder = tempfile::tempdir().unwrap();
    let output = certificates(folder.path(), &["--instances", "150", "--seed", "9", "--strict"]);
    assert!(output.status.success(), "{}", text(&output));
}

/// A file of an instance is asked again as it was.
#[test]
fn an_instance_in_a_file_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let missing =
        certificates(folder.path(), &["--replay", "nowhere.json", "--address", "http://127.0.0.1:1"]);
    assert!(!missing.status.success(), "{}", text(&missing));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("certificates/example.json");
    let output = certificates(folder.path(), &["--replay", file.to_str().unwrap()]);
    assert!(output.status.success() && text(&output).contains("the answer is right"), "{}", text(&output));
}
