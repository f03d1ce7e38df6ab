//! What documents and targets name is there.

use std::path::{Path, PathBuf};

/// Documents that name files and folders of the repository.
const DOCUMENTS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "deploy/errors.md"];

/// Where a short path may begin: `planning/learn/` is `server/planning/src/learn/`.
const ROOTS: [&str; 14] = [
    "",
    "server/src",
    "server/planning/src",
    "server/planning/src/predict",
    "server/planning/src/recommend",
    "server/planning/src/recommend/answer",
    "server/planning/src/recommend/ask",
    "server/planning/src/recommend/find",
    "server/cli/src/verbs",
    "server/src/rpc/plan",
    "server/planning/src/search",
    "server/cli/src",
    "worker/src",
    "worker/rank/src",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What stands in backticks and looks like a path of sources: `a/b.rs`, `b.rs`, `a/b/`.
fn paths(text: &str) -> Vec<&str> {
    let is_path = |word: &&str| {
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
        plain && !word.starts_with(['/', '.']) && (word.ends_with(".rs") || word.ends_with('/'))
    };
    text.split('`').skip(1).step_by(2).filter(is_path).collect()
}

fn is_there(path: &str) -> bool {
    let root = root();
    let short = path.strip_prefix("planning/").map(|rest| format!("server/planning/src/{rest}"));
    ROOTS.iter().any(|at| root.join(at).join(path).exists())
        || short.is_some_and(|path| root.join(path).exists())
}

#[test]
fn documents_name_files_that_are_there() {
    let mut checked = 0;
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(root().join(document)).unwrap();
        let missing: Vec<&str> = paths(&text).into_iter().filter(|path| !is_there(path)).collect();
        assert!(missing.is_empty(), "{document} names {missing:?}");
        checked += paths(&text).len();
    }
    assert!(checked > 60, "only {checked} paths were found");
}

/// Every group of packages that a target installs is one that the script knows: what it refuses is skipped for ever.
#[test]
fn targets_install_packages_that_there_are() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let known = read("deploy/setup/packages.sh");
    let mut groups = Vec::new();
    for text in [read("Makefile"), read(".ci/run")] {
        for asked in text.split("packages.sh ").skip(1) {
            let words = asked.lines().next().unwrap_or_default().split_whitespace();
            groups.extend(words.take_while(|word| word.chars().all(char::is_alphabetic)).map(str::to_owned));
        }
    }
    assert!(groups.len() > 4, "{groups:?}");
    for group in groups {
        assert!(known.contains(&format!("    {group}) need_{group} ;;\n")), "{group}");
    }
}
