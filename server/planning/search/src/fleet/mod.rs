//! From a cluster and a choice of its devices to the [`Fleet`] that a search sees, and the way back.
//!
//! | a search sees | it is |
//! |---|---|
//! | a kind | devices of one name *and* of one capacity: shares of a GPU are a kind of their own |
//! | a node | the chosen devices of one kind of a node: a node with two kinds is two of them |
//! | its inside link | the slowest between two of those devices: rings of a stage go over it |
//! | its unlike links | those of all pairs, where they are not alike, as far as measurements can tell: edges between stages go over the very pair's |
//! | its outside link | the node's network, and no faster than the links to its node's devices of other kinds: rings share all of it, an edge has one of its links |
//! | the order of nodes | domains stand together, of every level, and equal nodes beside each other |
//!
//! Everything is conservative: a plan that is predicted in time runs no slower than predicted.

mod choose;
mod discover;
mod groups;
pub mod mapping;
mod scheduler_fleet;
mod subset;
mod subsets;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::cluster::{Cluster, ClusterDevice, Link, Node};
use loadmaster_proto::plan::PlacedDevice;
use loadmaster_proto::warning::{Warning, WarningCode};

use crate::{Fleet, FleetNode, Kind, KindSet, LinkOrigin, UnlikeLinks};

pub use discover::{DiscoveredWorker, discover};
pub use groups::{DeviceGroup, MAX_DEVICES, of_groups};
pub use scheduler_fleet::{GivenFleet, UsualKinds, described, of_given};
pub use subset::Subset;
pub use subsets::Subsets;

/// With how many nodes before it a node may share its links.
const NEWEST: usize = 8;

/// Which devices of a cluster a plan may use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection {
    /// Only devices of these kinds; all where it is empty.
    pub kinds: Vec<String>,
    /// Only nodes with these names; all where it is empty.
    pub nodes: Vec<String>,
    /// Only nodes that have all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Not these devices.
    pub excluded: Vec<Exclusion>,
    /// At most the first so many devices in the fleet's order; all unless set.
    pub first: Option<u32>,
}

/// A node or a device that must not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exclusion {
    /// Name of the node.
    pub node: String,
    /// Index of the device within it; the whole node unless set.
    pub device: Option<u32>,
}

/// A device of a fleet, as schedulers know it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceRef {
    /// Name of its node.
    pub node: String,
    /// Index within the node.
    pub index: u32,
    /// NVML's UUID, or empty.
    pub uuid: String,
    /// The worker's slot that it was discovered as, `workers/node1/gpu0`; else empty.
    pub slot: String,
}

/// A fleet whose devices can be named.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedFleet {
    /// What a search sees.
    pub fleet: Fleet,
    /// What was simplified on the way, human-readable.
    pub notes: Vec<Warning>,
    /// Which of several islands it is, and what that leaves out, human-readable; none where nothing is.
    pub island: Option<String>,
    devices: Vec<DeviceRef>,
    /// What it is chosen from; none of groups.
    cluster: Option<Cluster>,
}

/// Why a selection has no fleet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// A name that the cluster does not have.
    #[error("{name:?} is not in the cluster, which has {known}. Use names from the cluster")]
    Unknown {
        /// Field of the selection.
        field: &'static str,
        /// What it names.
        name: String,
        /// What there is.
        known: String,
    },
    /// Nothing is left.
    #[error("no device of the cluster is selected: {why}")]
    Empty {
        /// What took the last ones away.
        why: String,
    },
    /// More kinds or devices than a search takes.
    #[error("the selection has {count} {what}, but a search supports at most {most}. Select fewer")]
    TooMany {
        what: &'static str,
        /// How many.
        count: usize,
        /// How many are taken.
        most: usize,
    },
}

impl PlannedFleet {
    /// A device of the fleet, by its place in the pipeline's order of devices.
    pub fn device(&self, device: u32) -> Option<&DeviceRef> {
        self.devices.get(device as usize)
    }

    /// Keeps the cluster that it is chosen from, which knows more than a search sees: how its nodes copy.
    #[must_use]
    pub fn with_cluster(self, cluster: Cluster) -> Self {
        Self { cluster: Some(cluster), ..self }
    }

    /// The cluster that it is chosen from, where that is known.
    pub fn cluster(&self) -> Option<&Cluster> {
        self.cluster.as_ref()
    }

    /// A node as its cluster describes it, by its name.
    pub fn described(&self, node: &str) -> Option<&Node> {
        self.cluster.as_ref()?.nodes().iter().find(|of| of.name == node)
    }

    /// Memory of a host that blocks may take on each of its nodes, as far as its cluster says.
    pub fn host_memory(&self) -> Option<Bytes> {
        let nodes: BTreeSet<&str> = self.devices.iter().map(|device| device.node.as_str()).collect();
        let cluster = self.cluster.as_ref()?;
        let chosen = cluster.nodes().iter().filter(|node| nodes.contains(node.name.as_str()));
        chosen.filter_map(|node| node.copies.as_ref()?.host_memory).min()
    }

    /// All devices, in the pipeline's order.
    pub fn devices(&self) -> &[DeviceRef] {
        &self.devices
    }
}

/// The fleet of the selected devices of a cluster.
///
/// # Errors
/// When the selection names what is not there, or nothing or too much is left.
pub fn fleet(cluster: &Cluster, selection: &Selection) -> Result<PlannedFleet, FleetError> {
    let mut parts = choose::parts(cluster, selection)?;
    let island = choose::keep_one_island(cluster, &mut parts);
    sort_parts(cluster, &mut parts);
    choose::keep_first(&mut parts, selection.first);
    let may_grow = parts.last().is_some_and(|last| choose::takes_further(cluster, selection, last));
    let mut planned = build(cluster, &parts, may_grow)?;
    planned.notes.extend(island.clone().map(|why| WarningCode::DevicesExcluded.says(why)));
    planned.island = island;
    Ok(planned)
}

/// Chosen devices of one kind and capacity of a node.
#[derive(Debug, Clone, PartialEq)]
struct NodePart<'a> {
    /// Index of the node.
    node: usize,
    kind: &'a str,
    capacity: Bytes,
    devices: Vec<&'a ClusterDevice>,
}

fn build(cluster: &Cluster, parts: &[NodePart<'_>], may_grow: bool) -> Result<PlannedFleet, FleetError> {
    let distinct: BTreeSet<(&str, Bytes)> = parts.iter().map(|part| (part.kind, part.capacity)).collect();
    if distinct.len() > KindSet::MOST {
        return Err(FleetError::TooMany {
            what: "kinds of devices",
            count: distinct.len(),
            most: KindSet::MOST,
        });
    }
    let mut kinds: Vec<Kind> = Vec::new();
    let mut nodes: Vec<FleetNode> = Vec::with_capacity(parts.len());
    let mut devices = Vec::new();
    let domains = domains_of(cluster, parts);
    let is_one_node = parts.windows(2).all(|pair| pair[0].node == pair[1].node);
    for (part, domains) in parts.iter().zip(domains) {
        let Some(node) = cluster.nodes().get(part.node) else { continue };
        let kind = kinds.iter().position(|kind| kind.name == part.kind && kind.capacity == part.capacity);
        let kind = kind.unwrap_or_else(|| {
            let hourly_price = cluster.kind(part.kind).and_then(|kind| kind.hourly_price);
            kinds.push(Kind { name: part.kind.to_owned(), capacity: part.capacity, hourly_price });
            kinds.len() - 1
        });
        // A search knows one link to the outside of a part: it is no faster than that to the other parts of its node.
        let others = parts.iter().filter(|other| other.node == part.node && *other != part);
        let beside = others.filter_map(|other| slowest(node, &part.devices, &other.devices));
        let beside = beside.reduce(Link::slower);
        // Between parts of one node nothing is a network. That of a single part is how a further node would be reached.
        let has_network = !is_one_node || parts.len() == 1;
        let out = |network: Option<Link>| {
            let network = network.filter(|_| has_network);
            network.into_iter().chain(beside).reduce(Link::slower).unwrap_or(FleetNode::ALONE)
        };
        let (outside, transfer) = (out(node.network), out(node.network_of_one_transfer()));
        // Those that may not be used count too: a further node like this one has them.
        let all = node.devices.iter().filter(|device| device.kind == part.kind);
        let whole = all.filter(|device| cluster.usable(device) == part.capacity).count() as u32;
        let inside = slowest(node, &part.devices, &part.devices).unwrap_or(FleetNode::ALONE);
        let mut unlike = unlike(node, &part.devices, inside);
        // Most nodes are like one of the last: they share what is known of them.
        let known = nodes.iter().rev().take(NEWEST).filter_map(|node| node.unlike.as_ref());
        for known in known {
            if let Some(unlike) = &mut unlike {
                unlike.share(known);
            }
        }
        nodes.push(FleetNode {
            name: node.name.clone(),
            kind,
            devices: part.devices.len() as u32,
            whole,
            inside,
            outside,
            one_transfer: (transfer != outside).then_some(transfer),
            domains,
            unlike,
        });
        devices.extend(part.devices.iter().map(|device| DeviceRef {
            node: node.name.clone(),
            index: device.index,
            uuid: device.uuid.clone(),
            slot: device.slot.clone(),
        }));
    }
    let tiers = tiers(cluster, &mut nodes);
    let mixed = parts.windows(2).find(|pair| !is_one_node && pair[0].node == pair[1].node);
    let note = mixed.and_then(|pair| cluster.nodes().get(pair[0].node)).map(|node| {
        format!(
            "{} has devices of several kinds. For transfers between these kinds and to other nodes, the search assumes \
             the slower of the node's network and the links inside the node",
            node.name
        )
    });
    Ok(PlannedFleet {
        fleet: Fleet { kinds, nodes, tiers, is_one_node: false, may_grow },
        notes: note.into_iter().map(|why| WarningCode::LinksSimplified.says(why)).collect(),
        island: None,
        devices,
        cluster: None,
    })
}

/// Links of the tiers. Where all are the same, nodes say it all, and a search need not tell them apart.
fn tiers(cluster: &Cluster, nodes: &mut [FleetNode]) -> Vec<Option<Link>> {
    let tiers: Vec<Option<Link>> = cluster.tiers().iter().map(|tier| tier.link).collect();
    let Some(&first) = tiers.first().filter(|first| tiers.iter().all(|tier| tier == *first)) else {
        return tiers;
    };
    let slower = |own: Link| first.map_or(own, |link| own.slower(link));
    for node in nodes {
        node.domains.clear();
        node.outside = slower(node.outside);
        node.one_transfer = node.one_transfer.map(slower).filter(|own| *own != node.outside);
    }
    Vec::new()
}

/// The slowest link between a device of `some` and another one of `others`.
fn slowest(node: &Node, some: &[&ClusterDevice], others: &[&ClusterDevice]) -> Option<Link> {
    if node.links.is_empty() {
        let is_pair = some.iter().any(|a| others.iter().any(|b| a.index != b.index));
        return node.link.filter(|_| is_pair);
    }
    let between = between(node);
    let pairs = some.iter().flat_map(|a| others.iter().map(move |b| (a.index, b.index)));
    pairs.filter(|(a, b)| a != b).filter_map(|(a, b)| between(a, b)).reduce(Link::slower)
}

/// The links between these devices, where they are unlike; of pairs of which is not known one it is the slowest.
fn unlike(node: &Node, devices: &[&ClusterDevice], slowest: Link) -> Option<UnlikeLinks> {
    if node.links.is_empty() {
        return None;
    }
    let between = between(node);
    let index = |place: u32| devices.get(place as usize).map(|device| device.index);
    let link = |a: u32, b: u32| index(a).zip(index(b)).and_then(|(a, b)| between(a, b)).unwrap_or(slowest);
    UnlikeLinks::of(u32::try_from(devices.len()).ok()?, link)
}

/// What two devices of a node are linked with, by their indices.
fn between(node: &Node) -> impl Fn(u32, u32) -> Option<Link> {
    let known: BTreeMap<(u32, u32), Link> = node.links.iter().map(|of| ((of.a, of.b), of.link)).collect();
    move |a, b| known.get(&(a.min(b), a.max(b))).copied().or(node.link)
}

impl PlannedFleet {
    /// What its devices are called, in the fleet's order: `node/index`, or `device 3` where they were named in groups.
    pub fn names(&self) -> Vec<String> {
        let name = |(position, device): (usize, &DeviceRef)| match device.node.as_str() {
            "" => format!("device {position}"),
            node => format!("{node}/{}", device.index),
        };
        self.devices.iter().enumerate().map(name).collect()
    }

    /// The same with a fleet that has more devices at its end. These have no names.
    #[must_use]
    pub fn grown(&self, fleet: Fleet) -> Self {
        let mut grown = Self { fleet, ..self.clone() };
        grown.devices.resize(grown.fleet.devices() as usize, DeviceRef::default());
        grown
    }

    /// The kinds of its devices, in the fleet's order.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.fleet.kinds.iter().map(|kind| kind.name.as_str())
    }

    /// Gives devices their hourly prices, by kind.
    #[must_use]
    pub fn with_prices(mut self, prices: &BTreeMap<String, f64>) -> Self {
        for kind in &mut self.fleet.kinds {
            if let Some(&price) = prices.get(&kind.name) {
                kind.hourly_price = Some(price);
            }
        }
        self
    }

    /// A device as plans keep it.
    pub fn placed(&self, device: u32) -> PlacedDevice {
        let known = self.device(device).cloned().unwrap_or_default();
        let mut begin = 0;
        let node = self.fleet.nodes.iter().find(|node| {
            begin += node.devices;
            device < begin
        });
        let kind = node.and_then(|node| self.fleet.kinds.get(node.kind));
        PlacedDevice {
            node: known.node,
            index: known.index,
            uuid: known.uuid,
            kind: kind.map(|kind| kind.name.clone()).unwrap_or_default(),
            capacity: kind.map_or(0, |kind| kind.capacity.0),
        }
    }

    /// Where the bandwidths come from, human-readable.
    pub fn link_origins(&self) -> String {
        let Fleet { nodes, tiers, .. } = &self.fleet;
        // Nothing of a single node is sent over its network.
        let (networks, tiers) = if nodes.len() > 1 { (&nodes[..], &tiers[..]) } else { (&[][..], &[][..]) };
        let links = nodes.iter().map(|node| node.inside).chain(networks.iter().map(|node| node.outside));
        let crossed = links.chain(tiers.iter().copied().flatten()).filter(|link| *link != FleetNode::ALONE);
        let mut origins: Vec<LinkOrigin> = crossed.map(|link| link.origin).collect();
        origins.sort_unstable();
        origins.dedup();
        origins.into_iter().map(LinkOrigin::as_str).collect::<Vec<_>>().join(" and ")
    }
}

/// Sorts parts by their domains, the farthest level first, then by kind, number of devices and place in the
/// cluster. Domains come in the order of their first nodes.
fn sort_parts(cluster: &Cluster, parts: &mut [NodePart<'_>]) {
    // By where each domain first occurs.
    let mut ranks: HashMap<(usize, usize), usize> = HashMap::new();
    let mut keys: HashMap<usize, Vec<usize>> = HashMap::new();
    for part in parts.iter() {
        keys.entry(part.node).or_insert_with(|| {
            let farthest_first = (0..cluster.tiers().len()).rev();
            farthest_first
                .map(|tier| {
                    let next = ranks.len();
                    *ranks.entry((tier, domain(cluster, part.node, tier))).or_insert(next)
                })
                .collect()
        });
    }
    parts.sort_by_cached_key(|part| {
        let key = keys.get(&part.node).cloned().unwrap_or_default();
        (key, part.kind.to_owned(), Reverse(part.capacity), Reverse(part.devices.len()), part.node)
    });
}

/// By part and tier: a number of the domain that it is in.
fn domains_of(cluster: &Cluster, parts: &[NodePart<'_>]) -> Vec<Vec<u32>> {
    let number = |node: usize, tier: usize| u32::try_from(domain(cluster, node, tier)).unwrap_or(u32::MAX);
    let of_part =
        |part: &NodePart<'_>| (0..cluster.tiers().len()).map(|tier| number(part.node, tier)).collect();
    parts.iter().map(of_part).collect()
}

/// A number of the domain that a node is in. A node without a domain of a tier has a number that no other node has
/// there.
fn domain(cluster: &Cluster, node: usize, tier: usize) -> usize {
    cluster.domain_of(node, tier).unwrap_or_else(|| cluster.domains().len() + node)
}
