//! Where there is no plan: why, and what would help.

use loadmaster_proto::amounts::Seconds;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::objective::{Objective, SearchMode};

use super::error::{RecommendError, UNPROVEN};
use super::remedies;
use super::why_not::{WhyNot, closer, why_not};
use crate::problem::Criteria;
use crate::search::{Effort, Inquiry, Solution, first_fit, on_any_subset};
use loadmaster_search::cost::Market;
use loadmaster_search::fleet::Subset;

/// Of a search that proved that there is nothing, where finding out why takes too long.
const UNEXPLAINED: &str = "no plan fits, and the search for the reason takes too long. Restrict the layout, parallel \
    sizes or devices";

/// Most micro-batches of which each is asked why nothing fits: the smallest, which are the nearest to fitting.
const MOST_BATCHES_EXPLAINED: usize = 16;

/// Why there is no plan, and what would help.
pub(super) fn no_plan<M: Market>(inquiry: Inquiry<'_, M>, found: &Solution) -> RecommendError {
    let Inquiry { job, criteria, .. } = inquiry;
    let stop = &inquiry.effort.stop;
    let subsets = inquiry.allowed_subsets();
    let is_limited =
        criteria.constraints.max_iteration_seconds.is_some() || criteria.constraints.max_peak_bytes.is_some();
    let effort = Effort::usual(stop);
    let fits = |subset: &Subset| {
        let own = subset.cuts(inquiry.cuts);
        own.is_some_and(|cuts| first_fit(inquiry.on(subset, &cuts).within(&effort), true).is_some())
    };
    let fits_any = || subsets.iter().any(fits);
    if is_limited && fits_any() {
        return RecommendError::Limits {
            reason: beyond_limits(inquiry),
            is_proof: !found.is_bounded && !found.is_stopped && criteria.mode == SearchMode::Exact,
            remedies: remedies::for_limits(inquiry),
        };
    }
    // A program of a paper may miss what is there.
    if criteria.mode != SearchMode::Exact && fits_any() {
        return RecommendError::no_plan(UNPROVEN);
    }
    let mut asked = criteria.clone();
    if asked.batches.len() > MOST_BATCHES_EXPLAINED {
        asked.batches.sort_by_key(|batch| batch.micro_batch_size);
        asked.batches.truncate(MOST_BATCHES_EXPLAINED);
    }
    let mut lacking: Option<WhyNot> = None;
    let explaining = Effort::explaining(stop);
    // A layer is said to fit nowhere if that is so wherever it may be.
    let are_all_subsets = subsets.len() < Inquiry::<M>::MOST_ALLOWED;
    let mut nowhere: Option<Option<usize>> = (!are_all_subsets).then_some(None);
    let mut are_all_proven = are_all_subsets;
    for subset in &subsets {
        let Some(cuts) = subset.cuts(inquiry.cuts) else { continue };
        let inquiry = inquiry.with(&asked).on(subset, &cuts);
        let one = why_not(inquiry, &inquiry.variants(), &explaining);
        are_all_proven &= one.as_ref().is_some_and(WhyNot::is_proven);
        if let Some(WhyNot::Plan { layer, .. }) = &one {
            nowhere = Some(nowhere.map_or(*layer, |other| other.filter(|_| other == *layer)));
        }
        lacking = closer(lacking, one);
    }
    // A search that looked at everything proves what its explanation need not look at once more.
    let is_searched = !found.is_bounded && !found.is_stopped && criteria.mode == SearchMode::Exact;
    if let Some(WhyNot::Plan { layer, is_proven, .. }) = &mut lacking {
        (*layer, *is_proven) = (nowhere.flatten(), are_all_proven || is_searched);
    }
    if explaining.is_over() {
        // Another plan may lack less.
        lacking = None;
    }
    if lacking.is_none() && stop.is_requested() {
        return RecommendError::Stopped;
    }
    let is_unexplained = explaining.is_over() && !found.is_bounded;
    let why = if is_unexplained { UNEXPLAINED } else { UNPROVEN };
    let why_not = lacking.unwrap_or_else(|| WhyNot::NoPlan { why: why.to_owned() });
    let device = why_not.short().and_then(|short| job.device(*short.devices.first()?));
    let layer_name = match &why_not {
        WhyNot::Plan { layer, .. } => layer.and_then(|layer| job.names.get(layer).cloned()),
        WhyNot::NoPlan { .. } | WhyNot::Actions { .. } => None,
    };
    RecommendError::NoPlan {
        reason: why_not.describe(job),
        remedies: remedies::remedies(inquiry),
        device: device.unwrap_or_default(),
        layer_name: layer_name.unwrap_or_default(),
        why_not: Box::new(why_not),
    }
}

/// Plans fit the devices, but not the limits of the request: how far they are from them.
fn beyond_limits<M: Market>(inquiry: Inquiry<'_, M>) -> String {
    let Inquiry { criteria, effort, .. } = inquiry;
    let mut text = "plans fit the devices, but none meets the limits".to_owned();
    let unlimited = |objective| {
        let mut free = Criteria { objective, mode: SearchMode::Exact, ..criteria.clone() };
        (free.constraints.max_iteration_seconds, free.constraints.max_peak_bytes) = (None, None);
        free.constraints.allow_idle_devices |=
            matches!(criteria.objective, Objective::MinDevices | Objective::MinCost);
        let ranking = on_any_subset(inquiry.with(&free).within(&Effort::besides(&effort.stop)));
        ranking.candidates.into_iter().next()
    };
    if let Some(limit) = criteria.constraints.max_iteration_seconds
        && let Some(seconds) = unlimited(Objective::MinIterationTime).and_then(|plan| plan.seconds())
    {
        let keeps = if seconds <= limit {
            " (this plan is fast enough, but the search with all constraints took too long: restrict the layout, \
             parallel sizes or devices)"
        } else {
            ""
        };
        text.push_str(&format!(
            "; without limits, the fastest plan takes {} per iteration, and `constraints.max_iteration_time` is \
             {}{keeps}",
            Seconds(seconds),
            Seconds(limit)
        ));
    }
    if let Some(most) = criteria.constraints.max_peak_bytes
        && let Some(plan) = unlimited(Objective::MinPeakMemory)
    {
        text.push_str(&format!(
            "; the lowest peak is {}, the limit is {} (`constraints.max_peak_bytes`)",
            Bytes(plan.peak_bytes()),
            Bytes(most)
        ));
    }
    text
}
