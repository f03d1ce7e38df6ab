//! What plans on so many devices need at least, wherever the devices are.
//!
//! As many devices in one node, all of the best of their kinds and with the best of their links, allow every plan that
//! they allow where they are, and take no longer. So one look at them bounds every subset of a fleet with as many.

use super::inquiry::Inquiry;
use super::solve::work_of;
use crate::cost::Market;
use crate::fleet::Subset;
use crate::recommend::ask::{Variant, variants_of_any_size};
use crate::search::fewest::{Chain, fewest};
use crate::search::{Best, Fleet, FleetNode, KindSet, Link, Places, Question, StageAt, simulated};

/// What plans need at least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::recommend) struct LeastNeeds {
    /// Simulated seconds; infinite where there is no plan.
    pub(in crate::recommend) seconds: f64,
    /// The highest peak in the wish's unit; infinite where there is no plan.
    pub(in crate::recommend) highest: f64,
}

/// So many devices of each kind, in nodes as large as the largest of the fleet: no subset with as many has more on a node.
fn stand_in(fleet: &Fleet, counts: &[u32]) -> Subset {
    let mut nodes = Vec::new();
    for (kind, &count) in counts.iter().enumerate() {
        let own = || fleet.nodes.iter().filter(|node| node.kind == kind);
        let Some(largest) = own().max_by_key(|node| node.devices) else { continue };
        let best = own().flat_map(|node| [node.inside, node.outside]).reduce(Link::faster);
        let mut left = count;
        while left > 0 {
            let devices = left.min(largest.devices.max(1));
            let inside = best.unwrap_or(largest.inside);
            nodes.push(FleetNode { devices, inside, outside: inside, ..largest.clone() });
            left -= devices;
        }
    }
    let fleet = fleet.with_nodes(nodes);
    Subset { origin: (0..fleet.devices()).collect(), fleet }
}

/// What plans need at least on so many devices of each kind; 0 where nobody knows.
pub(in crate::recommend) fn least<M: Market>(inquiry: Inquiry<'_, M>, counts: &[u32]) -> LeastNeeds {
    let Inquiry { market, effort, .. } = inquiry;
    let stop = &effort.prices();
    let (stand_in, cuts) = (stand_in(inquiry.fleet(), counts), inquiry.cuts.without_pins());
    let inquiry = inquiry.on(&stand_in, &cuts);
    let mut all = LeastNeeds { seconds: f64::INFINITY, highest: f64::INFINITY };
    for variant in inquiry.variants() {
        let (fleet, places) = Places::relaxed(inquiry.fleet(), &variant.sizes());
        effort.list(work_of(places.count()));
        let costs = market.costs(variant.schedule, variant.batch, &variant.choices, places.links());
        let choices: Vec<usize> = (0..variant.choices.len()).collect();
        let question = Question {
            costs: &Best::of(&costs, inquiry.fleet()),
            fleet: &fleet,
            places: &places,
            choices: &choices,
            schedule: variant.schedule,
            micro_batches: variant.batch.micro_batches,
            stages: variant.stages.clone(),
            cuts: &cuts,
            within_capacity: true,
        };
        let Some(whole) = simulated::at_least(&question, inquiry.terms(), stop) else {
            return LeastNeeds { seconds: 0.0, highest: 0.0 };
        };
        // A share of a larger device is less.
        let highest = if whole.highest == u64::MAX { f64::INFINITY } else { whole.highest as f64 };
        all = LeastNeeds { seconds: all.seconds.min(whole.seconds), highest: all.highest.min(highest) };
    }
    all
}

/// No plan of a wish takes fewer devices than this; none where no number of them is enough for its memory. 0 where
/// nobody knows.
pub(in crate::recommend) fn fewest_devices<M: Market>(inquiry: Inquiry<'_, M>) -> Option<u32> {
    let Inquiry { market, subset, wish, cuts, .. } = inquiry;
    let stop = &inquiry.effort.prices();
    let capacity = subset.fleet.kinds.iter().map(|kind| kind.capacity.0).max().unwrap_or(0);
    let most_bytes = wish.constraints.max_peak_bytes.unwrap_or(u64::MAX);
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
    for variant in variants_of_any_size(wish, subset, market.layers()) {
        // Fewer than one there are never.
        let below = least.unwrap_or(u32::MAX);
        if below > 1 && !stop.is_over() {
            least = of(&variant, below).or(least);
        }
    }
    if stop.is_over() { Some(0) } else { least }
}
