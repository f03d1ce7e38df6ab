//! Which devices of a cluster a selection leaves.

use loadmaster_proto::cluster::doubts::named;
use loadmaster_proto::cluster::{Cluster, ClusterDevice};

use super::{FleetError, NodePart, Selection};

/// Most names that an error lists.
const SHOWN: usize = 8;

/// The selected devices, node by node and kind by kind.
///
/// # Errors
/// When the selection names what is not there, or nothing is left.
pub(super) fn parts<'a>(
    cluster: &'a Cluster,
    selection: &Selection,
) -> Result<Vec<NodePart<'a>>, FleetError> {
    check_names(cluster, selection)?;
    let mut parts: Vec<NodePart<'a>> = Vec::new();
    for (index, node) in cluster.nodes().iter().enumerate() {
        let is_named = selection.nodes.is_empty() || selection.nodes.contains(&node.name);
        let has_labels = selection.labels.iter().all(|(key, value)| node.labels.get(key) == Some(value));
        if !is_named || !has_labels {
            continue;
        }
        let begin = parts.len();
        for device in node.devices.iter().filter(|device| is_selected(selection, &node.name, device)) {
            let capacity = cluster.usable(device);
            let of_node = parts.get_mut(begin..).unwrap_or_default();
            match of_node.iter_mut().find(|part| part.kind == device.kind && part.capacity == capacity) {
                Some(part) => part.devices.push(device),
                None => {
                    parts.push(NodePart { node: index, kind: &device.kind, capacity, devices: vec![device] })
                }
            }
        }
    }
    if parts.is_empty() { Err(FleetError::Empty { why: why_empty(selection) }) } else { Ok(parts) }
}

/// Leaves the devices of one island, because no job of the scheduler spans several: that with the most memory, of equal
/// ones the first. Returns what that leaves out, human-readable.
pub(super) fn keep_one_island(cluster: &Cluster, parts: &mut Vec<NodePart<'_>>) -> Option<String> {
    let bytes = |part: &NodePart<'_>| part.capacity.0.saturating_mul(part.devices.len() as u64);
    let mut islands: Vec<(usize, u64)> = Vec::new();
    for part in parts.iter() {
        let island = cluster.island_of(part.node)?;
        match islands.iter_mut().find(|(known, _)| *known == island) {
            Some((_, total)) => *total = total.saturating_add(bytes(part)),
            None => islands.push((island, bytes(part))),
        }
    }
    let &(largest, _) = islands.iter().rev().max_by_key(|(_, total)| *total)?;
    if islands.len() < 2 {
        return None;
    }
    let count = |parts: &[NodePart<'_>]| parts.iter().map(|part| part.devices.len()).sum::<usize>();
    let all = count(parts.as_slice());
    parts.retain(|part| cluster.island_of(part.node) == Some(largest));
    let name = |island: usize| cluster.domains().get(island).map_or("", |domain| domain.name.as_str());
    let names: Vec<&str> = islands.iter().map(|&(island, _)| name(island)).collect();
    Some(format!(
        "the islands {} are groups of nodes without a common switch, so Slurm starts no job on several of these \
         islands. The plan uses the island {}, with {} of {all} devices. To plan for another island, exclude the nodes \
         of this one",
        named(&names),
        name(largest),
        count(parts.as_slice())
    ))
}

/// Leaves the first devices in order.
pub(super) fn keep_first(parts: &mut Vec<NodePart<'_>>, first: Option<u32>) {
    let mut left = first.map_or(usize::MAX, |first| first as usize);
    for part in parts.iter_mut() {
        part.devices.truncate(left);
        left -= part.devices.len();
    }
    parts.retain(|part| !part.devices.is_empty());
}

/// Whether a selection would take a further node like that of `part`, and take that part of it alone: what is left out of
/// one node by name is left out of no other.
pub(super) fn takes_further(cluster: &Cluster, selection: &Selection, part: &NodePart<'_>) -> bool {
    let Some(node) = cluster.nodes().get(part.node) else { return false };
    let is_kind =
        |device: &&ClusterDevice| selection.kinds.is_empty() || selection.kinds.contains(&device.kind);
    let is_of_part =
        |device: &ClusterDevice| device.kind == part.kind && cluster.usable(device) == part.capacity;
    selection.first.is_none()
        && selection.nodes.is_empty()
        && node.devices.iter().filter(is_kind).all(is_of_part)
}

fn is_selected(selection: &Selection, node: &str, device: &ClusterDevice) -> bool {
    let is_kind = selection.kinds.is_empty() || selection.kinds.contains(&device.kind);
    let is_excluded = |excluded: &super::Exclusion| {
        excluded.node == node && excluded.device.is_none_or(|index| index == device.index)
    };
    is_kind && !selection.excluded.iter().any(is_excluded)
}

fn check_names(cluster: &Cluster, selection: &Selection) -> Result<(), FleetError> {
    let list = |names: &mut dyn Iterator<Item = &str>| {
        let shown: Vec<String> = names.take(SHOWN + 1).map(|name| format!("{name:?}")).collect();
        match shown.get(..SHOWN) {
            Some(first) if shown.len() > SHOWN => format!("{} and more", first.join(", ")),
            _ => shown.join(", "),
        }
    };
    let nodes = || list(&mut cluster.nodes().iter().map(|node| node.name.as_str()));
    for kind in &selection.kinds {
        if cluster.kind(kind).is_none() {
            let known = list(&mut cluster.kinds().iter().map(|kind| kind.name.as_str()));
            return Err(FleetError::Unknown { field: "kinds", name: kind.clone(), known });
        }
    }
    for name in &selection.nodes {
        if !cluster.nodes().iter().any(|node| node.name == *name) {
            return Err(FleetError::Unknown { field: "nodes", name: name.clone(), known: nodes() });
        }
    }
    for excluded in &selection.excluded {
        let Some(node) = cluster.nodes().iter().find(|node| node.name == excluded.node) else {
            return Err(FleetError::Unknown {
                field: "excluded",
                name: excluded.node.clone(),
                known: nodes(),
            });
        };
        if let Some(index) = excluded.device
            && !node.devices.iter().any(|device| device.index == index)
        {
            let known =
                node.devices.iter().map(|device| device.index.to_string()).collect::<Vec<_>>().join(", ");
            return Err(FleetError::Unknown {
                field: "excluded",
                name: format!("{}/{index}", node.name),
                known: format!("only devices {known} in that node"),
            });
        }
    }
    if selection.first == Some(0) {
        return Err(FleetError::Empty { why: "the first 0 devices were requested".to_owned() });
    }
    Ok(())
}

fn why_empty(selection: &Selection) -> String {
    let mut why = Vec::new();
    if !selection.kinds.is_empty() {
        why.push(format!("kinds {:?}", selection.kinds));
    }
    if !selection.nodes.is_empty() {
        why.push(format!("{} nodes", selection.nodes.len()));
    }
    if !selection.labels.is_empty() {
        why.push(format!("labels {:?}", selection.labels));
    }
    if !selection.excluded.is_empty() {
        why.push(format!("{} nodes or devices are excluded", selection.excluded.len()));
    }
    format!("no device has {}", why.join(" and "))
}
