//! Which devices there are, what is between them, and every way for a pipeline to go through them.

use std::collections::{BTreeMap, BTreeSet};

use crate::certificates::asked::Asked;
use crate::certificates::question::{Question, Spanning};
use crate::certificates::scene::{Fleet, Link, Scene};

/// Between devices of groups, of whose kinds nothing is known: 16 lanes of PCIe 3 under one host bridge.
const ASSUMED: Link = Link { bytes_per_second: 12e9, latency_seconds: 5e-6 };

/// Devices that nothing tells apart: kind and capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class {
    pub(crate) kind: usize,
    pub(crate) capacity: u64,
}

/// Like devices that stand side by side in a node.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) class: usize,
    /// As requests and answers name them: node and index.
    pub(crate) devices: Vec<(String, i32)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) slots: Vec<Slot>,
    /// The slowest link between two of its devices.
    pub(crate) inside: Link,
    /// Between devices by their indices, the smaller one first; empty where all links are alike.
    pub(crate) unlike: BTreeMap<(i32, i32), Link>,
    pub(crate) network: Link,
    pub(crate) rack: usize,
}

impl Node {
    pub(crate) fn devices(&self) -> usize {
        self.slots.iter().map(|slot| slot.devices.len()).sum()
    }
}

/// A device that layers are pinned to.
#[derive(Debug, Clone)]
pub(crate) struct Pinned {
    pub(crate) node: usize,
    pub(crate) class: usize,
    /// Of its node.
    pub(crate) index: i32,
    pub(crate) layers: Vec<usize>,
}

/// All devices of a question.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) classes: Vec<Class>,
    pub(crate) prices: Vec<Option<f64>>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) tiers: Option<[Link; 2]>,
    pub(crate) pins: Vec<Pinned>,
    /// Groups stand in the order given.
    pub(crate) is_cluster: bool,
}

/// A device in the order of a pipeline: its node and class, and which of them it is, which says something only where the node's
/// links are unlike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) node: usize,
    pub(crate) class: usize,
    pub(crate) index: i32,
}

impl Places {
    pub(crate) fn of(scene: &Scene, question: &Question) -> Self {
        let mut classes: Vec<Class> = Vec::new();
        let mut class = |kind: usize, capacity: u64| {
            let own = Class { kind, capacity };
            let known = classes.iter().position(|class| *class == own);
            known.unwrap_or_else(|| {
                classes.push(own);
                classes.len() - 1
            })
        };
        let (nodes, tiers): (Vec<Node>, _) = match &scene.fleet {
            Fleet::Groups(groups) => {
                let mut slots: Vec<Slot> = Vec::new();
                let mut position = 0;
                for group in groups {
                    let class = class(group.kind, group.capacity);
                    let own = (position..position + group.count as i32).map(|index| (String::new(), index));
                    position += group.count as i32;
                    match slots.last_mut().filter(|slot| slot.class == class) {
                        Some(slot) => slot.devices.extend(own),
                        None => slots.push(Slot { class, devices: own.collect() }),
                    }
                }
                let node =
                    Node { slots, inside: ASSUMED, unlike: BTreeMap::new(), network: ASSUMED, rack: 0 };
                (vec![node], None)
            }
            Fleet::Cluster(cluster) => {
                let is_left = |name: &str, index: u32| {
                    let device = format!("{name}/{index}");
                    !question.excluded.iter().any(|excluded| *excluded == name || *excluded == device)
                };
                let node = |node: &crate::certificates::scene::Node| {
                    let left = (0..node.devices).filter(|&index| is_left(&node.name, index));
                    let devices: Vec<(String, i32)> =
                        left.map(|index| (node.name.clone(), index as i32)).collect();
                    let class = class(node.kind, cluster.capacities[node.kind]);
                    let links = links(node, &devices);
                    let inside = links.values().copied().reduce(Link::slower).unwrap_or(node.inside);
                    let are_alike = links.values().all(|link| *link == inside);
                    Node {
                        slots: vec![Slot { class, devices }],
                        inside,
                        unlike: if are_alike { BTreeMap::new() } else { links },
                        network: node.network,
                        rack: node.rack,
                    }
                };
                let nodes = cluster.nodes.iter().map(node).filter(|node| node.devices() > 0).collect();
                (nodes, cluster.tiers)
            }
        };
        let price = |class: &Class| {
            let name = &scene.kinds[class.kind].name;
            let named = question.prices.iter().find(|(kind, _)| kind == name).map(|(_, price)| *price);
            named.or(match &scene.fleet {
                Fleet::Cluster(cluster) => cluster.prices[class.kind],
                Fleet::Groups(_) => None,
            })
        };
        let prices = classes.iter().map(price).collect();
        let mut places = Self {
            classes,
            prices,
            nodes,
            tiers,
            pins: Vec::new(),
            is_cluster: matches!(scene.fleet, Fleet::Cluster(_)),
        };
        let mut pins: BTreeMap<(String, i32), Vec<usize>> = BTreeMap::new();
        for (layer, device) in &question.pins {
            pins.entry(name_of(device)).or_default().push(*layer);
        }
        for (device, layers) in pins {
            if let Some((node, class)) = places.find(&device) {
                places.pins.push(Pinned { node, class, index: device.1, layers });
            }
        }
        places
    }

    /// Node and class of a device.
    pub(crate) fn find(&self, device: &(String, i32)) -> Option<(usize, usize)> {
        self.nodes.iter().enumerate().find_map(|(index, node)| {
            let slot = node.slots.iter().find(|slot| slot.devices.contains(device))?;
            Some((index, slot.class))
        })
    }

    /// The link between two different nodes.
    fn between(&self, one: usize, other: usize) -> Link {
        let (one, other) = (&self.nodes[one], &self.nodes[other]);
        let own = one.network.slower(other.network);
        match self.tiers {
            Some([rack, _]) if one.rack == other.rack => own.slower(rack),
            Some([_, spine]) => own.slower(spine),
            None => own,
        }
    }

    /// The link over which what a stage makes comes to the next one.
    pub(crate) fn entry(&self, from: Device, to: Device) -> Link {
        if from.node == to.node { self.nodes[to.node].inside } else { self.between(from.node, to.node) }
    }

    /// The slowest link around a stage's nodes; that inside where it has one.
    pub(crate) fn around(&self, devices: &[Device]) -> Link {
        let mut nodes: Vec<usize> = devices.iter().map(|device| device.node).collect();
        nodes.dedup();
        if let [only] = nodes.as_slice() {
            return self.nodes[*only].inside;
        }
        let mut pairs: Vec<(usize, usize)> = nodes.windows(2).map(|pair| (pair[0], pair[1])).collect();
        pairs.push((nodes[nodes.len() - 1], nodes[0]));
        let links = pairs.into_iter().map(|(one, other)| self.between(one, other));
        links.reduce(Link::slower).expect("a ring of nodes has links")
    }

    /// How many of a stage's rings, one for each shard, share the link of a node to the others: those that have members
    /// on it and elsewhere, on the node that has most of them.
    pub(crate) fn rings_at_once(&self, devices: &[Device], tensor: usize) -> usize {
        devices.iter().map(|device| rings_through(device.node, devices, tensor)).max().unwrap_or(1).max(1)
    }

    /// How many rings of other stages pass through the nodes of a stage at once, through the one with most of them: at
    /// the end of an iteration all stages sum their gradients.
    pub(crate) fn rings_beside(&self, devices: &[Device], others: &[(&[Device], usize)]) -> usize {
        let beside = |device: &Device| {
            others.iter().map(|(devices, tensor)| rings_through(device.node, devices, *tensor)).sum()
        };
        devices.iter().map(beside).max().unwrap_or(0)
    }

    /// Between two devices of a ring: within a node the slowest that there is.
    fn link(&self, one: Device, other: Device) -> Link {
        if one.node == other.node { self.nodes[one.node].inside } else { self.between(one.node, other.node) }
    }

    /// Between two devices that send each other something.
    fn way(&self, one: Device, other: Device) -> Link {
        let pair = (one.index.min(other.index), one.index.max(other.index));
        let unlike = (one.node == other.node).then(|| self.nodes[one.node].unlike.get(&pair)).flatten();
        unlike.copied().unwrap_or_else(|| self.link(one, other))
    }

    /// Whether two stages are on one node whose links are unlike, and nowhere else.
    pub(crate) fn are_unlike(&self, before: &[Device], after: &[Device]) -> bool {
        let node = before[0].node;
        let is_here = |device: &Device| device.node == node;
        !self.nodes[node].unlike.is_empty() && before.iter().all(is_here) && after.iter().all(is_here)
    }

    /// The slowest link of the rings that each shard's replicas make, rank by rank.
    pub(crate) fn rings(&self, devices: &[Device], tensor: usize) -> Link {
        let ring =
            |shard: usize| devices.iter().skip(shard).step_by(tensor).copied().collect::<Vec<Device>>();
        let links = (0..tensor).map(ring).filter(|ring| ring.len() > 1).flat_map(|ring| {
            let next = |index: usize| ring[(index + 1) % ring.len()];
            (0..ring.len()).map(|index| self.link(ring[index], next(index))).collect::<Vec<Link>>()
        });
        links.reduce(Link::slower).unwrap_or(self.nodes[devices[0].node].inside)
    }

    /// The slowest link between the ranks of two stages and their counterparts.
    pub(crate) fn counterparts(&self, before: &[Device], after: &[Device]) -> Link {
        let most = before.len().max(after.len());
        let of = |devices: &[Device], rank: usize| devices[rank * devices.len() / most];
        let links = (0..most).map(|rank| self.way(of(before, rank), of(after, rank)));
        links.reduce(Link::slower).expect("stages have devices")
    }

    /// Whether a stage may take these devices, which follow each other.
    pub(crate) fn may_take(&self, spanning: Spanning, devices: &[Device]) -> bool {
        let is_one = devices.iter().all(|device| device.node == devices[0].node);
        is_one
            || match spanning {
                Spanning::Never => false,
                Spanning::Anywhere => true,
                Spanning::WholeNodes => devices.iter().all(|device| {
                    let own = devices.iter().filter(|other| other.node == device.node).count();
                    own == self.nodes[device.node].devices()
                }),
            }
    }

    /// Whether each pinned device is of the stage that has its layers. Like devices of a node may change places, so a
    /// stage needs as many as are pinned to it; where links tell them apart, the very ones. `stage_of` says which stage a layer
    /// is in.
    pub(crate) fn keeps_pins(&self, stage_of: impl Fn(usize) -> usize, stages: &[&[Device]]) -> bool {
        let mut wanted: BTreeMap<(usize, usize, usize), usize> = BTreeMap::new();
        for pin in &self.pins {
            let stage = stage_of(pin.layers[0]);
            if pin.layers.iter().any(|&layer| stage_of(layer) != stage) {
                return false;
            }
            let is_it = |device: &Device| (device.node, device.index) == (pin.node, pin.index);
            if !self.nodes[pin.node].unlike.is_empty() && !stages[stage].iter().any(is_it) {
                return false;
            }
            *wanted.entry((stage, pin.node, pin.class)).or_default() += 1;
        }
        wanted.into_iter().all(|((stage, node, class), count)| {
            stages[stage].iter().filter(|device| (device.node, device.class) == (node, class)).count()
                >= count
        })
    }
}

/// Between each two of these devices of a node.
fn links(node: &crate::certificates::scene::Node, devices: &[(String, i32)]) -> BTreeMap<(i32, i32), Link> {
    let indices = || devices.iter().map(|(_, index)| *index);
    let pairs = indices().flat_map(|b| indices().filter(move |a| *a < b).map(move |a| (a, b)));
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

/// How many of a stage's rings have members on a node and elsewhere.
fn rings_through(node: usize, devices: &[Device], tensor: usize) -> usize {
    let is_on = |shard: usize, is_wanted: &dyn Fn(usize) -> bool| {
        devices.iter().skip(shard).step_by(tensor).any(|device| is_wanted(device.node))
    };
    let is_through = |&shard: &usize| is_on(shard, &|own| own == node) && is_on(shard, &|own| own != node);
    (0..tensor).filter(is_through).count()
}

impl Places {
    /// Every order in which a pipeline may take devices, but for those that nothing tells apart.
    pub(crate) fn routes(&self, asked: &Asked) -> Vec<Vec<Device>> {
        let mut routes = Vec::new();
        let mut seen = BTreeSet::new();
        let mut taken: Vec<(usize, Vec<usize>)> = Vec::new();
        self.extend(asked, &mut taken, &mut routes, &mut seen);
        routes
    }

    fn extend(
        &self,
        asked: &Asked,
        taken: &mut Vec<(usize, Vec<usize>)>,
        routes: &mut Vec<Vec<Device>>,
        seen: &mut BTreeSet<Vec<(usize, Vec<usize>)>>,
    ) {
        let is_whole = taken.len() == self.nodes.len();
        if !taken.is_empty() && (asked.may_idle || is_whole) {
            let counts: BTreeSet<usize> = taken.iter().map(|(_, slots)| slots.iter().sum()).collect();
            let is_even = counts.len() == 1 || !asked.rules.is_some_and(|rules| rules.is_even);
            let signature =
                taken.iter().map(|(node, slots)| (self.first_like(*node), slots.clone())).collect();
            if is_even && seen.insert(signature) {
                let mut all: Vec<Vec<Device>> = vec![Vec::new()];
                for (node, slots) in taken.iter() {
                    let own = &self.nodes[*node];
                    for (slot, &count) in own.slots.iter().zip(slots) {
                        let indices: Vec<i32> = slot.devices.iter().map(|(_, index)| *index).collect();
                        let orders = if own.unlike.is_empty() {
                            vec![indices[..count].to_vec()]
                        } else {
                            orders(&indices, count)
                        };
                        let with = |(route, order): (&Vec<Device>, &Vec<i32>)| {
                            let device = |&index| Device { node: *node, class: slot.class, index };
                            route.iter().copied().chain(order.iter().map(device)).collect()
                        };
                        let both =
                            all.iter().flat_map(|route| orders.iter().map(move |order| (route, order)));
                        all = both.map(with).collect();
                    }
                }
                routes.extend(all);
            }
        }
        for node in 0..self.nodes.len() {
            if taken.iter().any(|(other, _)| *other == node) {
                continue;
            }
            let all: Vec<usize> = self.nodes[node].slots.iter().map(|slot| slot.devices.len()).collect();
            for counts in if asked.may_idle { products(&all) } else { vec![all] } {
                if counts.iter().sum::<usize>() > 0 {
                    taken.push((node, counts));
                    self.extend(asked, taken, routes, seen);
                    taken.pop();
                }
            }
        }
    }

    /// The first node that nothing tells from this one.
    fn first_like(&self, node: usize) -> usize {
        let is_pinned = |node: usize| self.pins.iter().any(|pin| pin.node == node);
        if is_pinned(node) {
            return node;
        }
        let key = |node: usize| {
            let own = &self.nodes[node];
            let slots: Vec<(usize, usize)> =
                own.slots.iter().map(|slot| (slot.class, slot.devices.len())).collect();
            (slots, own.inside, own.unlike.clone(), own.network, self.tiers.map(|_| own.rack))
        };
        (0..node).find(|&other| !is_pinned(other) && key(other) == key(node)).unwrap_or(node)
    }
}

/// Every choice of so many of these, in every order.
fn orders(all: &[i32], count: usize) -> Vec<Vec<i32>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let beginning = |first: &i32| {
        let others: Vec<i32> = all.iter().copied().filter(|other| other != first).collect();
        let behind = |order: Vec<i32>| [&[*first][..], &order].concat();
        orders(&others, count - 1).into_iter().map(behind).collect::<Vec<_>>()
    };
    all.iter().flat_map(beginning).collect()
}

/// All lists of numbers up to these.
fn products(most: &[usize]) -> Vec<Vec<usize>> {
    most.iter().fold(vec![Vec::new()], |lists, &most| {
        let longer = |list: &Vec<usize>| {
            (0..=most)
                .map(|count| {
                    let mut longer = list.clone();
                    longer.push(count);
                    longer
                })
                .collect::<Vec<_>>()
        };
        lists.iter().flat_map(longer).collect()
    })
}
