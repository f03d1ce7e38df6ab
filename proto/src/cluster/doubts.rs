//! What looks wrong in the description of a cluster although it may be right, for people.

use std::collections::BTreeSet;

use super::{ClusterParts, ClusterSource, LinkOrigin, Node, catalog, quantity};
use crate::cluster::device::CPU_KIND;

/// No link between two devices or nodes carries more, bytes per second: twice the NVLinks of a Rubin GPU.
const FASTEST_LINK: f64 = 4e12;
/// No node's network cards carry more together, bytes per second: 16 cards of 1.6 Tb/s.
const FASTEST_NETWORK: f64 = 3.2e12;

/// The same parts, with a warning for each kind that the catalog does not have where its links are assumed, and for
/// bandwidths that no hardware has.
pub(super) fn doubted(mut parts: ClusterParts) -> ClusterParts {
    // Between workers' devices drivers say what the links are, and discovery warns where they do not.
    let nodes = parts.nodes.iter().filter(|_| parts.source != ClusterSource::Workers);
    let unlisted: BTreeSet<&str> = nodes.flat_map(unlisted).collect();
    let unlisted: Vec<String> = unlisted.into_iter().map(unlisted_kind).collect();
    parts.warnings.extend(unlisted);
    let fast = too_fast(&parts);
    parts.warnings.extend(fast);
    parts
}

/// Says that a kind's links are a guess.
pub fn unlisted_kind(kind: &str) -> String {
    format!(
        "{kind:?} is not in the catalog of device kinds: its links are assumed, and are PCIe 3.0 (12 GB/s) where nothing else is \
         known. Give the bandwidth between devices, or spell the kind as its driver does"
    )
}

/// Whether the links of a kind are a guess where only the kind is known.
pub fn is_unlisted(kind: &str) -> bool {
    kind != CPU_KIND && catalog::find(kind).is_none()
}

/// Kinds of a node's devices that the catalog does not have, where links between devices are assumed from the kind.
fn unlisted(node: &Node) -> impl Iterator<Item = &str> {
    let shared = node.link.filter(|_| node.devices.len() > 1);
    let mut links = shared.into_iter().chain(node.links.iter().map(|of| of.link));
    let is_assumed = links.any(|link| link.origin == LinkOrigin::Assumed);
    let kinds = node.devices.iter().map(|device| device.kind.as_str());
    kinds.filter(move |kind| is_assumed && is_unlisted(kind))
}

/// One warning for links between devices, for networks and for tiers, with the first that is too fast.
fn too_fast(parts: &ClusterParts) -> Vec<String> {
    let doubt = |what: String, bytes_per_second: f64| {
        format!(
            "{what} carries {}, more than any hardware: is the unit right? Gb/s are bits, GB/s are bytes",
            quantity::show_bytes_per_second(bytes_per_second)
        )
    };
    let inside = parts.nodes.iter().find_map(|node| {
        let links = node.link.into_iter().chain(node.links.iter().map(|of| of.link));
        let fast = links.map(|link| link.bytes_per_second).find(|&speed| speed > FASTEST_LINK);
        Some(doubt(format!("a link between devices of {:?}", node.name), fast?))
    });
    let network = parts.nodes.iter().find_map(|node| {
        let fast = node.network.map(|link| link.bytes_per_second).filter(|&speed| speed > FASTEST_NETWORK);
        Some(doubt(format!("the network of {:?}", node.name), fast?))
    });
    let tier = parts.tiers.iter().find_map(|tier| {
        let fast = tier.link.map(|link| link.bytes_per_second).filter(|&speed| speed > FASTEST_LINK);
        Some(doubt(format!("the tier {:?}", tier.level), fast?))
    });
    [inside, network, tier].into_iter().flatten().collect()
}
