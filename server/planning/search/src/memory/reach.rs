//! From which states the end can be reached when no stage may cost more than a limit.
//!
//! Costs need not grow with a stage, so the layers from which the end can be reached need not be an interval.
//! They are a set of bits per node: one `and` of words answers for 64 possible cuts.

use std::ops::Range;

use super::super::PlaceId;
use super::bits::Bits;
use super::classes::ClassGraph;
use super::costs::Costs;
use super::effort::{MemoryEffort, Stopped};

/// A stage on a path, before its choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hop {
    /// The place at which it begins.
    pub(super) from: PlaceId,
    /// Which of that place's steps it takes.
    pub(super) step: usize,
    pub(super) layers: Range<usize>,
    /// What it costs.
    pub(super) cost: u64,
}

/// The states from which the end can be reached by stages within the limit, by node.
#[derive(Debug)]
pub(super) struct Reachable {
    /// The ends of the stages within the limit, by class and first layer.
    pub(super) within: Bits,
    /// The layers from which the end can be reached, by node.
    pub(super) layers: Bits,
}

impl Reachable {
    /// Looks at the states that are `known` to be on paths within a higher limit, or at all states.
    pub(super) fn of(
        graph: &ClassGraph,
        costs: &Costs,
        limit: u64,
        known: Option<&Bits>,
        effort: &mut MemoryEffort<'_>,
    ) -> Result<Self, Stopped> {
        let within = costs.within(limit);
        let mut layers = Bits::new(graph.nodes.len(), graph.layers + 1);
        let Some(end) = graph.nodes.len().checked_sub(1) else { return Ok(Self { within, layers }) };
        layers.set(end, graph.layers);
        for (index, node) in graph.nodes.iter().enumerate().take(end).rev() {
            let (all, some) = match known {
                None => (graph.firsts(node), None),
                Some(known) => (0..0, Some(Bits::ones(known.row(index)))),
            };
            for first in all.chain(some.into_iter().flatten()) {
                effort.weigh(1)?;
                let is_open = graph.arcs[node.arcs.clone()].iter().any(|arc| {
                    let within = within.row(arc.label.class() * graph.layers + first);
                    Bits::meet(within, layers.row(arc.to as usize))
                });
                if is_open {
                    layers.set(index, first);
                }
            }
        }
        Ok(Self { within, layers })
    }

    /// Whether the end can be reached from the beginning.
    pub(super) fn is_open(&self, graph: &ClassGraph) -> bool {
        graph.layers > 0 && self.open_starts(graph).next().is_some()
    }

    fn open_starts(&self, graph: &ClassGraph) -> impl Iterator<Item = usize> {
        graph.starts.iter().map(|&start| start as usize).filter(|&start| self.layers.has(start, 0))
    }

    /// The states that are on a path from the beginning to the end, by node.
    pub(super) fn met(&self, graph: &ClassGraph, effort: &mut MemoryEffort<'_>) -> Result<Bits, Stopped> {
        let mut met = Bits::new(graph.nodes.len(), graph.layers + 1);
        for start in self.open_starts(graph) {
            met.set(start, 0);
        }
        for (index, node) in graph.nodes.iter().enumerate() {
            effort.weigh(graph.firsts(node).len())?;
            let firsts: Vec<usize> =
                Bits::ones(met.row(index)).take_while(|&first| first < graph.layers).collect();
            for arc in &graph.arcs[node.arcs.clone()] {
                let to = arc.to as usize;
                for first in &firsts {
                    let within = self.within.row(arc.label.class() * graph.layers + first);
                    met.add_common(to, within, self.layers.row(to));
                }
            }
        }
        Ok(met)
    }

    /// The ends that an arc may have from a layer on.
    pub(super) fn ends<'a>(
        &'a self,
        graph: &'a ClassGraph,
        arc: usize,
        first: usize,
    ) -> impl Iterator<Item = usize> + 'a {
        let arc = &graph.arcs[arc];
        let within = self.within.row(arc.label.class() * graph.layers + first);
        Bits::common(within, self.layers.row(arc.to as usize))
    }

    /// A path from the beginning to the end, which takes the cheapest stage at each node.
    pub(super) fn walk(&self, graph: &ClassGraph, costs: &Costs) -> Vec<Hop> {
        let mut hops = Vec::new();
        let mut at = self.open_starts(graph).next().map(|start| (start, 0));
        while let Some((node, first)) = at.filter(|&(_, first)| first < graph.layers) {
            let node = &graph.nodes[node];
            let stages =
                node.arcs.clone().flat_map(|arc| self.ends(graph, arc, first).map(move |end| (arc, end)));
            let weighed =
                stages.map(|(arc, end)| (costs.get(graph.arcs[arc].label.class(), first, end), arc, end));
            at = weighed.min().map(|(cost, arc, end)| {
                let arc = &graph.arcs[arc];
                hops.push(Hop { from: node.place, step: arc.step as usize, layers: first..end, cost });
                (arc.to as usize, end)
            });
        }
        hops
    }
}
