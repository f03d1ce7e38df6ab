//! The devices that stages are on, and what copies between them go over.

use loadmaster_proto::cluster::{CopyLink, Link, Node};

use loadmaster_search::fleet::mapping::LinkGraph;
use loadmaster_simulate::Edge;
use loadmaster_simulate::copies::{Shared, SlotCores};

/// The devices of a node, or of several: each is a stage's, and all of a stage's do the same.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeDevices {
    /// Bytes that training may use on each.
    pub capacity: Vec<u64>,
    /// From each to the memory of the host, and back at the same time; what slows both down together is shared.
    pub host: Vec<CopyLink>,
    /// From each to each, row by row; none where there is no way but the host's.
    pub pairs: Vec<Vec<Option<Link>>>,
    /// Memory of a host that blocks may take, of all of its devices together.
    pub host_bytes: u64,
    /// By device: on each host, how many do the same as it does, itself included; these are the devices of a stage. Where it
    /// is empty each is alone, and all are on one host.
    pub hosts: Vec<Vec<u32>>,
    /// What copies share: uplinks, and links that are not full duplex. Ways are between devices.
    pub shared: Vec<Shared>,
    /// The cores that its devices share; none where each has its own.
    pub cores: Option<SlotCores>,
}

/// Where a device is that is alone.
const ALONE: &[u32] = &[1];

impl NodeDevices {
    /// Devices of a node of a cluster, by their indices, with bytes that training may use on each; what their links share is
    /// left out. `host` is the link to the host's memory of those devices of which it says nothing.
    pub fn of_node(node: &Node, devices: &[(u32, u64)], host: Link, host_bytes: u64) -> Self {
        let between =
            |from: u32, to: u32| node.copies_between(from, to).filter(|_| from != to).map(|link| link.out);
        let to_host = |device: u32| node.host_link_of(device).unwrap_or_else(|| CopyLink::full_duplex(host));
        let row = |from: u32| devices.iter().map(|&(to, _)| between(from, to)).collect();
        Self {
            capacity: devices.iter().map(|&(_, capacity)| capacity).collect(),
            host: devices.iter().map(|&(device, _)| to_host(device)).collect(),
            pairs: devices.iter().map(|&(from, _)| row(from)).collect(),
            host_bytes,
            hosts: Vec::new(),
            shared: Vec::new(),
            cores: None,
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.capacity.len()
    }

    fn hosts_of(&self, device: usize) -> &[u32] {
        self.hosts.get(device).map_or(ALONE, Vec::as_slice)
    }

    /// How many devices do the same as this one, itself included.
    pub fn alike(&self, device: usize) -> u32 {
        self.hosts_of(device).iter().sum::<u32>().max(1)
    }

    /// The most of them on one host.
    pub fn alike_on_a_host(&self, device: usize) -> u32 {
        self.hosts_of(device).iter().copied().max().unwrap_or(1).max(1)
    }

    /// Of how many devices like the first one a device like the second one has blocks: number n sends to `n mod devices`.
    pub fn guests(&self, from: usize, to: usize) -> u64 {
        self.alike(from).div_ceil(self.alike(to)).into()
    }

    /// Whether each host has the memory, where each of these devices, and all like it, take so much.
    pub fn hosts_have_room(&self, taken: impl Iterator<Item = (usize, u64)>) -> bool {
        let mut of_hosts: Vec<u64> = Vec::new();
        for (device, bytes) in taken {
            let here = self.hosts_of(device);
            of_hosts.resize(of_hosts.len().max(here.len()), 0);
            for (sum, &count) in of_hosts.iter_mut().zip(here) {
                *sum = sum.saturating_add(bytes.saturating_mul(count.into()));
            }
        }
        of_hosts.into_iter().all(|sum| sum <= self.host_bytes)
    }

    /// From a device to the host or back, whichever is slower.
    pub fn host_link(&self, device: usize) -> Option<Link> {
        self.host.get(device).map(|link| link.out.slower(link.back))
    }

    /// From a device to the host in front of another one, and from there to that.
    fn by_host(&self, from: usize, to: usize) -> impl Iterator<Item = Link> {
        let out = self.host.get(from).map(|link| link.out);
        out.into_iter().chain(self.host.get(to).map(|link| link.back))
    }

    /// From one device to another.
    pub fn link(&self, from: usize, to: usize) -> Option<Link> {
        self.pairs.get(from)?.get(to).copied().flatten()
    }

    /// The devices in another order: number n is the one that is named n-th, each once.
    #[must_use]
    pub fn mapped(&self, order: &[usize]) -> Self {
        fn of<T: Clone>(all: &[T], order: &[usize]) -> Vec<T> {
            order.iter().filter_map(|&device| all.get(device).cloned()).collect()
        }
        let place = |device: u32| {
            let place = order.iter().position(|&own| own == device as usize)?;
            u32::try_from(place).ok()
        };
        let shared = self.shared.iter().map(|shared| Shared {
            ways: shared.ways.iter().filter_map(|way| way.renamed(place)).collect(),
            ..shared.clone()
        });
        Self {
            capacity: of(&self.capacity, order),
            host: of(&self.host, order),
            pairs: of(&self.pairs, order).iter().map(|row| of(row, order)).collect(),
            host_bytes: self.host_bytes,
            hosts: of(&self.hosts, order),
            shared: shared.collect(),
            cores: self.cores,
        }
    }

    /// What a mapping depends on.
    pub fn graph(&self) -> LinkGraph {
        self.graph_with(|_, _| ())
    }

    /// The same where something else between devices distinguishes mappings, too.
    pub fn graph_with<L: PartialEq>(&self, between: impl Fn(usize, usize) -> L) -> LinkGraph {
        let of = |link: Option<Link>| link.map(|link| (link.bytes_per_second, link.latency_seconds));
        let devices: Vec<_> = (0..self.count())
            .map(|device| {
                let host = self.host.get(device);
                (self.capacity[device], of(host.map(|link| link.out)), of(host.map(|link| link.back)))
            })
            .collect();
        LinkGraph::new(&devices, |from, to| (of(self.link(from, to)), between(from, to)))
    }

    /// Seconds of so many bytes between two devices, by way of the host where they have no link.
    pub fn seconds(&self, from: usize, to: usize, bytes: u64) -> f64 {
        let takes = |link: Link| link.latency_seconds + bytes as f64 / link.bytes_per_second;
        let by_host = || self.by_host(from, to).map(takes).sum();
        self.link(from, to).map_or_else(by_host, takes)
    }

    /// As many bytes as take so long between two devices.
    pub fn bytes_in(&self, from: usize, to: usize, seconds: f64) -> u64 {
        if let Some(link) = self.link(from, to) {
            return ((seconds - link.latency_seconds).max(0.0) * link.bytes_per_second) as u64;
        }
        let latency: f64 = self.by_host(from, to).map(|link| link.latency_seconds).sum();
        let per_byte: f64 = self.by_host(from, to).map(|link| 1.0 / link.bytes_per_second).sum();
        if per_byte > 0.0 { ((seconds - latency).max(0.0) / per_byte) as u64 } else { 0 }
    }

    /// The edge between two stages on these devices, over which so many bytes go each way.
    pub fn edge(&self, from: usize, to: usize, bytes: u64) -> Edge {
        Edge { forward: self.seconds(from, to, bytes), backward: self.seconds(to, from, bytes) }
    }
}
