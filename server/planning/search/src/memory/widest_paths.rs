//! The stages with which the fewest devices have the highest peak.
//!
//! There may be very many paths within the limit. How many devices on them reach it is counted without keeping
//! any stage; only those on paths with the fewest are written down.

use super::super::PlaceId;
use super::super::graph::Node;
use super::bits::Bits;
use super::classes::ClassGraph;
use super::costs::Costs;
use super::effort::{MemoryEffort, Stopped, Unfinished};
use super::reach::{Hop, Reachable};

/// A stage between two states, which are numbered so that every leg leads to a larger one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leg {
    pub(super) from: u32,
    pub(super) to: u32,
    /// Index of its arc.
    pub(super) arc: u32,
    pub(super) devices: u32,
    pub(super) cost: u64,
}

/// The stages of all paths that may still be best, by the state where they begin.
#[derive(Debug)]
pub(super) struct Legs {
    pub(super) list: Vec<Leg>,
    /// First layer of the stages that begin at each state.
    pub(super) layers: Vec<u32>,
    /// Place of each state.
    pub(super) places: Vec<PlaceId>,
    /// The states at which a path may begin.
    pub(super) starts: Vec<u32>,
}

/// No path.
const NEVER: u32 = u32::MAX;

/// The states within a limit, with how many devices have to reach it.
pub(super) struct Counted<'a> {
    graph: &'a ClassGraph,
    costs: &'a Costs,
    limit: u64,
    reach: Reachable,
    /// The states on paths within the limit, by node.
    met: Bits,
    /// The fewest devices that reach the limit from each state on.
    least: Vec<u32>,
    /// The fewest devices that reach it on a whole path.
    pub(super) at_limit: u32,
}

impl<'a> Counted<'a> {
    /// Counts on paths on which no stage costs more than `limit`.
    pub(super) fn of(
        graph: &'a ClassGraph,
        costs: &'a Costs,
        limit: u64,
        effort: &mut MemoryEffort<'_>,
    ) -> Result<Self, Unfinished> {
        let states = graph.nodes.len().saturating_mul(graph.layers + 1);
        if states > effort.limits.states_at_once {
            return Err(Unfinished::TooMany);
        }
        let reach = Reachable::of(graph, costs, limit, None, effort)?;
        let met = reach.met(graph, effort)?;
        let least = vec![NEVER; states];
        let mut counted = Self { graph, costs, limit, reach, met, least, at_limit: NEVER };
        counted.count(effort)?;
        let starts = graph.starts.iter().map(|&start| counted.least[counted.state(start as usize, 0)]);
        counted.at_limit = starts.min().unwrap_or(NEVER);
        Ok(counted)
    }

    fn state(&self, node: usize, layer: usize) -> usize {
        node * (self.graph.layers + 1) + layer
    }

    /// The stages from a state, with how many devices reach the limit on the best path that takes each.
    fn legs(&self, node: usize, first: usize) -> impl Iterator<Item = (Leg, u32)> + '_ {
        self.graph.nodes[node].arcs.clone().flat_map(move |index| {
            let arc = &self.graph.arcs[index];
            self.reach.ends(self.graph, index, first).map(move |end| {
                let cost = self.costs.get(arc.label.class(), first, end);
                let (from, to) = (self.state(node, first), self.state(arc.to as usize, end));
                let devices = arc.label.devices;
                let here = if cost == self.limit { devices } else { 0 };
                let leg = Leg { from: from as u32, to: to as u32, arc: index as u32, devices, cost };
                (leg, here.saturating_add(self.least[to]))
            })
        })
    }

    fn count(&mut self, effort: &mut MemoryEffort<'_>) -> Result<(), Stopped> {
        let Some(end) = self.graph.nodes.len().checked_sub(1) else { return Ok(()) };
        let last = self.state(end, self.graph.layers);
        self.least[last] = 0;
        for node in (0..end).rev() {
            for first in Bits::ones(self.met.row(node)) {
                effort.weigh(1)?;
                let least = self.legs(node, first).map(|(_, devices)| devices).min();
                let state = self.state(node, first);
                self.least[state] = least.unwrap_or(NEVER);
            }
        }
        Ok(())
    }

    /// The nodes at which a path with the fewest devices at the limit may begin.
    fn starts(&self) -> impl Iterator<Item = usize> + '_ {
        let is_best = |&start: &usize| self.least[self.state(start, 0)] == self.at_limit;
        let starts = self.graph.starts.iter().map(|&start| start as usize);
        starts.filter(move |start| self.at_limit != NEVER && is_best(start))
    }

    /// The stages from a state with which the fewest devices reach the limit.
    fn best(&self, node: usize, first: usize) -> impl Iterator<Item = Leg> + '_ {
        let least = self.least[self.state(node, first)];
        self.legs(node, first).filter(move |&(_, devices)| devices == least).map(|(leg, _)| leg)
    }

    /// A path with the fewest devices at the limit, which takes the cheapest of such stages at each node.
    pub(super) fn walk(&self) -> Vec<Hop> {
        let mut hops = Vec::new();
        let mut at = self.starts().next().map(|start| (start, 0));
        while let Some((node, first)) = at.filter(|&(_, first)| first < self.graph.layers) {
            at = self.best(node, first).min_by_key(|leg| leg.cost).map(|leg| {
                let arc = &self.graph.arcs[leg.arc as usize];
                let (from, to) = (self.graph.nodes[node].place, arc.to as usize);
                let end = leg.to as usize - self.state(to, 0);
                hops.push(Hop { from, step: arc.step as usize, layers: first..end, cost: leg.cost });
                (to, end)
            });
        }
        hops
    }

    /// All stages of such paths.
    pub(super) fn write_down(&self, effort: &mut MemoryEffort<'_>) -> Result<Legs, Unfinished> {
        let mut best = Bits::new(self.graph.nodes.len(), self.graph.layers + 1);
        self.starts().for_each(|start| best.set(start, 0));
        let mut legs = Legs { list: Vec::new(), layers: Vec::new(), places: Vec::new(), starts: Vec::new() };
        // Where each state is among those that are kept.
        let mut kept: Vec<u32> = vec![NEVER; self.least.len()];
        for (node, Node { place, .. }) in self.graph.nodes.iter().enumerate() {
            let firsts: Vec<usize> = Bits::ones(best.row(node)).collect();
            for first in firsts {
                effort.weigh(1)?;
                let state = self.state(node, first);
                kept[state] = legs.layers.len() as u32;
                legs.layers.push(first as u32);
                legs.places.push(*place);
                if *place == 0 {
                    legs.starts.push(kept[state]);
                }
                for leg in self.best(node, first) {
                    let to = self.graph.arcs[leg.arc as usize].to as usize;
                    best.set(to, leg.to as usize - self.state(to, 0));
                    legs.list.push(leg);
                }
                if legs.list.len() > effort.limits.legs {
                    return Err(Unfinished::TooMany);
                }
            }
        }
        for leg in &mut legs.list {
            leg.from = kept[leg.from as usize];
            leg.to = kept[leg.to as usize];
        }
        Ok(legs)
    }
}
