//! Every export that was written by hand and taken by its launcher is written so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use loadmaster_proto::name::PlanName;
use serde::Deserialize;

use crate::{ExportQuestion, Target, export};
use loadmaster_samples::CutTransformer;

#[derive(Debug, PartialEq, Deserialize)]
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

#[test]
fn exports_are_what_launchers_took() {
    let mut seen = 0;
    for (target, cases) in entries(&folder()).into_iter().filter(|(name, _)| name.contains('@')) {
        let (launcher, version) = target.split_once('@').unwrap();
        let target = Target::of(launcher.parse().unwrap(), version).unwrap();
        for (name, golden) in entries(&cases) {
            let case = case(&name);
            let (plan, model) = (case.plan(), case.model());
            let name = PlanName::from_id("golden").unwrap();
            let question = ExportQuestion { name: &name, plan: &plan, model: Some(&model), target };
            let made = export(&question).unwrap();
            let told: Told =
                serde_json::from_str(&std::fs::read_to_string(golden.join("export.json")).unwrap()).unwrap();
            assert_eq!(made.command, told.command, "{}", golden.display());
            assert_eq!(made.environment, told.env, "{}", golden.display());
            let files = entries(&golden).into_iter().filter(|(name, _)| name != "export.json");
            let files: BTreeMap<String, String> =
                files.map(|(name, path)| (name, std::fs::read_to_string(path).unwrap())).collect();
            let made: BTreeMap<String, String> =
                made.files.into_iter().map(|file| (file.name, file.contents)).collect();
            assert_eq!(made, files, "{}", golden.display());
            seen += 1;
        }
    }
    assert!(seen > 0, "no golden file was found");
}
