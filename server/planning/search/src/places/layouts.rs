//! The orders in which a fleet's nodes are searched.

use super::super::topology::{Fleet, FleetNode, Kind, Link};
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
    /// `most` places. Nodes with one of the `singled` devices are like no other. With them comes whether all parts of a machine
    /// follow each other, as frameworks number ranks.
    pub fn of(
        fleet: &Fleet,
        sizes: &[u32],
        spanning: Spanning,
        (singled, by_machine): (&[usize], bool),
        most: usize,
    ) -> Self {
        let by_machine = by_machine && fleet.has_mixed_machines();
        let mut all = Places::default();
        // Nodes that are all alike have one order.
        let is_uniform = fleet.is_uniform() && (singled.is_empty() || fleet.nodes.len() < 2);
        let (by_class, looks) = if is_uniform {
            (None, 0)
        } else {
            all.fill_by_class(fleet, sizes, spanning, (singled, by_machine), most)
        };
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
            for order in by_machines(fleet, by_machine, orders) {
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
    /// places on it. Whatever the fleet allows in any order of its nodes, this does.
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

/// The same orders with the parts of each machine behind its first one, each once; as they are where that is not asked for.
fn by_machines(fleet: &Fleet, by_machine: bool, orders: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    if !by_machine {
        return orders;
    }
    let machines = fleet.machines();
    let mut distinct: Vec<Vec<usize>> = Vec::new();
    for mut order in orders {
        let mut first = vec![usize::MAX; fleet.nodes.len()];
        for (place, &node) in order.iter().enumerate() {
            let first = &mut first[machines[node]];
            *first = place.min(*first);
        }
        order.sort_by_key(|&node| first[machines[node]]);
        if !distinct.contains(&order) {
            distinct.push(order);
        }
    }
    distinct
}

/// Whether two orders are equivalent.
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
            one_transfer: None,
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
    use super::*;
    use crate::tests::fleets::{kind, node};

    /// Places that were looked for in vain are work too: of more classes of nodes than can be told apart.
    #[test]
    fn looks_are_counted_also_where_they_were_in_vain() {
        let node = |number: u32| node(format!("node{number}"), (0, 2), (100, number));
        let layouts = |nodes: u32, most: usize| {
            let nodes = (1..=nodes).map(node).collect();
            let kinds = vec![kind("gpu".to_owned(), 1)];
            let fleet = Fleet { kinds, nodes, ..Fleet::default() };
            Layouts::of(&fleet, &[1, 2, 4, 8], Spanning::Anywhere, (&[], false), most)
        };
        let (whole, in_vain) = (layouts(6, 20_000), layouts(6, 64));
        assert_eq!((whole.places.len(), in_vain.places.len() > 1), (1, true));
        assert!((1..whole.looks).contains(&in_vain.looks), "{} {}", whole.looks, in_vain.looks);
        assert_eq!(layouts(1, 64).looks, 0, "there is one order");
    }

    /// Machines of several kinds of devices: by machine, how many of each kind.
    fn mixed(machines: &[&[u32]]) -> Fleet {
        let node = |machine: usize, kind: usize, devices: u32| {
            node(format!("machine{machine}"), (kind, devices), (100, 100))
        };
        let kinds = machines.iter().map(|parts| parts.len()).max().unwrap_or(0);
        // Kinds stand together, as in fleets of clusters.
        let nodes = (0..kinds).flat_map(|kind| {
            let own = machines.iter().enumerate().filter_map(move |(machine, parts)| {
                parts.get(kind).filter(|&&devices| devices > 0).map(|&devices| node(machine, kind, devices))
            });
            own.collect::<Vec<_>>()
        });
        let kind = |number| kind(format!("kind{number}"), 1);
        Fleet { kinds: (0..kinds).map(kind).collect(), nodes: nodes.collect(), ..Fleet::default() }
    }

    /// The devices of every way through places, in their order.
    fn orders_of(places: &Places) -> Vec<Vec<u32>> {
        let mut ended = Vec::new();
        let mut begun = vec![(0, Vec::new())];
        while let Some((place, devices)) = begun.pop() {
            if place == places.last() {
                ended.push(devices);
                continue;
            }
            for (index, step) in places.steps(place).iter().enumerate() {
                let mut devices: Vec<u32> = devices.clone();
                devices.extend(places.devices(place, index).iter().cloned().flatten());
                begun.push((step.to, devices));
            }
        }
        ended
    }

    /// Ranks are numbered machine by machine: no way through the places leaves a machine before all of its devices are taken, and
    /// every order of machines, and of the kinds within each, is among them.
    #[test]
    fn parts_of_a_machine_follow_each_other() {
        let cases: [&[&[u32]]; 5] = [
            &[&[2, 2], &[2, 2]],
            &[&[1, 3], &[1, 3]],
            &[&[2, 1], &[3]],
            &[&[1, 1], &[1, 1], &[1, 1]],
            &[&[1, 1], &[1, 1], &[2], &[2]],
        ];
        for machines in cases {
            let fleet = mixed(machines);
            let (machine_of, begins) = (fleet.machines(), fleet.begins());
            let node = |device: u32| begins.partition_point(|&begin| begin <= device) - 1;
            let kinds = |order: &Vec<u32>| {
                order.iter().map(|&device| fleet.nodes[node(device)].kind).collect::<Vec<usize>>()
            };
            for (sizes, spanning) in [(&[1][..], Spanning::Never), (&[1, 2, 4], Spanning::Anywhere)] {
                let layouts = Layouts::of(&fleet, sizes, spanning, (&[], true), 20_000);
                let found: Vec<Vec<u32>> = layouts.places.iter().flat_map(orders_of).collect();
                for order in &found {
                    let mut left: Vec<usize> = order.iter().map(|&device| machine_of[node(device)]).collect();
                    left.dedup();
                    let is_once = (1..left.len()).all(|at| !left[..at].contains(&left[at]));
                    assert!(is_once, "{machines:?} {sizes:?}: {order:?}");
                    assert_eq!(fleet.is_machine_by_machine(order.iter().copied()), fleet.is_even());
                }
                let mut found: Vec<Vec<usize>> = found.iter().map(kinds).collect();
                let mut expected = Vec::new();
                for order in
                    permutations(fleet.nodes.len().min(4)).into_iter().filter(|_| fleet.nodes.len() <= 4)
                {
                    let mut of: Vec<usize> = order.iter().map(|&node| machine_of[node]).collect();
                    of.dedup();
                    if of.len() == machines.len() {
                        let devices =
                            |&node: &usize| vec![fleet.nodes[node].kind; fleet.nodes[node].devices as usize];
                        expected.push(order.iter().flat_map(devices).collect::<Vec<usize>>());
                    }
                }
                found.sort();
                found.dedup();
                expected.sort();
                expected.dedup();
                assert!(
                    expected.is_empty() || found == expected,
                    "{machines:?} {sizes:?}: {found:?} {expected:?}"
                );
                assert!(!found.is_empty(), "{machines:?} {sizes:?}");
            }
        }
    }
}
