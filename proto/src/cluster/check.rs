//! What must hold of a cluster's kinds, nodes and links.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    ClusterParts, DeviceKind, DeviceLink, MAX_COPIES, MAX_DEVICES, MAX_DOMAINS, MAX_KINDS, MAX_LABELS,
    MAX_LINKS, MAX_NAME, MAX_NETWORK_LINKS, MAX_NODE_DEVICES, MAX_NODES, MAX_TIERS, Node, NodeCopies,
    updates,
};
use crate::bytes::Bytes;
use crate::error::{Invalid, in_range};
use crate::name::{checked_device_uuid, checked_host, checked_kind, checked_name, is_invisible};
use crate::warning::Warning;
use crate::wire::reading::{self, Wanted};

/// Most links side by side.
const MAX_LINK_COUNT: u32 = 1_024;
/// Highest price of a device and hour.
const MAX_PRICE: f64 = 1e9;
/// Most warnings, and the longest, bytes.
const MAX_WARNINGS: usize = 64;
/// See [`MAX_WARNINGS`].
const MAX_WARNING: usize = 1_000;
/// Most bytes of a memory: what the wire can carry.
const MAX_BYTES: u64 = i64::MAX as u64;

/// Checks all but the tree of domains, and puts links and devices in order.
///
/// # Errors
/// Names the field.
pub(super) fn check(parts: &mut ClusterParts, wanted: Wanted<'_>) -> Result<(), Invalid> {
    let ClusterParts { kinds, nodes, tiers, domains, source: _, warnings: _ } = parts;
    in_range("kinds", kinds.len(), 1..=MAX_KINDS)?;
    for (index, kind) in kinds.iter().enumerate() {
        check_kind(kind).map_err(|invalid| invalid.under(&format!("kinds[{index}]")))?;
    }
    unique("kinds", "name", kinds.iter().map(|kind| kind.name.as_str()))?;
    if nodes.is_empty() {
        return Err(Invalid::field("nodes", "has no nodes. A cluster needs at least one node"));
    }
    in_range("nodes", nodes.len(), 1..=MAX_NODES)?;
    unique("nodes", "name", nodes.iter().map(|node| node.name.as_str()))?;
    in_range("nodes.devices", nodes.iter().map(|node| node.devices.len()).sum(), 1..=MAX_DEVICES)?;
    in_range("nodes.links", nodes.iter().map(|node| node.links.len()).sum(), 0..=MAX_LINKS)?;
    let copies = nodes.iter().filter_map(|node| node.copies.as_ref()).map(NodeCopies::size).sum();
    in_range("nodes.copies", copies, 0..=MAX_COPIES)?;
    for (index, node) in nodes.iter_mut().enumerate() {
        reading::check(wanted)?;
        check_node(node, kinds).map_err(|invalid| invalid.under(&format!("nodes[{index}]")))?;
    }
    in_range("tiers", tiers.len(), 0..=MAX_TIERS)?;
    for (index, tier) in tiers.iter().enumerate() {
        text(&format!("tiers[{index}].level"), &tier.level, 1, MAX_NAME)?;
        if let Some(link) = &tier.link {
            link.check().map_err(|invalid| invalid.under(&format!("tiers[{index}]")))?;
        }
    }
    unique("tiers", "level", tiers.iter().map(|tier| tier.level.as_str()))?;
    in_range("domains", domains.len(), 0..=MAX_DOMAINS)?;
    check_reach(parts)?;
    // Warnings are ours, but quote what a file says.
    parts.warnings =
        std::mem::take(&mut parts.warnings).into_iter().take(MAX_WARNINGS).map(shorten).collect();
    Ok(())
}

/// Checks what exports write of the nodes into scripts: their names and the UUIDs of their devices.
///
/// # Errors
/// Names the field.
pub(super) fn check_written(nodes: &[Node], wanted: Wanted<'_>) -> Result<(), Invalid> {
    for (index, node) in nodes.iter().enumerate() {
        reading::check(wanted)?;
        let under = |invalid: Invalid| invalid.under(&format!("nodes[{index}]"));
        checked_host("name", &node.name).map_err(under)?;
        for (position, device) in node.devices.iter().enumerate() {
            checked_device_uuid(&format!("devices[{position}].uuid"), &device.uuid).map_err(under)?;
        }
    }
    Ok(())
}

fn shorten(mut warning: Warning) -> Warning {
    warning.message.truncate(warning.message.floor_char_boundary(MAX_WARNING));
    warning
}

fn check_kind(kind: &DeviceKind) -> Result<(), Invalid> {
    let DeviceKind { name, memory, usable, hourly_price } = kind;
    checked_kind("name", name)?;
    in_range("memory", memory.0, 1..=MAX_BYTES)?;
    check_usable(*usable, *memory)?;
    match hourly_price {
        Some(price) if !(0.0..=MAX_PRICE).contains(price) => Err(Invalid::field(
            "hourly_price",
            format!("{price} is not a valid price. Use 0 to {MAX_PRICE:e}"),
        )),
        _ => Ok(()),
    }
}

fn check_usable(usable: Bytes, memory: Bytes) -> Result<(), Invalid> {
    if (1..=memory.0).contains(&usable.0) {
        Ok(())
    } else {
        Err(invalid!(
            "usable_memory_bytes",
            "{usable} is not valid. Use more than 0, and at most the device's memory, {memory}"
        ))
    }
}

fn check_node(node: &mut Node, kinds: &[DeviceKind]) -> Result<(), Invalid> {
    checked_name("name", &node.name, MAX_NAME)?;
    text("driver_version", &node.driver_version, 0, MAX_NAME)?;
    in_range("labels", node.labels.len(), 0..=MAX_LABELS)?;
    for (key, value) in &node.labels {
        text("labels", key, 1, MAX_NAME)?;
        text(&format!("labels[{key:?}]"), value, 0, MAX_NAME)?;
    }
    if node.devices.is_empty() {
        return Err(Invalid::field("devices", "has no devices. Add devices, or remove the node"));
    }
    in_range("devices", node.devices.len(), 1..=MAX_NODE_DEVICES)?;
    node.devices.sort_by_key(|device| device.index);
    let mut uuids = BTreeSet::new();
    for (position, device) in node.devices.iter().enumerate() {
        let field = format!("devices[{position}]");
        let Some(kind) = kinds.iter().find(|kind| kind.name == device.kind) else {
            let known: Vec<&str> = kinds.iter().map(|kind| kind.name.as_str()).collect();
            let why = format!("{:?} is not a device kind of this cluster. Use one of {known:?}", device.kind);
            return Err(Invalid::field(format!("{field}.kind"), why));
        };
        for (name, value) in
            [("uuid", &device.uuid), ("pci_bus_id", &device.pci_bus_id), ("slot", &device.slot)]
        {
            text(&format!("{field}.{name}"), value, 0, MAX_NAME)?;
        }
        if let Some(usable) = device.usable {
            check_usable(usable, kind.memory).map_err(|invalid| invalid.under(&field))?;
        }
        // Shares of one GPU have its UUID and slots of their own.
        if !device.uuid.is_empty() && !uuids.insert((&device.uuid, &device.slot)) {
            return Err(invalid!(format!("{field}.uuid"), "{:?} is listed twice", device.uuid));
        }
    }
    unique("devices", "index", node.devices.iter().map(|device| device.index))?;
    for (field, link) in [("link", &node.link), ("network", &node.network)] {
        if let Some(link) = link {
            link.check().map_err(|invalid| invalid.under(field))?;
        }
    }
    if let Some(links) = node.network_links {
        in_range("network_links", links, 1..=MAX_NETWORK_LINKS)?;
        if node.network.is_none() {
            return Err(invalid!("network_links", "{links} is set, but `network` is not. Set both, or none"));
        }
    }
    node.links = checked_links(node)?;
    node.copies = node.copies.take().filter(|copies| !copies.is_empty());
    if let Some(copies) = &mut node.copies {
        copies.check(&node.devices).map_err(|invalid| invalid.under("copies"))?;
    }
    updates::check(&mut node.updates)?;
    check_inside(node)
}

/// The links in order, each once.
fn checked_links(node: &Node) -> Result<Vec<DeviceLink>, Invalid> {
    let mut seen: BTreeMap<(u32, u32), (DeviceLink, bool)> = BTreeMap::new();
    for (position, link) in node.links.iter().enumerate() {
        let field = |name: &str| format!("links[{position}].{name}");
        for (name, end) in [("a", link.a), ("b", link.b)] {
            if !node.devices.iter().any(|device| device.index == end) {
                let why = format!("{end} is not a device of this node. Use the index of a listed device");
                return Err(Invalid::field(field(name), why));
            }
        }
        if link.a == link.b {
            let why = format!("{} is the same device as `a`. Use two different devices for a link", link.b);
            return Err(Invalid::field(field("b"), why));
        }
        in_range(&field("count"), link.count, 1..=MAX_LINK_COUNT)?;
        link.link.check().map_err(|invalid| invalid.under(&format!("links[{position}]")))?;
        let is_turned = link.a > link.b;
        let ordered = DeviceLink { a: link.a.min(link.b), b: link.a.max(link.b), ..*link };
        match seen.get(&(ordered.a, ordered.b)) {
            None => {
                seen.insert((ordered.a, ordered.b), (ordered, is_turned));
            }
            Some((_, turned)) if *turned == is_turned => {
                let why = format!(
                    "the link between devices {} and {} is listed twice. List it once",
                    link.a, link.b
                );
                return Err(Invalid::field(format!("links[{position}]"), why));
            }
            Some((other, _)) if other.link != ordered.link || other.count != ordered.count => {
                let why = format!(
                    "the link from device {} to device {} ({:e} bytes per second, latency {} s, count {}) differs from \
                     the opposite direction ({:e} bytes per second, latency {} s, count {}). Use the slower values for \
                     both directions, or measure the link",
                    link.a,
                    link.b,
                    link.link.bytes_per_second,
                    link.link.latency_seconds,
                    link.count,
                    other.link.bytes_per_second,
                    other.link.latency_seconds,
                    other.count
                );
                return Err(Invalid::field(field("bandwidth"), why));
            }
            Some(_) => {}
        }
    }
    Ok(seen.into_values().map(|(link, _)| link).collect())
}

/// Every two devices of a node have a link.
fn check_inside(node: &Node) -> Result<(), Invalid> {
    let pairs = node.devices.len() * (node.devices.len() - 1) / 2;
    if node.link.is_some() || node.links.len() == pairs {
        return Ok(());
    }
    let indices: Vec<u32> = node.devices.iter().map(|device| device.index).collect();
    let known: BTreeSet<(u32, u32)> = node.links.iter().map(|link| (link.a, link.b)).collect();
    let mut missing = indices.iter().enumerate().flat_map(|(place, &a)| {
        indices.iter().skip(place + 1).map(move |&b| (a, b)).filter(|pair| !known.contains(pair))
    });
    match missing.next() {
        None => Ok(()),
        Some((a, b)) => {
            let why = format!(
                "the link between devices {a} and {b} is missing. Add this link, or set `link` for all pairs of devices"
            );
            Err(Invalid::field("links", why))
        }
    }
}

/// Every two nodes have a link: their own ones, or that of the tier that they meet on.
fn check_reach(parts: &ClusterParts) -> Result<(), Invalid> {
    let Some(lacking) = parts.nodes.iter().position(|node| node.network.is_none()) else { return Ok(()) };
    let tiers_say = !parts.tiers.is_empty() && parts.tiers.iter().all(|tier| tier.link.is_some());
    if parts.nodes.len() == 1 || tiers_say {
        return Ok(());
    }
    let other = usize::from(lacking == 0);
    let name = |index: usize| parts.nodes.get(index).map_or("", |node| node.name.as_str());
    let why = format!(
        "the link between the nodes {} and {} is missing. Set the network of the first node, or a bandwidth for every \
         tier",
        name(lacking),
        name(other)
    );
    Err(Invalid::field(format!("nodes[{lacking}].network"), why))
}

/// A text of `least` to `most` bytes without invisible characters.
pub(super) fn text(field: &str, value: &str, least: usize, most: usize) -> Result<(), Invalid> {
    if (least..=most).contains(&value.len()) && !value.contains(is_invisible) {
        return Ok(());
    }
    let why = format!(
        "has {} bytes. Use {least} to {most} bytes without control, format or line separator characters",
        value.len()
    );
    Err(Invalid::field(field, why))
}

/// No two entries of a list have the same key.
pub(super) fn unique<K: Eq + std::hash::Hash + std::fmt::Debug>(
    list: &str,
    field: &str,
    keys: impl Iterator<Item = K>,
) -> Result<(), Invalid> {
    let mut seen = HashMap::new();
    for (index, key) in keys.enumerate() {
        let why = format!("{key:?} is listed twice");
        if let Some(first) = seen.insert(key, index) {
            return Err(invalid!(format!("{list}[{index}].{field}"), "{why}: see {list}[{first}]"));
        }
    }
    Ok(())
}
