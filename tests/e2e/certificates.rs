//! Answers held to every plan that there is, on a few of the instances of `make certificates`.

use std::path::Path;
use std::process::Command;

use loadmaster_tests::{Output, binary};

fn certificates(folder: &Path, arguments: &[&str]) -> Output {
    Output::of(Command::new(binary("bench")).arg("certificates").args(arguments).arg("--output").arg(folder))
}

/// Whatever is asked, no answer is beaten by a plan that it says there is not, and none is refused that has one.
#[test]
fn no_answer_is_beaten_by_a_plan_that_it_rules_out() {
    let folder = tempfile::tempdir().unwrap();
    let output = certificates(folder.path(), &["--instances", "150", "--seed", "9", "--strict"]);
    assert!(output.code == 0, "{}", output.text());
}

/// A file of an instance is asked again as it was.
#[test]
fn an_instance_in_a_file_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let missing =
        certificates(folder.path(), &["--replay", "nowhere.json", "--address", "http://127.0.0.1:1"]);
    assert!(missing.code != 0, "{}", missing.text());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/certificates/example.json");
    let output = certificates(folder.path(), &["--replay", file.to_str().unwrap()]);
    assert!(output.code == 0 && output.text().contains("the answer is right"), "{}", output.text());
}
