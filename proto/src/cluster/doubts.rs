//! What looks wrong in the description of a cluster although it may be right, human-readable.
//!
//! Islands are parts of a cluster that no job of its scheduler spans. Slurm's `topology/tree` starts no job over switches without
//! a common switch above them, `topology/ring` none over several rings, and `topology/torus3d` none over several toruses
//! (`topology.html` of Slurm). Slurm's blocks are joined: a job that is larger than the largest group takes any blocks.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::import::BLOCKS;
use super::{Cluster, ClusterParts, ClusterSource, LinkOrigin, Node, catalog, quantity};
use crate::cluster::device::CPU_KIND;
use crate::warning::{Warning, WarningCode};

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
    let unlisted: Vec<Warning> = unlisted.into_iter().map(unlisted_kind).collect();
    parts.warnings.extend(unlisted);
    let fast = too_fast(&parts);
    parts.warnings.extend(fast);
    parts
}

/// Says that a kind's links are a guess.
pub fn unlisted_kind(kind: &str) -> Warning {
    WarningCode::DeviceKindUnknown.says(format!(
        "{kind:?} is not in the catalog of device kinds. Without other data, its links are assumed to be PCIe 3.0 (12 \
         GB/s). Set the bandwidth between devices, or use the name that the driver reports for the device"
    ))
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
fn too_fast(parts: &ClusterParts) -> Vec<Warning> {
    let doubt = |what: String, bytes_per_second: f64| {
        WarningCode::BandwidthImplausible.says(format!(
            "{what} has {}, which is faster than any known hardware. Check the unit: Gb/s are bits, GB/s are bytes",
            quantity::show_bytes_per_second(bytes_per_second)
        ))
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

/// Most islands that a text names.
const SHOWN: usize = 8;

impl Cluster {
    /// Returns the index of the domain that is the island of a node, by its index; none in a cluster without islands.
    pub fn island_of(&self, node: usize) -> Option<usize> {
        if !may_have_islands(&self.parts) {
            return None;
        }
        (0..self.tiers().len()).rev().find_map(|tier| self.domain_of(node, tier))
    }
}

fn may_have_islands(parts: &ClusterParts) -> bool {
    let is_joined = parts.tiers.first().is_none_or(|tier| tier.level == BLOCKS);
    parts.source == ClusterSource::Slurm && !is_joined
}

/// Returns the warning that a cluster has several islands, where it has.
pub(super) fn warning(parts: &ClusterParts) -> Option<Warning> {
    if !may_have_islands(parts) {
        return None;
    }
    let parents: HashMap<&str, Option<&str>> =
        parts.domains.iter().map(|domain| (domain.name.as_str(), domain.parent.as_deref())).collect();
    let (mut roots, mut seen): (Vec<&str>, HashSet<&str>) = (Vec::new(), HashSet::new());
    for domain in parts.domains.iter().filter(|domain| !domain.nodes.is_empty()) {
        let mut root = domain.name.as_str();
        // A cycle is refused later, where the cluster is checked.
        for _ in 0..parts.tiers.len() {
            match parents.get(root).copied().flatten() {
                Some(parent) => root = parent,
                None => break,
            }
        }
        if seen.insert(root) {
            roots.push(root);
        }
    }
    (roots.len() > 1).then(|| {
        WarningCode::ClusterHasIslands.says(format!(
            "{} have no common switch, so each of them is an island. Slurm starts no job across islands, so a plan \
             uses nodes of one island. If slurm.conf has TopologyParam=TopoOptional, add a common switch to plan over \
             all nodes",
            named(&roots)
        ))
    })
}

/// Returns the names of islands for a text.
pub fn named(islands: &[&str]) -> String {
    let shown = islands.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match islands.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}
