//! The devices of a search, node by node.

use std::collections::{HashMap, HashSet};

use loadmaster_proto::bytes::Bytes;
pub use loadmaster_proto::cluster::{Link, LinkOrigin};

use super::pairs::UnlikeLinks;

/// A kind of device.
#[derive(Debug, Clone, PartialEq)]
pub struct Kind {
    /// As profiles and workers name it.
    pub name: String,
    /// Bytes that training may use on each.
    pub capacity: Bytes,
    /// What one costs for an hour, in any currency; none where no one said.
    pub hourly_price: Option<f64>,
}

/// A set of kinds, by index: at most 32 kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KindSet(u32);

impl KindSet {
    /// Most kinds of a fleet.
    pub const MOST: usize = 32;

    /// One kind.
    pub fn one(kind: usize) -> Self {
        Self(1 << (kind % Self::MOST))
    }

    /// Both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether this kind is one of them.
    pub fn has(self, kind: usize) -> bool {
        self.0 & Self::one(kind).0 != 0
    }

    /// Indices of its kinds, ascending.
    pub fn kinds(self) -> impl Iterator<Item = usize> {
        // Prices ask for them with every stage.
        let mut left = self.0;
        std::iter::from_fn(move || {
            let kind = (left != 0).then(|| left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(kind)
        })
    }
}

/// A node: devices of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetNode {
    /// As the scheduler names it.
    pub name: String,
    /// Index of its devices' kind.
    pub kind: usize,
    /// How many.
    pub devices: u32,
    /// How many the whole node has: a part of a fleet may have fewer.
    pub whole: u32,
    /// Slowest link between two of its devices: what rings over them go over.
    pub inside: Link,
    /// Its link to the outside, all of it: rings over several nodes share it. A pair of nodes is no faster than the slower of
    /// the two.
    pub outside: Link,
    /// Its link to the outside as one transfer between two devices has it, where the node has several links and a transfer
    /// uses one of them; none where a transfer has all of `outside`.
    pub one_transfer: Option<Link>,
    /// Which domain of each tier it is in, nearest tier first (leaf switch, then spine, …).
    pub domains: Vec<u32>,
    /// The links between its devices where they are unlike.
    pub unlike: Option<UnlikeLinks>,
}

/// All devices, in the order in which a pipeline takes them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fleet {
    /// Kinds of devices, at most [`KindSet::MOST`].
    pub kinds: Vec<Kind>,
    /// The nodes in order: those of one domain stand together.
    pub nodes: Vec<FleetNode>,
    /// Link between two nodes that share a domain of this tier and none nearer, nearest first; none where the
    /// nodes' own links say it all.
    pub tiers: Vec<Option<Link>>,
    /// Whether all of it is one machine, whose devices of each kind are a node here: a stage may take devices of
    /// several of them then, and nothing between them is a network.
    pub is_one_node: bool,
    /// Whether a further node like the last one would be among its devices, and be one more of its nodes. Not where a
    /// choice of devices leaves further ones out, or took only one kind of devices of that node.
    pub may_grow: bool,
}

impl Fleet {
    /// Devices of all nodes.
    pub fn devices(&self) -> u32 {
        self.nodes.iter().map(|node| node.devices).sum()
    }

    /// The same kinds and links with other nodes.
    #[must_use]
    pub fn with_nodes(&self, nodes: Vec<FleetNode>) -> Self {
        // The nodes of a large fleet are not cloned only to be dropped.
        let &Self { ref kinds, nodes: _, ref tiers, is_one_node, may_grow } = self;
        Self { kinds: kinds.clone(), nodes, tiers: tiers.clone(), is_one_node, may_grow }
    }

    /// Index of the first device of each node.
    pub fn begins(&self) -> Vec<u32> {
        let begin = |next: &mut u32, node: &FleetNode| {
            let begin = *next;
            *next += node.devices;
            Some(begin)
        };
        self.nodes.iter().scan(0, begin).collect()
    }

    /// By node: the number of the machine that it is a part of, in the order of their first parts. Parts of a machine have one
    /// name.
    pub fn machines(&self) -> Vec<usize> {
        let mut known: HashMap<&str, usize> = HashMap::new();
        let number = |node| {
            let next = known.len();
            *known.entry(node).or_insert(next)
        };
        self.nodes.iter().map(|node| node.name.as_str()).map(number).collect()
    }

    /// Whether a machine is several nodes, because its devices are of several kinds.
    pub fn has_mixed_machines(&self) -> bool {
        !self.is_one_node && self.machines().into_iter().max().map_or(0, |last| last + 1) < self.nodes.len()
    }

    /// Whether all machines have equally many devices, as torchrun starts processes.
    pub fn is_even(&self) -> bool {
        let mut devices = vec![0; self.nodes.len()];
        for (machine, node) in self.machines().into_iter().zip(&self.nodes) {
            devices[machine] += node.devices;
        }
        let mut devices = devices.into_iter().filter(|&devices| devices > 0);
        let first = devices.next();
        self.is_one_node || devices.all(|other| Some(other) == first)
    }

    /// Whether ranks on these devices, in their order, are equally many on each machine that they take, machine by machine: the
    /// only order in which torchrun numbers them.
    pub fn is_machine_by_machine(&self, ranks: impl IntoIterator<Item = u32>) -> bool {
        let (machines, begins) = (self.machines(), self.begins());
        let machine = |device: u32| {
            let node = begins.partition_point(|&begin| begin <= device).checked_sub(1)?;
            machines.get(node).copied()
        };
        let ranks: Vec<Option<usize>> = ranks.into_iter().map(machine).collect();
        let runs: Vec<&[Option<usize>]> = ranks.chunk_by(|one, other| one == other).collect();
        let taken: HashSet<Option<usize>> = runs.iter().map(|run| run[0]).collect();
        self.is_one_node
            || taken.len() == runs.len() && runs.windows(2).all(|pair| pair[0].len() == pair[1].len())
    }

    /// Whether all nodes are alike: same kind, same number of devices, same links, and no tiers to tell apart.
    pub fn is_uniform(&self) -> bool {
        self.nodes.windows(2).all(|pair| pair[0].is_like(&pair[1]) && pair[0].domains == pair[1].domains)
    }

    /// The link between two different nodes, by index. Without a common domain the last tier counts.
    pub fn between(&self, one: usize, other: usize) -> Option<Link> {
        self.over_tiers(one, other, |node| node.outside)
    }

    /// The same as one transfer between two devices has it: an edge between stages.
    pub fn edge_between(&self, one: usize, other: usize) -> Option<Link> {
        self.over_tiers(one, other, FleetNode::transfer)
    }

    fn over_tiers(&self, one: usize, other: usize, own: impl Fn(&FleetNode) -> Link) -> Option<Link> {
        let (one, other) = (self.nodes.get(one)?, self.nodes.get(other)?);
        let mut common = one.domains.iter().zip(&other.domains).map(|(a, b)| a == b);
        let tier = common.position(|same| same).unwrap_or_else(|| self.tiers.len().saturating_sub(1));
        let own = own(one).slower(own(other));
        Some(self.tiers.get(tier).copied().flatten().map_or(own, |link| own.slower(link)))
    }

    /// Bytes that the smallest device of these kinds allows.
    pub fn capacity(&self, kinds: KindSet) -> Bytes {
        let capacities = kinds.kinds().filter_map(|kind| self.kinds.get(kind)).map(|kind| kind.capacity);
        capacities.min().unwrap_or(Bytes(0))
    }
}

impl FleetNode {
    /// A link that nothing crosses: inside a node of a single device, and outside one that is all there is.
    pub const ALONE: Link = Link {
        bytes_per_second: Link::MAX_BYTES_PER_SECOND,
        latency_seconds: 0.0,
        origin: LinkOrigin::Measured,
    };

    /// Its link to the outside as one transfer between two devices has it.
    pub fn transfer(&self) -> Link {
        self.one_transfer.unwrap_or(self.outside)
    }

    /// Whether it differs from another one by nothing but its name and place.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.kind, self.devices, self.whole, self.inside, self.outside)
            == (other.kind, other.devices, other.whole, other.inside, other.outside)
            && self.one_transfer == other.one_transfer
            && self.unlike == other.unlike
    }
}
