//! Which domain a node is in on each level of the network.

use std::collections::HashMap;

use super::check::{text, unique};
use super::{ClusterParts, Domain, MAX_NAME};
use crate::error::Invalid;
use crate::wire::reading::{self, Wanted};

/// By node and tier: index of the domain.
///
/// # Errors
/// Names the field: an unknown level, parent or node, a cycle, a parent that is not farther away, or a node in two
/// domains of one level.
pub(super) fn of_nodes(parts: &ClusterParts, wanted: Wanted<'_>) -> Result<Vec<Vec<Option<usize>>>, Invalid> {
    let ClusterParts { nodes, tiers, domains, .. } = parts;
    for (index, domain) in domains.iter().enumerate() {
        text(&format!("domains[{index}].name"), &domain.name, 1, MAX_NAME)?;
    }
    unique("domains", "name", domains.iter().map(|domain| domain.name.as_str()))?;
    let tree = Tree::new(parts)?;
    let by_name: HashMap<&str, usize> =
        nodes.iter().enumerate().map(|(index, node)| (node.name.as_str(), index)).collect();
    let mut membership = vec![vec![None; tiers.len()]; nodes.len()];
    for (index, domain) in domains.iter().enumerate() {
        reading::check(wanted)?;
        for (position, name) in domain.nodes.iter().enumerate() {
            let field = format!("domains[{index}].nodes[{position}]");
            let Some(&node) = by_name.get(name.as_str()) else {
                return Err(invalid!(
                    field,
                    "{name:?} is not a node of the cluster. Use the name of a listed node"
                ));
            };
            let mut at = Some(index);
            while let Some(ancestor) = at {
                let place = membership.get_mut(node).and_then(|tiers| tiers.get_mut(tree.level(ancestor)?));
                match place {
                    Some(Some(other)) if *other != ancestor => {
                        let names = [*other, ancestor].map(|domain| domains.get(domain).map(|of| &of.name));
                        let why = format!(
                            "puts the node {name:?} into two domains of the level {:?}: {}. Keep one",
                            domains.get(ancestor).map_or("", |of| of.level.as_str()),
                            names
                                .into_iter()
                                .flatten()
                                .map(|name| format!("{name:?}"))
                                .collect::<Vec<_>>()
                                .join(" and ")
                        );
                        return Err(Invalid::field(field, why));
                    }
                    Some(place) => *place = Some(ancestor),
                    None => {}
                }
                at = tree.parent(ancestor);
            }
        }
    }
    Ok(membership)
}

/// Parents and levels of domains, by index, without cycles.
struct Tree {
    parents: Vec<Option<usize>>,
    levels: Vec<usize>,
}

impl Tree {
    fn new(parts: &ClusterParts) -> Result<Self, Invalid> {
        let domains = &parts.domains;
        let by_name: HashMap<&str, usize> =
            domains.iter().enumerate().map(|(index, domain)| (domain.name.as_str(), index)).collect();
        let mut parents = Vec::with_capacity(domains.len());
        for (index, domain) in domains.iter().enumerate() {
            let parent = match &domain.parent {
                None => None,
                Some(name) => Some(*by_name.get(name.as_str()).ok_or_else(|| {
                    let why =
                        format!("{name:?} is not a domain of the cluster. Use the name of a listed domain");
                    Invalid::field(format!("domains[{index}].parent"), why)
                })?),
            };
            parents.push(parent);
        }
        check_acyclic(domains, &parents)?;
        let levels = levels(parts, &parents)?;
        Ok(Self { parents, levels })
    }

    fn parent(&self, domain: usize) -> Option<usize> {
        self.parents.get(domain).copied().flatten()
    }

    fn level(&self, domain: usize) -> Option<usize> {
        self.levels.get(domain).copied()
    }
}

/// Follows each domain's parents; those that were followed once are not followed once more.
fn check_acyclic(domains: &[Domain], parents: &[Option<usize>]) -> Result<(), Invalid> {
    let mut seen_from = vec![usize::MAX; domains.len()];
    for start in 0..domains.len() {
        let mut at = Some(start);
        while let Some(domain) = at {
            match seen_from.get_mut(domain) {
                Some(seen) if *seen == start => return Err(cycle(domains, parents, domain)),
                Some(seen) if *seen == usize::MAX => *seen = start,
                _ => break,
            }
            at = parents.get(domain).copied().flatten();
        }
    }
    Ok(())
}

fn cycle(domains: &[Domain], parents: &[Option<usize>], start: usize) -> Invalid {
    const SHOWN: usize = 8;
    let name = |index: usize| domains.get(index).map_or("", |domain| domain.name.as_str());
    let mut path = vec![name(start)];
    let mut at = parents.get(start).copied().flatten();
    while let Some(domain) = at.filter(|&domain| domain != start) {
        if path.len() < SHOWN {
            path.push(name(domain));
        }
        at = parents.get(domain).copied().flatten();
    }
    path.push(name(start));
    invalid!(format!("domains[{start}].parent"), "contains a cycle: {}. Remove it", path.join(" in "))
}

/// The tier of each domain. A parent's is farther.
fn levels(parts: &ClusterParts, parents: &[Option<usize>]) -> Result<Vec<usize>, Invalid> {
    let ClusterParts { tiers, domains, .. } = parts;
    let mut levels = Vec::with_capacity(domains.len());
    for (index, domain) in domains.iter().enumerate() {
        let level = tiers.iter().position(|tier| tier.level == domain.level).ok_or_else(|| {
            let known: Vec<&str> = tiers.iter().map(|tier| tier.level.as_str()).collect();
            let why = format!("{:?} is not a tier of the cluster. Use one of {known:?}", domain.level);
            Invalid::field(format!("domains[{index}].level"), why)
        })?;
        levels.push(level);
    }
    for (index, (level, parent)) in levels.iter().zip(parents).enumerate() {
        let above = parent.and_then(|parent| levels.get(parent));
        if above.is_some_and(|above| above <= level) {
            let why = "is a domain at the same or a lower level. Use a parent at a higher level, or order the tiers \
                from the nearest to the farthest";
            return Err(Invalid::field(format!("domains[{index}].parent"), why));
        }
    }
    Ok(levels)
}
