//! Every order in which a pipeline may take devices, but for those that nothing tells apart.

use std::collections::BTreeSet;

use crate::choices::{arrangements, combinations};
use crate::fleet::{Device, Fleet};

/// Nodes, and how many devices of each of their slots.
type Taken = Vec<(usize, Vec<usize>)>;

impl Fleet {
    /// All devices, or where they may be idle any of them; where nodes are even, as many of each that is taken.
    pub fn routes(&self, may_idle: bool, is_even: bool) -> Vec<Vec<Device>> {
        let (mut routes, mut seen) = (Vec::new(), BTreeSet::new());
        self.extend((may_idle, is_even), &mut Vec::new(), &mut routes, &mut seen);
        routes
    }

    fn extend(
        &self,
        rules: (bool, bool),
        taken: &mut Taken,
        routes: &mut Vec<Vec<Device>>,
        seen: &mut BTreeSet<Taken>,
    ) {
        let (may_idle, is_even) = rules;
        if !taken.is_empty() && (may_idle || taken.len() == self.nodes.len()) {
            let counts: BTreeSet<usize> = taken.iter().map(|(_, slots)| slots.iter().sum()).collect();
            let signature =
                taken.iter().map(|(node, slots)| (self.first_like(*node), slots.clone())).collect();
            if (counts.len() == 1 || !is_even) && seen.insert(signature) {
                let orders: Vec<Vec<Vec<Device>>> =
                    taken.iter().flat_map(|(node, counts)| self.orders(*node, counts)).collect();
                routes.extend(combinations(&orders).into_iter().map(|parts| parts.concat()));
            }
        }
        let first = if self.keeps_order { taken.last().map_or(0, |last| last.0 + 1) } else { 0 };
        for node in first..self.nodes.len() {
            if taken.iter().any(|(other, _)| *other == node) {
                continue;
            }
            let all: Vec<usize> = self.nodes[node].slots.iter().map(|slot| slot.indices.len()).collect();
            let some: Vec<Vec<usize>> = all.iter().map(|&most| (0..=most).collect()).collect();
            for counts in if may_idle { combinations(&some) } else { vec![all] } {
                if counts.iter().sum::<usize>() > 0 {
                    taken.push((node, counts));
                    self.extend(rules, taken, routes, seen);
                    taken.pop();
                }
            }
        }
    }

    /// By slot of a node, every order of so many of its devices; one where links do not tell them apart.
    fn orders(&self, node: usize, counts: &[usize]) -> Vec<Vec<Vec<Device>>> {
        let own = &self.nodes[node];
        let of_slot = |(slot, &count): (usize, &usize)| {
            let device = |&index: &i32| Device { node, slot, index };
            let all: Vec<Device> = own.slots[slot].indices.iter().map(device).collect();
            if own.unlike.is_empty() { vec![all[..count].to_vec()] } else { arrangements(&all, count) }
        };
        counts.iter().enumerate().map(of_slot).collect()
    }

    /// The first node that nothing tells from this one.
    fn first_like(&self, node: usize) -> usize {
        let is_pinned = |node: usize| self.pins.iter().any(|pin| pin.device.node == node);
        if is_pinned(node) || self.keeps_order {
            return node;
        }
        let key = |node: usize| {
            let own = &self.nodes[node];
            let slots: Vec<(usize, usize)> =
                own.slots.iter().map(|slot| (slot.class, slot.indices.len())).collect();
            let links = (own.inside, own.unlike.clone(), own.network, own.transfer);
            (slots, own.whole, links, self.tiers.map(|_| own.rack))
        };
        (0..node).find(|&other| !is_pinned(other) && key(other) == key(node)).unwrap_or(node)
    }
}
