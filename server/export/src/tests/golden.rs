//! Every export that its launcher took is written so.
//!
//! `KEPT=write cargo nextest run -p loadmaster-export` writes them anew; then `tests/launchers/oracles/check_golden.py` must take
//! them again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use loadmaster_proto::name::PlanName;
use serde::{Deserialize, Serialize};

use crate::{Export, ExportQuestion, Target, export};
use loadmaster_samples::CutTransformer;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Told {
    command: Vec<String>,
    env: BTreeMap<String, String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/launchers/golden")
}

fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .collect();
    entries.sort();
    entries
}

fn case(name: &str) -> CutTransformer {
    let path = folder().join("cases").join(format!("{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The files of an export, with its command and environment as one of them.
fn files(made: Export) -> BTreeMap<String, String> {
    let told = Told { command: made.command, env: made.environment };
    let told = serde_json::to_string_pretty(&told).unwrap() + "\n";
    let files = made.files.into_iter().map(|file| (file.name, file.contents));
    files.chain([("export.json".to_owned(), told)]).collect()
}

fn write(golden: &Path, files: &BTreeMap<String, String>) {
    for (name, path) in entries(golden) {
        if !files.contains_key(&name) {
            std::fs::remove_file(path).unwrap();
        }
    }
    for (name, contents) in files {
        std::fs::write(golden.join(name), contents).unwrap();
    }
}

#[test]
fn exports_are_what_launchers_took() {
    let is_written = std::env::var_os("KEPT").is_some_and(|value| value == "write");
    let (mut seen, mut differ) = (0, Vec::new());
    for (target, cases) in entries(&folder()).into_iter().filter(|(name, _)| name.contains('@')) {
        let (launcher, version) = target.split_once('@').unwrap();
        let target = Target::of(launcher.parse().unwrap(), version).unwrap();
        for (folder, golden) in entries(&cases) {
            // Behind a "+" is the variant.
            let (name, variant) = folder.split_once('+').unwrap_or((&folder, ""));
            let case = case(name);
            let (plan, model) = (case.plan(), case.model());
            let name = PlanName::from_id("golden").unwrap();
            let variant = variant.parse().unwrap();
            let question = ExportQuestion { name: &name, plan: &plan, model: Some(&model), target, variant };
            let made = files(export(&question).unwrap_or_else(|refusal| panic!("{folder}: {refusal}")));
            seen += 1;
            if is_written {
                write(&golden, &made);
                continue;
            }
            let kept: BTreeMap<String, String> = entries(&golden)
                .into_iter()
                .map(|(name, path)| (name, std::fs::read_to_string(path).unwrap()))
                .collect();
            for name in made.keys().chain(kept.keys().filter(|name| !made.contains_key(*name))) {
                if made.get(name) != kept.get(name) {
                    let shown = |files: &BTreeMap<String, String>| files.get(name).cloned().unwrap_or_default();
                    differ.push(format!(
                        "{}/{name} is\n{}\nand would be written\n{}",
                        golden.display(),
                        shown(&kept),
                        shown(&made)
                    ));
                }
            }
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    assert!(seen > 0, "no golden file was found");
}
