//! The topology of NCCL, as it writes it to `NCCL_TOPO_DUMP_FILE`: `system` > `cpu` > `pci` > `gpu` > `nvlink`.
//!
//! It describes one node. GPUs are linked by the NVLinks between them or, through NVSwitches (`tclass`
//! `0x068000`), by as many as the one of both has that has fewer; otherwise over PCIe, by the nearest common
//! element. The same tree says how GPUs reach the host's memory, and which of them share a switch (`nccl/host.rs`).

mod host;

use std::collections::HashMap;

use roxmltree::{Document, Node as Element, NodeId, ParsingOptions};

use super::super::{
    ClusterParts, ClusterSource, DeviceLink, Link, LinkClass, LinkOrigin, MAX_COPIES, MAX_LINKS,
    MAX_NODE_DEVICES, Node, priors,
};
use super::{ImportOptions, fill};
use crate::error::{Invalid, in_range};
use crate::wire::reading::{self, Wanted, xml};

/// Most elements, texts and comments of the tree: around each element there may be two texts.
const MAX_NODES: u32 = 4 * xml::MAX_ELEMENTS as u32;
/// PCI class of an NVSwitch.
const SWITCH_CLASS: &str = "0x068000";

/// A GPU of the file.
struct Gpu {
    dev: u32,
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
        .map_err(|error| Invalid::field("", format!("is not valid XML: {error}")))?;
    reading::check(wanted)?;
    let root = document.root_element();
    if !root.has_tag_name("system") {
        let why = format!("is <{}>, expected <system>: the topology that NCCL dumps", root.tag_name().name());
        return Err(Invalid::field("", why));
    }
    let mut gpus = root
        .descendants()
        .filter(|element| element.has_tag_name("gpu"))
        .take(MAX_NODE_DEVICES + 1)
        .map(gpu)
        .collect::<Result<Vec<_>, _>>()?;
    in_range("system.gpu", gpus.len(), 1..=MAX_NODE_DEVICES)?;
    gpus.sort_by_key(|gpu| gpu.dev);
    let kind = fill::kind(options)?;
    let count = gpus.len() as u32;
    if let Some(asked) = options.devices_per_node.filter(|&asked| asked != count) {
        return Err(Invalid::field("options.devices_per_node", format!("is {asked}, the file has {count}")));
    }
    let links = links(&gpus);
    let copies = host::copies(&gpus);
    let network = network(&root)?.filter(|_| options.network_bytes_per_second.is_none());
    let names = fill::names(options)?;
    // Before every node has a copy.
    in_range("nodes.links", names.len().saturating_mul(links.len()), 0..=MAX_LINKS)?;
    in_range("nodes.copies", names.len().saturating_mul(copies.size()), 0..=MAX_COPIES)?;
    let nodes = names.into_iter().map(|name| {
        let mut node = fill::node(name, count, &kind.name, options);
        for (device, gpu) in node.devices.iter_mut().zip(&gpus) {
            device.index = gpu.dev;
            device.pci_bus_id.clone_from(&gpu.bus);
        }
        let (links, copies) = (links.clone(), Some(copies.clone()));
        Node { link: None, link_class: None, links, network: network.or(node.network), copies, ..node }
    });
    Ok(ClusterParts {
        nodes: nodes.collect(),
        kinds: vec![kind],
        tiers: Vec::new(),
        domains: Vec::new(),
        source: ClusterSource::Nccl,
        warnings: without_nvlink(&gpus),
    })
}

fn number<T: std::str::FromStr>(element: &Element<'_, '_>, name: &str) -> Result<T, Invalid> {
    let text = element.attribute(name).unwrap_or_default();
    text.trim().parse().map_err(|_| {
        let position = element.document().text_pos_at(element.range().start);
        let why = format!("has {name}={text:?}, expected a number");
        Invalid::field(format!("{} at line {}", element.tag_name().name(), position.row), why)
    })
}

fn gpu(element: Element<'_, '_>) -> Result<Gpu, Invalid> {
    let pci = element.ancestors().find(|above| above.has_tag_name("pci"));
    let (mut to_switches, mut to_others) = (0_u32, HashMap::new());
    for nvlink in element.children().filter(|child| child.has_tag_name("nvlink")) {
        let count: u32 = number(&nvlink, "count")?;
        in_range("nvlink.count", count, 1..=MAX_NODE_DEVICES as u32)?;
        if nvlink.attribute("tclass").is_some_and(|class| class.trim() == SWITCH_CLASS) {
            to_switches = to_switches.saturating_add(count);
        } else {
            let target = bus(nvlink.attribute("target").unwrap_or_default());
            let links = to_others.entry(target).or_insert(0_u32);
            *links = links.saturating_add(count);
        }
    }
    Ok(Gpu {
        dev: number(&element, "dev")?,
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
            let direct = [(one, other), (other, one)].map(|(from, to)| from.to_others.get(&to.bus).copied());
            let nvlink = |a: u32, b: u32, count: u32| DeviceLink {
                a,
                b,
                class: Some(LinkClass::NvLink),
                count,
                link: priors::between_gpus(LinkClass::NvLink, count, per_link, 0.0),
            };
            if let [Some(there), Some(back)] = direct {
                links.push(nvlink(one.dev, other.dev, there));
                links.push(nvlink(other.dev, one.dev, back));
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

/// All network cards together, as NCCL reckons: 100 Gbit/s are 12 GB/s.
fn network(root: &Element<'_, '_>) -> Result<Option<Link>, Invalid> {
    const BYTES_PER_MEGABIT: f64 = 12.0e9 / 100_000.0;
    let mut speeds: HashMap<String, f64> = HashMap::new();
    for net in root.descendants().filter(|element| element.has_tag_name("net")) {
        let megabits: f64 = number(&net, "speed")?;
        if !(0.0..=1e9).contains(&megabits) {
            return Err(Invalid::field("net.speed", format!("is {megabits} Mb/s, must be 0 to 1e9")));
        }
        // A card that NCCL lists below each GPU is still one card.
        let key = format!(
            "{}/{}",
            net.attribute("name").unwrap_or_default(),
            net.attribute("port").unwrap_or_default()
        );
        speeds.insert(key, megabits * BYTES_PER_MEGABIT);
    }
    let bytes_per_second: f64 = speeds.values().sum();
    let assumed = priors::network();
    let link = Link { bytes_per_second, origin: LinkOrigin::Assumed, ..assumed };
    Ok((bytes_per_second >= Link::MIN_BYTES_PER_SECOND).then_some(link))
}

/// GPUs without NVLink beside others that have it: a real fault, not a property of the machine.
fn without_nvlink(gpus: &[Gpu]) -> Vec<String> {
    let has = |gpu: &&Gpu| gpu.to_switches > 0 || !gpu.to_others.is_empty();
    if !gpus.iter().any(|gpu| has(&gpu)) {
        return Vec::new();
    }
    let lacking = gpus.iter().filter(|gpu| !has(gpu));
    let warn = |gpu: &Gpu| {
        format!("GPU {} ({}) has no NVLink, others of the node have: look at its health", gpu.dev, gpu.bus)
    };
    lacking.map(warn).collect()
}
