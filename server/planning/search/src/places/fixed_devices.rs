//! Places for a pipeline whose devices are already chosen.

use std::ops::Range;

use super::super::pairs::{UnlikeNodes, counterparts};
use super::super::topology::{Fleet, KindSet, Link};
use super::in_order::push_range;
use super::{Places, Step};

impl Places {
    /// The one way through these stages: the devices of each in rank order, those that split the same tensors
    /// next to each other, `tensor` at a time. None where a stage has no devices, has one that the fleet lacks,
    /// or does not divide into such groups.
    pub fn given(fleet: &Fleet, stages: &[(Vec<u32>, u32)]) -> Option<Self> {
        let node_of: Vec<usize> = fleet
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(index, node)| std::iter::repeat_n(index, node.devices as usize))
            .collect();
        let nodes = |one: u32, other: u32| Some((*node_of.get(one as usize)?, *node_of.get(other as usize)?));
        let link = |one: u32, other: u32| -> Option<Link> {
            let (one, other) = nodes(one, other)?;
            if one == other { Some(fleet.nodes.get(one)?.inside) } else { fleet.between(one, other) }
        };
        let edge = |one: u32, other: u32| -> Option<Link> {
            let (one, other) = nodes(one, other)?;
            if one == other { Some(fleet.nodes.get(one)?.inside) } else { fleet.edge_between(one, other) }
        };
        let unlike = UnlikeNodes::of_all(fleet);
        let mut places = Self::default();
        let mut before: Option<&[u32]> = None;
        for (index, (devices, tensor)) in stages.iter().enumerate() {
            let tensor = *tensor as usize;
            if devices.is_empty() || tensor == 0 || !devices.len().is_multiple_of(tensor) {
                return None;
            }
            let kinds =
                devices.iter().map(|&device| Some(fleet.nodes.get(*node_of.get(device as usize)?)?.kind));
            let kinds: Option<Vec<usize>> = kinds.collect();
            let kinds = kinds?.into_iter().map(KindSet::one).reduce(KindSet::with)?;
            let alone = fleet.nodes.get(node_of[devices[0] as usize])?.inside;
            let shards = devices.chunks(tensor).filter_map(|group| ring(group.iter().copied(), link));
            let inside = shards.reduce(Link::slower).unwrap_or(alone);
            let replicas = (0..tensor)
                .filter_map(|shard| ring(devices.iter().skip(shard).step_by(tensor).copied(), link));
            let across = replicas.reduce(Link::slower).unwrap_or(inside);
            // Each rank gets its input from its counterpart.
            let entry = before.and_then(|before: &[u32]| {
                let slowest = || {
                    let links = counterparts(before, devices).filter_map(|(from, to)| edge(from, to));
                    links.reduce(Link::slower)
                };
                unlike.entry(before, devices).or_else(slowest)
            });
            let on_nodes: Vec<usize> =
                devices.iter().filter_map(|&device| node_of.get(device as usize).copied()).collect();
            let on_each = on_nodes.chunk_by(|one, other| one == other).map(|on_it| on_it.len() as u32);
            let split = if fleet.is_one_node { 0 } else { places.intern_split(on_each.collect()) };
            let step = Step {
                to: index as u32 + 1,
                devices: devices.len() as u32,
                kinds,
                entry: places.intern(entry.unwrap_or(alone)),
                inside: places.intern(inside),
                across: places.intern(across),
                // The groups of shards are as given, so their link is the one inside whatever their number.
                per_node: devices.len() as u32,
                split,
                others: if split == 0 { 0 } else { others(stages, index, &node_of) },
            };
            places.steps.push(vec![step]);
            places.devices.push(vec![ranges(devices)]);
            before = Some(devices);
        }
        places.steps.push(Vec::new());
        places.devices.push(Vec::new());
        Some(places)
    }
}

/// Groups of replicas of all other stages that have members on a node of a stage and elsewhere, of the node with most.
/// All stages synchronise at the end of an iteration, over the same networks.
fn others(stages: &[(Vec<u32>, u32)], own: usize, node_of: &[usize]) -> u32 {
    let nodes = |index: usize| stages[index].0.iter().filter_map(|&device| node_of.get(device as usize));
    let through = |node: usize| {
        let others = (0..stages.len())
            .filter(|&index| index != own && stages[index].0.len() > stages[index].1 as usize);
        let rings = others.map(|index| {
            let there = nodes(index).filter(|&&of| of == node).count();
            there.min(stages[index].1 as usize).min(stages[index].0.len() - there) as u32
        });
        rings.sum::<u32>()
    };
    nodes(own).map(|&node| through(node)).max().unwrap_or(0)
}

/// The slowest link of a ring over these devices; none where there is no link in it.
fn ring(devices: impl Iterator<Item = u32>, link: impl Fn(u32, u32) -> Option<Link>) -> Option<Link> {
    let devices: Vec<u32> = devices.collect();
    let around = devices.iter().zip(devices.iter().cycle().skip(1));
    around
        .filter(|(one, other)| one != other)
        .filter_map(|(&one, &other)| link(one, other))
        .reduce(Link::slower)
}

fn ranges(devices: &[u32]) -> Vec<Range<u32>> {
    let mut ranges = Vec::new();
    for &device in devices {
        push_range(&mut ranges, device..device + 1);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fleets::{self, link};
    use crate::{FleetNode, UnlikeLinks};

    /// Two nodes of two devices.
    fn fleet() -> Fleet {
        let node = |name: &str| fleets::node(name.to_owned(), (0, 2), (100, 10));
        fleets::fleet(vec![fleets::kind("kind".to_owned(), 1)], vec![node("one"), node("two")])
    }

    /// Groups, and with them links, follow the ranks as given: shards across the nodes, replicas inside them.
    #[test]
    fn links_are_those_of_the_groups() {
        let across = Places::given(&fleet(), &[(vec![0, 2, 1, 3], 2)]).expect("devices divide into groups");
        let step = across.steps(0)[0];
        assert_eq!(across.link(across.tensor_link(&step, 2)), Some(link(10)));
        assert_eq!(across.link(step.data_link()), Some(link(100)));
        let inside = Places::given(&fleet(), &[(vec![0, 1, 2, 3], 2)]).expect("devices divide into groups");
        let step = inside.steps(0)[0];
        assert_eq!(inside.link(inside.tensor_link(&step, 2)), Some(link(100)));
        assert_eq!(inside.link(step.data_link()), Some(link(10)));
    }

    /// A stage gets its input over the slowest of its ranks' links, of unlike ones over the very pairs'.
    #[test]
    fn inputs_come_over_the_slowest_pair() {
        let places = Places::given(&fleet(), &[(vec![0], 1), (vec![1, 2], 1)]).expect("two stages");
        assert_eq!(places.link(places.steps(1)[0].entry), Some(link(10)));
        let places = Places::given(&fleet(), &[(vec![0], 1), (vec![1], 1)]).expect("two stages");
        assert_eq!(places.link(places.steps(1)[0].entry), Some(link(100)));
        let mut three = fleet();
        let faster = |one: u32, other: u32| link(100 * (one + other));
        three.nodes[0] =
            FleetNode { devices: 3, whole: 3, unlike: UnlikeLinks::of(3, faster), ..three.nodes[0].clone() };
        let places = Places::given(&three, &[(vec![1], 1), (vec![2, 0], 1)]).expect("two stages");
        assert_eq!(places.link(places.steps(1)[0].entry), Some(link(100)));
        let places = Places::given(&three, &[(vec![1, 0], 1), (vec![2], 1)]).expect("two stages");
        assert_eq!(places.link(places.steps(1)[0].entry), Some(link(200)));
    }

    #[test]
    fn impossible_stages_are_none() {
        assert!(Places::given(&fleet(), &[(vec![0, 1, 2], 2)]).is_none());
        assert!(Places::given(&fleet(), &[(vec![4], 1)]).is_none());
        assert!(Places::given(&fleet(), &[(Vec::new(), 1)]).is_none());
    }
}
