//! The subsets of a fleet that a plan may take.
//!
//! Nodes that are alike are one *class*: a subset says how many devices it takes of each node, and which of the nodes
//! of a class it takes how many of makes no difference. Nodes with a pinned device are like no other. Where nodes stay
//! in the order in which they were named, only neighbours are one class, and one device of the first with two of the
//! second is another subset than two with one. A stage on two devices of a node begins elsewhere in the pipeline.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashSet};

use super::subset::{Subset, pinned};
use crate::{Cuts, Fleet, FleetNode, Pin};

/// Most subsets of a fleet that are looked at one by one.
const MOST_SUBSETS: usize = 4_096;

/// Most classes of nodes that are distinguished.
const MOST_CLASSES: usize = 512;

/// Most nodes of all subsets together: each subset has nodes of its own.
const MOST_NODES: usize = 1 << 21;

/// Nodes that are equivalent.
#[derive(Debug)]
struct AlikeNodes {
    kind: usize,
    /// Indices of its nodes, ascending.
    nodes: Vec<usize>,
    devices: u32,
    /// Devices of each that every subset must have, because layers are pinned to them.
    least: u32,
}

/// The subsets of a fleet that a plan may take.
#[derive(Debug)]
pub struct Subsets<'a> {
    fleet: &'a Fleet,
    pins: &'a [Pin],
    classes: Vec<AlikeNodes>,
    /// Whether all nodes of a subset have equally many devices.
    is_even: bool,
    /// Whether that is so of machines, some of which are several nodes.
    is_even_by_machine: bool,
    /// Whether it makes a difference which node of a class has how many devices.
    is_in_turn: bool,
    /// Whether classes have unlike nodes, because there are too many.
    is_coarse: bool,
    most: usize,
}

/// Devices of each kind.
type KindCounts = Vec<u32>;

impl<'a> Subsets<'a> {
    /// The subsets that have every pinned device; of all nodes equally many where the framework starts processes so.
    /// Whether a pipeline goes through the nodes in the order in which they are named, or in any.
    pub fn of(fleet: &'a Fleet, cuts: &'a Cuts, is_even: bool, keeps_order: bool) -> Self {
        let has_tiers = fleet.tiers.iter().any(Option::is_some);
        let classes = Self::classes(fleet, cuts.pins(), keeps_order, |one, other| {
            one.is_like(other) && (!has_tiers || one.domains == other.domains)
        });
        let is_coarse = classes.is_none();
        let of_kind = || {
            Self::classes(fleet, cuts.pins(), false, |one, other| {
                (one.kind, one.devices) == (other.kind, other.devices)
            })
        };
        let most = MOST_SUBSETS.min(MOST_NODES / fleet.nodes.len().max(1)).max(2);
        let classes = classes.or_else(of_kind).unwrap_or_default();
        let is_even_by_machine = is_even && fleet.has_mixed_machines();
        let is_even = is_even && !fleet.is_one_node && !is_even_by_machine;
        let is_in_turn = keeps_order && !fleet.is_one_node;
        // Which nodes of a class are parts of one machine is not told apart.
        let is_coarse = is_coarse || is_even_by_machine;
        Self { fleet, pins: cuts.pins(), classes, is_even, is_even_by_machine, is_in_turn, is_coarse, most }
    }

    /// Nodes that are alike, of which only neighbours where that is asked for; none where there are too many classes
    /// of them.
    fn classes(
        fleet: &Fleet,
        pins: &[Pin],
        are_neighbours: bool,
        are_alike: impl Fn(&FleetNode, &FleetNode) -> bool,
    ) -> Option<Vec<AlikeNodes>> {
        let mut classes: Vec<AlikeNodes> = Vec::new();
        // Fleets list like nodes beside each other mostly, so the newest class is looked at first.
        let mut begin = 0;
        for (index, node) in fleet.nodes.iter().enumerate() {
            let own = begin..begin + node.devices;
            begin = own.end;
            let least = pinned(pins, &own).len() as u32;
            let is_like = |class: &AlikeNodes| {
                class.least == 0 && least == 0 && are_alike(&fleet.nodes[class.nodes[0]], node)
            };
            let begun = if are_neighbours { classes.len().saturating_sub(1) } else { 0 };
            match classes[begun..].iter().rposition(is_like).map(|class| begun + class) {
                Some(class) => classes[class].nodes.push(index),
                None if classes.len() == MOST_CLASSES => return None,
                None => classes.push(AlikeNodes {
                    kind: node.kind,
                    nodes: vec![index],
                    devices: node.devices,
                    least,
                }),
            }
        }
        Some(classes)
    }

    /// All of them, the largest first, and whether none is left out. Where they are too many, those of each number of
    /// devices that take the fewest nodes.
    pub fn all(&self) -> (Vec<Subset>, bool) {
        let total = self.fleet.devices();
        let (mut subsets, mut is_complete) = (Vec::new(), true);
        let mut by_size: Vec<KindCounts> = Vec::new();
        let mut sizes = self.sizes(Vec::new(), |counts| f64::from(counts.iter().sum::<u32>()));
        while let Some((_, counts)) = sizes.next_size() {
            by_size.push(counts);
            if by_size.len() > self.most {
                is_complete = false;
                break;
            }
        }
        if !is_complete {
            by_size.retain(|counts| counts.iter().sum::<u32>().is_power_of_two());
            by_size.push(self.totals());
        }
        let left = |subsets: &Vec<Subset>| self.most.saturating_sub(subsets.len());
        for (index, counts) in by_size.iter().enumerate().rev() {
            let fair = left(&subsets) / (index + 1);
            let (own, all) = self.with(counts, fair.max(1));
            is_complete &= all;
            subsets.extend(own);
        }
        subsets.retain(|subset| subset.devices() > 0 && subset.devices() <= total);
        (subsets, is_complete)
    }

    /// Devices of each kind.
    fn totals(&self) -> KindCounts {
        let mut totals = vec![0; self.fleet.kinds.len()];
        for class in &self.classes {
            totals[class.kind] += class.devices * class.nodes.len() as u32;
        }
        totals
    }

    /// Numbers of devices of each kind in the order of what they are worth, the least first. Of equals those with the
    /// fewest devices, and of these those that are fastest together, where a speed is known of each kind.
    pub fn sizes(
        &self,
        speeds: Vec<f64>,
        worth: impl Fn(&KindCounts) -> f64,
    ) -> Sizes<impl Fn(&KindCounts) -> f64> {
        let totals = self.totals();
        let mut least = vec![0; totals.len()];
        for class in &self.classes {
            least[class.kind] += class.least * class.nodes.len() as u32;
        }
        let mut sizes = Sizes { worth, speeds, totals, waiting: BinaryHeap::new(), known: HashSet::new() };
        sizes.push(least);
        sizes
    }

    /// The subsets with so many devices of each kind, at most `most` of them, those that take the fewest nodes
    /// first; and whether none is left out.
    pub fn with(&self, counts: &KindCounts, most: usize) -> (Vec<Subset>, bool) {
        let mut filling = SubsetsInTheMaking {
            subsets: self,
            left: counts.clone(),
            taken: vec![0; self.fleet.nodes.len()],
            found: Vec::new(),
            most,
            is_complete: !self.is_coarse,
        };
        let each: Vec<u32> = if self.is_even {
            let largest = self.classes.iter().map(|class| class.devices).max().unwrap_or(0);
            (1..=largest).rev().collect()
        } else {
            vec![0]
        };
        for each in each {
            filling.fill(0, 0, u32::MAX, each);
        }
        (filling.found, filling.is_complete)
    }
}

/// Numbers of devices of each kind, the least worth first.
#[derive(Debug)]
pub struct Sizes<F> {
    worth: F,
    speeds: Vec<f64>,
    totals: KindCounts,
    waiting: BinaryHeap<Size>,
    known: HashSet<KindCounts>,
}

/// A size that waits for its turn.
#[derive(Debug, PartialEq)]
struct Size {
    worth: f64,
    speed: f64,
    counts: KindCounts,
}

impl Eq for Size {}

impl PartialOrd for Size {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The least worth is the greatest, for a heap; then the fewest devices, and the fastest of these.
impl Ord for Size {
    fn cmp(&self, other: &Self) -> Ordering {
        let devices = |size: &Self| size.counts.iter().sum::<u32>();
        let worth = other.worth.total_cmp(&self.worth).then(devices(other).cmp(&devices(self)));
        let speed = worth.then(self.speed.total_cmp(&other.speed));
        speed.then_with(|| self.counts.cmp(&other.counts))
    }
}

impl<F: Fn(&KindCounts) -> f64> Sizes<F> {
    fn push(&mut self, counts: KindCounts) {
        if self.known.insert(counts.clone()) {
            let speed =
                counts.iter().zip(&self.speeds).map(|(&devices, speed)| f64::from(devices) * speed).sum();
            self.waiting.push(Size { worth: (self.worth)(&counts), speed, counts });
        }
    }

    /// The next one with what it is worth; never no devices at all.
    pub fn next_size(&mut self) -> Option<(f64, KindCounts)> {
        loop {
            let Size { worth, counts, .. } = self.waiting.pop()?;
            for kind in 0..counts.len() {
                if counts[kind] < self.totals[kind] {
                    let mut more = counts.clone();
                    more[kind] += 1;
                    self.push(more);
                }
            }
            // Sizes that were popped never come once more.
            if counts.iter().any(|&devices| devices > 0) {
                return Some((worth, counts));
            }
        }
    }
}

/// Parts in the making.
struct SubsetsInTheMaking<'a> {
    subsets: &'a Subsets<'a>,
    /// Devices of each kind that are not taken yet.
    left: KindCounts,
    taken: Vec<u32>,
    found: Vec<Subset>,
    most: usize,
    is_complete: bool,
}

impl SubsetsInTheMaking<'_> {
    /// Takes devices of the nodes of a class from one of them on, at most `most` of each, and then of the other
    /// classes. Where `each` is not 0, that many of every node that is taken.
    fn fill(&mut self, class: usize, node: usize, most: u32, each: u32) {
        if self.found.len() >= self.most {
            self.is_complete = false;
            return;
        }
        let Some(of) = self.subsets.classes.get(class) else {
            if self.left.iter().all(|&left| left == 0) {
                let subset = Subset::of(self.subsets.fleet, &self.taken, self.subsets.pins);
                if !self.subsets.is_even_by_machine || subset.is_even() {
                    self.found.push(subset);
                }
            }
            return;
        };
        let (left, nodes) = (self.left[of.kind], (of.nodes.len() - node) as u32);
        let largest = of.devices.min(left).min(most);
        let later = self.subsets.classes[class + 1..].iter().filter(|other| other.kind == of.kind);
        let later: u32 = later.map(|other| other.devices * other.nodes.len() as u32).sum();
        if later.saturating_add(largest.saturating_mul(nodes)) < left {
            return;
        }
        for taken in (of.least.max(1)..=largest).rev().filter(|&taken| each == 0 || taken == each) {
            // As many of each of the next nodes, and of those after them fewer; one after another, of each whatever there is.
            let (most_nodes, fewer) =
                if self.subsets.is_in_turn { (nodes.min(1), u32::MAX) } else { (nodes, taken - 1) };
            for count in (1..=most_nodes.min(left / taken)).rev() {
                self.take(class, node..node + count as usize, taken);
                self.fill(class, node + count as usize, fewer, each);
                self.take(class, node..node + count as usize, 0);
            }
        }
        if of.least == 0 || nodes == 0 {
            self.fill(class + 1, 0, u32::MAX, each);
        }
    }

    /// Takes so many devices of each of these nodes of a class.
    fn take(&mut self, class: usize, nodes: std::ops::Range<usize>, devices: u32) {
        let of = &self.subsets.classes[class];
        for &node in &of.nodes[nodes] {
            self.left[of.kind] = self.left[of.kind] + self.taken[node] - devices;
            self.taken[node] = devices;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::tests::fleets;

    fn fleet(nodes: &[(usize, u32)]) -> Fleet {
        let kind = |name: &str, price| Kind { hourly_price: Some(price), ..fleets::kind(name.to_owned(), 1) };
        let node = |(index, &(kind, devices)): (usize, &(usize, u32))| {
            fleets::node(format!("n{index}"), (kind, devices), (1, 1))
        };
        let nodes = nodes.iter().enumerate().map(node).collect();
        fleets::fleet(vec![kind("a", 2.0), kind("b", 3.0)], nodes)
    }

    fn taken(subset: &Subset) -> Vec<(usize, u32)> {
        subset.fleet.nodes.iter().map(|node| (node.kind, node.devices)).collect()
    }

    /// Every way to take devices of nodes, once where nodes are alike, never none at all: counted by hand.
    #[test]
    fn subsets_are_all_ways_to_take_devices_of_nodes() {
        let (fleet, cuts) = (fleet(&[(0, 2), (1, 1), (0, 2)]), Cuts::anywhere(1));
        let (subsets, is_complete) = Subsets::of(&fleet, &cuts, false, false).all();
        // {0,0} {1,0} {1,1} {2,0} {2,1} {2,2} of the two, with and without the other.
        assert_eq!((subsets.len(), is_complete), (6 * 2 - 1, true));
        assert!(subsets.iter().any(|subset| taken(subset) == [(0, 1), (0, 1)] && subset.origin == [0, 3]));
        assert_eq!(subsets[0].devices(), 5, "the largest first");
        let distinct: HashSet<Vec<u32>> = subsets.iter().map(|subset| subset.origin.clone()).collect();
        assert_eq!(distinct.len(), subsets.len());
    }

    /// Where nodes stay in the order in which they were named, subsets are distinguished by what follows what: each row of
    /// kinds and numbers that some choice of devices leaves is there, once for neighbours that are alike.
    #[test]
    fn nodes_that_stay_in_order_are_taken_in_turn() {
        for nodes in
            [&[(0, 2), (0, 3)][..], &[(0, 2), (0, 2), (1, 1)], &[(0, 1), (1, 2), (0, 2)], &[(0, 2); 4]]
        {
            let (fleet, cuts) = (fleet(nodes), Cuts::anywhere(1));
            let mut rows = vec![Vec::new()];
            for &(kind, devices) in nodes {
                let with = |row: &Vec<(usize, u32)>, taken: u32| {
                    row.iter().copied().chain((taken > 0).then_some((kind, taken))).collect()
                };
                rows = rows.iter().flat_map(|row| (0..=devices).map(|taken| with(row, taken))).collect();
            }
            let expected: HashSet<Vec<(usize, u32)>> =
                rows.into_iter().filter(|row| !row.is_empty()).collect();
            let (subsets, is_complete) = Subsets::of(&fleet, &cuts, false, true).all();
            let found: HashSet<Vec<(usize, u32)>> = subsets.iter().map(taken).collect();
            assert!(is_complete);
            assert_eq!(found, expected, "{nodes:?}");
            let is_uniform = nodes.iter().all(|node| *node == nodes[0]);
            assert!(!is_uniform || subsets.len() == found.len(), "{nodes:?}: some twice");
        }
    }

    /// A framework that starts equally many processes on every node gets no other subsets.
    #[test]
    fn even_subsets_have_equally_many_devices_on_each_node() {
        let (fleet, cuts) = (fleet(&[(0, 3), (0, 3)]), Cuts::anywhere(1));
        let (subsets, _) = Subsets::of(&fleet, &cuts, true, false).all();
        let mut all: Vec<Vec<u32>> = subsets
            .iter()
            .map(|subset| subset.fleet.nodes.iter().map(|node| node.devices).collect())
            .collect();
        all.sort();
        assert_eq!(all, [vec![1], vec![1, 1], vec![2], vec![2, 2], vec![3], vec![3, 3]]);
    }

    /// Of a large fleet the smallest subsets come at once, and those with the cheapest devices first.
    #[test]
    fn sizes_come_in_the_order_of_their_worth() {
        let nodes: Vec<(usize, u32)> = (0..3_000).map(|node| (node % 2, 8)).collect();
        let (fleet, cuts) = (fleet(&nodes), Cuts::anywhere(1));
        let subsets = Subsets::of(&fleet, &cuts, false, false);
        let mut sizes =
            subsets.sizes(Vec::new(), |counts| 2.0 * f64::from(counts[0]) + 3.0 * f64::from(counts[1]));
        let first: Vec<(f64, KindCounts)> = std::iter::from_fn(|| sizes.next_size()).take(5).collect();
        let worth: Vec<f64> = first.iter().map(|(worth, _)| *worth).collect();
        assert_eq!(worth, [2.0, 3.0, 4.0, 5.0, 6.0]);
        // Of as many devices that cost the same the fastest come first, whichever kind that is.
        for speeds in [[1.0, 2.0], [2.0, 1.0]] {
            let mut sizes = subsets.sizes(speeds.to_vec(), |counts| f64::from(counts.iter().sum::<u32>()));
            let faster = usize::from(speeds[1] > speeds[0]);
            for devices in 1..4_u32 {
                let own: Vec<KindCounts> = (0..=devices).map(|_| sizes.next_size().unwrap().1).collect();
                let of_faster: Vec<u32> = own.iter().map(|counts| counts[faster]).collect();
                assert_eq!(of_faster, (0..=devices).rev().collect::<Vec<_>>());
            }
        }
        let (two, is_complete) = subsets.with(&vec![2, 0], 10);
        assert!(is_complete);
        assert_eq!(two.iter().map(taken).collect::<Vec<_>>(), [vec![(0, 2)], vec![(0, 1), (0, 1)]]);
    }

    /// A pinned device is in every subset, whichever of its node's devices it is.
    #[test]
    fn subsets_have_the_pinned_devices() {
        let whole = fleet(&[(0, 4), (1, 2)]);
        let mut cuts = Cuts::anywhere(3);
        cuts.pin(Pin { layer: 1, device: 3 });
        let (subsets, _) = Subsets::of(&whole, &cuts, false, false).all();
        assert!(subsets.iter().all(|subset| subset.origin.contains(&3)));
        let one = subsets.iter().find(|subset| subset.devices() == 1).unwrap();
        assert_eq!(
            (&*one.origin, one.cuts(&cuts).unwrap().pins()),
            (&[3][..], &[Pin { layer: 1, device: 0 }][..])
        );
        assert!(Subset::of(&whole, &[0, 2], &[]).cuts(&cuts).is_none());
    }
}
