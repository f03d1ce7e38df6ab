//! Every export in a manifest that its validation took is written so: `golden/manifests/MANIFEST/NAME`.
//!
//! `KEPT=write cargo nextest run -p loadmaster-launchers` writes them anew; then `tests/launchers/manifests/check.py` must take them
//! once more.

use std::collections::BTreeMap;
use std::path::Path;

use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::Plan;
use serde::Deserialize;

use super::export_as;
use super::golden::{case, entries, files, folder, kept, same, write};
use crate::{ManifestSettings, Target, Variant, Wrapping, wrap};

/// `asked.json`: what is exported, and into which manifest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    framework: String,
    case: String,
    settings: BTreeMap<String, String>,
    /// Ranks of each node, where they are other than the case's.
    #[serde(default)]
    node_ranks: Vec<usize>,
    /// What the GPUs of each of these nodes are called.
    #[serde(default)]
    kinds: Vec<String>,
    /// A placement: the name of each node and the UUIDs of its GPUs, or their indices.
    #[serde(default)]
    placement: Vec<(String, Vec<String>)>,
}

fn settings(said: &BTreeMap<String, String>) -> Result<ManifestSettings, String> {
    let mut settings = ManifestSettings::default();
    for (name, value) in said {
        let field = match name.as_str() {
            "image" => &mut settings.image,
            "namespace" => &mut settings.namespace,
            "name" => &mut settings.name,
            "queue" => &mut settings.queue,
            "required_topology" => &mut settings.required_topology,
            "preferred_topology" => &mut settings.preferred_topology,
            "stage_topology" => &mut settings.stage_topology,
            other => return Err(format!("{other} is no setting")),
        };
        field.clone_from(value);
    }
    Ok(settings)
}

/// Puts a plan's ranks on nodes of other sizes.
pub(super) fn place(plan: &mut Plan, node_ranks: &[usize], kinds: &[String]) {
    let nodes = node_ranks
        .iter()
        .enumerate()
        .flat_map(|(node, &ranks)| (0..ranks).map(move |index| (node, index as u32)));
    let devices = plan.stages.iter_mut().flat_map(|stage| &mut stage.devices);
    for (device, (node, index)) in devices.zip(nodes) {
        device.index = index;
        device.node = format!("node{node}");
        if let Some(kind) = kinds.get(node) {
            device.kind.clone_from(kind);
        }
    }
}

/// Puts a plan's ranks on the devices of a placement.
pub(super) fn bind(plan: &mut Plan, placement: &[(String, Vec<String>)]) {
    let gpus = placement.iter().flat_map(|(node, gpus)| gpus.iter().map(move |gpu| (node, gpu)));
    let devices = plan.stages.iter_mut().flat_map(|stage| &mut stage.devices);
    for (device, (node, gpu)) in devices.zip(gpus) {
        device.node.clone_from(node);
        match gpu.parse() {
            Ok(index) => device.index = index,
            Err(_) => device.uuid.clone_from(gpu),
        }
    }
}

/// # Errors
/// What differs from the golden folder.
fn check(manifest: &str, golden: &Path) -> Result<(), String> {
    let text = std::fs::read_to_string(golden.join("asked.json")).map_err(|why| why.to_string())?;
    let asked: Asked = serde_json::from_str(&text).map_err(|why| why.to_string())?;
    let (framework, version) = asked.framework.split_once('@').ok_or("write FRAMEWORK@VERSION")?;
    let framework = framework.parse().map_err(|_| "is for a framework that has no name")?;
    let target = Target::of(framework, version).map_err(|why| why.to_string())?;
    let manifest = manifest.parse().map_err(|_| "is a manifest that has no name")?;
    let case = case(&asked.case)?;
    let (mut plan, model) = (case.plan(), case.model());
    place(&mut plan, &asked.node_ranks, &asked.kinds);
    bind(&mut plan, &asked.placement);
    let name = PlanName::from_id("golden").unwrap();
    let mut wrapping =
        Wrapping::of(manifest, &name, settings(&asked.settings)?).map_err(|why| why.to_string())?;
    if !asked.placement.is_empty() {
        wrapping = wrapping.on_placement().map_err(|why| why.to_string())?;
    }
    let made = export_as("golden", target, Variant::Usual, &plan, Some(&model));
    let made = made.and_then(|made| wrap(made, &wrapping)).map_err(|refusal| refusal.to_string())?;
    let mut made = files(made);
    made.insert("asked.json".to_owned(), text);
    if std::env::var_os("KEPT").is_some_and(|value| value == "write") {
        write(golden, &made);
    }
    let kept = kept(golden);
    same("files", &made.keys().collect::<Vec<_>>(), &kept.keys().collect())?;
    made.iter().try_for_each(|(name, text)| same(name, text, &kept[name]))
}

#[test]
fn manifests_are_what_their_validation_took() {
    let (mut seen, mut failed) = (0, Vec::new());
    for (manifest, cases) in entries(&folder().join("manifests")) {
        for (name, golden) in entries(&cases) {
            seen += 1;
            failed.extend(check(&manifest, &golden).err().map(|why| format!("{manifest}/{name}: {why}")));
        }
    }
    assert!(seen > 0, "no golden file was found");
    assert!(failed.is_empty(), "{} of {seen} differ:\n{}", failed.len(), failed.join("\n\n"));
}
