//! Islands: parts of a cluster that no job of its scheduler spans.
//!
//! Slurm's `topology/tree` starts no job over switches without a common switch above them, `topology/ring` none over
//! several rings, and `topology/torus3d` none over several toruses (`topology.html` of Slurm). Slurm's blocks are joined:
//! a job that is larger than the largest group takes any blocks.

use std::collections::{HashMap, HashSet};

use super::import::BLOCKS;
use super::{Cluster, ClusterParts, ClusterSource};

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
pub(super) fn warning(parts: &ClusterParts) -> Option<String> {
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
        format!(
            "{} are islands: Slurm starts no job over several of them. A plan uses nodes of one island. Where slurm.conf \
             has TopologyParam=TopoOptional, add a switch above them to plan over all nodes.",
            named(&roots)
        )
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
