//! Clusters and what a file of one does not say.

use crate::bytes::Bytes;
use crate::cluster::import::{ClusterFormat, ImportOptions};
use crate::cluster::{
    Cluster, ClusterDevice, ClusterParts, ClusterSource, DeviceKind, DeviceLink, Domain, Link, LinkClass,
    LinkOrigin, MAX_DEVICES, MAX_DOMAINS, MAX_NODES, Node, Tier,
};
use crate::convert::{or_default, to_i32, unsigned};
use crate::error::{Invalid, in_range, required};
use crate::wire::v1;

/// Both directions of a choice, so that they cannot disagree.
macro_rules! choices {
    ($domain:ident { $($name:ident = $wire:ident),+ $(,)? }) => {
        impl From<$domain> for v1::$domain {
            fn from(value: $domain) -> Self {
                match value {
                    $($domain::$name => Self::$wire,)+
                }
            }
        }

        impl $domain {
            /// From the wire; none for the value that says nothing.
            fn of_wire(field: &str, value: i32) -> Result<Option<Self>, Invalid> {
                match v1::$domain::try_from(value) {
                    Ok(v1::$domain::Unspecified) => Ok(None),
                    $(Ok(v1::$domain::$wire) => Ok(Some(Self::$name)),)+
                    Err(_) => Err(Invalid::field(field, format!("{value} is unknown"))),
                }
            }
        }
    };
}

choices!(LinkClass {
    NvLink = Nvlink,
    ChipToChip = C2c,
    PcieBridge = Pix,
    PcieBridges = Pxb,
    HostBridge = Phb,
    NumaNode = Node,
    System = Sys,
});
choices!(LinkOrigin { Measured = Measured, Given = Given, Assumed = Assumed });
choices!(ClusterSource {
    Workers = Workers,
    Topograph = Topograph,
    Nccl = Nccl,
    Slurm = Slurm,
    NvidiaSmi = NvidiaSmi,
    Written = Written,
});
choices!(ClusterFormat {
    Loadmaster = Loadmaster,
    Topograph = Topograph,
    NcclXml = NcclXml,
    SlurmYaml = SlurmYaml,
    SlurmConf = SlurmConf,
    NvidiaSmi = NvidiaSmi,
});

/// What connects two devices; none where it is not known.
///
/// # Errors
/// A value of another release.
pub(crate) fn link_class_from_wire(field: &str, value: i32) -> Result<Option<LinkClass>, Invalid> {
    LinkClass::of_wire(field, value)
}

fn class_to_wire(class: Option<LinkClass>) -> i32 {
    class.map_or(v1::LinkClass::Unspecified, v1::LinkClass::from).into()
}

impl From<Link> for v1::LinkSpeed {
    fn from(link: Link) -> Self {
        let Link { bytes_per_second, latency_seconds, origin } = link;
        Self { bytes_per_second, latency_seconds, origin: v1::LinkOrigin::from(origin).into() }
    }
}

impl TryFrom<v1::LinkSpeed> for Link {
    type Error = Invalid;

    /// The numbers are checked with the cluster that they are part of.
    fn try_from(wire: v1::LinkSpeed) -> Result<Self, Invalid> {
        let v1::LinkSpeed { bytes_per_second, latency_seconds, origin } = wire;
        let origin = LinkOrigin::of_wire("origin", origin)?.unwrap_or(LinkOrigin::Given);
        Ok(Self { bytes_per_second, latency_seconds, origin })
    }
}

fn link(field: &str, wire: Option<v1::LinkSpeed>) -> Result<Option<Link>, Invalid> {
    wire.map(Link::try_from).transpose().map_err(|invalid| invalid.under(field))
}

/// Each entry of a list, with its place in the path of an error.
fn entries<W, T>(list: &str, all: Vec<W>, read: impl Fn(W) -> Result<T, Invalid>) -> Result<Vec<T>, Invalid> {
    let one = |(index, entry)| read(entry).map_err(|invalid| invalid.under(&format!("{list}[{index}]")));
    all.into_iter().enumerate().map(one).collect()
}

impl TryFrom<v1::Cluster> for Cluster {
    type Error = Invalid;

    fn try_from(wire: v1::Cluster) -> Result<Self, Invalid> {
        // Output-only fields are ignored.
        let v1::Cluster { kinds, nodes, tiers, domains, source, .. } = wire;
        in_range("nodes", nodes.len(), 0..=MAX_NODES)?;
        in_range("nodes.devices", nodes.iter().map(|node| node.devices.len()).sum(), 0..=MAX_DEVICES)?;
        in_range("domains", domains.len(), 0..=MAX_DOMAINS)?;
        Self::new(ClusterParts {
            kinds: entries("kinds", kinds, kind)?,
            nodes: entries("nodes", nodes, node)?,
            tiers: entries("tiers", tiers, |tier| {
                Ok(Tier { level: tier.level, link: link("speed", tier.speed)? })
            })?,
            domains: domains.into_iter().map(domain).collect(),
            source: ClusterSource::of_wire("source", source)?.unwrap_or(ClusterSource::Written),
            warnings: Vec::new(),
        })
    }
}

fn kind(wire: v1::DeviceKind) -> Result<DeviceKind, Invalid> {
    let v1::DeviceKind { name, memory_bytes, usable_memory_bytes, hourly_price } = wire;
    let memory: u64 = unsigned("memory_bytes", memory_bytes)?;
    let usable = or_default(unsigned("usable_memory_bytes", usable_memory_bytes)?, memory);
    Ok(DeviceKind { name, memory: Bytes(memory), usable: Bytes(usable), hourly_price })
}

fn node(wire: v1::ClusterNode) -> Result<Node, Invalid> {
    let v1::ClusterNode { name, labels, driver_version, devices, link: default, link_class, links, network } =
        wire;
    Ok(Node {
        name,
        labels: labels.into_iter().collect(),
        driver_version,
        devices: entries("devices", devices, device)?,
        link: link("link", default)?,
        link_class: LinkClass::of_wire("link_class", link_class)?,
        links: entries("links", links, device_link)?,
        network: link("network", network)?,
    })
}

fn device(wire: v1::ClusterDevice) -> Result<ClusterDevice, Invalid> {
    let v1::ClusterDevice { index, kind, uuid, pci_bus_id, slot, usable_memory_bytes } = wire;
    let usable =
        usable_memory_bytes.map(|bytes| unsigned("usable_memory_bytes", bytes).map(Bytes)).transpose()?;
    Ok(ClusterDevice { index: unsigned("index", index)?, kind, uuid, pci_bus_id, slot, usable })
}

fn device_link(wire: v1::DeviceLink) -> Result<DeviceLink, Invalid> {
    let v1::DeviceLink { a, b, link_class, count, speed } = wire;
    Ok(DeviceLink {
        a: unsigned("a", a)?,
        b: unsigned("b", b)?,
        class: LinkClass::of_wire("link_class", link_class)?,
        count: or_default(unsigned("count", count)?, 1),
        link: required("speed", link("speed", speed)?)?,
    })
}

fn domain(wire: v1::ClusterDomain) -> Domain {
    let v1::ClusterDomain { level, name, parent, nodes } = wire;
    Domain { level, name, parent: Some(parent).filter(|parent| !parent.is_empty()), nodes }
}

impl From<&Cluster> for v1::Cluster {
    /// Without name and time, which belong to what is stored.
    fn from(cluster: &Cluster) -> Self {
        Self {
            name: String::new(),
            etag: String::new(),
            create_time: None,
            kinds: cluster.kinds().iter().map(cluster_kind_to_wire).collect(),
            tiers: cluster.tiers().iter().map(cluster_tier_to_wire).collect(),
            source: v1::ClusterSource::from(cluster.source()).into(),
            warnings: cluster.warnings().to_vec(),
            node_count: to_i32(cluster.nodes().len()),
            device_count: to_i32(cluster.device_count()),
            nodes: cluster.nodes().iter().map(node_to_wire).collect(),
            domains: cluster
                .domains()
                .iter()
                .map(|domain| v1::ClusterDomain {
                    level: domain.level.clone(),
                    name: domain.name.clone(),
                    parent: domain.parent.clone().unwrap_or_default(),
                    nodes: domain.nodes.clone(),
                })
                .collect(),
        }
    }
}

/// A kind as a message.
pub fn cluster_kind_to_wire(kind: &DeviceKind) -> v1::DeviceKind {
    let DeviceKind { name, memory, usable, hourly_price } = kind;
    v1::DeviceKind {
        name: name.clone(),
        memory_bytes: memory.to_wire(),
        usable_memory_bytes: usable.to_wire(),
        hourly_price: *hourly_price,
    }
}

/// A tier as a message.
pub fn cluster_tier_to_wire(tier: &Tier) -> v1::ClusterTier {
    let Tier { level, link } = tier;
    v1::ClusterTier { level: level.clone(), speed: link.map(Into::into) }
}

fn node_to_wire(node: &Node) -> v1::ClusterNode {
    let Node { name, labels, driver_version, devices, link, link_class, links, network } = node;
    v1::ClusterNode {
        name: name.clone(),
        labels: labels.clone().into_iter().collect(),
        driver_version: driver_version.clone(),
        devices: devices
            .iter()
            .map(|device| v1::ClusterDevice {
                index: to_i32(device.index),
                kind: device.kind.clone(),
                uuid: device.uuid.clone(),
                pci_bus_id: device.pci_bus_id.clone(),
                slot: device.slot.clone(),
                usable_memory_bytes: device.usable.map(Bytes::to_wire),
            })
            .collect(),
        link: link.map(Into::into),
        link_class: class_to_wire(*link_class),
        links: links
            .iter()
            .map(|link| v1::DeviceLink {
                a: to_i32(link.a),
                b: to_i32(link.b),
                link_class: class_to_wire(link.class),
                count: to_i32(link.count),
                speed: Some(link.link.into()),
            })
            .collect(),
        network: network.map(Into::into),
    }
}

/// The format of a file; what the text looks like where the message does not say.
///
/// # Errors
/// When neither says.
pub fn cluster_format_from_wire(field: &str, value: i32, text: &str) -> Result<ClusterFormat, Invalid> {
    match ClusterFormat::of_wire(field, value)?.or_else(|| ClusterFormat::detect(text)) {
        Some(format) => Ok(format),
        None => Err(Invalid::field(
            field,
            "is required: the text looks like none of loadmaster, topograph, nccl-xml, slurm-yaml, slurm-conf and \
             nvidia-smi",
        )),
    }
}

impl TryFrom<v1::ClusterImportOptions> for ImportOptions {
    type Error = Invalid;

    fn try_from(wire: v1::ClusterImportOptions) -> Result<Self, Invalid> {
        let v1::ClusterImportOptions {
            device_kind,
            memory_bytes,
            usable_memory_bytes,
            hourly_price,
            devices_per_node,
            nodes,
            link_bytes_per_second,
            network_bytes_per_second,
            topology,
        } = wire;
        let text = |text: String| Some(text).filter(|text| !text.is_empty());
        let bytes = |field: &str, bytes: i64| {
            unsigned(field, bytes).map(|bytes| Some(Bytes(bytes)).filter(|of| of.0 > 0))
        };
        let speed = |speed: f64| Some(speed).filter(|&speed| speed != 0.0);
        let count: u32 = unsigned("devices_per_node", devices_per_node)?;
        Ok(Self {
            device_kind: text(device_kind),
            memory: bytes("memory_bytes", memory_bytes)?,
            usable_memory: bytes("usable_memory_bytes", usable_memory_bytes)?,
            hourly_price,
            devices_per_node: Some(count).filter(|&count| count > 0),
            nodes: text(nodes),
            link_bytes_per_second: speed(link_bytes_per_second),
            network_bytes_per_second: speed(network_bytes_per_second),
            topology: text(topology),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::import::import;

    const EXAMPLE: &str = include_str!("../../../deploy/clusters/two-kinds.yaml");

    #[test]
    fn every_field_survives_the_wire() {
        let cluster = import(ClusterFormat::Loadmaster, EXAMPLE, &ImportOptions::default()).unwrap();
        let wire = v1::Cluster::from(&cluster);
        assert_eq!(Cluster::try_from(wire), Ok(cluster));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        let cluster = import(ClusterFormat::Loadmaster, EXAMPLE, &ImportOptions::default()).unwrap();
        let refused = |bend: fn(&mut v1::Cluster)| {
            let mut wire = v1::Cluster::from(&cluster);
            bend(&mut wire);
            Cluster::try_from(wire).unwrap_err().violations()[0].field.clone()
        };
        assert_eq!(refused(|wire| wire.nodes[0].devices[1].index = -1), "nodes[0].devices[1].index");
        assert_eq!(refused(|wire| wire.nodes[11].links[0].speed = None), "nodes[11].links[0].speed");
        assert_eq!(refused(|wire| wire.tiers[0].speed.as_mut().unwrap().origin = 9), "tiers[0].speed.origin");
        assert_eq!(refused(|wire| wire.kinds[0].memory_bytes = -5), "kinds[0].memory_bytes");
    }
}
