//! Links between the devices of one node where they differ: a hybrid cube mesh, or devices on two sockets.
//!
//! Links are different when measured bandwidths differ by more than 5 %, or latencies by more than a factor of 2: repeated
//! measurements of one link differ by less. A search places stages on nodes before it places them on devices, so it prices P2P
//! transfers within a node with one link:
//!
//! * the slowest of the node for plans: no plan is slower;
//! * the best of the node for bounds: no plan is faster.
//!
//! Plans are then placed on devices (`fleet::mapping`, and `find::mapped` in the crate `recommend`), and their transfers are
//! priced with the slowest pair that exchanges bytes. A plan is optimal once no plan with the best links remains that may be
//! faster. Rings of replicas and shards use the slowest link of the node in plans and in bounds.

use std::sync::Arc;

use super::topology::{Fleet, FleetNode, Link, LinkOrigin};

/// Links between each two devices of a node, which are not all as fast.
#[derive(Debug, Clone)]
pub struct UnlikeLinks {
    /// Of all devices of the node that there are.
    table: Arc<LinkTable>,
    /// Which of them a fleet has, ascending: of those that stages take some may be left out, and be idle.
    own: Vec<u32>,
    /// What a search prices an edge between any two of them with.
    edge: Link,
}

/// Links of all pairs. Measured ones are seldom alike, and a node may have many devices, so each is there once.
#[derive(Debug, PartialEq)]
struct LinkTable {
    devices: u32,
    links: Vec<Link>,
    /// By device and each before it: an index of `links`.
    between: Vec<u16>,
}

impl LinkTable {
    fn of(devices: u32, link: impl Fn(u32, u32) -> Link) -> Option<Self> {
        let (mut links, mut between): (Vec<Link>, Vec<u16>) = (Vec::new(), Vec::new());
        for (high, low) in (0..devices).flat_map(|high| (0..high).map(move |low| (high, low))) {
            let own = link(low, high);
            let known = links.iter().position(|known| *known == own).unwrap_or_else(|| {
                links.push(own);
                links.len() - 1
            });
            between.push(u16::try_from(known).ok()?);
        }
        Some(Self { devices, links, between })
    }

    fn link(&self, one: u32, other: u32) -> Option<Link> {
        let (low, high) = (one.min(other) as usize, one.max(other) as usize);
        if low == high || high >= self.devices as usize {
            return None;
        }
        let index = self.between.get(high * (high - 1) / 2 + low)?;
        self.links.get(usize::from(*index)).copied()
    }
}

impl UnlikeLinks {
    /// Those of so many devices; none where all of them are as fast, as far as that can be told, or too many are different.
    pub fn of(devices: u32, link: impl Fn(u32, u32) -> Link) -> Option<Self> {
        let table = LinkTable::of(devices, link)?;
        if is_as_fast(&table.links) {
            return None;
        }
        let edge = table.links.iter().copied().reduce(Link::slower)?;
        Some(Self { table: Arc::new(table), own: (0..devices).collect(), edge })
    }

    /// Shares what it knows with a node that has the same links.
    pub fn share(&mut self, other: &Self) {
        if self.table == other.table {
            self.table = Arc::clone(&other.table);
        }
    }

    /// Whether both are of nodes with the same links, known to be so.
    pub fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.table, &other.table)
    }

    /// How many devices the node has, those that are idle among them.
    pub fn devices(&self) -> u32 {
        self.table.devices
    }

    /// Which of them a fleet has.
    pub fn own(&self) -> &[u32] {
        &self.own
    }

    /// The link between two devices of the node, idle or not.
    pub fn between(&self, one: u32, other: u32) -> Option<Link> {
        self.table.link(one, other)
    }

    /// The slowest link over which a stage on the second of these devices gets its input from one on the first.
    pub fn entry(&self, before: &[u32], after: &[u32]) -> Option<Link> {
        let links = counterparts(before, after).map(|(from, to)| self.between(from, to));
        links.collect::<Option<Vec<Link>>>()?.into_iter().reduce(Link::slower)
    }

    /// The best of all of them in every respect: no edge takes less.
    pub fn fastest(&self) -> Link {
        self.table.links.iter().copied().reduce(Link::faster).unwrap_or(self.edge)
    }

    /// The worst of all of them in every respect: no edge takes more.
    pub fn slowest(&self) -> Link {
        self.table.links.iter().copied().reduce(Link::slower).unwrap_or(self.edge)
    }

    /// The same node, of which a fleet has these of its devices.
    #[must_use]
    pub fn with(&self, chosen: impl Iterator<Item = u32>) -> Self {
        let own = chosen.filter_map(|device| self.own.get(device as usize).copied()).collect();
        Self { own, ..self.clone() }
    }

    /// A node of the devices that a fleet has, and no others.
    #[must_use]
    pub fn alone(&self) -> Self {
        if self.own.len() == self.table.devices as usize {
            return self.clone();
        }
        let link = |one: u32, other: u32| {
            let [one, other] = [one, other].map(|device| self.own.get(device as usize).copied());
            one.zip(other).and_then(|(one, other)| self.between(one, other)).unwrap_or(self.edge)
        };
        let devices = u32::try_from(self.own.len()).unwrap_or(u32::MAX);
        // Those that are left may be linked alike, but not as slowly as the whole node says.
        let table = LinkTable::of(devices, link).map_or_else(|| Arc::clone(&self.table), Arc::new);
        Self { table, own: (0..devices).collect(), edge: self.edge }
    }
}

/// Measured bandwidths that are no further apart may be of the same link, measured once more.
const SAME_BANDWIDTH: f64 = 1.05;
/// The same of latencies, which are microseconds.
const SAME_LATENCY: f64 = 2.0;

/// Whether all of these are as fast: those that were measured, no further apart than one that is measured once more.
fn is_as_fast(links: &[Link]) -> bool {
    let speed = |link: &Link| (link.bytes_per_second, link.latency_seconds);
    if links.windows(2).all(|pair| speed(&pair[0]) == speed(&pair[1])) {
        return true;
    }
    let ends = |of: fn(&Link) -> f64| {
        let all = links.iter().map(of);
        all.fold((f64::INFINITY, 0.0_f64), |(least, most), one| (least.min(one), most.max(one)))
    };
    let (bandwidth, latency) = (ends(|link| link.bytes_per_second), ends(|link| link.latency_seconds));
    links.iter().all(|link| link.origin == LinkOrigin::Measured)
        && bandwidth.1 <= SAME_BANDWIDTH * bandwidth.0
        && latency.1 <= SAME_LATENCY * latency.0
}

/// Tables are mostly shared, and then not looked at.
impl PartialEq for UnlikeLinks {
    fn eq(&self, other: &Self) -> bool {
        let is_same = self.is_shared_with(other) || self.table == other.table;
        is_same && self.own == other.own && self.edge == other.edge
    }
}

impl FleetNode {
    /// What a search prices an edge between two stages on it with.
    pub fn edge(&self) -> Link {
        self.unlike.as_ref().map_or(self.inside, |unlike| unlike.edge)
    }

    /// The best link between two of its devices.
    pub fn fastest(&self) -> Link {
        self.unlike.as_ref().map_or(self.inside, |unlike| unlike.fastest())
    }

    /// The same node with these of its devices, ascending.
    #[must_use]
    pub fn taking(&self, chosen: &[u32]) -> Self {
        let unlike = self.unlike.as_ref().map(|unlike| unlike.with(chosen.iter().copied()));
        Self { devices: u32::try_from(chosen.len()).unwrap_or(u32::MAX), unlike, ..self.clone() }
    }

    /// The same node with so many of its first devices.
    #[must_use]
    pub fn first(&self, devices: u32) -> Self {
        let unlike = self.unlike.as_ref().map(|unlike| unlike.with(0..devices));
        Self { devices, unlike, ..self.clone() }
    }
}

impl Fleet {
    /// Whether the links between the devices of any node are unlike.
    pub fn has_unlike_links(&self) -> bool {
        self.nodes.iter().any(|node| node.unlike.is_some())
    }

    /// The same fleet, where edges between stages on one node go over the best of its links, whichever devices they are
    /// on: what bounds a plan there bounds it wherever its stages are. Rings go over the slowest link as ever.
    #[must_use]
    pub fn with_fastest_edges(&self) -> Self {
        let mut fleet = self.clone();
        for unlike in fleet.nodes.iter_mut().filter_map(|node| node.unlike.as_mut()) {
            unlike.edge = unlike.fastest();
        }
        fleet
    }
}

/// A node whose links are unlike, among all devices of a fleet.
#[derive(Debug, Clone, Copy)]
pub struct UnlikeNode<'a> {
    /// Which of the fleet's devices is its first one.
    pub begin: u32,
    pub links: &'a UnlikeLinks,
}

impl UnlikeNode<'_> {
    /// Which of its devices this is; none of another node.
    pub fn place(&self, device: u32) -> Option<u32> {
        device.checked_sub(self.begin).filter(|&place| place < self.links.devices())
    }
}

/// The nodes of a fleet whose links are unlike.
#[derive(Debug, Clone, Default)]
pub struct UnlikeNodes<'a> {
    /// In order of their devices.
    nodes: Vec<UnlikeNode<'a>>,
}

impl<'a> From<UnlikeNode<'a>> for UnlikeNodes<'a> {
    fn from(node: UnlikeNode<'a>) -> Self {
        Self { nodes: vec![node] }
    }
}

impl<'a> UnlikeNodes<'a> {
    /// Those of some devices of a fleet: `origin` says which they are.
    pub fn of(fleet: &'a Fleet, origin: impl Fn(u32) -> Option<u32>) -> Self {
        let mut next = 0;
        let node = |node: &'a FleetNode| {
            let first = next;
            next += node.devices;
            let links = node.unlike.as_ref()?;
            let begin = origin(first)?.checked_sub(*links.own().first()?)?;
            Some(UnlikeNode { begin, links })
        };
        let mut nodes: Vec<UnlikeNode<'a>> = fleet.nodes.iter().filter_map(node).collect();
        nodes.sort_by_key(|node| node.begin);
        Self { nodes }
    }

    /// Those of a whole fleet.
    pub fn of_all(fleet: &'a Fleet) -> Self {
        Self::of(fleet, Some)
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node that all of these devices are on, if its links are unlike.
    pub fn node(&self, devices: &[u32]) -> Option<UnlikeNode<'a>> {
        let &first = devices.first()?;
        let after = self.nodes.partition_point(|node| node.begin <= first);
        let node = *self.nodes.get(after.checked_sub(1)?)?;
        devices.iter().all(|&device| node.place(device).is_some()).then_some(node)
    }

    /// The nodes that some of these devices are on, and whose links are unlike.
    pub fn of_some(&self, devices: &[u32]) -> impl Iterator<Item = UnlikeNode<'a>> {
        let has_some = |node: &&UnlikeNode<'a>| devices.iter().any(|&device| node.place(device).is_some());
        self.nodes.iter().filter(has_some).copied()
    }

    /// The slowest link over which a stage on the second devices gets its input from one on the first: none unless both are on
    /// one of these nodes.
    pub fn entry(&self, before: &[u32], after: &[u32]) -> Option<Link> {
        let node = self.node(before)?;
        let places = |of: &[u32]| of.iter().map(|&device| node.place(device)).collect::<Option<Vec<u32>>>();
        node.links.entry(&places(before)?, &places(after)?)
    }
}

/// Who sends to whom between two stages, as ranks do it: each gets its input from its counterpart.
pub(super) fn counterparts<'a>(before: &'a [u32], after: &'a [u32]) -> impl Iterator<Item = (u32, u32)> + 'a {
    let most = if before.is_empty() || after.is_empty() { 0 } else { before.len().max(after.len()) };
    let of = move |of: &[u32], rank: usize| of.get(rank * of.len() / most).copied();
    (0..most).filter_map(move |rank| of(before, rank).zip(of(after, rank)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fleets::{self, link};

    /// As fast as both numbers together.
    fn sum(one: u32, other: u32) -> Link {
        link(1 + one + other)
    }

    fn node(devices: u32, unlike: Option<UnlikeLinks>) -> FleetNode {
        FleetNode { unlike, ..fleets::node("node".to_owned(), (0, devices), (2, 1)) }
    }

    #[test]
    fn links_are_kept_where_they_are_unlike() {
        assert!(UnlikeLinks::of(4, |_, _| link(3)).is_none());
        assert!(UnlikeLinks::of(2, sum).is_none(), "there is one pair");
        let measured = |one: u32, other: u32| Link {
            origin: if one + other == 1 { LinkOrigin::Measured } else { LinkOrigin::Given },
            ..link(3)
        };
        assert!(UnlikeLinks::of(3, measured).is_none(), "who says so makes them no faster");
        let links = UnlikeLinks::of(4, sum).unwrap();
        for (one, other) in (0..4).flat_map(|one| (0..4).map(move |other| (one, other))) {
            assert_eq!(links.between(one, other), (one != other).then(|| sum(one, other)));
        }
        assert_eq!((links.between(0, 4), links.edge, links.fastest()), (None, link(2), link(6)));
    }

    /// Who measures one link twice does not find another one; who writes numbers down means them.
    #[test]
    fn links_that_were_measured_nearly_as_fast_are_alike() {
        let nearly = |origin: LinkOrigin, bandwidth: f64, latency: f64| {
            UnlikeLinks::of(3, |one, other| match one + other {
                1 => Link { bytes_per_second: 1e9 * bandwidth, latency_seconds: 1e-6 * latency, origin },
                _ => Link { bytes_per_second: 1e9, latency_seconds: 1e-6, origin },
            })
        };
        assert!(nearly(LinkOrigin::Measured, 1.04, 1.9).is_none());
        assert!(nearly(LinkOrigin::Measured, 1.06, 1.0).is_some());
        assert!(nearly(LinkOrigin::Measured, 1.0, 2.1).is_some());
        assert!(nearly(LinkOrigin::Given, 1.04, 1.0).is_some());
    }

    /// Of a node some devices are known to be its third and its fourth, and the others are still there.
    #[test]
    fn some_devices_of_a_node_keep_their_links() {
        let whole = node(4, UnlikeLinks::of(4, sum));
        let some = whole.taking(&[2, 3]).taking(&[1]);
        let links = some.unlike.as_ref().unwrap();
        assert_eq!((some.devices, links.own(), links.devices()), (1, &[3][..], 4));
        assert_eq!(whole.first(2).unlike.unwrap().own(), [0, 1]);
        assert!(whole.is_like(&whole.clone()) && !whole.is_like(&whole.taking(&[0, 1, 2])));
        assert!(
            !whole.is_like(&node(4, None)) && !whole.is_like(&node(4, UnlikeLinks::of(4, |_, b| link(b))))
        );
        let three = whole.taking(&[0, 2, 3]).unlike.unwrap().alone();
        let links = [three.between(0, 1), three.between(0, 2), three.between(1, 2)];
        assert_eq!((three.devices(), links), (3, [sum(0, 2), sum(0, 3), sum(2, 3)].map(Some)));
        let two = whole.taking(&[0, 3]).unlike.unwrap().alone();
        assert_eq!((two.devices(), two.fastest()), (2, sum(0, 3)));
    }

    #[test]
    fn an_edge_goes_over_the_slowest_pair_of_counterparts() {
        let fleet =
            Fleet { nodes: vec![node(3, None), node(4, UnlikeLinks::of(4, sum))], ..Fleet::default() };
        let nodes = UnlikeNodes::of_all(&fleet);
        assert_eq!(nodes.entry(&[3], &[6]), Some(sum(0, 3)));
        assert_eq!(nodes.entry(&[3, 6], &[5]), Some(sum(0, 2)));
        assert_eq!(nodes.entry(&[4], &[6, 3]), Some(sum(0, 1)));
        assert_eq!(nodes.entry(&[3, 4], &[6, 5]), Some(sum(0, 3)));
        assert_eq!([nodes.entry(&[0], &[1]), nodes.entry(&[2], &[3]), nodes.entry(&[], &[3])], [None; 3]);
        let fastest = fleet.with_fastest_edges();
        let edges: Vec<Link> = fastest.nodes.iter().map(FleetNode::edge).collect();
        assert_eq!((edges, fleet.nodes[1].edge()), (vec![link(2), link(6)], link(2)));
    }
}
