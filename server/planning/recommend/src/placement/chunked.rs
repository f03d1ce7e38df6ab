//! How long an iteration of a training in chunks takes in a way: its lanes again, at the rates of the nodes that it is on.

use loadmaster_proto::plan::Plan;
use loadmaster_proto::plan::rates::LaneRates;

use super::copying::are_uniform;
use super::price::Price;
use super::ways::{Seat, Ways};
use crate::memory_optimizations::{CopiesAsPlanned, CopyLinks, HostRates};
use crate::problem::ProfiledChain;
use crate::timeline::{LanesOfPlan, TimelineError};
use loadmaster_search::fleet::PlannedFleet;
use loadmaster_search::{FleetNode, Link};

/// What prices the ways of a plan in chunks.
pub(super) struct ChunkedPricer<'a> {
    lanes: LanesOfPlan,
    fleet: &'a PlannedFleet,
    kind: &'a str,
    copies: CopiesAsPlanned,
    are_uniform: bool,
}

impl<'a> ChunkedPricer<'a> {
    /// # Errors
    /// What is missing, or no longer so.
    pub(super) fn of(
        plan: &'a Plan,
        chain: &ProfiledChain,
        fleet: &'a PlannedFleet,
    ) -> Result<Self, TimelineError> {
        let lanes = LanesOfPlan::of(plan, chain)?;
        lanes.check_is_unchanged()?;
        let planned = lanes.rates();
        let copies = CopiesAsPlanned::to_host(planned.up.min(planned.down), planned.copy_seconds);
        Ok(Self { lanes, fleet, kind: &plan.device_kind, copies, are_uniform: are_uniform(fleet) })
    }

    /// How fast copies are in a way, and who says so, for people.
    pub(super) fn told(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<String> {
        Some(self.links(ways, way)?.host_way(0))
    }

    /// The ways between the devices of the only stage and their host.
    fn links(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<CopyLinks> {
        let stages = ways.devices(way);
        let place = |&device: &u32| {
            let known = self.fleet.device(device)?;
            Some((self.fleet.described(&known.node), known.index))
        };
        let places: Option<Vec<_>> = stages.first()?.iter().map(place).collect();
        Some(CopyLinks::as_planned(&[places?], self.kind, self.copies))
    }

    /// The rates on these nodes: those of copies and of exchanges between ranks are theirs. How fast hosts and devices update is
    /// as it was planned.
    fn rates(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<LaneRates> {
        let planned = self.lanes.rates();
        let links = self.links(ways, way)?;
        let own = match links.described_host_rates() {
            Some(HostRates { up, down, copy_seconds }) => LaneRates { up, down, copy_seconds, ..planned },
            None => planned,
        };
        let nodes: Option<Vec<&FleetNode>> = way.iter().map(|seat| ways.fleet.nodes.get(seat.node)).collect();
        let nodes = nodes?;
        let inside = way.iter().zip(&nodes).filter(|(seat, _)| seat.taken() > 1).map(|(_, node)| node.inside);
        let across = nodes.iter().filter(|_| nodes.len() > 1).map(|node| node.outside);
        let Some(slowest) = inside.chain(across).reduce(Link::slower) else { return Some(own) };
        Some(LaneRates {
            gather: slowest.bytes_per_second,
            collective_seconds: slowest.latency_seconds,
            ..own
        })
    }
}

impl Price for ChunkedPricer<'_> {
    fn seconds(&self, ways: &Ways<'_>, way: &[Seat]) -> Option<f64> {
        self.lanes.seconds(self.rates(ways, way)?).ok()
    }

    /// Passes take what they take on any node.
    fn least(&self, _: &Ways<'_>, _: &[Seat]) -> Option<f64> {
        Some(self.lanes.passes_seconds())
    }

    fn tells_all(&self) -> bool {
        self.are_uniform
    }

    fn work(&self, ways: &Ways<'_>) -> u64 {
        (self.lanes.steps() as u64).max(ways.ranks() as u64)
    }
}
