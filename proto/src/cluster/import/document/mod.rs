//! Loadmaster's own form, written by hand, in YAML or JSON; `deploy/clusters/` has an example.
//!
//! ```yaml
//! format: loadmaster.cluster/1
//! kinds:
//!   - {name: NVIDIA H100 80GB HBM3, memory: 80GiB, usable_memory: 76GiB, hourly_price: 2.5}
//! nodes:
//!   - name: h[01-04]                # a hostlist: four nodes that are alike
//!     kind: NVIDIA H100 80GB HBM3
//!     devices: 8                    # or a list of {index, kind, uuid, pci_bus_id}
//!     link: {class: NV18, bandwidth: 371GB/s, latency: 3us}
//!     network: {bandwidth: 3200Gb/s, links: 8, latency: 5us, origin: measured}   # all eight links together
//!     host:                         # where memory optimizations park blocks, and how they get there
//!       memory: 512GiB
//!       link: {bandwidth: 50GB/s, latency: 5us}
//!       uplinks: [{devices: [0, 1], bandwidth: 50GB/s}]
//!       updates: [{step: adam-bf16, rate: 700M/s, together: 2G/s}]   # what trainings in chunks update there
//! tiers:                            # nearest first
//!   - {level: leaf, bandwidth: 50GB/s}
//!   - {level: spine, bandwidth: 25GB/s}
//! domains:
//!   - {level: leaf, name: s1, nodes: "h[01-02]", parent: s}
//!   - {level: leaf, name: s2, nodes: "h[03-04]", parent: s}
//!   - {level: spine, name: s}
//! ```
//!
//! What is written is *given* unless `origin` says that it was measured or assumed. Without `link`, the links of a
//! node are assumed from its kind of device; without `latency`, that of such links is taken.

mod copies;

use std::cell::Cell;
use std::collections::BTreeMap;

use serde::Deserialize;

use copies::{HostEntry, PeerEntry};

use super::super::{
    ClusterDevice, ClusterParts, ClusterSource, DeviceKind, DeviceLink, Domain, Link, LinkClass, LinkOrigin,
    MAX_COPIES, MAX_DEVICES, MAX_LINKS, MAX_NODE_DEVICES, MAX_NODES, MAX_TIERS, Node, NodeCopies, Tier,
    priors, quantity,
};
use super::{fill, hostlist};
use crate::bytes::Bytes;
use crate::error::{Invalid, in_range, required};
use crate::wire::reading::{self, Wanted, meter::Limits};

/// The first key of every document of this version.
pub const FORMAT: &str = "loadmaster.cluster/1";

/// A number, or a number with a unit.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a number, or a text with a unit such as 80GiB, 371GB/s or 3us")]
enum Quantity {
    Number(f64),
    Text(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    kinds: Vec<KindEntry>,
    nodes: Vec<NodeEntry>,
    #[serde(default)]
    tiers: Vec<TierEntry>,
    #[serde(default)]
    domains: Vec<DomainEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KindEntry {
    name: String,
    memory: Quantity,
    usable_memory: Option<Quantity>,
    hourly_price: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeEntry {
    name: String,
    kind: Option<String>,
    devices: Devices,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    driver_version: String,
    link: Option<LinkEntry>,
    #[serde(default)]
    links: Vec<PairEntry>,
    network: Option<LinkEntry>,
    host: Option<HostEntry>,
    #[serde(default)]
    peers: Vec<PeerEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a count, or a list of {index, kind, uuid, pci_bus_id, usable_memory}")]
enum Devices {
    Count(u32),
    List(Vec<DeviceEntry>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceEntry {
    index: u32,
    kind: Option<String>,
    #[serde(default)]
    uuid: String,
    #[serde(default)]
    pci_bus_id: String,
    usable_memory: Option<Quantity>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkEntry {
    class: Option<String>,
    bandwidth: Quantity,
    latency: Option<Quantity>,
    origin: Option<LinkOrigin>,
    links: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PairEntry {
    a: u32,
    b: u32,
    class: Option<String>,
    bandwidth: Quantity,
    latency: Option<Quantity>,
    origin: Option<LinkOrigin>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TierEntry {
    level: String,
    bandwidth: Option<Quantity>,
    latency: Option<Quantity>,
    origin: Option<LinkOrigin>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DomainEntry {
    level: String,
    name: String,
    parent: Option<String>,
    #[serde(default)]
    nodes: Option<String>,
}

/// # Errors
/// Names the path in the document.
pub(super) fn parts(text: &str, wanted: Wanted<'_>) -> Result<ClusterParts, Invalid> {
    let document: Document =
        serde_path_to_error::deserialize(reading::json_or_yaml(text, &Limits::BUILT, wanted)?).map_err(
            |error| {
                let path = error.path().to_string();
                Invalid::field(if path == "." { "" } else { &path }, error.inner().to_string())
            },
        )?;
    if document.format != FORMAT {
        return Err(invalid!("format", "{:?} is not a supported format. Use {FORMAT:?}", document.format));
    }
    let kinds = entries("kinds", document.kinds, kind)?;
    // A short name may stand for thousands of nodes: all entries share what is left, before anything is made of it.
    let room = Rooms {
        nodes: Room::of("nodes", MAX_NODES),
        devices: Room::of("devices", MAX_DEVICES),
        links: Room::of("links", MAX_LINKS),
        copies: Room::of("links of copies", MAX_COPIES),
    };
    let nodes: Vec<Vec<Node>> =
        entries("nodes", document.nodes, |entry| reading::check(wanted).and_then(|()| nodes(entry, &room)))?;
    let named = Room::of("nodes of domains", MAX_NODES * MAX_TIERS);
    Ok(ClusterParts {
        kinds,
        nodes: nodes.into_iter().flatten().collect(),
        tiers: entries("tiers", document.tiers, tier)?,
        domains: entries("domains", document.domains, |entry| {
            reading::check(wanted).and_then(|()| domain(entry, &named))
        })?,
        source: ClusterSource::Written,
        warnings: Vec::new(),
    })
}

/// What is left of the limits of all nodes.
struct Rooms {
    nodes: Room,
    devices: Room,
    links: Room,
    copies: Room,
}

/// What is left of a limit of the whole document.
struct Room {
    what: &'static str,
    most: usize,
    left: Cell<usize>,
}

impl Room {
    fn of(what: &'static str, most: usize) -> Self {
        Self { what, most, left: Cell::new(most) }
    }

    fn take(&self, field: &str, count: usize) -> Result<(), Invalid> {
        let left = self.left.get().checked_sub(count);
        self.left.set(left.ok_or_else(|| {
            invalid!(
                field,
                "exceeds the limit of {} {} in one document. Split the document",
                self.most,
                self.what
            )
        })?);
        Ok(())
    }
}

/// Each entry of a list, with its place in the path of an error.
fn entries<E, T>(list: &str, all: Vec<E>, read: impl Fn(E) -> Result<T, Invalid>) -> Result<Vec<T>, Invalid> {
    let one = |(index, entry)| read(entry).map_err(|invalid| invalid.under(&format!("{list}[{index}]")));
    all.into_iter().enumerate().map(one).collect()
}

fn kind(entry: KindEntry) -> Result<DeviceKind, Invalid> {
    let KindEntry { name, memory, usable_memory, hourly_price } = entry;
    let memory = bytes("memory", &memory)?;
    let usable = usable_memory.map_or(Ok(memory), |usable| bytes("usable_memory", &usable))?;
    Ok(DeviceKind { name, memory, usable, hourly_price })
}

fn nodes(entry: NodeEntry, room: &Rooms) -> Result<Vec<Node>, Invalid> {
    let NodeEntry { name, kind, devices, labels, driver_version, link, links, network, host, peers } = entry;
    let names = hostlist::expand(&name).map_err(|why| Invalid::field("name", why))?;
    room.nodes.take("name", names.len())?;
    let devices = match devices {
        Devices::Count(count) => {
            in_range("devices", count, 1..=MAX_NODE_DEVICES as u32)?;
            fill::devices(count, &required("kind", kind)?)
        }
        Devices::List(list) => entries("devices", list, |device| of_list(device, kind.as_deref()))?,
    };
    room.devices.take("devices", names.len().saturating_mul(devices.len()))?;
    let links = entries("links", links, pair)?;
    room.links.take("links", names.len().saturating_mul(links.len()))?;
    let (link_class, link) = match link {
        Some(entry) => (class("link.class", entry.class.as_deref())?.map(|of| of.0), Some(inside(&entry)?)),
        None if links.is_empty() => assumed(&devices),
        None => (None, None),
    };
    let network_links = network.as_ref().and_then(|entry| entry.links);
    let network = network.map(|entry| outside(&entry)).transpose()?;
    let (copies, updates) = copies::copies_and_updates(host, peers)?;
    let numbers = copies.as_ref().map_or(0, NodeCopies::size).saturating_add(updates.len());
    room.copies.take("host", names.len().saturating_mul(numbers))?;
    let name = String::new();
    let node = Node {
        name,
        labels,
        driver_version,
        devices,
        link,
        link_class,
        links,
        network,
        network_links,
        copies,
        updates,
    };
    Ok(names.into_iter().map(|name| Node { name, ..node.clone() }).collect())
}

/// Links of which only the devices' kinds are known: the slowest of them.
fn assumed(devices: &[ClusterDevice]) -> (Option<LinkClass>, Option<Link>) {
    let mut kinds: Vec<&str> = devices.iter().map(|device| device.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    match kinds.as_slice() {
        [kind] => {
            let count = u32::try_from(devices.len()).unwrap_or(u32::MAX);
            let (class, _, link) = priors::of_kind(kind, count);
            (Some(class), Some(link))
        }
        _ => (None, Some(priors::unknown_gpus())),
    }
}

fn of_list(entry: DeviceEntry, node_kind: Option<&str>) -> Result<ClusterDevice, Invalid> {
    let DeviceEntry { index, kind, uuid, pci_bus_id, usable_memory } = entry;
    let kind = required("kind", kind.or_else(|| node_kind.map(str::to_owned)))?;
    let usable = usable_memory.map(|usable| bytes("usable_memory", &usable)).transpose()?;
    Ok(ClusterDevice { index, kind, uuid, pci_bus_id, slot: String::new(), usable })
}

fn pair(entry: PairEntry) -> Result<DeviceLink, Invalid> {
    let PairEntry { a, b, class: written, bandwidth, latency, origin } = entry;
    let class = class("class", written.as_deref())?;
    let (class, count) = class.map_or((None, 1), |(class, count)| (Some(class), count));
    let link = speed(&bandwidth, latency.as_ref(), origin, usual(class))?;
    Ok(DeviceLink { a, b, class, count, link })
}

fn tier(entry: TierEntry) -> Result<Tier, Invalid> {
    let TierEntry { level, bandwidth, latency, origin } = entry;
    let link = bandwidth
        .map(|bandwidth| speed(&bandwidth, latency.as_ref(), origin, priors::network()))
        .transpose()?;
    Ok(Tier { level, link })
}

fn domain(entry: DomainEntry, named: &Room) -> Result<Domain, Invalid> {
    let DomainEntry { level, name, parent, nodes } = entry;
    let nodes = match nodes.as_deref().map(str::trim) {
        None | Some("") => Vec::new(),
        Some(list) => hostlist::expand(list).map_err(|why| Invalid::field("nodes", why))?,
    };
    named.take("nodes", nodes.len())?;
    Ok(Domain { level, name, parent, nodes })
}

fn class(field: &str, text: Option<&str>) -> Result<Option<(LinkClass, u32)>, Invalid> {
    let known = |text: &str| {
        LinkClass::parse(text).ok_or_else(|| {
            invalid!(field, "{text:?} is not a class of links. Use NV#, C2C, PIX, PXB, PHB, NODE or SYS")
        })
    };
    text.map(known).transpose()
}

fn inside(entry: &LinkEntry) -> Result<Link, Invalid> {
    if entry.links.is_some() {
        let why = "is valid only for a node's network. Between devices, put the number of links into `class`, as in NV18";
        return Err(Invalid::field("link.links", why));
    }
    let class = class("class", entry.class.as_deref()).map_err(|invalid| invalid.under("link"))?;
    let like = usual(class.map(|of| of.0));
    speed(&entry.bandwidth, entry.latency.as_ref(), entry.origin, like)
        .map_err(|invalid| invalid.under("link"))
}

fn outside(entry: &LinkEntry) -> Result<Link, Invalid> {
    if entry.class.is_some() {
        return Err(Invalid::field("network.class", "is valid only for links between devices. Remove it"));
    }
    let like = priors::network();
    speed(&entry.bandwidth, entry.latency.as_ref(), entry.origin, like)
        .map_err(|invalid| invalid.under("network"))
}

/// What a link between devices usually does.
fn usual(class: Option<LinkClass>) -> Link {
    class.map_or_else(priors::unknown_gpus, |class| priors::between_gpus(class, 1, 0.0, 0.0))
}

fn speed(
    bandwidth: &Quantity,
    latency: Option<&Quantity>,
    origin: Option<LinkOrigin>,
    like: Link,
) -> Result<Link, Invalid> {
    let read = |field: &str, quantity: &Quantity, parse: fn(&str) -> Result<f64, String>| match quantity {
        Quantity::Number(number) => Ok(*number),
        Quantity::Text(text) => parse(text).map_err(|why| Invalid::field(field, why)),
    };
    let bytes_per_second = read("bandwidth", bandwidth, quantity::bytes_per_second)?;
    let latency_seconds =
        latency.map_or(Ok(like.latency_seconds), |latency| read("latency", latency, quantity::seconds))?;
    Ok(Link { bytes_per_second, latency_seconds, origin: origin.unwrap_or(LinkOrigin::Given) })
}

fn bytes(field: &str, quantity: &Quantity) -> Result<Bytes, Invalid> {
    match quantity {
        Quantity::Number(number) if (0.0..=i64::MAX as f64).contains(number) => Ok(Bytes(*number as u64)),
        Quantity::Number(number) => Err(invalid!(field, "{number} is not a number of bytes")),
        Quantity::Text(text) => text.parse().map_err(|error| invalid!(field, "{error}")),
    }
}
