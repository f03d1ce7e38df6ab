//! What targets name is there. `loadmaster-lint links` checks documents.

use std::path::Path;

/// Every group of packages that a target installs is one that the script knows: what it refuses is skipped for ever.
#[test]
fn targets_install_packages_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
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
