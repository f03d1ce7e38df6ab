//! Holds the documentation of errors (`deploy/errors.md`) to the code: every reason has its row, as it is in the
//! code, and there are no others.

use std::collections::HashSet;

use loadmaster_proto::reason::{Reason, code_name};

const DOCUMENTED: &str = include_str!("../../deploy/errors.md");

#[test]
fn every_reason_is_documented_as_it_is() {
    let rows: Vec<String> = Reason::ALL
        .iter()
        .map(|reason| {
            let (when, remedy) = (reason.when().trim(), reason.remedy());
            format!("| `{reason}` | `{}` | {when} | {remedy} |", code_name(reason.code()))
        })
        .collect();
    let documented: Vec<&str> = DOCUMENTED.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(documented, rows, "the table of deploy/errors.md should be\n{}\n", rows.join("\n"));
}

#[test]
fn reasons_are_unique_and_shaped_as_google_asks() {
    let names: HashSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(names.len(), Reason::ALL.len());
    for name in names {
        let shape = |c: char| c.is_ascii_uppercase() || c == '_';
        assert!(name.chars().all(shape) && name.len() <= 63, "{name}");
    }
}
