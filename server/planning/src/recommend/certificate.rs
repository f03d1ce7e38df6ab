//! What proves a plan, what was rejected for it, and what came next.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::certificate::{Certificate, Rejected};
use loadmaster_proto::plan::objective::{Objective, SearchMode};

use super::Scene;
use super::attempt::Attempt;
use super::candidate::Candidate;
use super::effort::Effort;
use super::lack::lack;
use super::market::Market;
use super::part::Part;
use super::solve::Asked;
use super::variant::{Variant, variants};
use super::wish::Wish;
use crate::search::{Cuts, Fleet, Stop, Unit};

/// Most alternatives that a certificate names.
const NAMED: usize = 3;

/// Most cuts of the best plan that are forbidden, one at a time, to find the plans that come next.
const MOST_FORBIDDEN: usize = 8;

/// By what part of itself a bound in seconds may differ from a value that it equals but for rounding.
const SAME: f64 = 1e-11;

/// A value in what a certificate counts: shares are stored as whole parts.
pub(super) fn counted(wish: &Wish, value: f64) -> f64 {
    match (wish.objective, wish.unit) {
        (Objective::MinPeakMemory | Objective::MaxModel, Unit::Share) => value / Unit::WHOLE as f64,
        _ => value,
    }
}

/// The certificate of a search's best plan.
pub(super) fn certificate<M: Market>(
    market: &M,
    scene: &Scene<'_>,
    wish: &Wish,
    found: &Attempt,
    pool: &[Candidate],
    cuts: &Cuts,
    stop: &Stop,
) -> Certificate {
    let own = || pool.first().and_then(|best| super::attempt::value(wish, best));
    let value = match wish.objective {
        // Devices and batches were counted by the search.
        Objective::MinDevices | Objective::MinCost | Objective::MaxBatch => found.value.or_else(own),
        _ => own(),
    };
    let value = value.unwrap_or(f64::NAN);
    // What a merger keeps together was not searched apart.
    let bound = found.bound.filter(|_| !wish.is_merged);
    let is_share =
        wish.unit == Unit::Share && matches!(wish.objective, Objective::MinPeakMemory | Objective::MaxModel);
    // The terms of a plan's seconds may have been added up in another order than those of the bound.
    let is_same = |bound: f64| wish.objective.is_timed() && (value - bound).abs() <= SAME * bound.abs();
    let bound = bound.map(|bound| if is_same(bound) { value } else { bound });
    let closed = bound == Some(value);
    let (value, bound) = (counted(wish, value), bound.map(|bound| counted(wish, bound)));
    Certificate {
        value,
        bound,
        gap: bound.filter(|&bound| bound > 0.0).map(|bound| ((value - bound) / bound).abs()),
        unit: if is_share { "share" } else { wish.objective.unit() }.to_owned(),
        proven: found.is_proven() && closed,
        stopped: found.is_stopped,
        states: found.states,
        rejected: rejected(market, scene, wish, (found, pool), cuts, stop),
    }
}

/// The first alternatives: those that came next, what is faster but does not fit, and what has no plan.
fn rejected<M: Market>(
    market: &M,
    scene: &Scene<'_>,
    wish: &Wish,
    (found, pool): (&Attempt, &[Candidate]),
    cuts: &Cuts,
    stop: &Stop,
) -> Vec<Rejected> {
    let Some(best) = pool.first() else { return Vec::new() };
    let mut rejected = Vec::new();
    rejected.extend(faster_without_limits(market, scene, wish, best, cuts, stop));
    rejected.extend(found.passed_over.iter().rev().take(1).map(|(what, value)| Rejected {
        what: what.clone(),
        value: Some(*value),
        reason: "no plan fits within the limits".to_owned(),
    }));
    let unfit = unfit(market, scene, wish, found, cuts, stop);
    let others = pool.iter().skip(1);
    let room = NAMED.saturating_sub(rejected.len() + unfit.iter().count());
    if wish.objective != Objective::Pareto {
        rejected.extend(others.take(room).map(|other| Rejected {
            what: other.describe(),
            value: super::attempt::value(wish, other).map(|value| counted(wish, value)),
            reason: worse(wish, best, other),
        }));
    }
    rejected.extend(unfit);
    rejected.truncate(NAMED);
    rejected
}

/// The plan that would be fastest if devices held any number of bytes, where that is not the best one.
fn faster_without_limits<M: Market>(
    market: &M,
    scene: &Scene<'_>,
    wish: &Wish,
    best: &Candidate,
    cuts: &Cuts,
    stop: &Stop,
) -> Option<Rejected> {
    if wish.objective != Objective::MinIterationTime {
        return None;
    }
    let mut least = best.seconds()?;
    let part = Part::whole(scene.fleet);
    let cuts = part.cuts(cuts)?;
    let mut faster: Option<Candidate> = None;
    let formula = Effort::besides(stop).formula();
    for variant in variants(wish, &part, market.layers()) {
        if formula.is_over() {
            break;
        }
        let asked = Asked::new(market, wish, &variant, &part, &cuts);
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
    let most = wish.constraints.max_peak_bytes.unwrap_or(u64::MAX);
    let reason = match lacking.max_by_key(|&(index, _, lacks)| (lacks, std::cmp::Reverse(index))) {
        Some((index, stage, lacks)) => format!(
            "{} faster, but stage {index} lacks {lacks} on {}",
            percent(ratio),
            scene.device_range(&stage.devices)
        ),
        None if plan.peak_bytes() > most => {
            format!("{} faster, but its peak is above the limit", percent(ratio))
        }
        // It fits, and was slower once simulated.
        None => return None,
    };
    Some(Rejected { what: plan.describe(), value: Some(least), reason })
}

/// The first variant without a plan, and what it lacks.
fn unfit<M: Market>(
    market: &M,
    scene: &Scene<'_>,
    wish: &Wish,
    found: &Attempt,
    cuts: &Cuts,
    stop: &Stop,
) -> Option<Rejected> {
    let variant = found.unfit.first()?;
    let on_all_devices = matches!(wish.objective, Objective::MinPeakMemory | Objective::MinIterationTime)
        && !wish.constraints.allow_idle_devices;
    if !on_all_devices || stop.is_requested() {
        return None;
    }
    let part = Part::whole(scene.fleet);
    let one = Wish {
        batches: vec![variant.batch],
        schedules: vec![variant.schedule],
        recompute: policies(variant),
        ..wish.clone()
    };
    let cuts_of_part = part.cuts(cuts)?;
    let stop = Effort::besides(stop).peaks();
    let lack = lack(market, &one, std::slice::from_ref(variant), &part, &cuts_of_part, &stop)?;
    Some(Rejected { what: variant.to_string(), value: None, reason: lack.describe(scene) })
}

fn policies(variant: &Variant) -> Vec<loadmaster_proto::training::RecomputePolicy> {
    let mut policies: Vec<_> = variant.choices.iter().map(|choice| choice.recompute).collect();
    policies.dedup();
    policies
}

/// Why the best plan was taken instead of another one.
fn worse(wish: &Wish, best: &Candidate, other: &Candidate) -> String {
    match wish.objective {
        Objective::MinIterationTime | Objective::Pareto => {
            match (best.simulated, other.simulated) {
                (Some(one), Some(two)) if one < two => {
                    return format!(
                        "{} slower: {two:.4} s against {one:.4} s, simulated",
                        percent(two / one - 1.0)
                    );
                }
                (Some(one), Some(two)) if one == two => {
                    return "as fast, with more memory or more stages".to_owned();
                }
                _ => {}
            }
            match (best.closed_form, other.closed_form) {
                (Some(one), Some(two)) => {
                    format!(
                        "{} slower by the closed form: {two:.4} s against {one:.4} s",
                        percent(two / one - 1.0)
                    )
                }
                _ => "slower".to_owned(),
            }
        }
        _ => {
            let (one, two) = (best.peaks(wish.unit), other.peaks(wish.unit));
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
                "the same highest peak, and higher ones below it".to_owned()
            } else {
                "the same peaks, but slower or with more stages".to_owned()
            }
        }
    }
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

/// The plans of a search and those that come next, best first: the best of each variant, and those that differ from
/// the best one in a cut.
pub(super) fn pool<M: Market>(
    market: &M,
    wish: &Wish,
    found: &Attempt,
    fleet: &Fleet,
    cuts: &Cuts,
    stop: &Stop,
) -> Vec<Candidate> {
    let mut pool = found.candidates.clone();
    let is_timed = wish.objective == Objective::MinIterationTime;
    let is_ranked = is_timed || wish.objective == Objective::MinPeakMemory;
    // Others are in the order of what counts besides, or are a front.
    let Some(best) = pool.first().cloned().filter(|_| is_ranked) else { return pool };
    let is_asked = wish.alternatives > 0 && wish.mode == SearchMode::Exact;
    // What other cuts there are on the same devices, with the same batch and schedule.
    if is_asked && best.devices() == fleet.devices() {
        let one = Wish {
            batches: vec![best.batch],
            schedules: vec![best.schedule],
            alternatives: 0,
            ..wish.clone()
        };
        let inner = best.stages.iter().take(best.stages.len().saturating_sub(1)).map(|stage| stage.last);
        let effort = Effort::besides(stop);
        for layer in inner.take(MOST_FORBIDDEN) {
            if stop.is_requested() {
                break;
            }
            let mut without = cuts.clone();
            without.keep_together(layer..=layer + 1);
            let part = Part::whole(fleet);
            let others = super::ranking::rank_by_formula(market, &one, &part, &without, &effort);
            pool.extend(others.into_iter().take(1));
        }
    }
    if is_timed {
        super::ranking::simulate_best(&mut pool);
    }
    pool.sort_by(|a, b| super::ranking::order(wish, a, b));
    let mut distinct: Vec<Candidate> = Vec::with_capacity(pool.len());
    for plan in pool {
        if !distinct.iter().any(|known| known.is_same(&plan)) {
            distinct.push(plan);
        }
    }
    distinct
}

/// The plans that come next, with their values as a certificate counts them.
pub(super) fn alternatives(wish: &Wish, pool: &[Candidate]) -> Vec<(Candidate, f64)> {
    let mut next: Vec<Candidate> = pool.iter().skip(1).take(wish.alternatives).cloned().collect();
    next.iter_mut().for_each(Candidate::simulate);
    next.sort_by(|a, b| super::ranking::order(wish, a, b));
    next.into_iter()
        .filter_map(|plan| {
            let value = super::attempt::value(wish, &plan).map(|value| counted(wish, value))?;
            Some((plan, value))
        })
        .collect()
}
