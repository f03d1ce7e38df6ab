//! How memory optimizations copy on a node: to its host's memory and back, and from device to device.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::link::{Link, LinkOrigin};
use super::{ClusterDevice, Node};
use crate::bytes::Bytes;
use crate::error::{Invalid, in_range};

/// Most ways to the host that devices of a node share.
pub const MAX_UPLINKS: usize = 64;

/// How fast one device copies to a place and back, when nothing else is copied.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyLink {
    /// To the place.
    pub out: Link,
    /// From it.
    pub back: Link,
    /// Bytes per second of both directions at once; none of a full-duplex link, where neither slows the other down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub both_bytes_per_second: Option<f64>,
}

impl CopyLink {
    /// As fast in both directions, also at once.
    pub fn full_duplex(link: Link) -> Self {
        Self { out: link, back: link, both_bytes_per_second: None }
    }

    /// The same link seen from its other end.
    #[must_use]
    pub fn turned(self) -> Self {
        Self { out: self.back, back: self.out, ..self }
    }

    /// The less trustworthy origin of its two directions.
    pub fn origin(&self) -> LinkOrigin {
        self.out.origin.max(self.back.origin)
    }

    fn check(&self) -> Result<(), Invalid> {
        self.out.check().map_err(|invalid| invalid.under("out"))?;
        self.back.check().map_err(|invalid| invalid.under("back"))?;
        match self.both_bytes_per_second {
            Some(both) => check_rate("both", both),
            None => Ok(()),
        }
    }
}

/// The way between a device and the memory of its host.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostLink {
    /// Index of the device.
    pub device: u32,
    /// How fast it is.
    pub link: CopyLink,
}

/// A way to the host that devices share: that of a PCIe switch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uplink {
    /// Indices of the devices, ascending: at least two.
    pub devices: Vec<u32>,
    /// Bytes per second of all of them together, in each direction.
    pub bytes_per_second: f64,
    /// Where that comes from.
    pub origin: LinkOrigin,
}

/// One-sided copies between two devices.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerCopies {
    /// Index of the one device; the smaller of both.
    pub a: u32,
    /// Index of the other.
    pub b: u32,
    /// Out is from `a` to `b`.
    pub link: CopyLink,
}

/// How memory optimizations copy on a node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeCopies {
    /// Bytes of the host's memory that blocks may take, of all devices together; none where no one said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory: Option<Bytes>,
    /// Between the host's memory and any device that has no link of its own in `host_links`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_link: Option<CopyLink>,
    /// Between the host's memory and single devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_links: Vec<HostLink>,
    /// Ways to the host that devices share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uplinks: Vec<Uplink>,
    /// Between two devices, where copies are not as fast as the link between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerCopies>,
}

impl NodeCopies {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How many numbers of links it has, for the limits of a whole cluster.
    pub(in crate::cluster) fn size(&self) -> usize {
        let shared: usize = self.uplinks.iter().map(|uplink| uplink.devices.len()).sum();
        self.host_links.len() + shared + self.peers.len()
    }

    /// Checks all numbers, and puts everything in order.
    ///
    /// # Errors
    /// Names the field: a device that is not there or there twice, a rate that is not possible.
    pub(super) fn check(&mut self, devices: &[ClusterDevice]) -> Result<(), Invalid> {
        let Self { host_memory, host_link, host_links, uplinks, peers } = self;
        let known: BTreeSet<u32> = devices.iter().map(|device| device.index).collect();
        if let Some(memory) = host_memory {
            in_range("host_memory", memory.0, 0..=i64::MAX as u64)?;
        }
        if let Some(link) = host_link {
            link.check().map_err(|invalid| invalid.under("host_link"))?;
        }
        let mut seen = BTreeSet::new();
        for (index, of) in host_links.iter().enumerate() {
            let path = format!("host_links[{index}]");
            check_device(&format!("{path}.device"), of.device, &known, &mut seen)?;
            of.link.check().map_err(|invalid| invalid.under(&path))?;
        }
        host_links.sort_by_key(|of| of.device);
        in_range("uplinks", uplinks.len(), 0..=MAX_UPLINKS)?;
        for (index, uplink) in uplinks.iter_mut().enumerate() {
            let path = format!("uplinks[{index}]");
            let mut seen = BTreeSet::new();
            for (place, &device) in uplink.devices.iter().enumerate() {
                check_device(&format!("{path}.devices[{place}]"), device, &known, &mut seen)?;
            }
            if uplink.devices.len() < 2 {
                let why = format!(
                    "lists {} of the devices that share this uplink. List at least two devices, or remove the uplink",
                    seen.len()
                );
                return Err(Invalid::field(format!("{path}.devices"), why));
            }
            check_rate("bandwidth", uplink.bytes_per_second).map_err(|invalid| invalid.under(&path))?;
            uplink.devices.sort_unstable();
        }
        *peers = checked_peers(peers, &known)?;
        Ok(())
    }
}

fn check_rate(field: &str, bytes_per_second: f64) -> Result<(), Invalid> {
    let most = Link::MAX_BYTES_PER_SECOND;
    if (Link::MIN_BYTES_PER_SECOND..=most).contains(&bytes_per_second) {
        return Ok(());
    }
    Err(invalid!(field, "{bytes_per_second} bytes per second is out of range. Use 1 to {most:e}"))
}

fn check_device(
    field: &str,
    device: u32,
    known: &BTreeSet<u32>,
    seen: &mut BTreeSet<u32>,
) -> Result<(), Invalid> {
    if !known.contains(&device) {
        return Err(invalid!(
            field,
            "{device} is not a device of this node. Use the index of a listed device"
        ));
    }
    if !seen.insert(device) {
        return Err(invalid!(field, "{device} is listed twice"));
    }
    Ok(())
}

/// The pairs in order, each seen from its smaller index.
fn checked_peers(peers: &[PeerCopies], known: &BTreeSet<u32>) -> Result<Vec<PeerCopies>, Invalid> {
    let mut seen: BTreeMap<(u32, u32), PeerCopies> = BTreeMap::new();
    for (index, &peer) in peers.iter().enumerate() {
        let path = format!("peers[{index}]");
        for (name, end) in [("a", peer.a), ("b", peer.b)] {
            if !known.contains(&end) {
                let why = format!("{end} is not a device of this node. Use the index of a listed device");
                return Err(Invalid::field(format!("{path}.{name}"), why));
            }
        }
        if peer.a == peer.b {
            let why = format!("{} is the same device as `a`. Use two different devices for a copy", peer.b);
            return Err(Invalid::field(format!("{path}.b"), why));
        }
        peer.link.check().map_err(|invalid| invalid.under(&path))?;
        let ordered = if peer.a < peer.b {
            peer
        } else {
            PeerCopies { a: peer.b, b: peer.a, link: peer.link.turned() }
        };
        if seen.insert((ordered.a, ordered.b), ordered).is_some() {
            let why = format!("the pair of devices {} and {} is listed twice. List it once", peer.a, peer.b);
            return Err(Invalid::field(path, why));
        }
    }
    Ok(seen.into_values().collect())
}

impl Node {
    /// Between the host's memory and a device, by its index; none where no one said.
    pub fn host_link_of(&self, device: u32) -> Option<CopyLink> {
        let copies = self.copies.as_ref()?;
        let own = copies.host_links.iter().find(|of| of.device == device);
        own.map(|own| own.link).or(copies.host_link)
    }

    /// Copies between two devices, by their indices, out being from the first: as they are said to be, or else as fast
    /// as the link between the two.
    pub fn copies_between(&self, from: u32, to: u32) -> Option<CopyLink> {
        let (a, b) = (from.min(to), from.max(to));
        let own = self.copies.as_ref().and_then(|of| of.peers.iter().find(|of| (of.a, of.b) == (a, b)));
        match own {
            Some(own) if from == a => Some(own.link),
            Some(own) => Some(own.link.turned()),
            None => self.link_between(from, to).map(CopyLink::full_duplex),
        }
    }
}
