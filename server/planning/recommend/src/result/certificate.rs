//! What proves a plan, and what was rejected for it.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::findings::{Certificate, Rejected, optimality_gap};
use loadmaster_proto::plan::objective::Objective;

use super::why_not::why_not;
use crate::problem::{Criteria, Variant};
use crate::search::{Candidate, Effort, Inquiry, PricedVariant, Solution, counted, value};
use loadmaster_search::Unit;
use loadmaster_search::cost::Market;

/// Most alternatives that a certificate names.
const NAMED: usize = 3;

/// By what part of itself a bound in seconds may differ from a value that it equals but for rounding.
const SAME: f64 = 1e-11;

/// The certificate of a value that no plan is better than by more than this bound, where nothing else is known of it.
pub(crate) fn certified(value: f64, bound: Option<f64>, unit: &str) -> Certificate {
    let gap = bound.map(|bound| optimality_gap(value, bound));
    Certificate {
        value,
        bound,
        gap,
        unit: unit.to_owned(),
        proven: gap == Some(0.0),
        stopped: false,
        states: 0,
        rejected: Vec::new(),
        fetches_fewest: false,
    }
}

/// The certificate of a search's best plan.
pub(super) fn certificate<M: Market>(
    inquiry: Inquiry<'_, M>,
    found: &Solution,
    pool: &[Candidate],
) -> Certificate {
    let criteria = inquiry.criteria;
    let own = || pool.first().and_then(|best| value(criteria, best));
    let value = match criteria.objective {
        // Devices and batches were counted by the search.
        Objective::MinDevices | Objective::MinCost | Objective::MaxBatch => found.value.or_else(own),
        _ => own(),
    };
    let value = value.unwrap_or(f64::NAN);
    // What a merger keeps together was not searched apart.
    // 0 bounds nothing: a search that was stopped early has it.
    let bound = found.bound.filter(|&bound| !criteria.is_merged && bound > 0.0);
    let is_share = criteria.unit == Unit::Share
        && matches!(criteria.objective, Objective::MinPeakMemory | Objective::MaxModel);
    // The terms of a plan's seconds may have been added up in another order than those of the bound.
    let is_same = |bound: f64| criteria.objective.is_timed() && (value - bound).abs() <= SAME * bound.abs();
    let bound = bound.map(|bound| if is_same(bound) { value } else { bound });
    let closed = bound == Some(value);
    let (value, bound) = (counted(criteria, value), bound.map(|bound| counted(criteria, bound)));
    Certificate {
        proven: found.is_proven() && closed,
        stopped: found.is_stopped,
        states: found.states,
        rejected: rejected(inquiry, found, pool),
        ..certified(value, bound, if is_share { "share" } else { criteria.objective.unit() })
    }
}

/// The first alternatives: those that came next, what is faster but does not fit, and what has no plan.
fn rejected<M: Market>(inquiry: Inquiry<'_, M>, found: &Solution, pool: &[Candidate]) -> Vec<Rejected> {
    let criteria = inquiry.criteria;
    let Some(best) = pool.first() else { return Vec::new() };
    let mut rejected = Vec::new();
    rejected.extend(faster_without_limits(inquiry, best));
    rejected.extend(found.passed_over.iter().rev().take(1).map(|(what, value)| Rejected {
        what: what.clone(),
        value: Some(*value),
        reason: "no plan fits within the limits".to_owned(),
    }));
    let unfit = unfit(inquiry, found);
    let others = pool.iter().skip(1);
    let room = NAMED.saturating_sub(rejected.len() + unfit.iter().count());
    if criteria.objective != Objective::Pareto {
        rejected.extend(others.take(room).map(|other| Rejected {
            what: other.describe(),
            value: value(criteria, other).map(|value| counted(criteria, value)),
            reason: worse(criteria, best, other),
        }));
    }
    rejected.extend(unfit);
    rejected.truncate(NAMED);
    rejected
}

/// The plan that would be fastest if devices held any number of bytes, where that is not the best one.
fn faster_without_limits<M: Market>(inquiry: Inquiry<'_, M>, best: &Candidate) -> Option<Rejected> {
    let criteria = inquiry.criteria;
    if criteria.objective != Objective::MinIterationTime {
        return None;
    }
    let mut least = best.seconds()?;
    let mut faster: Option<Candidate> = None;
    let formula = Effort::besides(&inquiry.effort.stop).formula();
    for variant in inquiry.variants() {
        if formula.is_over() {
            break;
        }
        let asked = PricedVariant::new(inquiry, &variant);
        if let Some(mut plan) = asked.fastest_of_any(Some(least), &formula).best {
            plan.simulate();
            if let Some(seconds) = plan.seconds().filter(|&seconds| seconds < least) {
                least = seconds;
                faster = Some(plan);
            }
        }
    }
    let plan = faster?;
    let ratio = 1.0 - least / best.seconds()?;
    let lacking =
        plan.stages.iter().enumerate().filter_map(|(index, stage)| Some((index, stage, stage.lacks()?)));
    let most = criteria.constraints.max_peak_bytes.unwrap_or(u64::MAX);
    let reason = match lacking.max_by_key(|&(index, _, lacks)| (lacks, std::cmp::Reverse(index))) {
        Some((index, stage, lacks)) => format!(
            "{} faster, but stage {index} needs {lacks} more on {}",
            percent(ratio),
            inquiry.job.device_range(&stage.devices)
        ),
        None if plan.peak_bytes() > most => {
            format!("{} faster, but its peak is above the requested limit", percent(ratio))
        }
        // It fits, and was slower once simulated.
        None => return None,
    };
    Some(Rejected { what: plan.describe(), value: Some(least), reason })
}

/// The first variant without a plan, and what it lacks.
fn unfit<M: Market>(inquiry: Inquiry<'_, M>, found: &Solution) -> Option<Rejected> {
    let Inquiry { criteria, effort, .. } = inquiry;
    let variant = found.unfit.first()?;
    let on_all_devices = matches!(criteria.objective, Objective::MinPeakMemory | Objective::MinIterationTime)
        && !criteria.constraints.allow_idle_devices;
    if !on_all_devices || effort.is_requested() {
        return None;
    }
    let one = Criteria {
        batches: vec![variant.batch],
        schedules: vec![variant.schedule],
        recompute: policies(variant),
        ..criteria.clone()
    };
    let stop = Effort::besides(&effort.stop).peaks();
    let why_not = why_not(inquiry.with(&one), std::slice::from_ref(variant), &stop)?;
    Some(Rejected { what: variant.to_string(), value: None, reason: why_not.describe(inquiry.job) })
}

fn policies(variant: &Variant) -> Vec<loadmaster_proto::training::RecomputePolicy> {
    let mut policies: Vec<_> = variant.choices.iter().map(|choice| choice.recompute).collect();
    policies.dedup();
    policies
}

/// Why the best plan was taken instead of another one.
fn worse(criteria: &Criteria, best: &Candidate, other: &Candidate) -> String {
    match criteria.objective {
        Objective::MinIterationTime | Objective::Pareto => {
            match (best.simulated, other.simulated) {
                (Some(one), Some(two)) if one < two => {
                    return format!(
                        "{} slower: {two:.4} s against {one:.4} s, simulated",
                        percent(two / one - 1.0)
                    );
                }
                (Some(one), Some(two)) if one == two => {
                    return "equally fast, but needs more memory or more stages".to_owned();
                }
                _ => {}
            }
            match (best.closed_form, other.closed_form) {
                (Some(one), Some(two)) => {
                    format!(
                        "{} slower: {two:.4} s against {one:.4} s for the recommended plan. Both times are estimated \
                         with a formula, not simulated",
                        percent(two / one - 1.0)
                    )
                }
                _ => "slower".to_owned(),
            }
        }
        _ => {
            let (one, two) = (best.peaks(criteria.unit), other.peaks(criteria.unit));
            let (high, higher) = (one.highest().unwrap_or(0), two.highest().unwrap_or(0));
            if higher > high {
                let ratio = higher as f64 / (high as f64).max(1.0) - 1.0;
                format!(
                    "{} higher peak: {} against {}",
                    percent(ratio),
                    Bytes(other.peak_bytes()),
                    Bytes(best.peak_bytes())
                )
            } else if two > one {
                "has the same highest peak as the recommended plan, but higher peaks on other devices"
                    .to_owned()
            } else {
                "has the same peaks as the recommended plan, but is slower or has more stages".to_owned()
            }
        }
    }
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}
