//! Every way for a pipeline to go through devices.

use std::collections::BTreeSet;

use crate::certificates::asked::Asked;
use crate::certificates::places::{Device, Places};

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
