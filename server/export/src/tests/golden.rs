//! Every export that its launcher took is written so.

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

fn case(name: &str) -> Result<CutTransformer, String> {
    let path = folder().join("cases").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    serde_json::from_str(&text).map_err(|why| format!("{}: {why}", path.display()))
}

/// `KEPT=write` writes files anew, which the launchers' oracles must then take.
///
/// # Errors
/// What differs from the golden folder, or that nothing writes it.
fn check(target: &str, name: &str, golden: &Path) -> Result<(), String> {
    let (launcher, version) = target.split_once('@').ok_or("is called like no launcher of a version")?;
    let launcher = launcher.parse().map_err(|_| "is for a launcher that has no name")?;
    let target = Target::of(launcher, version).map_err(|why| why.to_string())?;
    let case = case(name)?;
    let (plan, model) = (case.plan(), case.model());
    let name = PlanName::from_id("golden").unwrap();
    let question = ExportQuestion { name: &name, plan: &plan, model: Some(&model), target };
    let made = export(&question).map_err(|why| why.to_string())?;
    let told: Told =
        serde_json::from_str(&std::fs::read_to_string(golden.join("export.json")).unwrap()).unwrap();
    same("command", &made.command, &told.command)?;
    same("environment", &made.environment, &told.env)?;
    let files =
        entries(golden).into_iter().filter(|(name, _)| !["export.json", "__pycache__"].contains(&&**name));
    let files: BTreeMap<String, String> =
        files.map(|(name, path)| (name, std::fs::read_to_string(path).unwrap())).collect();
    let made: BTreeMap<String, String> =
        made.files.into_iter().map(|file| (file.name, file.contents)).collect();
    if std::env::var_os("KEPT").is_some_and(|kept| kept == "write") {
        made.iter().for_each(|(name, text)| std::fs::write(golden.join(name), text).unwrap());
        return Ok(());
    }
    same("files", &made.keys().collect::<Vec<_>>(), &files.keys().collect())?;
    made.iter().try_for_each(|(name, text)| same(name, text, &files[name]))
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, made: &T, golden: &T) -> Result<(), String> {
    if made == golden {
        Ok(())
    } else {
        Err(format!("{what} is\n{made:#?}\nand the golden one\n{golden:#?}"))
    }
}

#[test]
fn exports_are_what_launchers_took() {
    let (mut seen, mut failed) = (0, Vec::new());
    for (target, cases) in entries(&folder()).into_iter().filter(|(name, _)| name.contains('@')) {
        for (name, golden) in entries(&cases) {
            seen += 1;
            failed.extend(check(&target, &name, &golden).err().map(|why| format!("{target}/{name}: {why}")));
        }
    }
    assert!(seen > 0, "no golden file was found");
    assert!(failed.is_empty(), "{} of {seen} differ:\n{}", failed.len(), failed.join("\n\n"));
}
