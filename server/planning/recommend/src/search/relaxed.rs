//! What plans on so many devices need at least, wherever the devices are.
//!
//! As many devices in one node, all of the best of their kinds and with the best of their links, allow every plan that
//! they allow where they are, and take no longer. So one look at them bounds every subset of a fleet with as many.

use super::inquiry::Inquiry;
use super::solve::listing_of;
use crate::problem::{Variant, variants_of_any_size};
use loadmaster_search::cost::Market;
use loadmaster_search::fewest_devices::{Chain, fewest};
use loadmaster_search::fleet::Subset;
use loadmaster_search::{Best, Fleet, FleetNode, KindSet, Link, Places, StageAt, simulated};

/// What plans need at least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LeastNeeds {
    /// Simulated seconds; infinite where there is no plan.
    pub(crate) seconds: f64,
    /// The highest peak in the criteria's unit; infinite where there is no plan.
    pub(crate) highest: f64,
}

/// The best node of each kind of a fleet: as large as the largest, with the best of all links. Looked for once, however
/// many numbers of devices are asked about.
#[derive(Debug)]
pub(crate) struct BestNodes<'a> {
    fleet: &'a Fleet,
    of_kind: Vec<Option<FleetNode>>,
}

impl<'a> BestNodes<'a> {
    pub(crate) fn of(fleet: &'a Fleet) -> Self {
        let best = |kind: usize| {
            let own = || fleet.nodes.iter().filter(|node| node.kind == kind);
            let largest = own().max_by_key(|node| node.devices)?;
            let inside = own().flat_map(|node| [node.fastest(), node.outside]).reduce(Link::faster)?;
            // No one asks what it is called, and there may be thousands like it.
            let (one_transfer, unlike) = (None, None);
            let name = String::new();
            Some(FleetNode { name, inside, outside: inside, one_transfer, unlike, ..largest.clone() })
        };
        Self { fleet, of_kind: (0..fleet.kinds.len()).map(best).collect() }
    }

    /// So many devices of each kind, in such nodes: no subset with as many has more on a node.
    fn stand_in(&self, counts: &[u32]) -> Subset {
        let mut nodes = Vec::new();
        for (best, &count) in self.of_kind.iter().zip(counts) {
            let Some(best) = best else { continue };
            let mut left = count;
            while left > 0 {
                let devices = left.min(best.devices.max(1));
                nodes.push(FleetNode { devices, ..best.clone() });
                left -= devices;
            }
        }
        let fleet = self.fleet.with_nodes(nodes);
        Subset { origin: (0..fleet.devices()).collect(), fleet }
    }
}

/// What plans need at least on so many devices of each kind; 0 where it is not known.
pub(crate) fn least<M: Market>(inquiry: Inquiry<'_, M>, nodes: &BestNodes<'_>, counts: &[u32]) -> LeastNeeds {
    let Inquiry { market, effort, .. } = inquiry;
    let stop = &effort.prices();
    let (stand_in, cuts) = (nodes.stand_in(counts), inquiry.cuts.without_pins());
    // Also where no plan takes so many.
    effort.list(u64::from(stand_in.devices()));
    let inquiry = inquiry.on(&stand_in, &cuts);
    let mut all = LeastNeeds { seconds: f64::INFINITY, highest: f64::INFINITY };
    for variant in inquiry.variants() {
        let (fleet, places) = Places::relaxed(inquiry.fleet(), &variant.sizes());
        effort.list(listing_of(&places));
        let costs = market.costs(variant.schedule, variant.batch, &variant.choices, places.links());
        let choices: Vec<usize> = (0..variant.choices.len()).collect();
        let costs = Best::of(&costs, inquiry.fleet());
        let question = variant.question(&costs, (&fleet, &places), &choices, &cuts);
        let Some(whole) = simulated::at_least(&question, inquiry.terms(), stop) else {
            return LeastNeeds { seconds: 0.0, highest: 0.0 };
        };
        // A share of a larger device is less.
        let highest = if whole.highest == u64::MAX { f64::INFINITY } else { whole.highest as f64 };
        all = LeastNeeds { seconds: all.seconds.min(whole.seconds), highest: all.highest.min(highest) };
    }
    all
}

/// No plan of criteria takes fewer devices than this; none where no number of them is enough for its memory. 0 where
/// it is not known.
pub(crate) fn least_device_count<M: Market>(inquiry: Inquiry<'_, M>) -> Option<u32> {
    let Inquiry { market, subset, criteria, cuts, .. } = inquiry;
    let stop = &inquiry.effort.prices();
    let capacity = subset.fleet.kinds.iter().map(|kind| kind.capacity.0).max().unwrap_or(0);
    let most_bytes = criteria.constraints.max_peak_bytes.unwrap_or(u64::MAX);
    let of = |variant: &Variant, below: u32| {
        let (_, places) = Places::relaxed(&subset.fleet, &variant.sizes());
        let costs = market.costs(variant.schedule, variant.batch, &variant.choices, places.links());
        let choices: Vec<usize> = (0..variant.choices.len()).collect();
        let chain = Chain {
            costs: &Best::of(&costs, &subset.fleet),
            at: StageAt::anywhere(0, 0, KindSet::one(0)),
            capacity,
            most_bytes,
            choices: &choices,
            schedule: variant.schedule,
            micro_batches: variant.batch.micro_batches,
            most_stages: *variant.stages.end(),
            cuts,
        };
        fewest(&chain, below, stop)
    };
    let mut least = None;
    for variant in variants_of_any_size(criteria, subset, market.layers()) {
        // Fewer than one there are never.
        let below = least.unwrap_or(u32::MAX);
        if below > 1 && !stop.is_over() {
            least = of(&variant, below).or(least);
        }
    }
    if stop.is_over() { Some(0) } else { least }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::bytes::Bytes;

    use super::*;
    use crate::tests::{link, node};
    use loadmaster_search::Kind;

    /// Nodes as large as the largest of their kind, with the best link that any of it has; the last one has what is left.
    #[test]
    fn what_stands_in_for_devices_is_the_best_of_their_kind() {
        let kind = |name: &str| Kind { name: name.to_owned(), capacity: Bytes(1), hourly_price: None };
        let node = |kind: usize, devices: u32, inside: u32, outside: u32| {
            node("node".to_owned(), (kind, devices), (inside, outside))
        };
        let nodes = vec![node(0, 2, 5, 9), node(0, 4, 6, 1), node(1, 3, 2, 3), node(1, 3, 2, 1)];
        let fleet = Fleet { kinds: vec![kind("a"), kind("b"), kind("none")], nodes, ..Fleet::default() };
        let best = BestNodes::of(&fleet);
        let stand_in = best.stand_in(&[6, 4, 0]);
        let of = |node: &FleetNode| (node.kind, node.devices, node.inside, node.outside);
        let expected = [(0, 4, 9), (0, 2, 9), (1, 3, 3), (1, 1, 3)];
        let expected = expected.map(|(kind, devices, speed)| (kind, devices, link(speed), link(speed)));
        assert_eq!(stand_in.fleet.nodes.iter().map(of).collect::<Vec<_>>(), expected);
        assert_eq!((stand_in.devices(), stand_in.origin.len()), (10, 10));
    }
}
