//! Devices, and the links between them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::words::Spanning;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Link {
    pub bytes_per_second: f64,
    pub latency_seconds: f64,
}

impl Link {
    /// The worse of both in either respect.
    #[must_use]
    pub fn slower(self, other: Self) -> Self {
        Self {
            bytes_per_second: self.bytes_per_second.min(other.bytes_per_second),
            latency_seconds: self.latency_seconds.max(other.latency_seconds),
        }
    }
}

/// Devices that nothing tells apart: kind and capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    pub kind: usize,
    pub capacity: u64,
}

/// Like devices that stand side by side in a node.
#[derive(Debug, Clone)]
pub struct Slot {
    pub class: usize,
    /// Their numbers in the node.
    pub indices: Vec<i32>,
}

#[derive(Debug, Clone)]
pub struct Node {
    pub name: String,
    pub slots: Vec<Slot>,
    /// How many devices it has if none is excluded.
    pub whole: usize,
    /// The slowest link between two of its devices.
    pub inside: Link,
    /// Between devices by their indices, the smaller one first; empty where all links are alike.
    pub unlike: BTreeMap<(i32, i32), Link>,
    /// To other nodes, as a ring of devices has it, and as one transfer between two devices does.
    pub network: Link,
    pub transfer: Link,
    pub rack: usize,
}

impl Node {
    pub fn devices(&self) -> usize {
        self.slots.iter().map(|slot| slot.indices.len()).sum()
    }
}

/// A device that layers are pinned to.
#[derive(Debug, Clone)]
pub struct Pinned {
    pub device: Device,
    pub layers: Vec<usize>,
}

/// A device in the order of a pipeline: its node and slot, and which of them it is, which says something only where the node's
/// links are unlike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    pub node: usize,
    pub slot: usize,
    pub index: i32,
}

/// All devices that a plan may be on.
#[derive(Debug, Clone)]
pub struct Fleet {
    pub classes: Vec<Class>,
    /// Hourly prices, by class.
    pub prices: Vec<Option<f64>>,
    pub nodes: Vec<Node>,
    /// Between nodes of one rack, and of different ones; none where the nodes' own networks say it all.
    pub tiers: Option<[Link; 2]>,
    /// Nodes are taken in the order given.
    pub keeps_order: bool,
    pub pins: Vec<Pinned>,
}

impl Fleet {
    pub fn devices(&self) -> usize {
        self.nodes.iter().map(Node::devices).sum()
    }

    /// The device of this number in a node.
    pub fn find(&self, node: &str, index: i32) -> Option<Device> {
        let of_node = |(number, own): (usize, &Node)| {
            let slot = own.slots.iter().position(|slot| slot.indices.contains(&index))?;
            Some(Device { node: number, slot, index })
        };
        self.nodes.iter().enumerate().filter(|(_, own)| own.name == node).find_map(of_node)
    }

    /// Pins a layer to a device.
    pub fn pin(&mut self, layer: usize, device: Device) {
        match self.pins.iter_mut().find(|pin| pin.device == device) {
            Some(pin) => pin.layers.push(layer),
            None => self.pins.push(Pinned { device, layers: vec![layer] }),
        }
    }

    pub fn class(&self, device: Device) -> Class {
        self.classes[self.nodes[device.node].slots[device.slot].class]
    }

    /// What these devices cost an hour.
    pub fn price(&self, devices: &[Device]) -> Option<f64> {
        let class = |device: &Device| self.nodes[device.node].slots[device.slot].class;
        devices.iter().map(|device| self.prices[class(device)]).sum()
    }

    /// The link between two different nodes.
    fn between(&self, one: usize, other: usize, own: fn(&Node) -> Link) -> Link {
        let (one, other) = (&self.nodes[one], &self.nodes[other]);
        let own = own(one).slower(own(other));
        match self.tiers {
            Some([rack, _]) if one.rack == other.rack => own.slower(rack),
            Some([_, spine]) => own.slower(spine),
            None => own,
        }
    }

    /// The slowest link within the nodes of these devices.
    pub fn inside(&self, devices: &[Device]) -> Link {
        let links = devices.iter().map(|device| self.nodes[device.node].inside);
        links.reduce(Link::slower).expect("there are devices")
    }

    /// The slowest link around a stage's nodes; that inside where it has one.
    pub fn around(&self, devices: &[Device]) -> Link {
        let mut nodes: Vec<usize> = devices.iter().map(|device| device.node).collect();
        nodes.dedup();
        if let [only] = nodes.as_slice() {
            return self.nodes[*only].inside;
        }
        let mut pairs: Vec<(usize, usize)> = nodes.windows(2).map(|pair| (pair[0], pair[1])).collect();
        pairs.push((nodes[nodes.len() - 1], nodes[0]));
        let links = pairs.into_iter().map(|(one, other)| self.between(one, other, |node| node.network));
        links.reduce(Link::slower).expect("a ring of nodes has links")
    }

    /// Between two devices of a ring: within a node the slowest that there is.
    fn link(&self, one: Device, other: Device, own: fn(&Node) -> Link) -> Link {
        if one.node == other.node {
            self.nodes[one.node].inside
        } else {
            self.between(one.node, other.node, own)
        }
    }

    /// Between two devices that send each other something.
    fn transfer(&self, one: Device, other: Device) -> Link {
        let pair = (one.index.min(other.index), one.index.max(other.index));
        let unlike = (one.node == other.node).then(|| self.nodes[one.node].unlike.get(&pair)).flatten();
        unlike.copied().unwrap_or_else(|| self.link(one, other, |node| node.transfer))
    }

    /// The link over which one stage sends to the next one: between the last and the first device; where both stages are on one node
    /// whose links are unlike, or devices stand in the order of ranks, the slowest one between a rank and its counterpart.
    pub fn entry(&self, before: &[Device], after: &[Device], by_ranks: bool) -> Link {
        let node = before[0].node;
        let is_here = |device: &Device| device.node == node;
        let is_inside = before.iter().chain(after).all(is_here);
        if by_ranks || is_inside && !self.nodes[node].unlike.is_empty() {
            let most = before.len().max(after.len());
            let own = |devices: &[Device], rank: usize| devices[rank * devices.len() / most];
            let links = (0..most).map(|rank| self.transfer(own(before, rank), own(after, rank)));
            return links.reduce(Link::slower).expect("stages have devices");
        }
        self.link(before[before.len() - 1], after[0], |node| node.transfer)
    }

    /// The slowest link of the rings that each shard's replicas make, rank by rank.
    pub fn rings(&self, devices: &[Device], tensor: usize) -> Link {
        let links = rings(devices, tensor).into_iter().filter(|ring| ring.len() > 1).flat_map(|ring| {
            let next = |index: usize| ring[(index + 1) % ring.len()];
            let link = |index: usize| self.link(ring[index], next(index), |node| node.network);
            (0..ring.len()).map(link).collect::<Vec<Link>>()
        });
        links.reduce(Link::slower).unwrap_or(self.nodes[devices[0].node].inside)
    }

    /// Whether a stage may take these devices, which follow each other.
    pub fn may_take(&self, spanning: Spanning, devices: &[Device]) -> bool {
        let is_one = devices.iter().all(|device| device.node == devices[0].node);
        is_one
            || match spanning {
                Spanning::Never => false,
                Spanning::Anywhere => true,
                Spanning::WholeNodes => devices.iter().all(|device| {
                    let own = devices.iter().filter(|other| other.node == device.node).count();
                    own == self.nodes[device.node].whole
                }),
            }
    }

    /// Whether each pinned device is of the stage that has its layers. Like devices of a node may change places, so a
    /// stage needs as many as are pinned to it; where links tell them apart, the very ones. `stage_of` says which stage a layer
    /// is in.
    pub fn keeps_pins(&self, stage_of: impl Fn(usize) -> usize, stages: &[&[Device]]) -> bool {
        let mut wanted: BTreeMap<(usize, usize, usize), usize> = BTreeMap::new();
        for Pinned { device, layers } in &self.pins {
            let stage = stage_of(layers[0]);
            if layers.iter().any(|&layer| stage_of(layer) != stage) {
                return false;
            }
            if !self.nodes[device.node].unlike.is_empty() && !stages[stage].contains(device) {
                return false;
            }
            *wanted.entry((stage, device.node, device.slot)).or_default() += 1;
        }
        wanted.into_iter().all(|((stage, node, slot), count)| {
            stages[stage].iter().filter(|device| (device.node, device.slot) == (node, slot)).count() >= count
        })
    }
}

/// The replicas of each shard of a stage.
pub fn rings(devices: &[Device], tensor: usize) -> Vec<Vec<Device>> {
    (0..tensor).map(|shard| devices.iter().skip(shard).step_by(tensor).copied().collect()).collect()
}

/// How many of these groups have members on a node and elsewhere.
pub fn groups_through(node: usize, groups: &[Vec<Device>]) -> usize {
    let is_through = |group: &&Vec<Device>| {
        group.iter().any(|device| device.node == node) && group.iter().any(|device| device.node != node)
    };
    groups.iter().filter(is_through).count()
}

/// How many of a stage's groups share the link of a node to the others, on the node that has most of them.
pub fn groups_at_once(devices: &[Device], groups: &[Vec<Device>]) -> usize {
    devices.iter().map(|device| groups_through(device.node, groups)).max().unwrap_or(1).max(1)
}
