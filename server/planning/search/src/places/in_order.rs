//! Places on nodes in a given order: a place is the number of devices taken.

use std::ops::Range;

use super::super::topology::{Fleet, KindSet, Link};
use super::{Places, Spanning, Step};

/// A device of the sequence.
#[derive(Debug, Clone, Copy)]
struct SequencedDevice {
    /// Its node, as a position of the sequence.
    node: usize,
    /// Where in the sequence that node's devices begin.
    begin: u32,
}

/// Nodes in an order.
struct Sequence<'a> {
    fleet: &'a Fleet,
    order: &'a [usize],
    slots: Vec<SequencedDevice>,
    /// Where in the fleet each node's devices begin, by the node's index in the fleet.
    begins: Vec<u32>,
}

impl Places {
    /// Places for stages of these numbers of devices on nodes in the fleet's order.
    pub fn in_order(fleet: &Fleet, sizes: &[u32], spanning: Spanning) -> Self {
        let order: Vec<usize> = (0..fleet.nodes.len()).collect();
        Self::in_sequence(fleet, &order, sizes, spanning)
    }

    /// The places that stages of these numbers of devices come to one after another, on nodes in the fleet's order, wherever
    /// nodes end.
    pub fn along(fleet: &Fleet, stages: &[u32]) -> Self {
        let order: Vec<usize> = (0..fleet.nodes.len()).collect();
        let sequence = Sequence::of(fleet, &order);
        let total = sequence.slots.len() as u32;
        let mut places = Self::default();
        places.steps.resize(total as usize + 1, Vec::new());
        places.devices.resize(total as usize + 1, Vec::new());
        let mut from = 0;
        for &size in stages {
            if size == 0 || size > total - from {
                break;
            }
            if let Some(step) = sequence.step(&mut places, from, size, Spanning::Anywhere) {
                places.steps[from as usize].push(step);
                places.devices[from as usize].push(sequence.devices(from, size));
            }
            from += size;
        }
        places
    }

    /// Places for stages of these numbers of devices on the fleet's nodes in this order. Where the order leaves
    /// nodes out, no stage takes them.
    pub fn in_sequence(fleet: &Fleet, order: &[usize], sizes: &[u32], spanning: Spanning) -> Self {
        let mut places = Self::default();
        places.fill_in_sequence(fleet, order, sizes, spanning);
        places
    }

    /// Fills places that have nothing but links.
    pub(super) fn fill_in_sequence(
        &mut self,
        fleet: &Fleet,
        order: &[usize],
        sizes: &[u32],
        spanning: Spanning,
    ) {
        let sequence = Sequence::of(fleet, order);
        let total = sequence.slots.len() as u32;
        self.steps = vec![Vec::new(); total as usize + 1];
        self.devices = vec![Vec::new(); total as usize + 1];
        let mut is_reached = vec![false; total as usize + 1];
        is_reached[0] = true;
        for from in 0..total {
            if !is_reached[from as usize] {
                continue;
            }
            for &size in sizes.iter().filter(|&&size| size > 0 && size <= total - from) {
                if let Some(step) = sequence.step(self, from, size, spanning) {
                    is_reached[step.to as usize] = true;
                    self.steps[from as usize].push(step);
                    self.devices[from as usize].push(sequence.devices(from, size));
                }
            }
        }
    }
}

impl<'a> Sequence<'a> {
    fn of(fleet: &'a Fleet, order: &'a [usize]) -> Self {
        let mut slots = Vec::new();
        for (node, &index) in order.iter().enumerate() {
            let begin = slots.len() as u32;
            let devices = fleet.nodes.get(index).map_or(0, |node| node.devices);
            slots.extend(std::iter::repeat_n(SequencedDevice { node, begin }, devices as usize));
        }
        Self { fleet, order, slots, begins: fleet.begins() }
    }

    /// The fleet's devices at these positions, in as few ranges as there are.
    fn devices(&self, from: u32, size: u32) -> Vec<Range<u32>> {
        let mut ranges: Vec<Range<u32>> = Vec::new();
        let mut position = from;
        while let Some(slot) = self.slots.get(position as usize).filter(|_| position < from + size) {
            let index = self.order[slot.node];
            let end = (slot.begin + self.fleet.nodes[index].devices).min(from + size);
            let first = self.begins[index] + position - slot.begin;
            push_range(&mut ranges, first..first + end - position);
            position = end;
        }
        ranges
    }

    fn step(&self, places: &mut Places, from: u32, size: u32, spanning: Spanning) -> Option<Step> {
        let to = from + size;
        let &SequencedDevice { node: first, begin } = self.slots.get(from as usize)?;
        let &SequencedDevice { node: last, begin: last_begin } = self.slots.get(to as usize - 1)?;
        let node = |position: usize| self.fleet.nodes.get(*self.order.get(position)?);
        let end = last_begin + node(last)?.devices;
        let is_whole = from == begin && to == end;
        match spanning {
            _ if first == last => {}
            Spanning::Anywhere => {}
            Spanning::WholeNodes if is_whole && self.are_whole(first..=last) => {}
            Spanning::WholeNodes | Spanning::Never => return None,
        }
        let taken: Vec<usize> = self.order[first..=last].to_vec();
        let on_each = self.on_each(from, to);
        let before = from.checked_sub(1).and_then(|device| self.slots.get(device as usize));
        let entry = match before {
            Some(slot) if slot.node == first => Some(node(first)?.edge()),
            Some(slot) => Some(self.fleet.edge_between(*self.order.get(slot.node)?, taken[0])?),
            None => None,
        };
        step(places, self.fleet, &taken, on_each, is_whole, entry, to)
    }

    /// Whether no device of these nodes is left out of the fleet.
    fn are_whole(&self, positions: std::ops::RangeInclusive<usize>) -> bool {
        let nodes = self.order.get(positions).unwrap_or_default().iter();
        nodes.filter_map(|&node| self.fleet.nodes.get(node)).all(|node| node.devices == node.whole)
    }

    /// How many devices of each node there are from one position to another.
    fn on_each(&self, from: u32, to: u32) -> Vec<u32> {
        let slots = self.slots.get(from as usize..to as usize).unwrap_or_default();
        slots.chunk_by(|one, other| one.node == other.node).map(|on_it| on_it.len() as u32).collect()
    }
}

/// A step that takes devices of these nodes, which follow each other: so many of each.
pub(super) fn step(
    places: &mut Places,
    fleet: &Fleet,
    taken: &[usize],
    on_each: Vec<u32>,
    is_whole: bool,
    entry: Option<Link>,
    to: u32,
) -> Option<Step> {
    let size = on_each.iter().sum();
    let nodes = || taken.iter().filter_map(|&node| fleet.nodes.get(node));
    let inside = nodes().map(|node| node.inside).reduce(Link::slower)?;
    // A ring over several nodes also returns from the last to the first.
    let around = taken.windows(2).map(|pair| (pair[0], pair[1]));
    let around = around.chain((taken.len() > 1).then(|| (taken[0], taken[taken.len() - 1])));
    let across = around.filter_map(|(one, other)| fleet.between(one, other)).reduce(Link::slower);
    let devices = nodes().next()?.devices;
    let per_node = match taken.len() {
        1 => size,
        _ if is_whole && nodes().all(|node| node.devices == devices) => devices,
        _ => 0,
    };
    Some(Step {
        to,
        devices: size,
        kinds: nodes().map(|node| KindSet::one(node.kind)).reduce(KindSet::with)?,
        entry: places.intern(entry.unwrap_or(inside)),
        inside: places.intern(inside),
        across: places.intern(across.unwrap_or(inside)),
        per_node,
        split: if fleet.is_one_node { 0 } else { places.intern_split(on_each) },
        others: 0,
    })
}

/// Adds a range, to the last one where it follows it.
pub(super) fn push_range(ranges: &mut Vec<Range<u32>>, range: Range<u32>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::fleets::node;
    use crate::tests::instances::cases;

    fn fleet(nodes: &[(u32, u32)]) -> Fleet {
        let node = |(index, &(devices, speed)): (usize, &(u32, u32))| {
            node(format!("node{index}"), (0, devices), (100 + speed, speed))
        };
        Fleet { nodes: nodes.iter().enumerate().map(node).collect(), ..Fleet::default() }
    }

    proptest! {
        #![proptest_config(cases(200))]

        /// The way of a plan that is given is one of those that a search has, over the same links.
        #[test]
        fn a_given_way_is_one_that_is_searched(
            nodes in prop::collection::vec((1_u32..5, 1_u32..4), 1..5),
            sizes in prop::collection::vec(1_u32..6, 1..8),
        ) {
            let fleet = fleet(&nodes);
            let (along, all) = (Places::along(&fleet, &sizes), Places::in_order(&fleet, &sizes, Spanning::Anywhere));
            prop_assert_eq!(along.count(), all.count());
            let total = fleet.devices();
            let mut from = 0;
            for size in sizes {
                from += size;
                if from > total {
                    break;
                }
                let begin = from - size;
                let [own] = along.steps(begin) else { return Err(TestCaseError::fail("not one step")) };
                let (index, other) =
                    all.steps(begin).iter().enumerate().find(|(_, step)| step.devices == size).unwrap();
                prop_assert_eq!((own.to, own.kinds, own.per_node), (other.to, other.kinds, other.per_node));
                for (one, two) in [(own.entry, other.entry), (own.inside, other.inside), (own.across, other.across)] {
                    prop_assert_eq!(along.link(one), all.link(two));
                }
                for tensor in [1, 2, 4] {
                    prop_assert_eq!(along.data_rings(own, tensor), all.data_rings(other, tensor));
                    prop_assert_eq!(along.tensor_rings(own, tensor), all.tensor_rings(other, tensor));
                }
                prop_assert_eq!(along.devices(begin, 0), all.devices(begin, index));
            }
        }
    }
}
