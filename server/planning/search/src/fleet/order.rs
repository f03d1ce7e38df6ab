//! The order of nodes: a pipeline goes through them one after another, so those of one domain stand together.

use std::cmp::Reverse;
use std::collections::HashMap;

use loadmaster_proto::cluster::Cluster;

use super::NodePart;

/// Sorts parts by their domains, the farthest level first, then by kind, number of devices and place in the
/// cluster. Domains come in the order of their first nodes.
pub(super) fn sort(cluster: &Cluster, parts: &mut [NodePart<'_>]) {
    // By where each domain first occurs.
    let mut ranks: HashMap<(usize, usize), usize> = HashMap::new();
    let mut keys: HashMap<usize, Vec<usize>> = HashMap::new();
    for part in parts.iter() {
        keys.entry(part.node).or_insert_with(|| {
            let farthest_first = (0..cluster.tiers().len()).rev();
            farthest_first
                .map(|tier| {
                    let next = ranks.len();
                    *ranks.entry((tier, domain(cluster, part.node, tier))).or_insert(next)
                })
                .collect()
        });
    }
    parts.sort_by_cached_key(|part| {
        let key = keys.get(&part.node).cloned().unwrap_or_default();
        (key, part.kind.to_owned(), Reverse(part.capacity), Reverse(part.devices.len()), part.node)
    });
}

/// By part and tier: a number of the domain that it is in.
pub(super) fn domains(cluster: &Cluster, parts: &[NodePart<'_>]) -> Vec<Vec<u32>> {
    let number = |node: usize, tier: usize| u32::try_from(domain(cluster, node, tier)).unwrap_or(u32::MAX);
    let of_part =
        |part: &NodePart<'_>| (0..cluster.tiers().len()).map(|tier| number(part.node, tier)).collect();
    parts.iter().map(of_part).collect()
}

/// A number of the domain that a node is in. A node without a domain of a tier has a number that no other node has
/// there.
fn domain(cluster: &Cluster, node: usize, tier: usize) -> usize {
    cluster.domain_of(node, tier).unwrap_or_else(|| cluster.domains().len() + node)
}
