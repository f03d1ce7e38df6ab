//! Holds the documentation of errors and warnings (`deploy/errors.md`) to the code. `KEPT=write cargo test -p loadmaster-proto --test
//! errors` writes it anew.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

use loadmaster_proto::reason::{Actor, Reason, code_name};
use loadmaster_proto::warning::WarningCode;

/// What stands before the reasons.
const HEAD: &str = "\
# Errors and warnings

Every error contains a `google.rpc.ErrorInfo` of the domain `loadmaster.dev`. Its `reason` is one of the reasons below, and the
same reasons stand in the `error` of failed operations. Programs can rely on reasons: a reason never changes its meaning or its
status code. Messages are for humans and can change.

The `metadata` of the error has the keys that are listed for the reason. A key can be empty or missing if it does not apply. Three
more details can follow:

* `BadRequest` names each field that is not valid, with the expected value.
* `PreconditionFailure` names the resources, stages or nodes that prevent the request.
* `RetryInfo` gives the time to wait before the next attempt.

`google.rpc.Help` links to the section of the reason on this page. `loadmaster serve --errors-url` sets the address of the page.

The reasons are grouped by the person who can remove the cause. `proto/src/reason.rs` and `proto/src/warning.rs` define them, and a
test compares this page with the code.
";

/// The groups of reasons.
const GROUPS: [(Actor, &str, &str); 3] = [
    (Actor::Caller, "The caller acts", "Change the request, or send it again later."),
    (Actor::Operator, "The operator acts", "Change the workers, the planner or the database."),
    (Actor::Loadmaster, "Loadmaster has a defect", "Report the error."),
];

/// What stands before the warnings.
const WARNINGS: &str = "\
## Warnings

A valid response can have limits. Each `Warning` has a code, a severity, a message, and the stage if it is about one. Codes are as
stable as reasons, and a code determines the severity. New codes can be added.

* `INFO` explains a number or a choice. No action is necessary.
* `WARNING` means that a number can be wrong, or that a step is left to the caller.
* `ERROR` means that the response cannot be used as it is.

| code | severity | when |
|---|---|---|
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (actor, title, about) in GROUPS {
        page += &format!("\n## {title}\n\n{about}\n");
        for reason in Reason::ALL.iter().filter(|reason| reason.actor() == actor) {
            let keys: Vec<String> = reason.metadata().iter().map(|key| format!("`{key}`")).collect();
            let keys = if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
            let _ = write!(
                page,
                "\n### {reason}\n\n* Status code: `{}`\n* When: {}\n* Metadata: {keys}\n* Remedy: {}\n",
                code_name(reason.code()),
                reason.when().trim(),
                reason.remedy()
            );
        }
    }
    page = page + "\n" + WARNINGS;
    for code in WarningCode::ALL {
        let severity = code.severity().as_str().to_ascii_uppercase();
        let _ = writeln!(page, "| `{code}` | `{severity}` | {} |", code.when().trim());
    }
    page
}

#[test]
fn the_page_is_that_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/errors.md");
    if std::env::var("KEPT").is_ok_and(|kept| kept == "write") {
        std::fs::write(&path, page()).unwrap();
    }
    let documented = std::fs::read_to_string(&path).unwrap();
    for (line, (is, should)) in documented.lines().zip(page().lines()).enumerate() {
        assert_eq!(is, should, "line {} of deploy/errors.md", line + 1);
    }
    assert_eq!(documented.len(), page().len());
}

/// A reader finds each reason by its symptom.
#[test]
fn troubleshooting_links_every_reason() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/guide/troubleshooting.md");
    let page = std::fs::read_to_string(path).unwrap();
    let link = |reason: &Reason| format!("[{reason}](../errors.md#{})", reason.as_str().to_lowercase());
    let missing: Vec<_> = Reason::ALL.iter().map(link).filter(|link| !page.contains(link)).collect();
    assert!(missing.is_empty(), "deploy/guide/troubleshooting.md does not have {missing:?}");
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
