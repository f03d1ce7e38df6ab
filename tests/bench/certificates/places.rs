//! The devices of a question.

use std::collections::BTreeMap;

use loadmaster_oracle::{Class, Fleet, Link, Node, Slot};

use crate::certificates::question::Question;
use crate::certificates::scene::{self, Scene};

/// Between devices of groups, of whose kinds nothing is known: 16 lanes of PCIe 3 under one host bridge.
const ASSUMED: Link = Link { bytes_per_second: 12e9, latency_seconds: 5e-6 };

/// All devices that a question does not exclude, with the layers that are pinned to them.
pub(crate) fn fleet(scene: &Scene, question: &Question) -> Fleet {
    let mut classes: Vec<Class> = Vec::new();
    let mut class = |kind: usize, capacity: u64| {
        let own = Class { kind, capacity };
        let known = classes.iter().position(|class| *class == own);
        known.unwrap_or_else(|| {
            classes.push(own);
            classes.len() - 1
        })
    };
    let nodes: Vec<Node> = match &scene.fleet {
        scene::Fleet::Groups(groups) => {
            let mut slots: Vec<Slot> = Vec::new();
            let mut position = 0;
            for group in groups {
                let class = class(group.kind, group.capacity);
                let own = position..position + group.count as i32;
                position = own.end;
                match slots.last_mut().filter(|slot| slot.class == class) {
                    Some(slot) => slot.indices.extend(own),
                    None => slots.push(Slot { class, indices: own.collect() }),
                }
            }
            vec![Node {
                name: String::new(),
                slots,
                whole: position as usize,
                inside: ASSUMED,
                unlike: BTreeMap::new(),
                network: ASSUMED,
                transfer: ASSUMED,
                rack: 0,
            }]
        }
        scene::Fleet::Cluster(cluster) => {
            let is_left = |name: &str, index: u32| {
                let device = format!("{name}/{index}");
                !question.excluded.iter().any(|excluded| *excluded == name || *excluded == device)
            };
            let node = |node: &scene::Node| {
                let left = (0..node.devices).filter(|&index| is_left(&node.name, index));
                let indices: Vec<i32> = left.map(|index| index as i32).collect();
                let class = class(node.kind, cluster.capacities[node.kind]);
                let links = links(node, &indices);
                let inside = links.values().copied().reduce(Link::slower).unwrap_or(node.inside);
                let are_alike = links.values().all(|link| *link == inside);
                Node {
                    name: node.name.clone(),
                    whole: indices.len(),
                    slots: vec![Slot { class, indices }],
                    inside,
                    unlike: if are_alike { BTreeMap::new() } else { links },
                    network: node.network,
                    transfer: node.network,
                    rack: node.rack,
                }
            };
            cluster.nodes.iter().map(node).filter(|node| node.devices() > 0).collect()
        }
    };
    let (tiers, known_prices) = match &scene.fleet {
        scene::Fleet::Cluster(cluster) => (cluster.tiers, cluster.prices.as_slice()),
        scene::Fleet::Groups(_) => (None, &[][..]),
    };
    let price = |class: &Class| {
        let name = &scene.kinds[class.kind].name;
        let named = question.prices.iter().find(|(kind, _)| kind == name).map(|(_, price)| *price);
        named.or_else(|| known_prices.get(class.kind).copied().flatten())
    };
    let prices = classes.iter().map(price).collect();
    let mut fleet = Fleet { classes, prices, nodes, tiers, keeps_order: false, pins: Vec::new() };
    for (layer, device) in &question.pins {
        let (node, index) = name_of(device);
        if let Some(device) = fleet.find(&node, index) {
            fleet.pin(*layer, device);
        }
    }
    fleet
}

/// Between each two of these devices of a node.
fn links(node: &scene::Node, indices: &[i32]) -> BTreeMap<(i32, i32), Link> {
    let pairs = indices.iter().flat_map(|&b| indices.iter().filter(move |a| **a < b).map(move |&a| (a, b)));
    let own = |(a, b): (i32, i32)| {
        let named = node.pairs.iter().find(|pair| (pair.a as i32, pair.b as i32) == (a, b));
        ((a, b), named.map_or(node.inside, |pair| pair.link))
    };
    pairs.map(own).collect()
}

/// `node/index`, or a position.
pub(crate) fn name_of(device: &str) -> (String, i32) {
    let (node, index) = device.rsplit_once('/').unwrap_or(("", device));
    (node.to_owned(), index.parse().unwrap_or(-1))
}
