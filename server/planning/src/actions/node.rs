//! The devices of a node, and what copies between them go over.

use loadmaster_proto::cluster::{Link, Node};

use super::mapping::LinkGraph;
use crate::iteration::Edge;
use crate::iteration::copies::{Shared, SlotCores};

/// The devices of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeDevices {
    /// Bytes that training may use on each.
    pub capacity: Vec<u64>,
    /// From each to the memory of the host, and as fast back at the same time.
    pub host: Vec<Link>,
    /// From each to each, row by row; none where there is no way but the host's.
    pub pairs: Vec<Vec<Option<Link>>>,
    /// Memory of the host that blocks may take, of all devices together.
    pub host_bytes: u64,
    /// What copies share: uplinks, and links that are not full duplex. Ways are between devices.
    pub shared: Vec<Shared>,
    /// The cores that its devices share; none where each has its own.
    pub cores: Option<SlotCores>,
}

impl NodeDevices {
    /// Devices of a node of a cluster, by their indices, with bytes that training may use on each; what their links share is
    /// left out. No pair is faster than the cluster says, whichever way its copies go; `host` is the link to the host's memory of those devices of which it
    /// says nothing.
    pub fn of_node(node: &Node, devices: &[(u32, u64)], host: Link, host_bytes: u64) -> Self {
        let between =
            |from: u32, to: u32| node.copies_between(from, to).filter(|_| from != to).map(|link| link.out);
        // What is as fast back as there is no faster than the slower way.
        let to_host = |device: u32| node.host_link_of(device).map_or(host, |link| link.out.slower(link.back));
        let row = |from: u32| devices.iter().map(|&(to, _)| between(from, to)).collect();
        Self {
            capacity: devices.iter().map(|&(_, capacity)| capacity).collect(),
            host: devices.iter().map(|&(device, _)| to_host(device)).collect(),
            pairs: devices.iter().map(|&(from, _)| row(from)).collect(),
            host_bytes,
            shared: Vec::new(),
            cores: None,
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.capacity.len()
    }

    /// From one device to another.
    pub fn link(&self, from: usize, to: usize) -> Option<Link> {
        self.pairs.get(from)?.get(to).copied().flatten()
    }

    /// What a mapping depends on.
    pub fn graph(&self) -> LinkGraph {
        let of = |link: Option<Link>| link.map(|link| (link.bytes_per_second, link.latency_seconds));
        let devices: Vec<_> = (0..self.count())
            .map(|device| (self.capacity[device], of(self.host.get(device).copied())))
            .collect();
        LinkGraph::new(&devices, |from, to| of(self.link(from, to)))
    }

    /// Seconds of so many bytes between two devices, by way of the host where they have no link.
    pub fn seconds(&self, from: usize, to: usize, bytes: u64) -> f64 {
        let takes = |link: &Link| link.latency_seconds + bytes as f64 / link.bytes_per_second;
        let by_host = || [from, to].iter().filter_map(|&device| self.host.get(device)).map(takes).sum();
        self.link(from, to).as_ref().map_or_else(by_host, takes)
    }

    /// The edge between two stages on these devices, over which so many bytes go each way.
    pub fn edge(&self, from: usize, to: usize, bytes: u64) -> Edge {
        Edge { forward: self.seconds(from, to, bytes), backward: self.seconds(to, from, bytes) }
    }
}
