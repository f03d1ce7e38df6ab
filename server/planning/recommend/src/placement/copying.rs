//! How nodes copy, as far as that tells them or their devices apart: a search for orders sees links between nodes alone.

use std::collections::HashMap;
use std::ops::Range;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::{CopyLink, LinkClass, Uplink};

use loadmaster_search::fleet::PlannedFleet;

/// What copies of a part of a node depend on. Of a node that nobody describes nothing is known, and all of those are alike.
#[derive(Debug, Clone, PartialEq, Default)]
struct Copying {
    /// By device.
    to_host: Vec<Option<CopyLink>>,
    /// By pair of devices.
    between: Vec<Option<CopyLink>>,
    /// By device and one of another part of its node.
    beside: Vec<Option<CopyLink>>,
    class: Option<LinkClass>,
    /// Ways to the host that devices share, with the indices of the part's devices; both empty where none is shared.
    uplinks: Vec<Uplink>,
    devices: Vec<u32>,
    host_memory: Option<Bytes>,
}

impl Copying {
    /// `given` are the devices of each node that were given, those of all of its parts.
    fn of(fleet: &PlannedFleet, part: Range<u32>, given: &HashMap<&str, Vec<u32>>) -> Self {
        let name = part.clone().next().and_then(|first| fleet.device(first)).map(|device| &device.node);
        let Some(node) = name.and_then(|name| fleet.described(name)) else { return Self::default() };
        let devices: Vec<u32> = part.filter_map(|device| Some(fleet.device(device)?.index)).collect();
        let pairs = devices.iter().flat_map(|&from| devices.iter().map(move |&to| (from, to)));
        let others = given.get(node.name.as_str()).into_iter().flatten();
        let others: Vec<u32> = others.filter(|device| !devices.contains(device)).copied().collect();
        let beside = devices.iter().flat_map(|&from| others.iter().map(move |&to| (from, to)));
        let uplinks = node.copies.as_ref().map(|copies| copies.uplinks.clone()).unwrap_or_default();
        Self {
            to_host: devices.iter().map(|&device| node.host_link_of(device)).collect(),
            between: pairs
                .filter(|(from, to)| from < to)
                .map(|(from, to)| node.copies_between(from, to))
                .collect(),
            beside: beside.map(|(from, to)| node.copies_between(from, to)).collect(),
            class: node.link_class,
            devices: if uplinks.is_empty() { Vec::new() } else { devices },
            uplinks,
            host_memory: node.copies.as_ref().and_then(|copies| copies.host_memory),
        }
    }

    /// Whether which of the devices has which rank makes no difference.
    fn is_uniform(&self) -> bool {
        let are_same = |links: &[Option<CopyLink>]| links.windows(2).all(|pair| pair[0] == pair[1]);
        let has_all = |uplink: &Uplink| self.devices.iter().all(|device| uplink.devices.contains(device));
        are_same(&self.to_host)
            && are_same(&self.between)
            && are_same(&self.beside)
            && self.uplinks.iter().all(has_all)
    }
}

fn all(fleet: &PlannedFleet) -> impl Iterator<Item = Copying> {
    let mut given: HashMap<&str, Vec<u32>> = HashMap::new();
    for device in fleet.devices() {
        given.entry(device.node.as_str()).or_default().push(device.index);
    }
    let parts = fleet.fleet.nodes.iter().zip(fleet.fleet.begins());
    parts.map(move |(node, begin)| Copying::of(fleet, begin..begin + node.devices, &given))
}

/// By node of the fleet: a number that those share which copy alike.
pub(super) fn classes(fleet: &PlannedFleet) -> Vec<usize> {
    let mut known: Vec<Copying> = Vec::new();
    let class = |copying: Copying| {
        known.iter().position(|other| *other == copying).unwrap_or_else(|| {
            known.push(copying);
            known.len() - 1
        })
    };
    all(fleet).map(class).collect()
}

/// Whether the devices of each node copy alike.
pub(super) fn are_uniform(fleet: &PlannedFleet) -> bool {
    all(fleet).all(|copying| copying.is_uniform())
}
