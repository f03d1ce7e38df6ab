//! Names of types and modules: a type name has one owner per crate, and modules are named by nouns.
//!
//! `tests/e2e/names/exceptions.txt` lists the names that break a rule still. The list only shrinks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Participles and adverbs that no module may be named by: they do not say what is in it.
const FORBIDDEN: [&str; 61] = [
    "acted",
    "again",
    "alike",
    "alone",
    "annealed",
    "apart",
    "asked",
    "away",
    "begun",
    "beside",
    "besides",
    "chosen",
    "copied",
    "decided",
    "disturbed",
    "due",
    "ended",
    "exported",
    "found",
    "frozen",
    "given",
    "grown",
    "held",
    "hopeless",
    "improved",
    "in_turn",
    "kept",
    "known",
    "laid",
    "launched",
    "lent",
    "limited",
    "listed",
    "mapped",
    "matched",
    "moved",
    "named",
    "near",
    "next",
    "once",
    "over_end",
    "over_time",
    "parted",
    "placed",
    "planned",
    "priced",
    "ran",
    "remembered",
    "replayed",
    "saved",
    "shown",
    "soonest",
    "squeezed",
    "stepped",
    "stored",
    "tied",
    "together",
    "told",
    "unlike",
    "weighed",
    "written",
];

const EXCEPTIONS: &str = "tests/e2e/names/exceptions.txt";

#[test]
fn type_names_have_one_owner_per_crate_and_modules_are_named_by_nouns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let found = violations(root);
    let text = include_str!("names/exceptions.txt");
    let listed: BTreeSet<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();

    let mut complaints = Vec::new();
    for (name, why) in found.iter().filter(|(name, _)| !listed.contains(name.as_str())) {
        complaints.push(format!("{name}: {why}"));
    }
    for name in listed.iter().filter(|name| !found.contains_key(**name)) {
        complaints.push(format!("{name}: not needed any more. Remove the line from {EXCEPTIONS}."));
    }
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn definitions_are_found_and_other_lines_are_not() {
    let source = "\
pub struct One<'a> {\n    field: Two,\n}\n/// struct Three\npub(in crate::a) enum Four {}\n    struct Five;\n\
trait Six {\n    type Seven;\n}\ntype Eight = u8;\nlet struct_nine = 9;\nunion Ten {}\n\n#[cfg(test)]\nmod tests {\n\
struct Eleven;\n}\n";
    assert_eq!(types(production(source)), ["One", "Four", "Five", "Six", "Eight", "Ten"]);
}

#[test]
fn modules_of_tests_are_no_production_code() {
    let source = "mod one;\n#[cfg(test)]\nmod two;\n#[cfg(test)]\n#[path = \"x.rs\"]\npub(crate) mod three;\nmod four;\n";
    assert_eq!(test_modules(source), ["two", "three"]);
}

/// Names that break a rule, as exceptions name them, and why.
fn violations(root: &Path) -> BTreeMap<String, String> {
    let mut violations = BTreeMap::new();
    for folder in crates(root) {
        let name = relative(root, &folder);
        let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for file in sources(&folder) {
            let path = relative(root, &file);
            let source = fs::read_to_string(&file).unwrap();
            for found in types(production(&source)) {
                owners.entry(found.to_owned()).or_default().insert(path.clone());
            }
            for module in modules(&relative(&folder, &file)) {
                let word = module.rsplit('/').next().unwrap_or_default();
                if FORBIDDEN.contains(&word) {
                    let why = format!(
                        "a module is named by a noun that says what is in it, not `{word}`. Rename it (git mv)."
                    );
                    violations.insert(format!("module {name}/{module}"), why);
                }
            }
        }
        for (found, files) in owners.into_iter().filter(|(_, files)| files.len() > 1) {
            let files: Vec<String> = files.into_iter().collect();
            let why = format!(
                "defined in {}. Rename the narrower type to a noun that says what it is.",
                files.join(" and ")
            );
            violations.insert(format!("type {name} {found}"), why);
        }
    }
    violations
}

/// The folders of all crates but this one's: those with a manifest of a package.
fn crates(root: &Path) -> Vec<PathBuf> {
    let mut crates = Vec::new();
    let mut open: Vec<PathBuf> = subfolders(root);
    while let Some(folder) = open.pop() {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        if manifest.lines().any(|line| line.trim() == "[package]") {
            crates.push(folder.clone());
        }
        open.extend(subfolders(&folder));
    }
    assert!(crates.len() > 10, "{crates:?}");
    crates.sort();
    crates
}

/// Folders that production code may be in.
fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let is_skipped = |name: &str| {
        name.starts_with('.') || ["target", "tests", "benches", "examples", "node_modules"].contains(&name)
    };
    let mut folders: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| {
            entry.file_type().unwrap().is_dir() && !is_skipped(&entry.file_name().to_string_lossy())
        })
        .map(|entry| entry.path())
        .collect();
    folders.sort();
    folders
}

/// The production files of a crate, without those of crates in its folder and of modules under `cfg(test)`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut sources = BTreeSet::new();
    let mut of_tests: Vec<PathBuf> = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        open.extend(subfolders(&at).into_iter().filter(|folder| !folder.join("Cargo.toml").is_file()));
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is_production = !["tests", "testing"].contains(&stem.as_str()) && !stem.ends_with("_tests");
            if path.extension().is_none_or(|extension| extension != "rs") || !is_production {
                continue;
            }
            // Modules lie beside a folder's own file, and in the folder of any other file.
            let is_own = ["mod", "lib", "main"].contains(&stem.as_str());
            let children = if is_own { at.clone() } else { at.join(&stem) };
            let source = fs::read_to_string(&path).unwrap();
            of_tests.extend(test_modules(&source).into_iter().map(|module| children.join(module)));
            sources.insert(path);
        }
    }
    let is_of_tests = |path: &PathBuf| {
        of_tests.iter().any(|module| path.starts_with(module) || path.with_extension("") == *module)
    };
    sources.into_iter().filter(|path| !is_of_tests(path)).collect()
}

/// The modules in other files that a file declares under `cfg(test)`.
fn test_modules(source: &str) -> Vec<&str> {
    let mut modules = Vec::new();
    let mut is_of_tests = false;
    for line in source.lines() {
        if line == "#[cfg(test)]" {
            is_of_tests = true;
        } else if !line.starts_with("#[") {
            let module =
                without_visibility(line).strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
            modules.extend(module.filter(|_| is_of_tests));
            is_of_tests = false;
        }
    }
    modules
}

/// A file up to its module of tests.
fn production(source: &str) -> &str {
    let begins_module = |text: &str| {
        let line = without_visibility(text.lines().next().unwrap_or_default());
        line.starts_with("mod ") && line.ends_with('{')
    };
    let mark = "\n#[cfg(test)]\n";
    let mut marks = source.match_indices(mark);
    let tests = marks.find(|(at, _)| begins_module(&source[at + mark.len()..]));
    tests.map_or(source, |(at, _)| &source[..at])
}

/// The types that a text defines. Indented `type` is an associated type.
fn types(source: &str) -> Vec<&str> {
    let defined = |line: &'_ str| -> Option<(usize, usize)> {
        let item = without_visibility(line.trim_start());
        let (kind, rest) = item.split_once(' ')?;
        let is_type = ["struct", "enum", "trait", "union"].contains(&kind)
            || (kind == "type" && !line.starts_with(char::is_whitespace));
        let length =
            rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(rest.len());
        let is_name = is_type && rest.starts_with(|letter: char| letter.is_ascii_uppercase());
        let start = line.len() - rest.len();
        is_name.then_some((start, start + length))
    };
    source.lines().filter_map(|line| defined(line).map(|(start, end)| &line[start..end])).collect()
}

/// An item without `pub`, and without what follows it in parentheses.
fn without_visibility(item: &str) -> &str {
    let Some(rest) = item.strip_prefix("pub") else { return item };
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')').map_or(rest, |(_, rest)| rest),
        None => rest,
    };
    rest.strip_prefix(' ').unwrap_or(item)
}

/// The modules of a file of a crate: it, and the folders that it is in.
fn modules(file: &str) -> Vec<String> {
    let path = file.strip_suffix(".rs").unwrap_or(file);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.match_indices('/').map(|(end, _)| &path[..end]).chain([path]).map(str::to_owned).collect()
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/")
}
