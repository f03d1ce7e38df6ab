//! Kinds, devices and links that a file does not describe, from the options.

use std::collections::BTreeMap;

use super::super::{ClusterDevice, DeviceKind, Link, LinkClass, LinkOrigin, MAX_NODE_DEVICES, Node, priors};
use super::{ImportOptions, hostlist};
use crate::error::{Invalid, in_range};
use crate::name::checked_host;

/// Latency where only a bandwidth was given: the class of link decides it.
fn given(bytes_per_second: f64, like: Link) -> Link {
    Link { bytes_per_second, origin: LinkOrigin::Given, ..like }
}

/// Checks the numbers among the options.
///
/// # Errors
/// Names the field below `options`.
pub(super) fn check(options: &ImportOptions) -> Result<(), Invalid> {
    if let Some(count) = options.devices_per_node {
        in_range("options.devices_per_node", count, 1..=MAX_NODE_DEVICES as u32)?;
    }
    for (field, value) in [
        ("options.link_bytes_per_second", options.link_bytes_per_second),
        ("options.network_bytes_per_second", options.network_bytes_per_second),
    ] {
        if let Some(value) = value {
            let link = given(value, priors::network());
            link.check().map_err(|invalid| {
                let why = invalid.violations().first().map_or("is wrong", |violation| &violation.description);
                Invalid::field(field, why)
            })?;
        }
    }
    Ok(())
}

/// What `what` is missing, and how to say it.
fn missing(field: &str, example: &str) -> Invalid {
    invalid!(
        format!("options.{field}"),
        "is required because the file does not contain this value. {example}"
    )
}

/// The kind of all devices.
///
/// # Errors
/// Names the option that is missing.
pub(super) fn kind(options: &ImportOptions) -> Result<DeviceKind, Invalid> {
    let name = options.device_kind.clone().ok_or_else(|| {
        missing(
            "device_kind",
            "Use the GPU name that the driver reports, for example \"NVIDIA H100 80GB HBM3\"",
        )
    })?;
    let memory = options
        .memory
        .ok_or_else(|| missing("memory_bytes", "Use the memory of one device, for example 80GiB"))?;
    let usable = options.usable_memory.unwrap_or(memory);
    Ok(DeviceKind { name, memory, usable, hourly_price: options.hourly_price })
}

/// The number of devices of each node.
///
/// # Errors
/// Names the option that is missing.
pub(super) fn devices_per_node(options: &ImportOptions) -> Result<u32, Invalid> {
    options.devices_per_node.ok_or_else(|| missing("devices_per_node", "Use for example 8"))
}

/// Names of the nodes that are like the one in the file; `node0` unless they are given.
///
/// # Errors
/// Names the option when it is no hostlist, or one of host names.
pub(super) fn names(options: &ImportOptions) -> Result<Vec<String>, Invalid> {
    match &options.nodes {
        None => Ok(vec!["node0".to_owned()]),
        Some(list) => {
            let names = hostlist::expand(list).map_err(|why| Invalid::field("options.nodes", why))?;
            names.iter().try_for_each(|name| checked_host("options.nodes", name))?;
            Ok(names)
        }
    }
}

/// Devices 0, 1, … of one kind.
pub(super) fn devices(count: u32, kind: &str) -> Vec<ClusterDevice> {
    let device = |index| ClusterDevice {
        index,
        kind: kind.to_owned(),
        uuid: String::new(),
        pci_bus_id: String::new(),
        slot: String::new(),
        usable: None,
    };
    (0..count).map(device).collect()
}

/// Between two devices of a node: as given, or as the kind's links usually are.
pub(super) fn inside(options: &ImportOptions, kind: &str, devices: u32) -> (LinkClass, Link) {
    let (class, _, assumed) = priors::of_kind(kind, devices);
    (class, options.link_bytes_per_second.map_or(assumed, |given_one| given(given_one, assumed)))
}

/// A node's network: as given, or as networks usually are.
pub(super) fn network(options: &ImportOptions) -> Link {
    let assumed = priors::network();
    options.network_bytes_per_second.map_or(assumed, |given_one| given(given_one, assumed))
}

/// A node of equal devices, of whose links nothing is known but the kind.
pub(super) fn node(name: String, count: u32, kind: &str, options: &ImportOptions) -> Node {
    let (class, link) = inside(options, kind, count);
    Node {
        name,
        labels: BTreeMap::new(),
        driver_version: String::new(),
        devices: devices(count, kind),
        link: Some(link),
        link_class: Some(class),
        links: Vec::new(),
        network: Some(network(options)),
        network_links: None,
        copies: None,
        updates: Vec::new(),
    }
}
