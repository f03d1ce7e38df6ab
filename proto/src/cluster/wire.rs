//! Clusters.

use std::collections::BTreeMap;

use crate::bytes::Bytes;
use crate::cluster::doubts;
use crate::cluster::{
    Cluster, ClusterDevice, ClusterParts, ClusterSource, CopyLink, DeviceKind, DeviceLink, Domain, HostLink,
    HostUpdate, Link, LinkOrigin, MAX_DEVICES, MAX_DOMAINS, MAX_NODES, Node, NodeCopies, PeerCopies, Tier,
    Uplink,
};
use crate::error::{Invalid, in_range};
use crate::message;
use crate::wire::reading::{self, Wanted, always};
use crate::wire::{FromWire, ToWire, field, v1};

message! { Cluster <=> v1::Cluster }

impl TryFrom<v1::Cluster> for Cluster {
    type Error = Invalid;

    fn try_from(wire: v1::Cluster) -> Result<Self, Invalid> {
        Self::from_wire_while(wire, &always)
    }
}

impl Cluster {
    /// A cluster from its message, as long as it is wanted.
    ///
    /// # Errors
    /// Names the field, or that it is not wanted any more.
    pub fn from_wire_while(wire: v1::Cluster, wanted: Wanted<'_>) -> Result<Self, Invalid> {
        // Output-only fields are ignored.
        let v1::Cluster { kinds, nodes, tiers, domains, source, .. } = wire;
        reading::check(wanted)?;
        in_range("nodes", nodes.len(), 0..=MAX_NODES)?;
        in_range("nodes.devices", nodes.iter().map(|node| node.devices.len()).sum(), 0..=MAX_DEVICES)?;
        in_range("domains", domains.len(), 0..=MAX_DOMAINS)?;
        let parts = ClusterParts {
            kinds: field("kinds", kinds)?,
            nodes: field("nodes", nodes)?,
            tiers: field("tiers", tiers)?,
            domains: field("domains", domains)?,
            source: field::<Option<_>, _>("source", source)?.unwrap_or(ClusterSource::Written),
            warnings: Vec::new(),
        };
        Self::new_while(doubts::doubted(parts), wanted)
    }
}

impl From<&Cluster> for v1::Cluster {
    /// Without name and time, which belong to what is stored.
    fn from(cluster: &Cluster) -> Self {
        let ClusterParts { kinds, nodes, tiers, domains, source, warnings } = cluster.parts();
        Self {
            kinds: kinds.to_wire(),
            tiers: tiers.to_wire(),
            source: source.to_wire(),
            warnings: crate::warning::sent(warnings),
            node_count: nodes.len().to_wire(),
            device_count: cluster.device_count().to_wire(),
            nodes: nodes.to_wire(),
            domains: domains.to_wire(),
            ..Self::default()
        }
    }
}

message! { DeviceKind <=> v1::DeviceKind }

impl From<&DeviceKind> for v1::DeviceKind {
    fn from(kind: &DeviceKind) -> Self {
        let DeviceKind { name, memory, usable, hourly_price } = kind;
        Self {
            name: name.clone(),
            memory_bytes: memory.to_wire(),
            usable_memory_bytes: usable.to_wire(),
            hourly_price: *hourly_price,
        }
    }
}

impl TryFrom<v1::DeviceKind> for DeviceKind {
    type Error = Invalid;

    /// All of the memory is usable unless it is said.
    fn try_from(wire: v1::DeviceKind) -> Result<Self, Invalid> {
        let v1::DeviceKind { name, memory_bytes, usable_memory_bytes, hourly_price } = wire;
        let memory: Bytes = field("memory_bytes", memory_bytes)?;
        let usable: Option<Bytes> = field("usable_memory_bytes", usable_memory_bytes)?;
        Ok(Self { name, memory, usable: usable.unwrap_or(memory), hourly_price })
    }
}

message! {
    Node <=> v1::ClusterNode {
        name, labels, driver_version, devices, link, link_class, links = device_links, network, network_links = network_link_count, copies = copy_links, updates = cpu_optimizer_speeds
    }
}

message! {
    ClusterDevice <=> v1::ClusterDevice {
        index,
        kind,
        uuid,
        pci_bus_id,
        slot,
        usable = usable_memory_bytes,
    }
}

message! {
    DeviceLink <=> v1::DeviceLink { a, b, class = link_class, count: or(1), link = speed: required }
}

// The numbers are checked with the cluster that they are part of.
message! {
    Link <=> v1::LinkSpeed { bytes_per_second, latency_seconds, origin: or(LinkOrigin::Given) }
}

message! {
    NodeCopies <=> v1::NodeCopies { host_memory = host_memory_bytes, host_link, host_links, uplinks, peers }
}

message! { CopyLink <=> v1::CopyLink { out: required, back: required, both_bytes_per_second } }

message! { HostLink <=> v1::HostLink { device, link: required } }

message! {
    Uplink <=> v1::SharedUplink { devices = device_indices, bytes_per_second, origin: or(LinkOrigin::Given) }
}

message! { PeerCopies <=> v1::PeerCopies { a, b, link: required } }

message! {
    HostUpdate <=> v1::HostUpdate {
        step,
        parameters_per_second,
        together_per_second,
        origin: or(LinkOrigin::Given),
    }
}

message! {
    Tier <=> v1::ClusterTier { level, link = speed }
}

message! {
    Domain <=> v1::ClusterDomain { level, name, parent, nodes }
}

impl FromWire<Self> for BTreeMap<String, String> {
    fn from_wire(wire: Self) -> Result<Self, Invalid> {
        Ok(wire)
    }
}

impl ToWire<Self> for BTreeMap<String, String> {
    fn to_wire(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::import::{ClusterFormat, ImportOptions, import};

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
        assert_eq!(
            refused(|wire| wire.nodes[11].device_links[0].speed = None),
            "nodes[11].device_links[0].speed"
        );
        assert_eq!(refused(|wire| wire.tiers[0].speed.as_mut().unwrap().origin = 9), "tiers[0].speed.origin");
        assert_eq!(refused(|wire| wire.kinds[0].memory_bytes = -5), "kinds[0].memory_bytes");
    }
}
