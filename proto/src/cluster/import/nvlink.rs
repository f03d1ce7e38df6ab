//! NVLinks across nodes: which kinds have them, and which of Slurm's blocks are domains of them.

use super::super::{ClusterParts, ClusterSource, Node, Tier, catalog};
use super::{ImportOptions, fill};
use crate::warning::WarningCode;

/// Level of domains whose nodes are linked by NVLink.
pub(super) const LEVEL: &str = "nvlink";
/// Level of Slurm's blocks.
const BLOCK: &str = "block";

/// Gives blocks of Slurm's topology the NVLinks of their devices where the catalog says that these cross nodes; warns where
/// such devices are on several nodes and no file says which of these share NVLinks.
pub(super) fn across_nodes(mut parts: ClusterParts, options: &ImportOptions) -> ClusterParts {
    let is_said = parts.tiers.iter().any(|tier| tier.link.is_some());
    let fills = !matches!(parts.source, ClusterSource::Written | ClusterSource::Workers);
    let ([kind], true, false) = (parts.kinds.as_slice(), fills && parts.nodes.len() > 1, is_said) else {
        return parts;
    };
    let Some(most) = catalog::find(&kind.name).and_then(|row| row.nvlink_domain) else { return parts };
    let name = kind.name.clone();
    let devices = |node: &Node| u32::try_from(node.devices.len()).unwrap_or(u32::MAX);
    let each = parts.nodes.iter().map(devices).max().unwrap_or(0);
    let (class, inside) = fill::inside(options, &name, each);
    let blocks = parts.domains.iter().filter(|domain| domain.level == BLOCK);
    let largest = blocks.map(|block| block.nodes.len()).max();
    let Some(largest) = largest.filter(|_| parts.tiers.first().is_some_and(|tier| tier.level == BLOCK))
    else {
        parts.warnings.push(WarningCode::LinksAssumed.says(format!(
            "{name:?} has NVLinks between nodes, but the file does not describe which nodes they connect. Links \
             between nodes are planned as network links. Use Slurm's blocks, or `tiers` and `domains` of a cluster \
             document"
        )));
        return parts;
    };
    let held = u32::try_from(largest).unwrap_or(u32::MAX).saturating_mul(each);
    if held > most {
        parts.warnings.push(WarningCode::LinksAssumed.says(format!(
            "the largest block has {largest} nodes with {held} devices, but the NVLinks of {name:?} connect at most {most}. \
             Links between the nodes of a block are planned as network links"
        )));
        return parts;
    }
    parts.warnings.push(WarningCode::LinksAssumed.says(format!(
        "each block is assumed to be an NVLink domain of {name:?}, with {} links of {} between any two nodes. If this \
         is wrong, write a cluster document",
        class.as_str(),
        super::super::quantity::show_bytes_per_second(inside.bytes_per_second),
    )));
    link_domains(&mut parts, inside, options);
    parts
}

/// Makes the first tier's domains as fast as NVLink, and everything beyond them as fast as the network. Only tiers say how
/// fast nodes are linked then: no network card is in the way of NVLink.
pub(super) fn link_domains(parts: &mut ClusterParts, inside: super::super::Link, options: &ImportOptions) {
    let network = parts.nodes.iter().find_map(|node| node.network).unwrap_or_else(|| fill::network(options));
    for (place, tier) in parts.tiers.iter_mut().enumerate() {
        tier.link = Some(if place == 0 { inside } else { network });
    }
    if parts.tiers.len() == 1 {
        parts.tiers.push(Tier { level: "network".to_owned(), link: Some(network) });
    }
    for node in &mut parts.nodes {
        (node.network, node.network_links) = (None, None);
    }
}
