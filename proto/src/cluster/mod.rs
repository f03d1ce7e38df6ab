//! Clusters: nodes, their devices, and how fast all of them are linked.
//!
//! | part | says |
//! |---|---|
//! | [`DeviceKind`] | name as profiles have it, memory, what training may use of it, hourly price |
//! | [`Node`] | the scheduler's name, its devices, the links between them and to the outside |
//! | [`NodeCopies`] | how memory optimizations copy on a node: its host's memory, host links, shared uplinks, peers |
//! | [`HostUpdate`] | how fast its host updates parameters for trainings in chunks |
//! | [`Tier`] | a level of the network, nearest first: how fast nodes are that share a domain of it |
//! | [`Domain`] | which nodes are together on a level (a leaf switch, an NVLink domain): a tree of any depth |
//!
//! A [`Cluster`] is valid by construction. Every link says whether it was measured, given, or assumed from its
//! class; [`import`] reads the files that schedulers and NVIDIA's tools write.

pub mod catalog;
mod check;
mod copies;
pub mod device;
pub mod doubts;
pub mod import;
pub mod link;
mod membership;
pub mod priors;
pub mod quantity;
#[cfg(test)]
mod tests;
mod updates;
mod wire;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::choice;
use crate::error::Invalid;
use crate::warning::Warning;
use crate::wire::reading::{Wanted, always};
use crate::wire::v1;
pub use copies::{CopyLink, HostLink, MAX_UPLINKS, NodeCopies, PeerCopies, Uplink};
pub use link::{Link, LinkClass, LinkOrigin};
pub use updates::HostUpdate;

/// Most kinds of devices.
pub const MAX_KINDS: usize = 32;
/// Most nodes.
pub const MAX_NODES: usize = 20_000;
/// Most devices of a node.
pub const MAX_NODE_DEVICES: usize = 128;
/// Most devices of all nodes.
pub const MAX_DEVICES: usize = 160_000;
/// Most links between devices that are written one by one, of all nodes.
pub const MAX_LINKS: usize = 131_072;
/// Most numbers about copies of memory optimizations, of all nodes: links to hosts, devices of uplinks, and peers.
pub const MAX_COPIES: usize = 2 * MAX_LINKS;
/// Most domains.
pub const MAX_DOMAINS: usize = 16_384;
/// Most tiers.
pub const MAX_TIERS: usize = 16;
/// Longest name of anything, bytes.
pub const MAX_NAME: usize = crate::name::MAX_NAME_BYTES;
/// Most links that the network of a node consists of.
pub const MAX_NETWORK_LINKS: u32 = 1_024;
/// Most labels of a node.
pub const MAX_LABELS: usize = 64;

/// A kind of device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceKind {
    /// As profiles and workers name it, for GPUs NVML's product name: `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Bytes of the whole device.
    pub memory: Bytes,
    /// Bytes that training may use; at most `memory`.
    pub usable: Bytes,
    /// What one device costs for an hour, in any currency, the same for all kinds; none where no one said.
    #[serde(default)]
    pub hourly_price: Option<f64>,
}

/// A device of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterDevice {
    /// Index within its node, as the driver counts.
    pub index: u32,
    /// Name of its [`DeviceKind`].
    pub kind: String,
    /// NVML's UUID, or empty.
    #[serde(default)]
    pub uuid: String,
    /// PCI id, `00000000:3B:00.0`, or empty.
    #[serde(default)]
    pub pci_bus_id: String,
    /// The worker's slot that it was discovered as, `workers/node1/gpu0`; else empty.
    #[serde(default)]
    pub slot: String,
    /// Bytes that training may use where that is less than its kind allows: a share of a GPU.
    #[serde(default)]
    pub usable: Option<Bytes>,
}

/// A link between two devices of a node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceLink {
    /// Index of the one device; the smaller of both.
    pub a: u32,
    /// Index of the other.
    pub b: u32,
    /// What connects them; none where no one said.
    #[serde(default)]
    pub class: Option<LinkClass>,
    /// How many such links side by side, at least 1.
    pub count: u32,
    /// How fast all of them are together.
    pub link: Link,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The scheduler's own name: a host name or an address.
    pub name: String,
    /// What a selection may ask for.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Driver version, or empty.
    #[serde(default)]
    pub driver_version: String,
    /// Its devices, in order of their indices.
    pub devices: Vec<ClusterDevice>,
    /// Between any two of its devices that have no link of their own in `links`.
    #[serde(default)]
    pub link: Option<Link>,
    /// What connects those; none where no one said.
    #[serde(default)]
    pub link_class: Option<LinkClass>,
    /// Links between two devices.
    #[serde(default)]
    pub links: Vec<DeviceLink>,
    /// Its own link to the other nodes: all network cards of the node together. None where tiers say it all.
    #[serde(default)]
    pub network: Option<Link>,
    /// How many equal links `network` consists of: what one device sends to another goes over one of them, or over its
    /// device's share where there are more links than devices; rings use all of them. None where one transfer has all of
    /// `network`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_links: Option<u32>,
    /// How memory optimizations copy on it; none where no one set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<NodeCopies>,
    /// How fast its host updates parameters, each kind of step at most once; empty where no one set it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub updates: Vec<HostUpdate>,
}

/// A level of the network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// Its key: a label or the level of a switch.
    pub level: String,
    /// Between two nodes that share a domain of this level and none of a nearer one, and on the last level also
    /// between nodes that share none. None where the nodes' own links say it all.
    #[serde(default)]
    pub link: Option<Link>,
}

/// Nodes that are together on a level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Domain {
    /// Key of its tier.
    pub level: String,
    /// Its name, unique in the cluster.
    pub name: String,
    /// Name of the domain of a farther level that contains it.
    #[serde(default)]
    pub parent: Option<String>,
    /// Names of the nodes that are in it directly; those of the domains below it are in it, too.
    #[serde(default)]
    pub nodes: Vec<String>,
}

/// Where a cluster's description comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClusterSource {
    /// Connected workers.
    Workers,
    /// Graph of NVIDIA Topograph.
    Topograph,
    /// Topology of NCCL.
    Nccl,
    /// Slurm's `topology.yaml` or `topology.conf`.
    Slurm,
    /// Text of `nvidia-smi topo -m`.
    NvidiaSmi,
    /// A user wrote it.
    Written,
}

choice! {
    ClusterSource = v1::ClusterSource { Workers, Topograph, Nccl, Slurm, NvidiaSmi, Written }
}

/// Everything that is known of a cluster, not checked yet: see [`Cluster::new`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterParts {
    /// Kinds of its devices.
    pub kinds: Vec<DeviceKind>,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// Levels of its network, nearest first.
    #[serde(default)]
    pub tiers: Vec<Tier>,
    /// Which nodes are together.
    #[serde(default)]
    pub domains: Vec<Domain>,
    /// Where all this comes from.
    pub source: ClusterSource,
    /// What looked wrong in it, human-readable.
    #[serde(default)]
    pub warnings: Vec<Warning>,
}

/// A cluster; valid by construction.
///
/// ```
/// use loadmaster_proto::cluster::import::{ClusterFormat, ImportOptions, import};
///
/// let text = r#"
/// format: loadmaster.cluster/1
/// kinds: [{name: NVIDIA H100 80GB HBM3, memory: 80GiB}]
/// nodes: [{name: "h[1-2]", kind: NVIDIA H100 80GB HBM3, devices: 8, network: {bandwidth: 400Gb/s, latency: 5us}}]
/// "#;
/// let cluster = import(ClusterFormat::Loadmaster, text, &ImportOptions::default())?;
/// assert_eq!((cluster.nodes().len(), cluster.device_count()), (2, 16));
/// assert_eq!(cluster.nodes()[1].name, "h2");
/// # Ok::<(), loadmaster_proto::error::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ClusterParts", into = "ClusterParts")]
pub struct Cluster {
    parts: ClusterParts,
    /// By node and tier: index of the domain that it is in.
    membership: Vec<Vec<Option<usize>>>,
}

impl Cluster {
    /// A checked cluster. A link that is given in both directions is kept once.
    ///
    /// # Errors
    /// Names the field that is wrong.
    /// * a link that is not the same both ways, or devices or nodes without a link between them.
    /// * a bandwidth that is zero, negative or not finite.
    /// * unknown nodes, devices, kinds, levels or domains, names that occur twice, names of nodes that are no host names.
    /// * a node in two domains of one level, or a cycle of domains.
    /// * more of anything than this module's limits.
    pub fn new(parts: ClusterParts) -> Result<Self, Invalid> {
        Self::new_while(parts, &always)
    }

    /// [`Self::new`] as long as the cluster is wanted.
    ///
    /// # Errors
    /// As there, or that it is not wanted any more.
    pub fn new_while(mut parts: ClusterParts, wanted: Wanted<'_>) -> Result<Self, Invalid> {
        check::check(&mut parts, wanted)?;
        check::check_written(&parts.nodes, wanted)?;
        let membership = membership::of_nodes(&parts, wanted)?;
        Ok(Self { parts, membership })
    }

    /// Kinds of its devices.
    pub fn kinds(&self) -> &[DeviceKind] {
        &self.parts.kinds
    }

    /// Its nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.parts.nodes
    }

    /// Levels of its network, nearest first.
    pub fn tiers(&self) -> &[Tier] {
        &self.parts.tiers
    }

    /// Which nodes are together.
    pub fn domains(&self) -> &[Domain] {
        &self.parts.domains
    }

    /// Where its description comes from.
    pub fn source(&self) -> ClusterSource {
        self.parts.source
    }

    /// What looked wrong in its description, human-readable.
    pub fn warnings(&self) -> &[Warning] {
        &self.parts.warnings
    }

    /// Everything, to build another cluster from.
    pub fn parts(&self) -> &ClusterParts {
        &self.parts
    }

    /// Devices of all nodes.
    pub fn device_count(&self) -> usize {
        self.parts.nodes.iter().map(|node| node.devices.len()).sum()
    }

    /// A kind by its name.
    pub fn kind(&self, name: &str) -> Option<&DeviceKind> {
        self.parts.kinds.iter().find(|kind| kind.name == name)
    }

    /// Bytes that training may use on a device.
    pub fn usable(&self, device: &ClusterDevice) -> Bytes {
        device.usable.or_else(|| self.kind(&device.kind).map(|kind| kind.usable)).unwrap_or_default()
    }

    /// Index of the domain that a node is in on a tier, both by index.
    pub fn domain_of(&self, node: usize, tier: usize) -> Option<usize> {
        self.membership.get(node)?.get(tier).copied().flatten()
    }

    /// 16 hexadecimal digits that follow from the content alone.
    pub fn id(&self) -> String {
        let mut id = crate::model::layer::fingerprint(&self.parts);
        id.truncate(16);
        id
    }
}

impl Node {
    /// The link between two of its devices, by their indices.
    pub fn link_between(&self, a: u32, b: u32) -> Option<Link> {
        let (a, b) = (a.min(b), a.max(b));
        let own = self.links.iter().find(|link| (link.a, link.b) == (a, b));
        own.map(|own| own.link).or(self.link)
    }

    /// Its link to the other nodes as one transfer between two devices has it: one of its network's links, or its device's
    /// share of them.
    pub fn network_of_one_transfer(&self) -> Option<Link> {
        let network = self.network?;
        let links = f64::from(self.network_links.unwrap_or(1).max(1));
        let devices = self.devices.len().max(1) as f64;
        let own = (links / devices).max(1.0);
        Some(Link { bytes_per_second: network.bytes_per_second * own / links, ..network })
    }
}

impl TryFrom<ClusterParts> for Cluster {
    type Error = Invalid;

    fn try_from(parts: ClusterParts) -> Result<Self, Invalid> {
        Self::new(parts)
    }
}

impl From<Cluster> for ClusterParts {
    fn from(cluster: Cluster) -> Self {
        cluster.parts
    }
}
