//! Fleets of requests that name no cluster: groups of equal devices, taken to be in one node.

use std::collections::BTreeSet;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::{Link, LinkOrigin, doubts, priors};

use super::{DeviceRef, FleetError, PlannedFleet};
use crate::{Fleet, FleetNode, Kind, KindSet};

/// Most devices of all groups of a request, and of one of them.
pub const MAX_DEVICES: u32 = 65_536;

/// Devices of one kind and capacity.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceGroup {
    /// How many.
    pub count: u32,
    /// Bytes that training may use on each.
    pub capacity: Bytes,
    pub kind: String,
}

/// The fleet of groups in pipeline order, and how fast any two devices are linked: as given, or as devices of
/// the slowest kind usually are.
///
/// # Errors
/// When no or too many devices are left.
pub fn of_groups(
    groups: &[DeviceGroup],
    link_bytes_per_second: Option<f64>,
) -> Result<PlannedFleet, FleetError> {
    let groups: Vec<&DeviceGroup> = groups.iter().filter(|group| group.count > 0).collect();
    let count: u64 = groups.iter().map(|group| u64::from(group.count)).sum();
    if count == 0 {
        return Err(FleetError::Empty { why: "all groups are empty".to_owned() });
    }
    if count > u64::from(MAX_DEVICES) {
        let (count, most) = (usize::try_from(count).unwrap_or(usize::MAX), MAX_DEVICES as usize);
        return Err(FleetError::TooMany { what: "devices", count, most });
    }
    let all = u32::try_from(count).unwrap_or(u32::MAX);
    let assumed = groups
        .iter()
        .map(|group| priors::of_kind(&group.kind, all).2)
        .reduce(Link::slower)
        .unwrap_or(FleetNode::ALONE);
    let link = match link_bytes_per_second {
        Some(bytes_per_second) => Link { bytes_per_second, origin: LinkOrigin::Given, ..assumed },
        None => assumed,
    };
    let mut kinds: Vec<Kind> = Vec::new();
    let mut nodes: Vec<FleetNode> = Vec::new();
    for group in &groups {
        let known = kinds.iter().position(|kind| kind.name == group.kind && kind.capacity == group.capacity);
        let kind = known.unwrap_or_else(|| {
            kinds.push(Kind { name: group.kind.clone(), capacity: group.capacity, hourly_price: None });
            kinds.len() - 1
        });
        match nodes.last_mut().filter(|node| node.kind == kind) {
            Some(node) => {
                node.devices += group.count;
                node.whole += group.count;
            }
            None => nodes.push(FleetNode {
                name: String::new(),
                kind,
                devices: group.count,
                whole: group.count,
                inside: link,
                outside: link,
                one_transfer: None,
                domains: Vec::new(),
                unlike: None,
            }),
        }
    }
    if kinds.len() > KindSet::MOST {
        return Err(FleetError::TooMany {
            what: "kinds of devices",
            count: kinds.len(),
            most: KindSet::MOST,
        });
    }
    // Where there is only one device nothing is exchanged.
    let is_assumed = link_bytes_per_second.is_none() && count > 1;
    let unlisted = kinds.iter().filter(|kind| is_assumed && doubts::is_unlisted(&kind.name));
    let notes =
        unlisted.map(|kind| doubts::unlisted_kind(&kind.name)).collect::<BTreeSet<_>>().into_iter().collect();
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let device = |index| DeviceRef { index, ..DeviceRef::default() };
    Ok(PlannedFleet {
        fleet: Fleet { kinds, nodes, tiers: Vec::new(), is_one_node: true, may_grow: true },
        notes,
        island: None,
        devices: (0..count).map(device).collect(),
        cluster: None,
    })
}
