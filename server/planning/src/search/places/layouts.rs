//! The orders in which a fleet's nodes are searched.

use super::super::fleet::{Fleet, FleetNode, Kind, Link};
use super::{Places, Spanning};

/// Places for the orders of a fleet's nodes: all orders at once, or some good ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Layouts {
    /// One for each order, or one for all. They share their links: a link has the same index in each.
    pub places: Vec<Places>,
    /// How often it was looked where a stage may go on, to list places by class: also where that was given up.
    pub looks: usize,
    /// Whether no order is left out.
    pub is_complete: bool,
    /// As many devices in one node, with the best of all links: whatever some order allows, this does. Empty
    /// where no order is left out.
    pub relaxed: (Fleet, Places),
}

impl Layouts {
    /// Most nodes whose every order is tried.
    const MOST_ORDERED: usize = 4;

    /// Most kinds whose every order is tried, where not all orders of the nodes can be.
    const MOST_PERMUTED: usize = 4;

    /// The orders of a fleet's nodes for stages of these numbers of devices: all of them if that takes at most
    /// `most` places. Nodes with one of the `singled` devices are like no other.
    pub fn of(fleet: &Fleet, sizes: &[u32], spanning: Spanning, singled: &[usize], most: usize) -> Self {
        let mut all = Places::default();
        // Nodes that are all alike have one order.
        let is_uniform = fleet.is_uniform() && (singled.is_empty() || fleet.nodes.len() < 2);
        let (by_class, looks) =
            if is_uniform { (None, 0) } else { all.fill_by_class(fleet, sizes, spanning, singled, most) };
        let are_few = by_class != Some(true) && fleet.nodes.len() <= Self::MOST_ORDERED;
        let is_complete = is_uniform || by_class == Some(true) || are_few;
        let mut links = all.links.clone();
        let mut places = if by_class.is_some() && !are_few { vec![all] } else { Vec::new() };
        if places.is_empty() {
            let orders = match () {
                () if is_uniform => vec![(0..fleet.nodes.len()).collect()],
                () if are_few => permutations(fleet.nodes.len()),
                () => orders(fleet),
            };
            for order in orders {
                let mut one = Places { links: std::mem::take(&mut links), ..Places::default() };
                one.fill_in_sequence(fleet, &order, sizes, spanning);
                links.clone_from(&one.links);
                places.push(one);
            }
        }
        let mut relaxed = (Fleet::default(), Places { links, ..Places::default() });
        if !is_complete {
            relaxed.0 = relaxed.1.fill_relaxed(fleet, sizes);
        }
        // Costs are asked of the links of one layout, for all of them.
        for one in &mut places {
            one.links.clone_from(&relaxed.1.links);
        }
        Self { places, looks, is_complete, relaxed }
    }
}

impl Places {
    /// A fleet's devices as one node with the best of all its links, each allowing what the largest allows, and the
    /// places on it: whatever the fleet allows in any order of its nodes, this does.
    pub fn relaxed(fleet: &Fleet, sizes: &[u32]) -> (Fleet, Self) {
        let mut places = Self::default();
        let fleet = places.fill_relaxed(fleet, sizes);
        (fleet, places)
    }

    /// The same for places that have nothing but links.
    fn fill_relaxed(&mut self, fleet: &Fleet, sizes: &[u32]) -> Fleet {
        let fleet = relaxed(fleet);
        self.fill_in_sequence(&fleet, &[0], sizes, Spanning::Never);
        fleet
    }
}

/// Orders worth a look: as given and reversed; kinds together in every order of the kinds, domains within kinds
/// and kinds within domains.
fn orders(fleet: &Fleet) -> Vec<Vec<usize>> {
    let given: Vec<usize> = (0..fleet.nodes.len()).collect();
    let mut orders = vec![given.clone(), given.iter().rev().copied().collect()];
    for ranks in permutations(fleet.kinds.len()) {
        let rank = |&node: &usize| ranks.get(fleet.nodes[node].kind).copied().unwrap_or(usize::MAX);
        let domains = |&node: &usize| fleet.nodes[node].domains.iter().rev().copied().collect::<Vec<u32>>();
        let mut by_kind = given.clone();
        by_kind.sort_by_key(|node| (rank(node), domains(node)));
        let mut by_domain = given.clone();
        by_domain.sort_by_key(|node| (domains(node), rank(node)));
        orders.extend([by_kind, by_domain]);
    }
    let mut distinct: Vec<Vec<usize>> = Vec::new();
    for order in orders {
        if !distinct.iter().any(|known| are_alike(fleet, known, &order)) {
            distinct.push(order);
        }
    }
    distinct
}

/// Whether nothing tells two orders apart.
fn are_alike(fleet: &Fleet, one: &[usize], other: &[usize]) -> bool {
    one.iter().zip(other).all(|(&a, &b)| {
        let (a, b) = (&fleet.nodes[a], &fleet.nodes[b]);
        a.is_like(b) && a.domains == b.domains
    })
}

/// Every ranking of this many; the ascending and the descending one where they are too many.
fn permutations(kinds: usize) -> Vec<Vec<usize>> {
    if kinds > Layouts::MOST_PERMUTED {
        return vec![(0..kinds).collect(), (0..kinds).rev().collect()];
    }
    let mut all = vec![Vec::new()];
    for kind in 0..kinds {
        let longer = |ranking: &Vec<usize>| {
            (0..=kind)
                .map(|at| {
                    let mut longer = ranking.clone();
                    longer.insert(at, kind);
                    longer
                })
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// All devices in one node with the best link of the fleet, each allowing what the largest allows.
fn relaxed(fleet: &Fleet) -> Fleet {
    let links = fleet.nodes.iter().flat_map(|node| [node.fastest(), node.outside]);
    let Some(inside) = links.reduce(Link::faster) else { return Fleet::default() };
    let capacity = fleet.kinds.iter().map(|kind| kind.capacity).max().unwrap_or_default();
    Fleet {
        kinds: vec![Kind { name: "any".to_owned(), capacity, hourly_price: None }],
        nodes: vec![FleetNode {
            name: "all".to_owned(),
            kind: 0,
            devices: fleet.devices(),
            whole: fleet.devices(),
            inside,
            outside: inside,
            domains: Vec::new(),
            unlike: None,
        }],
        tiers: Vec::new(),
        is_one_node: true,
        may_grow: true,
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::bytes::Bytes;

    use super::*;
    use crate::search::LinkOrigin;

    /// Places that were looked for in vain are work too: of more classes of nodes than can be told apart.
    #[test]
    fn looks_are_counted_also_where_they_were_in_vain() {
        let link = |speed: u32| Link {
            bytes_per_second: f64::from(speed),
            latency_seconds: 0.0,
            origin: LinkOrigin::Given,
        };
        let node = |number: u32| FleetNode {
            name: format!("node{number}"),
            kind: 0,
            devices: 2,
            whole: 2,
            inside: link(100),
            outside: link(number),
            domains: Vec::new(),
            unlike: None,
        };
        let layouts = |nodes: u32, most: usize| {
            let nodes = (1..=nodes).map(node).collect();
            let kinds = vec![Kind { name: "gpu".to_owned(), capacity: Bytes(1), hourly_price: None }];
            let fleet = Fleet { kinds, nodes, ..Fleet::default() };
            Layouts::of(&fleet, &[1, 2, 4, 8], Spanning::Anywhere, &[], most)
        };
        let (whole, in_vain) = (layouts(6, 20_000), layouts(6, 64));
        assert_eq!((whole.places.len(), in_vain.places.len() > 1), (1, true));
        assert!((1..whole.looks).contains(&in_vain.looks), "{} {}", whole.looks, in_vain.looks);
        assert_eq!(layouts(1, 64).looks, 0, "there is one order");
    }
}
