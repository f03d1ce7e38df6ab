//! Levels of the network, and which nodes are together: a tree.

use std::collections::HashMap;

use loadmaster_proto::wire::v1::{Cluster, ClusterDomain};

use super::links::speed;
use crate::table::grid::Grid;
use crate::table::grid::Side::{Left, Right};
use crate::text::terminal_abilities::Look;
use crate::text::{plain, plural};

/// Most domains that are drawn.
const MOST: usize = 200;
/// Deepest domain that is drawn; there are at most 16 levels.
const DEEPEST: usize = 32;

/// Tiers, nearest first, then the domains below each other.
pub(super) fn draw(cluster: &Cluster, look: Look) -> String {
    if cluster.tiers.is_empty() {
        return String::new();
    }
    let mut grid =
        Grid::new(&[("tier, nearest first", Left), ("domains", Right), ("between its nodes", Left)], look);
    for tier in &cluster.tiers {
        let domains = cluster.domains.iter().filter(|domain| domain.level == tier.level).count();
        let own = || "as the nodes' own networks".to_owned();
        grid.row([
            plain(&tier.level),
            domains.to_string(),
            tier.speed.as_ref().map_or_else(own, |link| speed(link, look)),
        ]);
    }
    let mut children: HashMap<&str, Vec<&ClusterDomain>> = HashMap::new();
    for domain in &cluster.domains {
        children.entry(&domain.parent).or_default().push(domain);
    }
    let mut lines = Vec::new();
    for root in children.get("").into_iter().flatten() {
        branch(root, 0, &children, &mut lines);
    }
    let left_out = cluster.domains.len().saturating_sub(lines.len());
    let rest = if left_out > 0 { format!("and {left_out} more\n") } else { String::new() };
    format!("\n{}\n{}{rest}", grid.render(), lines.concat())
}

fn branch<'a>(
    domain: &'a ClusterDomain,
    depth: usize,
    children: &HashMap<&str, Vec<&'a ClusterDomain>>,
    lines: &mut Vec<String>,
) {
    // The planner's trees have no cycles; a message of another could have.
    if lines.len() >= MOST || depth > DEEPEST {
        return;
    }
    let nodes = match domain.nodes.as_slice() {
        [] => String::new(),
        [only] => format!(": {}", plain(only)),
        [first, .., last] => {
            format!(": {} .. {} ({})", plain(first), plain(last), plural(domain.nodes.len(), "node"))
        }
    };
    lines.push(format!(
        "{:indent$}{} {}{nodes}\n",
        "",
        plain(&domain.level),
        plain(&domain.name),
        indent = 2 * depth
    ));
    for child in children.get(domain.name.as_str()).into_iter().flatten() {
        branch(child, depth + 1, children, lines);
    }
}
