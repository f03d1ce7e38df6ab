//! criteria on all devices, or on any subset of them where some may be idle.

use loadmaster_proto::plan::objective::Objective;

use super::candidate::Candidate;
use super::inquiry::{Inquiry, KnownLayouts};
use super::rank::rank;
use super::ranking::{Ranking, best_value, keep_front, order};
use super::relaxed::{BestNodes, least};
use super::solve::PricedVariant;
use loadmaster_search::cost::Market;

/// Most subsets of a fleet that are searched whole: the others only where a look at them says that they may be better.
const MOST_SEARCHED: usize = 512;

/// All devices, or any subset of them where devices may stay idle.
pub(crate) fn on_any_subset<M: Market>(inquiry: Inquiry<'_, M>) -> Ranking {
    let Inquiry { criteria, effort, .. } = inquiry;
    if !criteria.constraints.allow_idle_devices {
        return rank(inquiry);
    }
    let nodes = BestNodes::of(inquiry.fleet());
    let (subsets, is_complete) = inquiry.subsets().all();
    let mut all = Ranking { bound: Some(f64::INFINITY), ..Ranking::default() };
    let mut known: Vec<(Vec<u32>, f64)> = Vec::new();
    let mut searched = 0;
    // The whole first: a search that is stopped early should not end on a corner of the fleet.
    for subset in subsets {
        if effort.is_requested() {
            all.is_stopped = true;
            all.bound = None;
            break;
        }
        if effort.is_listed_out() && !all.candidates.is_empty() {
            // Of subsets that are not even listed nothing is known.
            all.is_bounded = true;
            all.bound = None;
            break;
        }
        // With as many devices of each kind no subset has a better plan than they would have in one node.
        let mut counts = vec![0; inquiry.fleet().kinds.len()];
        subset.fleet.nodes.iter().for_each(|node| counts[node.kind] += node.devices);
        let at_least = match known.iter().find(|(other, _)| *other == counts) {
            Some((_, at_least)) => *at_least,
            None => {
                let found = least(inquiry, &nodes, &counts);
                let at_least = if criteria.objective.is_timed() { found.seconds } else { found.highest };
                known.push((counts, at_least));
                at_least
            }
        };
        let best = best_value(criteria, &all.candidates).unwrap_or(f64::INFINITY);
        let is_front = criteria.objective == Objective::Pareto;
        if at_least.is_infinite() || (!is_front && at_least > best) {
            continue;
        }
        if searched >= MOST_SEARCHED || effort.is_spent() && !all.candidates.is_empty() {
            all.is_bounded = true;
            all.bound = all.bound.map(|bound| bound.min(at_least));
            continue;
        }
        searched += 1;
        let Some(cuts) = subset.cuts(inquiry.cuts) else { continue };
        let one = rank(inquiry.on(&subset, &cuts));
        all.bound = all.bound.zip(one.bound).map(|(a, b)| a.min(b));
        all.states = all.states.saturating_add(one.states);
        all.is_bounded |= one.is_bounded;
        all.is_stopped |= one.is_stopped;
        all.candidates.extend(one.candidates);
        if all.unfit.is_empty() {
            all.unfit = one.unfit;
        }
    }
    if !is_complete {
        all.is_bounded = true;
        all.bound = None;
    }
    if criteria.objective == Objective::Pareto {
        keep_front(&mut all.candidates, criteria.unit);
    } else {
        all.candidates.sort_by(|a, b| order(criteria, a, b));
    }
    let best = best_value(criteria, &all.candidates);
    if let (Some(bound), Some(best)) = (all.bound, best) {
        all.bound = Some(bound.min(best));
        // Subsets that were left out have nothing better.
        if is_complete && bound >= best && criteria.objective != Objective::Pareto && !all.is_stopped {
            all.is_bounded = false;
        }
    }
    all
}

/// The first variant of criteria that fits, if any, whatever the limits on time and peaks; or the first that there is, if devices
/// held any number of bytes.
pub(crate) fn first_fit<M: Market>(inquiry: Inquiry<'_, M>, within_capacity: bool) -> Option<Candidate> {
    if !inquiry.may_start() {
        return None;
    }
    let (stop, layouts) = (inquiry.effort.peaks(), KnownLayouts::default());
    inquiry.variants().iter().find_map(|variant| {
        if stop.is_over() {
            return None;
        }
        let asked = PricedVariant::on(inquiry, variant, &layouts);
        stop.take(asked.work());
        asked.any_fit(within_capacity, &stop).0
    })
}
