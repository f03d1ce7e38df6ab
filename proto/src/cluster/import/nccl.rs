//! The topology of NCCL and RCCL, as they write it to `NCCL_TOPO_DUMP_FILE`: `system` > `cpu` > `pci` > `gpu` > `nvlink` or `xgmi`.
//!
//! It describes one node, or all hosts of an NVLink domain, whose processors have a `host_hash` each. GPUs are linked by the
//! NVLinks or xGMI links between them or, through NVSwitches (`tclass` `0x068000`), by as many as the one of both has that has
//! fewer.
//!
//! Otherwise over PCIe, by the nearest common element. A file without such links is a template for NCCL
//! (`NCCL_TOPO_FILE`): then the kind of device says what its links are. The same tree says how GPUs reach the host's memory,
//! and which of them share a switch.

use std::collections::{BTreeMap, HashMap};

use roxmltree::{Document, Node as Element, NodeId, ParsingOptions};

use super::super::{
    ClusterParts, ClusterSource, CopyLink, DeviceLink, Domain, HostLink, Link, LinkClass, LinkOrigin,
    MAX_COPIES, MAX_LINKS, MAX_NODE_DEVICES, MAX_UPLINKS, Node, NodeCopies, Tier, Uplink, catalog, priors,
    quantity,
};
use super::{ImportOptions, fill, nvlink};
use crate::error::{Invalid, in_range};
use crate::warning::{Warning, WarningCode};
use crate::wire::reading::{self, Wanted, xml};

/// Most elements, texts and comments of the tree: around each element there may be two texts.
const MAX_NODES: u32 = 4 * xml::MAX_ELEMENTS as u32;
/// PCI class of an NVSwitch.
const SWITCH_CLASS: &str = "0x068000";
/// Most GPUs of all hosts of a file: an NVLink domain has 72 or 144, and this leaves room for the next.
const MAX_GPUS: usize = 1_024;
/// No network card is faster, Mb/s: twice the fastest of 2026. What is above is in another unit.
const FASTEST_CARD: f64 = 3.2e6;

/// A GPU of the file.
struct Gpu {
    dev: u32,
    /// Which part of a GPU that is parted (`mlopart`); none of a whole one.
    part: Option<u32>,
    /// What NCCL calls its host; empty in files of one host.
    host_hash: String,
    /// Bytes per second of one xGMI link, by its architecture.
    per_xgmi: f64,
    sm: u32,
    bus: String,
    /// Bytes per second of its own PCIe link.
    pcie: f64,
    /// Elements around it, the nearest first.
    ancestors: Vec<(NodeId, bool)>,
    /// The PCIe bridges above its own function, the nearest first, with bytes per second of the link above each.
    bridges: Vec<(NodeId, f64)>,
    /// NVLinks to switches.
    to_switches: u32,
    /// NVLinks to others, by their PCI id.
    to_others: HashMap<String, u32>,
    /// xGMI links to others, by their PCI id.
    over_xgmi: HashMap<String, u32>,
}

impl Gpu {
    /// Whether anything but PCIe leads to other GPUs.
    fn has_links(&self) -> bool {
        self.to_switches > 0 || !self.to_others.is_empty() || !self.over_xgmi.is_empty()
    }
}

/// # Errors
/// Names the element, or the option that is missing.
pub(super) fn parts(
    text: &str,
    options: &ImportOptions,
    wanted: Wanted<'_>,
) -> Result<ClusterParts, Invalid> {
    // Documents with a DTD are refused, and with them entities that unfold to more.
    let parsing = ParsingOptions { allow_dtd: false, nodes_limit: MAX_NODES, ..ParsingOptions::default() };
    xml::check(text, wanted)?;
    let document = Document::parse_with_options(text, parsing)
        .map_err(|error| invalid!("", "is not valid XML: {error}"))?;
    reading::check(wanted)?;
    let root = document.root_element();
    if !root.has_tag_name("system") {
        let why = format!(
            "the root element is <{}>, not <system>. Use a topology file that NCCL writes (NCCL_TOPO_DUMP_FILE)",
            root.tag_name().name()
        );
        return Err(Invalid::field("", why));
    }
    let all = root.descendants().filter(|element| element.has_tag_name("gpu")).take(MAX_GPUS + 1);
    let all = all.map(gpu).collect::<Result<Vec<_>, _>>()?;
    in_range("system.gpu", all.len(), 1..=MAX_GPUS)?;
    let kind = fill::kind(options)?;
    let hosts = hosts(all)?;
    let each: Vec<u32> = hosts.iter().map(|gpus| u32::try_from(gpus.len()).unwrap_or(u32::MAX)).collect();
    if let Some(asked) = options.devices_per_node
        && let Some(count) = each.iter().find(|&&count| count != asked)
    {
        return Err(Invalid::field(
            "options.devices_per_node",
            format!(
                "{asked} is not the number of GPUs of a host in the file. Use {count}, or remove this field"
            ),
        ));
    }
    let names = names(options, hosts.len())?;
    let mut warnings = Vec::new();
    let mut nodes = Vec::new();
    let several = (hosts.len() > 1).then_some(&names);
    for (place, gpus) in hosts.iter().enumerate() {
        let (network, cards) = network(&root, gpus, several.is_some(), &mut warnings)?;
        let network = network.filter(|_| options.network_bytes_per_second.is_none());
        let network_links = network.and_then(|_| u32::try_from(cards).ok()).filter(|&cards| cards > 1);
        let own: &[String] = match several {
            Some(names) => names.get(place..=place).unwrap_or_default(),
            None => &names,
        };
        let copies = copies(gpus);
        let like = fill::node(String::new(), each.get(place).copied().unwrap_or(0), &kind.name, options);
        let (links, link, link_class) = if is_template(gpus, &kind.name, options) {
            warnings.extend(filled_from_kind(gpus, &like, &kind.name, options));
            (Vec::new(), like.link, like.link_class)
        } else {
            (links(gpus), None, None)
        };
        // Before every node has a copy.
        in_range("nodes.links", own.len().saturating_mul(links.len()), 0..=MAX_LINKS)?;
        in_range("nodes.copies", own.len().saturating_mul(copies.size()), 0..=MAX_COPIES)?;
        warnings.extend(without_nvlink(gpus, several.and_then(|_| own.first())));
        for name in own {
            let mut node = Node {
                name: name.clone(),
                link,
                link_class,
                links: links.clone(),
                network: network.or(like.network),
                network_links: network_links.or(like.network_links),
                copies: Some(copies.clone()),
                ..like.clone()
            };
            for (device, gpu) in node.devices.iter_mut().zip(gpus) {
                device.index = gpu.dev;
                device.pci_bus_id.clone_from(&gpu.bus);
            }
            nodes.push(node);
        }
    }
    let mut parts = ClusterParts {
        nodes,
        kinds: vec![kind],
        tiers: Vec::new(),
        domains: Vec::new(),
        source: ClusterSource::Nccl,
        warnings,
    };
    if let Some(link) = across_hosts(&hosts) {
        parts.tiers.push(Tier { level: nvlink::LEVEL.to_owned(), link: None });
        parts.domains.push(Domain {
            level: nvlink::LEVEL.to_owned(),
            name: format!("{}/0", nvlink::LEVEL),
            parent: None,
            nodes: parts.nodes.iter().map(|node| node.name.clone()).collect(),
        });
        nvlink::link_domains(&mut parts, link, options);
    }
    Ok(parts)
}

/// The GPUs of each host in order of their numbers, hosts in order of the file. Parts of one GPU, which have its number
/// (`mlopart`), are numbered on.
///
/// # Errors
/// When a host has a number twice, or too many GPUs.
fn hosts(all: Vec<Gpu>) -> Result<Vec<Vec<Gpu>>, Invalid> {
    let mut hosts: Vec<(String, Vec<Gpu>)> = Vec::new();
    for gpu in all {
        match hosts.iter_mut().find(|(hash, _)| *hash == gpu.host_hash) {
            Some((_, gpus)) => gpus.push(gpu),
            None => hosts.push((gpu.host_hash.clone(), vec![gpu])),
        }
    }
    let mut numbered = Vec::with_capacity(hosts.len());
    for (_, mut gpus) in hosts {
        in_range("system.gpu", gpus.len(), 1..=MAX_NODE_DEVICES)?;
        gpus.sort_by_key(|gpu| (gpu.dev, gpu.part));
        if gpus.iter().any(|gpu| gpu.part.is_some()) {
            for (number, gpu) in gpus.iter_mut().enumerate() {
                gpu.dev = u32::try_from(number).unwrap_or(u32::MAX);
            }
        }
        let twice = gpus.windows(2).find_map(|pair| match pair {
            [one, other] if one.dev == other.dev => Some((one, other)),
            _ => None,
        });
        if let Some((one, other)) = twice {
            let why = format!(
                "has dev=\"{}\" twice on one host, at {:?} and at {:?}. If the file describes several hosts, give the `<cpu>` elements of each host their own `host_hash`",
                one.dev, one.bus, other.bus
            );
            return Err(Invalid::field("system.gpu", why));
        }
        numbered.push(gpus);
    }
    Ok(numbered)
}

/// Names of the nodes: those that are like the only host of the file, or one for each of its hosts.
///
/// # Errors
/// Names the option where it names fewer or more nodes than the file has hosts.
fn names(options: &ImportOptions, hosts: usize) -> Result<Vec<String>, Invalid> {
    if hosts > 1 && options.nodes.is_none() {
        return Ok((0..hosts).map(|host| format!("node{host}")).collect());
    }
    let names = fill::names(options)?;
    if hosts > 1 && names.len() != hosts {
        return Err(invalid!(
            "options.nodes",
            "has {} names, but the file has {hosts} hosts. Use one name for each host",
            names.len()
        ));
    }
    Ok(names)
}

/// Whether a file has no link between its GPUs although there are some: by the catalog, or by the options.
fn is_template(gpus: &[Gpu], kind: &str, options: &ImportOptions) -> bool {
    let has_links = gpus.iter().any(Gpu::has_links);
    let is_linked = catalog::find(kind).is_some_and(|row| row.interconnect.is_beyond_pcie());
    gpus.len() > 1 && !has_links && (is_linked || options.link_bytes_per_second.is_some())
}

/// Returns a warning that names the links assumed for a template, unless the user set them.
fn filled_from_kind(gpus: &[Gpu], like: &Node, kind: &str, options: &ImportOptions) -> Option<Warning> {
    let link = like.link.filter(|_| options.link_bytes_per_second.is_none())?;
    let class = like.link_class.map_or("", LinkClass::as_str);
    Some(WarningCode::LinksAssumed.says(format!(
        "the file has no <nvlink> or <xgmi> between its {} GPUs, as is usual for NCCL_TOPO_FILE templates. The links \
         of {kind:?} are assumed: {class} {}. To import the actual links, use a file that NCCL_TOPO_DUMP_FILE writes",
        gpus.len(),
        quantity::show_bytes_per_second(link.bytes_per_second)
    )))
}

/// The NVLinks between hosts of one domain: as many as the GPU with fewest has, of those that have any. None of one host, or
/// where a host has none.
fn across_hosts(hosts: &[Vec<Gpu>]) -> Option<Link> {
    let of_host = |gpus: &Vec<Gpu>| {
        let to_switches = gpus.iter().filter(|gpu| gpu.to_switches > 0);
        to_switches
            .map(|gpu| (gpu.to_switches, gpu.sm))
            .reduce(|one, other| (one.0.min(other.0), one.1.min(other.1)))
    };
    let linked: Option<Vec<(u32, u32)>> = hosts.iter().map(of_host).collect();
    let linked = linked.filter(|linked| linked.len() > 1)?;
    let (count, sm) = linked.into_iter().reduce(|one, other| (one.0.min(other.0), one.1.min(other.1)))?;
    Some(priors::between_gpus(LinkClass::NvLink, count, priors::nvlink_by_capability(sm), 0.0))
}

fn number<T: std::str::FromStr>(element: &Element<'_, '_>, name: &str) -> Result<T, Invalid> {
    let text = element.attribute(name).unwrap_or_default();
    text.trim().parse().map_err(|_| {
        let position = element.document().text_pos_at(element.range().start);
        let why = format!("{name}={text:?} is not a number");
        Invalid::field(format!("{} at line {}", element.tag_name().name(), position.row), why)
    })
}

fn gpu(element: Element<'_, '_>) -> Result<Gpu, Invalid> {
    let pci = element.ancestors().find(|above| above.has_tag_name("pci"));
    let (mut to_switches, mut to_others, mut over_xgmi) = (0_u32, HashMap::new(), HashMap::new());
    for link in element.children().filter(|child| child.has_tag_name("nvlink") || child.has_tag_name("xgmi"))
    {
        let name = link.tag_name().name();
        let count: u32 = number(&link, "count")?;
        in_range(&format!("{name}.count"), count, 1..=MAX_NODE_DEVICES as u32)?;
        if link.attribute("tclass").is_some_and(|class| class.trim() == SWITCH_CLASS) {
            to_switches = to_switches.saturating_add(count);
        } else {
            let target = bus(link.attribute("target").unwrap_or_default());
            let others = if name == "xgmi" { &mut over_xgmi } else { &mut to_others };
            let links = others.entry(target).or_insert(0_u32);
            *links = links.saturating_add(count);
        }
    }
    let part = element.has_attribute("mlopart").then(|| number(&element, "mlopart")).transpose()?;
    let host_hash = element.ancestors().find_map(|above| above.attribute("host_hash"));
    Ok(Gpu {
        dev: number(&element, "dev")?,
        part,
        host_hash: host_hash.unwrap_or_default().trim().to_owned(),
        per_xgmi: priors::xgmi_by_architecture(element.attribute("gcn").unwrap_or_default()),
        sm: number(&element, "sm")?,
        bus: bus(pci.and_then(|pci| pci.attribute("busid")).unwrap_or_default()),
        pcie: pci.map_or_else(|| priors::pcie(3, 16), |pci| pcie(&pci)),
        ancestors: element.ancestors().skip(1).map(|above| (above.id(), above.has_tag_name("pci"))).collect(),
        bridges: element
            .ancestors()
            .filter(|above| above.has_tag_name("pci"))
            .skip(1)
            .map(|bridge| (bridge.id(), pcie(&bridge)))
            .collect(),
        to_switches,
        to_others,
        over_xgmi,
    })
}

/// PCI ids in one spelling.
fn bus(text: &str) -> String {
    text.trim().to_ascii_lowercase()
}

/// Bytes per second of a PCIe link: `link_speed="16.0 GT/s PCIe" link_width="16"`.
fn pcie(pci: &Element<'_, '_>) -> f64 {
    let speed =
        pci.attribute("link_speed").and_then(|speed| speed.split_whitespace().next()?.parse::<f64>().ok());
    let lanes = pci.attribute("link_width").and_then(|width| width.trim().parse::<u32>().ok());
    // Virtual machines hide both; then NCCL takes the third generation, too.
    match (speed, lanes) {
        (Some(gigatransfers), Some(lanes)) if gigatransfers > 0.0 && lanes > 0 => {
            let generation = match gigatransfers {
                ..=2.5 => 1,
                ..=5.0 => 2,
                ..=8.0 => 3,
                ..=16.0 => 4,
                ..=32.0 => 5,
                _ => 6,
            };
            priors::pcie(generation, lanes)
        }
        _ => priors::pcie(3, 16),
    }
}

/// What connects each two GPUs, as both see it: that they agree is checked with everything else.
fn links(gpus: &[Gpu]) -> Vec<DeviceLink> {
    let mut links = Vec::new();
    for (place, one) in gpus.iter().enumerate() {
        for other in gpus.iter().skip(place + 1) {
            let per_link = priors::nvlink_by_capability(one.sm.min(other.sm));
            let both = [(one, other), (other, one)];
            let xgmi = both.map(|(from, to)| from.over_xgmi.get(&to.bus).copied());
            let direct = both.map(|(from, to)| from.to_others.get(&to.bus).copied());
            let linked = |class: LinkClass, per_link: f64| {
                move |a: u32, b: u32, count: u32| DeviceLink {
                    a,
                    b,
                    class: Some(class),
                    count,
                    link: priors::between_gpus(class, count, per_link, 0.0),
                }
            };
            let nvlink = linked(LinkClass::NvLink, per_link);
            let over_xgmi = linked(LinkClass::Xgmi, one.per_xgmi.min(other.per_xgmi));
            if let [Some(there), Some(back)] = direct {
                links.push(nvlink(one.dev, other.dev, there));
                links.push(nvlink(other.dev, one.dev, back));
                continue;
            }
            if let [Some(there), Some(back)] = xgmi {
                links.push(over_xgmi(one.dev, other.dev, there));
                links.push(over_xgmi(other.dev, one.dev, back));
                continue;
            }
            if let Some(count) = xgmi.into_iter().flatten().next() {
                links.push(over_xgmi(one.dev, other.dev, count));
                continue;
            }
            let switched = one.to_switches.min(other.to_switches);
            let count = direct.into_iter().flatten().next().unwrap_or(switched);
            links.push(if count > 0 {
                nvlink(one.dev, other.dev, count)
            } else {
                let class = pcie_class(one, other);
                let link = priors::between_gpus(class, 1, per_link, one.pcie.min(other.pcie));
                DeviceLink { a: one.dev, b: other.dev, class: Some(class), count: 1, link }
            });
        }
    }
    links
}

/// By the nearest element that is around both: a bridge, a processor, or the whole system.
fn pcie_class(one: &Gpu, other: &Gpu) -> LinkClass {
    let common = one.ancestors.iter().position(|of| other.ancestors.iter().any(|theirs| theirs.0 == of.0));
    let is_bridge = common.and_then(|at| one.ancestors.get(at)).is_some_and(|of| of.1);
    let hops = |gpu: &Gpu| {
        let shared = common.and_then(|at| one.ancestors.get(at));
        gpu.ancestors.iter().position(|of| Some(of.0) == shared.map(|of| of.0)).unwrap_or(usize::MAX)
    };
    // The element right around a GPU is its own PCI function; a bridge around two of them is one hop further.
    match (is_bridge, hops(one).max(hops(other))) {
        (true, ..=1) => LinkClass::PcieBridge,
        (true, _) => LinkClass::PcieBridges,
        (false, _) if common.is_some_and(|at| at + 2 < one.ancestors.len()) => LinkClass::HostBridge,
        (false, _) => LinkClass::System,
    }
}

/// All network cards of a host together, as NCCL reckons: 100 Gbit/s are 12 GB/s. And how many cards they are.
fn network(
    root: &Element<'_, '_>,
    gpus: &[Gpu],
    is_one_of_several: bool,
    warnings: &mut Vec<Warning>,
) -> Result<(Option<Link>, usize), Invalid> {
    const BYTES_PER_MEGABIT: f64 = 12.0e9 / 100_000.0;
    let host = gpus.first().map_or("", |gpu| gpu.host_hash.as_str());
    let is_own = |net: &Element<'_, '_>| {
        let hash = net.ancestors().find_map(|above| above.attribute("host_hash")).unwrap_or_default();
        !is_one_of_several || hash.trim() == host
    };
    let mut speeds: HashMap<String, f64> = HashMap::new();
    for net in root.descendants().filter(|element| element.has_tag_name("net")).filter(is_own) {
        let name = net.attribute("name").unwrap_or_default();
        let stated: f64 = number(&net, "speed")?;
        let megabits = megabits(stated)?;
        if megabits < stated {
            let warning = format!(
                "the network card {name:?} has speed={stated:e} Mb/s, which is too high for a network card. {megabits} Mb/s \
                 is assumed"
            );
            // One card stands for those that are like it.
            if !warnings.iter().any(|known| known.code == WarningCode::BandwidthImplausible) {
                warnings.push(WarningCode::BandwidthImplausible.says(warning));
            }
        }
        // A card that NCCL lists below each GPU is still one card.
        let key = format!("{name}/{}", net.attribute("port").unwrap_or_default());
        speeds.insert(key, megabits * BYTES_PER_MEGABIT);
    }
    let bytes_per_second: f64 = speeds.values().sum();
    let assumed = priors::network();
    let link = Link { bytes_per_second, origin: LinkOrigin::Assumed, ..assumed };
    let cards = speeds.values().filter(|&&speed| speed > 0.0).count();
    Ok(((bytes_per_second >= Link::MIN_BYTES_PER_SECOND).then_some(link), cards))
}

/// The speed of a card in Mb/s: plugins of some networks write kb/s or b/s, which no card has in Mb/s.
///
/// # Errors
/// When no unit makes a card of it.
fn megabits(stated: f64) -> Result<f64, Invalid> {
    let in_units = [1.0, 1e3, 1e6].map(|unit| stated / unit);
    let believed = in_units.into_iter().find(|megabits| (0.0..=FASTEST_CARD).contains(megabits));
    believed.ok_or_else(|| {
        invalid!("net.speed", "{stated} Mb/s is out of range for a network card. Use 0 to {FASTEST_CARD:e}")
    })
}

/// GPUs without NVLink beside others that have it: a real fault, not a property of the machine.
fn without_nvlink(gpus: &[Gpu], node: Option<&String>) -> Vec<Warning> {
    if !gpus.iter().any(Gpu::has_links) {
        return Vec::new();
    }
    let place = node.map_or_else(String::new, |node| format!(" of {node}"));
    let lacking = gpus.iter().filter(|gpu| !gpu.has_links());
    let warn = |gpu: &Gpu| {
        WarningCode::NvlinkMissing.says(format!(
            "GPU {} ({}){place} has no NVLink, but other GPUs of the node have NVLinks. Check the health of this GPU",
            gpu.dev, gpu.bus
        ))
    };
    lacking.map(warn).collect()
}

/// Seconds before the first byte of a copy to the host arrives.
const LATENCY: f64 = 5e-6;

/// A GPU's own link is as fast as the slowest on its way up. Where several are below one bridge, they share its link.
fn copies(gpus: &[Gpu]) -> NodeCopies {
    let host_links = gpus.iter().map(|gpu| {
        let bytes_per_second = gpu.bridges.iter().map(|of| of.1).fold(gpu.pcie, f64::min);
        let link = Link { bytes_per_second, latency_seconds: LATENCY, origin: LinkOrigin::Assumed };
        // PCIe has lanes of its own for each direction.
        HostLink { device: gpu.dev, link: CopyLink::full_duplex(link) }
    });
    let mut bridges: BTreeMap<usize, (Vec<u32>, f64)> = BTreeMap::new();
    for gpu in gpus {
        for &(bridge, bytes_per_second) in &gpu.bridges {
            bridges
                .entry(bridge.get_usize())
                .or_insert_with(|| (Vec::new(), bytes_per_second))
                .0
                .push(gpu.dev);
        }
    }
    let shared = bridges.into_values().filter(|(devices, _)| devices.len() > 1);
    let uplinks = shared.take(MAX_UPLINKS).map(|(devices, bytes_per_second)| Uplink {
        devices,
        bytes_per_second,
        origin: LinkOrigin::Assumed,
    });
    NodeCopies { host_links: host_links.collect(), uplinks: uplinks.collect(), ..NodeCopies::default() }
}
