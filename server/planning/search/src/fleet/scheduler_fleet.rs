//! The fleet of the very nodes and devices that a scheduler gave.

use std::collections::{BTreeSet, HashMap};

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::{
    Cluster, ClusterDevice, ClusterParts, ClusterSource, DeviceKind, Domain, Node, Tier, priors,
};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::scheduler_nodes::GivenNode;

use super::{FleetError, NodePart, PlannedFleet, build};

/// What devices are where no one says it: by name, bytes that training may use; none where not all of them allow the same.
pub type UsualKinds<'a> = [(&'a str, Option<Bytes>)];

/// The devices that were given.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenFleet {
    /// Those of the kinds that are asked for.
    pub fleet: PlannedFleet,
    /// Those of other kinds, as people know them: `node/index`.
    pub others: Vec<String>,
}

/// The devices that were given, of a cluster that describes all of their nodes.
///
/// # Errors
/// Names the node or device that the cluster does not have, or that is given twice; or none is of these kinds.
pub fn of_given(cluster: &Cluster, given: &[GivenNode], kinds: &[&str]) -> Result<GivenFleet, Invalid> {
    let by_name: HashMap<&str, usize> =
        cluster.nodes().iter().enumerate().map(|(index, node)| (node.name.as_str(), index)).collect();
    let mut seen = BTreeSet::new();
    let mut parts: Vec<NodePart<'_>> = Vec::new();
    let mut others: Vec<String> = Vec::new();
    for (index, of) in given.iter().enumerate() {
        let path = |field: &str| format!("nodes[{index}].{field}");
        let found = by_name.get(of.name.as_str()).and_then(|&at| Some((at, cluster.nodes().get(at)?)));
        let Some((at, node)) = found else {
            let why = format!(
                "{:?} is not a node of the cluster. Update the cluster, use another node, or set the kind of the devices \
                 (`device_kind`)",
                of.name
            );
            return Err(Invalid::field(path("name"), why));
        };
        if !seen.insert(of.name.as_str()) {
            return Err(Invalid::field(path("name"), format!("{:?} is listed twice", of.name)));
        }
        let begin = parts.len();
        for device in chosen(node, of, &path)? {
            if !kinds.contains(&device.kind.as_str()) {
                others.push(format!("{}/{}", node.name, device.index));
                continue;
            }
            let capacity = cluster.usable(device);
            let own = parts.get_mut(begin..).unwrap_or_default();
            match own.iter_mut().find(|part| part.kind == device.kind && part.capacity == capacity) {
                Some(part) => part.devices.push(device),
                None => {
                    parts.push(NodePart { node: at, kind: &device.kind, capacity, devices: vec![device] })
                }
            }
        }
    }
    if parts.is_empty() {
        let why = format!("have no device of the kinds {kinds:?}, which the plan needs. Use other nodes");
        return Err(Invalid::field("nodes", why));
    }
    // In which order they were given says nothing.
    parts.sort_by_key(|part| part.node);
    super::sort_parts(cluster, &mut parts);
    let fleet = build(cluster, &parts, false)
        .map_err(|error: FleetError| Invalid::field("nodes", error.to_string()))?;
    // In which order they were given says nothing of these either.
    others.sort_unstable();
    Ok(GivenFleet { fleet, others })
}

/// The devices of a node that were given, in order of their indices.
fn chosen<'a>(
    node: &'a Node,
    given: &GivenNode,
    path: &impl Fn(&str) -> String,
) -> Result<Vec<&'a ClusterDevice>, Invalid> {
    let mut chosen: Vec<&ClusterDevice> = Vec::new();
    let mut add = |field: String, named: &str, found: Option<&'a ClusterDevice>| {
        let Some(device) = found else {
            let there: Vec<String> = node.devices.iter().map(|of| of.index.to_string()).collect();
            let why = format!(
                "{named} is not a device of {}, which has the device indices {}. Use a device of this node",
                node.name,
                there.join(", ")
            );
            return Err(Invalid::field(field, why));
        };
        if chosen.iter().any(|of| of.index == device.index) {
            return Err(Invalid::field(field, format!("{named} is listed twice")));
        }
        chosen.push(device);
        Ok(())
    };
    let at_uuid = |uuid: &String| node.devices.iter().find(|device| device.uuid == *uuid);
    match (given.indices.as_slice(), given.uuids.as_slice()) {
        ([], []) => return Ok(node.devices.iter().collect()),
        ([], uuids) => {
            for (place, uuid) in uuids.iter().enumerate() {
                add(path(&format!("device_uuids[{place}]")), uuid, at_uuid(uuid))?;
            }
        }
        (indices, uuids) => {
            for (place, &index) in indices.iter().enumerate() {
                let at_index = node.devices.iter().find(|device| device.index == index);
                let uuid = uuids.get(place).filter(|uuid| !uuid.is_empty());
                // A scheduler may number devices otherwise than the driver does: a UUID identifies the device.
                match (uuid, at_index) {
                    (Some(uuid), _) if at_uuid(uuid).is_some() => {
                        add(path(&format!("device_uuids[{place}]")), uuid, at_uuid(uuid))?;
                    }
                    (Some(uuid), Some(known)) if !known.uuid.is_empty() => {
                        let why = format!(
                            "{uuid} is not a device of {}: in the cluster, device {index} of this node is {}. Update \
                             the cluster, or remove the UUIDs",
                            node.name, known.uuid
                        );
                        return Err(Invalid::field(path(&format!("device_uuids[{place}]")), why));
                    }
                    _ => add(path(&format!("device_indices[{place}]")), &index.to_string(), at_index)?,
                }
            }
        }
    }
    chosen.sort_unstable_by_key(|device| device.index);
    Ok(chosen)
}

/// A cluster of nodes that none describes: links are what devices of a kind usually have, and nodes are as near each other as their
/// switches say.
///
/// # Errors
/// Names what is missing of a node.
pub fn described(given: &[GivenNode], usual: &UsualKinds<'_>) -> Result<Cluster, Invalid> {
    let mut kinds: Vec<DeviceKind> = Vec::new();
    let mut nodes = Vec::with_capacity(given.len());
    let mut domains: Vec<Domain> = Vec::new();
    let tiers = given.iter().map(|of| of.switches.len()).max().unwrap_or(0);
    for (index, of) in given.iter().enumerate() {
        let path = |field: &str| format!("nodes[{index}].{field}");
        let kind = match (&of.kind, usual) {
            (Some(kind), _) => kind.as_str(),
            (None, [(kind, _)]) => kind,
            (None, _) => {
                let why = "is required: the plan needs devices of several kinds, and no cluster contains the kind of \
                           this node's devices";
                return Err(Invalid::field(path("device_kind"), why));
            }
        };
        let usually = usual.iter().find(|(name, _)| *name == kind).map(|(_, usable)| *usable);
        let Some(memory) = of.memory.or_else(|| usually.flatten()) else {
            let planned = match usually {
                Some(_) => format!("{kind:?} devices with different memory sizes"),
                None => format!("no {kind:?} devices"),
            };
            let why = format!(
                "is required: the plan has {planned}, and no cluster contains the memory size of this node's devices. \
                 One value is for all devices of the node. If these devices differ, store a cluster that contains the \
                 node"
            );
            return Err(Invalid::field(path("memory_bytes"), why));
        };
        match kinds.iter_mut().find(|known| known.name == kind) {
            Some(known) => {
                (known.memory, known.usable) = (known.memory.max(memory), known.usable.max(memory))
            }
            None => {
                kinds.push(DeviceKind { name: kind.to_owned(), memory, usable: memory, hourly_price: None })
            }
        }
        nodes.push(node(of, kind, memory, given.len() > 1, &path)?);
        if of.switches.len() < tiers {
            continue;
        }
        // In an uneven tree a node has no switch on some levels.
        let levels = of.switches.iter().rev().enumerate().filter(|(_, level)| !level.is_empty());
        let levels: Vec<usize> = levels.map(|(tier, _)| tier).collect();
        for (place, &tier) in levels.iter().enumerate() {
            // A switch is named with those above it: two leaves of one name are different ones under different spines.
            let name = |tier: usize| {
                of.switches.get(..of.switches.len() - tier).map(|above| above.join(".")).unwrap_or_default()
            };
            let own = if place == 0 { vec![of.name.clone()] } else { Vec::new() };
            match domains.iter_mut().find(|known| known.name == name(tier)) {
                Some(known) => known.nodes.extend(own),
                None => domains.push(Domain {
                    level: tier.to_string(),
                    name: name(tier),
                    parent: levels.get(place + 1).map(|&above| name(above)),
                    nodes: own,
                }),
            }
        }
    }
    let tier = |tier: usize| Tier { level: tier.to_string(), link: None };
    let tiers = (0..tiers).map(tier).collect();
    let parts =
        ClusterParts { kinds, nodes, tiers, domains, source: ClusterSource::Written, warnings: Vec::new() };
    Cluster::new(parts)
}

fn node(
    of: &GivenNode,
    kind: &str,
    memory: Bytes,
    has_neighbours: bool,
    path: &impl Fn(&str) -> String,
) -> Result<Node, Invalid> {
    let count = of.indices.len().max(of.uuids.len());
    if count == 0 {
        let why = "is required without `device_uuids`: no cluster contains the devices of this node";
        return Err(Invalid::field(path("device_indices"), why));
    }
    let twice = |field: &str, place: usize, named: &str| {
        Invalid::field(path(&format!("{field}[{place}]")), format!("{named} is listed twice"))
    };
    let mut indices = BTreeSet::new();
    if let Some(place) = of.indices.iter().position(|index| !indices.insert(index)) {
        return Err(twice("device_indices", place, &of.indices[place].to_string()));
    }
    let mut uuids = BTreeSet::new();
    if let Some(place) = of.uuids.iter().position(|uuid| !uuid.is_empty() && !uuids.insert(uuid)) {
        return Err(twice("device_uuids", place, &of.uuids[place]));
    }
    let device = |place: usize| {
        let own = u32::try_from(place).unwrap_or(u32::MAX);
        ClusterDevice {
            index: of.indices.get(place).copied().unwrap_or(own),
            kind: kind.to_owned(),
            uuid: of.uuids.get(place).cloned().unwrap_or_default(),
            pci_bus_id: String::new(),
            slot: String::new(),
            usable: Some(memory),
        }
    };
    let mut devices: Vec<ClusterDevice> = (0..count).map(device).collect();
    devices.sort_by_key(|device| device.index);
    let (class, _, link) = priors::of_kind(kind, u32::try_from(count).unwrap_or(u32::MAX));
    Ok(Node {
        name: of.name.clone(),
        labels: Default::default(),
        driver_version: String::new(),
        link: (count > 1).then_some(link),
        link_class: (count > 1).then_some(class),
        links: Vec::new(),
        network: has_neighbours.then(priors::network),
        network_links: None,
        copies: None,
        updates: Vec::new(),
        devices,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str, indices: &[u32], switches: &str) -> GivenNode {
        GivenNode {
            name: name.to_owned(),
            indices: indices.to_vec(),
            switches: if switches.is_empty() {
                Vec::new()
            } else {
                switches.split('.').map(str::to_owned).collect()
            },
            ..GivenNode::default()
        }
    }

    const USUAL: [(&str, Option<Bytes>); 1] = [("gpu", Some(Bytes(40)))];

    #[test]
    fn nodes_of_one_switch_stand_together() {
        let nodes = [
            given("a", &[0, 1], "spine.left"),
            given("b", &[0, 1], "spine.right"),
            given("c", &[0, 1], "spine.left"),
            given("d", &[0, 1], "spine.right"),
        ];
        let cluster = described(&nodes, &USUAL).unwrap();
        let fleet = of_given(&cluster, &nodes, &["gpu"]).unwrap().fleet;
        let order: Vec<&str> = fleet.fleet.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(order, ["a", "c", "b", "d"]);
        assert_eq!(fleet.fleet.kinds[0].capacity, Bytes(40));
        assert_eq!(fleet.link_origins(), "assumed");
    }

    /// Slurm leaves a level empty where a node has no switch of it.
    #[test]
    fn nodes_of_an_uneven_tree_share_the_switches_that_they_have() {
        let nodes = [
            given("a", &[0], "root..unknown"),
            given("b", &[0], "root.spine.left"),
            given("c", &[0], "root..unknown"),
            given("d", &[0], "root.."),
        ];
        let cluster = described(&nodes, &USUAL).unwrap();
        let of = |node: usize| {
            [0, 1, 2].map(|tier| Some(cluster.domains().get(cluster.domain_of(node, tier)?)?.name.as_str()))
        };
        assert_eq!(of(0), [Some("root..unknown"), None, Some("root")]);
        assert_eq!(of(1), [Some("root.spine.left"), Some("root.spine"), Some("root")]);
        assert_eq!(of(2), of(0));
        assert_eq!(of(3), [None, None, Some("root")]);
    }

    #[test]
    fn devices_are_those_that_were_given() {
        let whole = described(&[given("a", &[0, 1, 2, 3], ""), given("b", &[0, 1], "")], &USUAL).unwrap();
        let fleet = of_given(&whole, &[given("a", &[3, 1], "")], &["gpu"]).unwrap().fleet;
        let indices: Vec<u32> = fleet.devices().iter().map(|device| device.index).collect();
        assert_eq!(indices, [1, 3]);
        let all = of_given(&whole, &[given("b", &[], "")], &["gpu"]).unwrap();
        assert_eq!((all.fleet.devices().len(), all.others.len()), (2, 0));
        let field = |nodes: &[GivenNode], kinds: &[&str]| {
            of_given(&whole, nodes, kinds).unwrap_err().violations()[0].field.clone()
        };
        assert_eq!(field(&[given("a", &[], ""), given("x", &[], "")], &["gpu"]), "nodes[1].name");
        assert_eq!(field(&[given("a", &[], ""), given("a", &[], "")], &["gpu"]), "nodes[1].name");
        assert_eq!(field(&[given("a", &[0, 7], "")], &["gpu"]), "nodes[0].device_indices[1]");
        assert_eq!(field(&[given("a", &[1, 1], "")], &["gpu"]), "nodes[0].device_indices[1]");
        assert_eq!(field(&[given("a", &[], "")], &["other"]), "nodes");
    }

    /// Devices of kinds that no one asks for are none of the fleet, and are named.
    #[test]
    fn devices_of_other_kinds_are_named() {
        let other =
            GivenNode { kind: Some("other".to_owned()), memory: Some(Bytes(80)), ..given("b", &[1, 0], "") };
        let nodes = [other, given("a", &[0, 1], "")];
        let cluster = described(&nodes, &USUAL).unwrap();
        let found = of_given(&cluster, &nodes, &["gpu"]).unwrap();
        assert_eq!(found.fleet.names(), ["a/0", "a/1"]);
        assert_eq!(found.others, ["b/0", "b/1"]);
    }

    /// Where both are given a UUID is the device, whatever number it has; one that the cluster does not have is no other device.
    #[test]
    fn a_uuid_says_more_than_an_index() {
        let uuids = |all: &[&str]| all.iter().map(|&uuid| uuid.to_owned()).collect::<Vec<_>>();
        let stored = GivenNode { uuids: uuids(&["GPU-a", "GPU-b", "GPU-c"]), ..given("a", &[0, 1, 2], "") };
        let cluster = described(&[stored], &USUAL).unwrap();
        let of = |indices: &[u32], of_them: &[&str]| {
            let nodes = [GivenNode { uuids: uuids(of_them), ..given("a", indices, "") }];
            of_given(&cluster, &nodes, &["gpu"]).map(|found| found.fleet.names())
        };
        assert_eq!(of(&[0], &["GPU-c"]).unwrap(), ["a/2"]);
        assert_eq!(of(&[0, 1], &["GPU-b", "GPU-a"]).unwrap(), ["a/0", "a/1"]);
        assert_eq!(of(&[1], &[""]).unwrap(), ["a/1"]);
        let field =
            |refused: Result<Vec<String>, Invalid>| refused.unwrap_err().violations()[0].field.clone();
        assert_eq!(field(of(&[0], &["GPU-z"])), "nodes[0].device_uuids[0]");
        assert_eq!(field(of(&[0, 1], &["GPU-b", "GPU-b"])), "nodes[0].device_uuids[1]");
    }

    #[test]
    fn what_nobody_says_is_asked_for() {
        let field = |node: GivenNode, usual: &UsualKinds<'_>| {
            described(&[node], usual).unwrap_err().violations()[0].field.clone()
        };
        assert_eq!(field(given("a", &[], ""), &USUAL), "nodes[0].device_indices");
        let two = [("gpu", Some(Bytes(40))), ("other", None)];
        assert_eq!(field(given("a", &[0], ""), &two), "nodes[0].device_kind");
        let of_kind = |kind: &str| GivenNode { kind: Some(kind.to_owned()), ..given("a", &[0], "") };
        assert_eq!(field(of_kind("third"), &two), "nodes[0].memory_bytes");
        // Which of several amounts a device allows no one says either.
        assert_eq!(field(of_kind("other"), &two), "nodes[0].memory_bytes");
        assert_eq!(field(given("a", &[0], ""), &two[1..]), "nodes[0].memory_bytes");
        assert!(described(&[of_kind("gpu")], &two).is_ok());
    }

    #[test]
    fn a_device_that_is_given_twice_is_named_as_it_was_given() {
        let field = |node: GivenNode| described(&[node], &USUAL).unwrap_err().violations()[0].field.clone();
        assert_eq!(field(given("a", &[1, 0, 0], "")), "nodes[0].device_indices[2]");
        let uuids = ["GPU-a", "GPU-a"].map(str::to_owned).to_vec();
        assert_eq!(field(GivenNode { uuids, ..given("a", &[], "") }), "nodes[0].device_uuids[1]");
    }
}
