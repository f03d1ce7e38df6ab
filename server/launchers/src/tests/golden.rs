//! Every export that its framework took is written so, and in `golden/unread` those that no framework's code was asked about.
//!
//! `KEPT=write cargo nextest run -p loadmaster-launchers` writes them anew; then `tests/launchers/oracles/check_golden.py` must take
//! them once more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::export_as;
use crate::{Export, Target, Variant, exporters, variants};
use loadmaster_samples::CutTransformer;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Told {
    command: Vec<String>,
    env: BTreeMap<String, String>,
}

pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/launchers/golden")
}

pub(super) fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .collect();
    entries.sort();
    entries
}

pub(super) fn case(name: &str) -> Result<CutTransformer, String> {
    let path = folder().join("cases").join(format!("{name}.json"));
    let text = std::fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
    serde_json::from_str(&text).map_err(|why| format!("{}: {why}", path.display()))
}

/// The files of an export, with its command and environment as one of them.
pub(super) fn files(made: Export) -> BTreeMap<String, String> {
    let told = Told { command: made.command, env: made.environment };
    let told = serde_json::to_string_pretty(&told).unwrap() + "\n";
    let files = made.files.into_iter().map(|file| (file.name, file.contents));
    files.chain([("export.json".to_owned(), told)]).collect()
}

/// The files of a folder, without what Python left there.
pub(super) fn kept(golden: &Path) -> BTreeMap<String, String> {
    let files = entries(golden).into_iter().filter(|(name, _)| name != "__pycache__");
    files.map(|(name, path)| (name, std::fs::read_to_string(path).unwrap())).collect()
}

pub(super) fn write(golden: &Path, files: &BTreeMap<String, String>) {
    for name in kept(golden).keys().filter(|name| !files.contains_key(*name)) {
        std::fs::remove_file(golden.join(name)).unwrap();
    }
    for (name, contents) in files {
        std::fs::write(golden.join(name), contents).unwrap();
    }
}

/// # Errors
/// What differs from the golden folder, or that nothing writes it.
fn check(target: Target, folder: &str, golden: &Path) -> Result<(), String> {
    let (name, variant) = said(folder)?;
    let case = case(name)?;
    let (plan, model) = (case.plan(), case.model());
    let made = export_as("golden", target, variant, &plan, Some(&model));
    let made = files(made.map_err(|why| why.to_string())?);
    if std::env::var_os("KEPT").is_some_and(|value| value == "write") {
        write(golden, &made);
    }
    let kept = kept(golden);
    same("files", &made.keys().collect::<Vec<_>>(), &kept.keys().collect())?;
    made.iter().try_for_each(|(name, text)| same(name, text, &kept[name]))
}

/// For whom the exports of a folder are.
///
/// # Errors
/// It is called like no one.
fn target(folder: &str) -> Result<Target, String> {
    let (framework, version) = folder.split_once('@').ok_or("is called like no framework of a version")?;
    let framework = framework.parse().map_err(|_| "is for a framework that has no name")?;
    Target::of(framework, version).map_err(|why| why.to_string())
}

/// The case of a folder and, behind a "+", how its plan is said.
///
/// # Errors
/// No one says it so.
fn said(folder: &str) -> Result<(&str, Variant), String> {
    let (name, variant) = folder.split_once('+').unwrap_or((folder, ""));
    let variant = match variant {
        "" => Variant::Usual,
        named => named.parse().map_err(|_| "is a variant that no framework has")?,
    };
    Ok((name, variant))
}

/// Folders of exports, by whom they are for.
fn folders() -> Vec<(String, PathBuf)> {
    let read = entries(&folder()).into_iter().filter(|(name, _)| name.contains('@'));
    read.chain(entries(&folder().join("unread"))).collect()
}

pub(super) fn same<T: PartialEq + std::fmt::Debug>(what: &str, made: &T, golden: &T) -> Result<(), String> {
    if made == golden {
        Ok(())
    } else {
        Err(format!("{what} is\n{made:#?}\nand the golden one\n{golden:#?}"))
    }
}

#[test]
fn exports_are_what_frameworks_took() {
    let (mut seen, mut failed) = (0, Vec::new());
    for (of, cases) in folders() {
        for (name, golden) in entries(&cases) {
            seen += 1;
            let checked = target(&of).and_then(|target| check(target, &name, &golden));
            failed.extend(checked.err().map(|why| format!("{of}/{name}: {why}")));
        }
    }
    assert!(seen > 0, "no golden file was found");
    assert!(failed.is_empty(), "{} of {seen} differ:\n{}", failed.len(), failed.join("\n\n"));
}

/// No framework, version or way to say a plan is without one.
#[test]
fn every_exporter_has_a_golden_export() {
    let mut kept = Vec::new();
    for (of, cases) in folders() {
        let target = target(&of).unwrap();
        kept.extend(entries(&cases).into_iter().map(|(name, _)| (target, said(&name).unwrap().1)));
    }
    for exporter in exporters() {
        for variant in [Variant::Usual].iter().chain(variants(exporter.target.framework)) {
            assert!(
                kept.contains(&(exporter.target, *variant)),
                "{}: nothing is {variant:?}",
                exporter.target
            );
        }
    }
}
