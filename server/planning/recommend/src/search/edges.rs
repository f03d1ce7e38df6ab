//! What a plan's edges take on the very devices of its stages.
//!
//! A search prices an edge between stages on one node before it is known which of the node's devices each has. Where links
//! between these are unlike, edges are priced anew once that is known.

use super::candidate::Candidate;
use loadmaster_search::{Link, StageCosts, UnlikeNodes};

impl Candidate {
    /// Prices every edge between stages on one node whose links are unlike: over the slowest of the pairs that send each other
    /// something. Where one of both has devices elsewhere too, the slowest link of the node stands for them.
    pub(crate) fn price_edges<C: StageCosts>(&mut self, costs: &C, nodes: &UnlikeNodes<'_>) {
        if nodes.is_empty() {
            return;
        }
        self.set_edges(|own, edge| {
            let (before, after) = (&own.stages.get(edge)?.devices, &own.stages.get(edge + 1)?.devices);
            if let Some(link) = nodes.entry(before, after) {
                return own.edge_over(costs, edge, link);
            }
            let node = nodes.node(&[*before.last()?, *after.first()?])?;
            let seconds = own.edge_over(costs, edge, node.links.slowest())?;
            Some(seconds.max(*own.edges.get(edge)?))
        });
    }

    /// The same as if all of them were over the best links of their nodes: no mapping of stages to the devices of these nodes
    /// takes less. Others may have none of the devices that it names.
    #[must_use]
    pub(crate) fn at_best_edges<C: StageCosts>(&self, costs: &C, nodes: &UnlikeNodes<'_>) -> Self {
        let mut best = self.clone();
        let is_other = !nodes.is_empty()
            && best.set_edges(|own, edge| {
                let stages = own.stages.get(edge..=edge + 1)?;
                let devices: Vec<u32> = stages.iter().flat_map(|stage| &stage.devices).copied().collect();
                own.edge_over(costs, edge, nodes.node(&devices)?.links.fastest())
            });
        if is_other && self.simulated.is_some() {
            best.simulate();
        }
        best
    }

    fn set_edges(&mut self, seconds: impl Fn(&Self, usize) -> Option<f64>) -> bool {
        let priced = |edge: usize| seconds(self, edge).or_else(|| self.edges.get(edge).copied());
        let edges: Vec<f64> = (0..self.edges.len()).filter_map(priced).collect();
        let is_other = edges != self.edges;
        if is_other {
            self.edges = edges;
            self.forget_seconds();
        }
        is_other
    }

    /// Seconds of one micro-batch, both ways, where an edge goes over a link: the side that has more to send or to receive
    /// counts. None where the costs do not know how these stages share their work.
    pub(super) fn edge_over<C: StageCosts>(&self, costs: &C, edge: usize, link: Link) -> Option<f64> {
        let [sender, receiver] = [edge, edge + 1].map(|stage| {
            let choice = self.stages.get(stage)?.choice;
            costs.choices().iter().position(|known| *known == choice)
        });
        let layer = self.stages.get(edge)?.last;
        let of = |choice: usize| costs.cut_seconds_over(layer, link, choice);
        Some(of(sender?).max(of(receiver?)))
    }
}
