//! The stages with which the fewest devices have the highest peak.
//!
//! There may be very many paths within the limit. How many devices on them reach it is counted without keeping
//! any stage; only those on paths with the fewest are written down.

use super::super::PlaceId;
use super::bits::Bits;
use super::classes::{Graph, Move, Node};
use super::costs::Cells;
use super::effort::{Effort, Stopped};
use super::leximax::Unfinished;
use super::reach::{Hop, Reach};

/// A stage between two states, which are numbered so that every arc leads to a larger one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arc {
    pub(super) from: u32,
    pub(super) to: u32,
    /// Index of its move.
    pub(super) step: u32,
    pub(super) devices: u32,
    pub(super) cost: u64,
}

/// The arcs of all paths that may still be best, by the state where they begin.
#[derive(Debug)]
pub(super) struct Arcs {
    pub(super) list: Vec<Arc>,
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
    graph: &'a Graph,
    cells: &'a Cells,
    limit: u64,
    reach: Reach,
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
        graph: &'a Graph,
        cells: &'a Cells,
        limit: u64,
        effort: &mut Effort<'_>,
    ) -> Result<Self, Unfinished> {
        let states = graph.nodes.len().saturating_mul(graph.layers + 1);
        if states > effort.limits.states_at_once {
            return Err(Unfinished::TooMany);
        }
        let reach = Reach::of(graph, cells, limit, None, effort)?;
        let met = reach.met(graph, effort)?;
        let least = vec![NEVER; states];
        let mut counted = Self { graph, cells, limit, reach, met, least, at_limit: NEVER };
        counted.count(effort)?;
        let starts = (0..graph.starts).map(|start| counted.least[counted.state(start, 0)]);
        counted.at_limit = starts.min().unwrap_or(NEVER);
        Ok(counted)
    }

    fn state(&self, node: usize, layer: usize) -> usize {
        node * (self.graph.layers + 1) + layer
    }

    /// The arcs from a state, with how many devices reach the limit on the best path that takes each.
    fn arcs(&self, node: usize, first: usize) -> impl Iterator<Item = (Arc, u32)> + '_ {
        self.graph.nodes[node].moves.clone().flat_map(move |index| {
            let step = &self.graph.moves[index];
            self.reach.ends(self.graph, index, first).map(move |end| {
                let cost = self.cells.get(step.class, first, end);
                let to = self.state(step.to, end);
                let here = if cost == self.limit { step.devices } else { 0 };
                let arc = Arc {
                    from: self.state(node, first) as u32,
                    to: to as u32,
                    step: index as u32,
                    devices: step.devices,
                    cost,
                };
                (arc, here.saturating_add(self.least[to]))
            })
        })
    }

    fn count(&mut self, effort: &mut Effort<'_>) -> Result<(), Stopped> {
        let Some(end) = self.graph.nodes.len().checked_sub(1) else { return Ok(()) };
        let last = self.state(end, self.graph.layers);
        self.least[last] = 0;
        for node in (0..end).rev() {
            for first in Bits::ones(self.met.row(node)) {
                effort.weigh(1)?;
                let least = self.arcs(node, first).map(|(_, devices)| devices).min();
                let state = self.state(node, first);
                self.least[state] = least.unwrap_or(NEVER);
            }
        }
        Ok(())
    }

    /// The nodes at which a path with the fewest devices at the limit may begin.
    fn starts(&self) -> impl Iterator<Item = usize> + '_ {
        let is_best = |&start: &usize| self.least[self.state(start, 0)] == self.at_limit;
        (0..self.graph.starts).filter(move |start| self.at_limit != NEVER && is_best(start))
    }

    /// The arcs from a state with which the fewest devices reach the limit.
    fn best(&self, node: usize, first: usize) -> impl Iterator<Item = Arc> + '_ {
        let least = self.least[self.state(node, first)];
        self.arcs(node, first).filter(move |&(_, devices)| devices == least).map(|(arc, _)| arc)
    }

    /// A path with the fewest devices at the limit, which takes the cheapest of such stages at each node.
    pub(super) fn walk(&self) -> Vec<Hop> {
        let mut hops = Vec::new();
        let mut at = self.starts().next().map(|start| (start, 0));
        while let Some((node, first)) = at.filter(|&(_, first)| first < self.graph.layers) {
            at = self.best(node, first).min_by_key(|arc| arc.cost).map(|arc| {
                let Move { to, step, .. } = self.graph.moves[arc.step as usize];
                let end = arc.to as usize - self.state(to, 0);
                hops.push(Hop {
                    from: self.graph.nodes[node].place,
                    step,
                    layers: first..end,
                    cost: arc.cost,
                });
                (to, end)
            });
        }
        hops
    }

    /// All arcs of such paths.
    pub(super) fn write_down(&self, effort: &mut Effort<'_>) -> Result<Arcs, Unfinished> {
        let mut best = Bits::new(self.graph.nodes.len(), self.graph.layers + 1);
        self.starts().for_each(|start| best.set(start, 0));
        let mut arcs = Arcs { list: Vec::new(), layers: Vec::new(), places: Vec::new(), starts: Vec::new() };
        // Where each state is among those that are kept.
        let mut kept: Vec<u32> = vec![NEVER; self.least.len()];
        for (node, Node { place, .. }) in self.graph.nodes.iter().enumerate() {
            let firsts: Vec<usize> = Bits::ones(best.row(node)).collect();
            for first in firsts {
                effort.weigh(1)?;
                let state = self.state(node, first);
                kept[state] = arcs.layers.len() as u32;
                arcs.layers.push(first as u32);
                arcs.places.push(*place);
                if node < self.graph.starts {
                    arcs.starts.push(kept[state]);
                }
                for arc in self.best(node, first) {
                    let to = self.graph.moves[arc.step as usize].to;
                    best.set(to, arc.to as usize - self.state(to, 0));
                    arcs.list.push(arc);
                }
                if arcs.list.len() > effort.limits.arcs {
                    return Err(Unfinished::TooMany);
                }
            }
        }
        for arc in &mut arcs.list {
            arc.from = kept[arc.from as usize];
            arc.to = kept[arc.to as usize];
        }
        Ok(arcs)
    }
}
