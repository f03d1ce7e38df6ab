//! Plans of every framework in a manifest, on as many nodes as their ranks can be parted into.

use std::collections::BTreeMap;

use anyhow::Result;
use loadmaster_launchers::{
    ExportQuestion, Exporter, Manifest, ManifestSettings, Variant, Wrapping, export, exporters, manifests,
    wrap,
};
use loadmaster_proto::name::PlanName;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_tests::Sampler;
use serde_json::{Value, json};

use crate::exports::draw::drawn;

/// A plan of some framework, or everything but the numbers of why it cannot be started so.
pub(crate) fn line(manifest: Manifest, index: u64, lots: &mut Sampler) -> Result<Result<Value, String>> {
    let is_started = |exporter: &&Exporter| manifests(exporter.target.framework).any(|it| it == manifest);
    let started: Vec<&Exporter> = exporters().iter().filter(is_started).collect();
    let target = lots.one(&started).target;
    let case = drawn(target.framework, Variant::Usual, lots);
    let (mut plan, model) = (case.plan(), case.model());
    // Others start as many processes on every node.
    let is_free = target.framework == Framework::Other;
    let node_ranks = on_nodes(&mut plan, is_free, lots);
    let settings = settings(manifest, lots);
    let is_placed = [&settings.required_topology, &settings.preferred_topology, &settings.stage_topology]
        .iter()
        .any(|level| !level.is_empty());
    let is_bound = matches!(manifest, Manifest::Ray | Manifest::Jobset) && !is_placed && lots.below(2) == 0;
    let placement = if is_bound { bound(&mut plan, &node_ranks, lots) } else { Vec::new() };
    share_in_turn(&mut plan);
    let name = PlanName::from_id(format!("drawn-{}", index + 1))?;
    let mut wrapping = Wrapping::of(manifest, &name, settings.clone())?;
    if is_bound {
        wrapping = wrapping.on_placement()?;
    }
    let (model, variant) = (Some(&model), Variant::Usual);
    let question = ExportQuestion { name: &name, plan: &plan, model, target, named: None, variant };
    let export = match export(&question) {
        Ok(exported) => wrap(exported, &wrapping).map_err(|refusal| refusal.stages[0].why.clone()),
        Err(_) => Err("no export".to_owned()),
    };
    let export = match export {
        Ok(export) => export,
        Err(why) => return Ok(Err(why.chars().filter(|c| !c.is_ascii_digit()).take(60).collect())),
    };
    let files: BTreeMap<String, String> =
        export.files.into_iter().map(|file| (file.name, file.contents)).collect();
    Ok(Ok(json!({
        "framework": target.to_string(),
        "node_ranks": node_ranks,
        "placement": placement,
        "queue": settings.queue,
        "image": settings.image,
        "files": files,
        "command": export.command,
    })))
}

/// Puts the ranks of a plan on nodes, equal ones more often than not, and says how many are on each.
fn on_nodes(plan: &mut Plan, is_free: bool, lots: &mut Sampler) -> Vec<usize> {
    let world: usize = first_in_turn(plan).iter().map(|stage| stage.devices.len()).sum();
    let mut left = world;
    let mut node_ranks = Vec::new();
    if is_free && lots.below(2) == 0 {
        while left > 0 {
            let ranks = (1 + lots.below(8)).min(left);
            node_ranks.push(ranks);
            left -= ranks;
        }
    } else {
        let parts: Vec<usize> =
            (1..=world).filter(|nodes| world.is_multiple_of(*nodes) && *nodes <= 6).collect();
        let nodes = lots.one(&parts);
        node_ranks = vec![world / nodes; nodes];
    }
    let places =
        node_ranks.iter().enumerate().flat_map(|(node, &ranks)| (0..ranks).map(move |index| (node, index)));
    let devices = first_in_turn(plan).iter_mut().flat_map(|stage| &mut stage.devices);
    for (device, (node, index)) in devices.zip(places) {
        device.node = format!("node{node}");
        device.index = index as u32;
    }
    node_ranks
}

/// The stages that devices have first: of a plan without turns all.
fn first_in_turn(plan: &mut Plan) -> &mut [PlanStage] {
    let places = plan.stages.len() / (plan.virtual_stages.max(1) as usize);
    &mut plan.stages[..places]
}

/// Puts every later stage in turn on the devices of the first of its place.
fn share_in_turn(plan: &mut Plan) {
    let devices: Vec<_> = first_in_turn(plan).iter().map(|stage| stage.devices.clone()).collect();
    for (stage, devices) in plan.stages.iter_mut().zip(devices.iter().cycle()) {
        stage.devices.clone_from(devices);
    }
}

/// Binds a plan to other nodes than it names, which are the cluster's in some order, and to any of their GPUs: what it is to find.
fn bound(plan: &mut Plan, node_ranks: &[usize], lots: &mut Sampler) -> Vec<(String, Vec<String>)> {
    let first = lots.below(2);
    let mut devices = first_in_turn(plan).iter_mut().flat_map(|stage| &mut stage.devices);
    let mut placement = Vec::new();
    for (node, &ranks) in node_ranks.iter().enumerate() {
        let name = format!("127.0.0.{}", 2 + (first + node) % node_ranks.len().max(2));
        let (has_uuids, mut free) = (lots.below(2) == 0, (0..ranks.max(8) as u32).collect::<Vec<_>>());
        let mut gpus = Vec::new();
        for device in devices.by_ref().take(ranks) {
            device.node.clone_from(&name);
            device.index = free.swap_remove(lots.below(free.len()));
            device.uuid = if has_uuids { format!("GPU-{node}-{}", device.index) } else { String::new() };
            gpus.push(if has_uuids { device.uuid.clone() } else { device.index.to_string() });
        }
        placement.push((name, gpus));
    }
    placement
}

fn settings(manifest: Manifest, lots: &mut Sampler) -> ManifestSettings {
    if !manifest.is_kubernetes() {
        return ManifestSettings::default();
    }
    let mut sometimes = |text: &str| if lots.below(3) == 0 { text.to_owned() } else { String::new() };
    let mut settings = ManifestSettings {
        image: "registry.example.com/train:1".to_owned(),
        namespace: sometimes("research"),
        name: sometimes("a-name-that-is-as-long-as-names-can-be-1"),
        queue: sometimes("training.gpu"),
        required_topology: sometimes("cloud.provider.com/topology-block"),
        preferred_topology: sometimes("cloud.provider.com/topology-block"),
        stage_topology: sometimes("kubernetes.io/hostname"),
    };
    if !settings.required_topology.is_empty() {
        settings.preferred_topology.clear();
    }
    settings
}
