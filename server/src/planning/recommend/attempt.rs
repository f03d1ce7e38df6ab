//! One search for a wish: which devices, which batch, and the best plans on them.

use loadmaster_proto::objective::Objective;

use super::candidate::Candidate;
use super::market::{Batch, Market};
use super::part::{Part, are_complete, parts};
use super::ranking::{Ranking, rank, settle};
use super::wish::Wish;
use crate::planning::search::{Cuts, Fleet, Stop};

/// What a search for a wish came to.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    /// Plans, best first.
    pub candidates: Vec<Candidate>,
    /// The best one's value in the objective's terms; none without a plan.
    pub value: Option<f64>,
    /// No plan has a better value; none where nothing is known.
    pub bound: Option<f64>,
    /// States weighed.
    pub states: u64,
    /// Whether it was stopped from outside.
    pub is_stopped: bool,
    /// Whether part of the space was too large to look at whole.
    pub is_bounded: bool,
    /// What was looked at before the best and has no plan: for people, with the value that it would have had.
    pub passed_over: Vec<(String, f64)>,
    /// Variants of which no plan fits, of the devices and the batch that the best plan is on.
    pub unfit: Vec<super::variant::Variant>,
}

impl Attempt {
    fn of(ranking: Ranking, value: Option<f64>, bound: Option<f64>) -> Self {
        Self {
            candidates: ranking.candidates,
            value,
            bound,
            states: ranking.states,
            is_stopped: ranking.is_stopped,
            is_bounded: ranking.is_bounded,
            passed_over: Vec::new(),
            unfit: ranking.unfit,
        }
    }

    /// Whether the best plan is proven best.
    pub(super) fn is_proven(&self) -> bool {
        !self.is_stopped && !self.is_bounded && self.value.is_some()
    }
}

/// Searches for a wish on a fleet.
pub(super) fn attempt<M: Market>(
    market: &M,
    wish: &Wish,
    fleet: &Fleet,
    cuts: &Cuts,
    stop: &Stop,
) -> Attempt {
    match wish.objective {
        Objective::MinDevices | Objective::MinCost => fewest(market, wish, fleet, cuts, stop),
        Objective::MaxBatch => largest_batch(market, wish, fleet, cuts, stop),
        // Of several models the caller asks for one after another.
        Objective::MinPeakMemory | Objective::MaxModel | Objective::MinIterationTime | Objective::Pareto => {
            let ranking = on_any_part(market, wish, fleet, cuts, stop);
            let value = best_value(wish, &ranking.candidates);
            let bound = ranking.bound.filter(|bound| bound.is_finite());
            Attempt::of(ranking, value, bound)
        }
    }
}

/// A plan's value by the objectives that weigh plans on given devices: by the closed form for time, because that
/// is what is proven.
pub(super) fn value(wish: &Wish, candidate: &Candidate) -> Option<f64> {
    match wish.objective {
        Objective::MinIterationTime | Objective::Pareto => candidate.closed_form,
        Objective::MinDevices => Some(f64::from(candidate.devices())),
        Objective::MinCost => candidate.hourly_price,
        Objective::MaxBatch => Some(f64::from(candidate.batch.micro_batch_size)),
        Objective::MinPeakMemory | Objective::MaxModel => {
            candidate.peaks(wish.unit).highest().map(|peak| peak as f64)
        }
    }
}

/// The best value of any of these plans: of time it need not be that of the first, which is the fastest as simulated.
pub(super) fn best_value(wish: &Wish, plans: &[Candidate]) -> Option<f64> {
    let values = plans.iter().filter_map(|plan| value(wish, plan));
    if wish.objective.is_maximum() { values.reduce(f64::max) } else { values.reduce(f64::min) }
}

/// All devices, or any part of them where devices may stay idle.
fn on_any_part<M: Market>(market: &M, wish: &Wish, fleet: &Fleet, cuts: &Cuts, stop: &Stop) -> Ranking {
    if !wish.constraints.allow_idle_devices {
        return rank(market, wish, &Part::whole(fleet), cuts, stop);
    }
    let mut all = Ranking { bound: Some(f64::INFINITY), ..Ranking::default() };
    // The whole first: a search that is stopped early should not end on a corner of the fleet.
    for part in parts(fleet).into_iter().rev() {
        let one = rank(market, wish, &part, cuts, stop);
        all.bound = all.bound.zip(one.bound).map(|(a, b)| a.min(b));
        all.states = all.states.saturating_add(one.states);
        all.asked += one.asked;
        all.is_bounded |= one.is_bounded;
        all.candidates.extend(one.candidates);
        if all.unfit.is_empty() {
            all.unfit = one.unfit;
        }
        if one.is_stopped || stop.is_requested() {
            all.is_stopped = true;
            all.bound = None;
            break;
        }
    }
    if !has_every_part(wish, fleet) {
        all.is_bounded = true;
        all.bound = None;
    }
    if wish.objective == Objective::Pareto {
        super::ranking::keep_front(&mut all.candidates, wish.unit);
    } else {
        all.candidates.sort_by(|a, b| super::ranking::order(wish, a, b));
    }
    all
}

/// Whether no part of a fleet is left out that may be better than those that are looked at. Nodes are filled one
/// after another, which leaves out some with equally many devices on each.
fn has_every_part(wish: &Wish, fleet: &Fleet) -> bool {
    are_complete(fleet) && (fleet.nodes.len() < 2 || wish.rules.is_none_or(|rules| !rules.even_nodes))
}

/// The fewest or cheapest devices that hold the training within its limits: parts of the fleet in the order of
/// their value, until one does.
fn fewest<M: Market>(market: &M, wish: &Wish, fleet: &Fleet, cuts: &Cuts, stop: &Stop) -> Attempt {
    let worth = |part: &Part| match wish.objective {
        Objective::MinCost => part.hourly_price().unwrap_or(f64::INFINITY),
        _ => f64::from(part.devices()),
    };
    let mut parts = parts(fleet);
    parts.sort_by(|a, b| {
        let price = |part: &Part| part.hourly_price().unwrap_or(f64::INFINITY);
        let by_value = worth(a).total_cmp(&worth(b));
        by_value.then_with(|| price(a).total_cmp(&price(b))).then(a.devices().cmp(&b.devices()))
    });
    // Whatever the limits leave, the plan should be good besides: the fastest where time counts.
    let timed = wish.constraints.max_iteration_seconds.is_some();
    let objective = if timed { Objective::MinIterationTime } else { Objective::MinPeakMemory };
    let asked = Wish { objective, ..wish.clone() };
    let is_complete = has_every_part(wish, fleet);
    let (mut states, mut passed_over, mut is_bounded) = (0_u64, Vec::new(), !is_complete);
    // The first part of which it is not proven that no plan fits.
    let mut doubtful = None;
    for part in &parts {
        let ranking = rank(market, &asked, part, cuts, stop);
        states = states.saturating_add(ranking.states);
        // A plan that was found fits, whether or not the search for a better one was stopped.
        if !ranking.candidates.is_empty() {
            let stopped = Ranking { states, is_stopped: false, is_bounded, ..ranking };
            let value = Some(worth(part));
            let bound = doubtful.or(value).filter(|_| is_complete);
            return Attempt { passed_over, ..Attempt::of(stopped, value, bound) };
        }
        if ranking.is_stopped || stop.is_requested() {
            let bound = doubtful.or_else(|| Some(worth(part))).filter(|_| is_complete);
            return last_resort(market, &asked, fleet, cuts, worth, bound, states, passed_over);
        }
        if ranking.is_bounded {
            is_bounded = true;
            doubtful = doubtful.or_else(|| Some(worth(part)));
        }
        passed_over.push((format!("{} devices", part.devices()), worth(part)));
    }
    let nothing = Ranking { states, is_bounded, ..Ranking::default() };
    Attempt { passed_over, ..Attempt::of(nothing, None, None) }
}

/// A search for the fewest devices that was stopped: all of them, if they are enough, with the gap to the part
/// that it had come to.
#[expect(clippy::too_many_arguments, reason = "what one search hands over to the next")]
fn last_resort<M: Market>(
    market: &M,
    wish: &Wish,
    fleet: &Fleet,
    cuts: &Cuts,
    worth: impl Fn(&Part) -> f64,
    bound: Option<f64>,
    states: u64,
    passed_over: Vec<(String, f64)>,
) -> Attempt {
    let whole = Part::whole(fleet);
    // One look, which a stopped search may still take: the first variant that fits.
    let mut ranking = first_fit(market, wish, &whole, cuts, &Stop::default());
    settle(&mut ranking, wish);
    let states = states.saturating_add(ranking.states);
    let value = (!ranking.candidates.is_empty()).then(|| worth(&whole));
    let stopped = Ranking { states, is_stopped: true, ..ranking };
    Attempt { passed_over, ..Attempt::of(stopped, value, bound) }
}

/// The first variant of a wish that fits, if any, whatever the limits on time and peaks.
pub(super) fn first_fit<M: Market>(
    market: &M,
    wish: &Wish,
    part: &Part,
    cuts: &Cuts,
    stop: &Stop,
) -> Ranking {
    let mut ranking = Ranking::default();
    let Some(cuts) = part.cuts(cuts) else { return ranking };
    if wish.rules.is_some_and(|rules| rules.even_nodes) && !part.is_even() {
        return ranking;
    }
    for variant in super::variant::variants(wish, part, market.layers()) {
        if stop.is_requested() {
            ranking.is_stopped = true;
            break;
        }
        let asked = super::solve::Asked::new(market, wish, &variant, part, &cuts);
        let (found, states) = asked.any_fit(wish, stop);
        ranking.states = ranking.states.saturating_add(states);
        if let Some(found) = found {
            ranking.candidates.push(found);
            break;
        }
    }
    ranking
}

/// The largest micro-batch that fits: from the largest listed one down, so that nothing is taken for granted of
/// sizes in between.
fn largest_batch<M: Market>(market: &M, wish: &Wish, fleet: &Fleet, cuts: &Cuts, stop: &Stop) -> Attempt {
    let timed = wish.constraints.max_iteration_seconds.is_some();
    let objective = if timed { Objective::MinIterationTime } else { Objective::MinPeakMemory };
    let mut batches: Vec<Batch> = wish.batches.clone();
    batches.sort_by_key(|batch| std::cmp::Reverse(batch.micro_batch_size));
    let (mut states, mut passed_over, mut is_bounded) = (0_u64, Vec::new(), false);
    let mut reached = None;
    // The first size of which it is not proven that no plan fits.
    let mut doubtful = None;
    for batch in batches {
        let size = f64::from(batch.micro_batch_size);
        let one = Wish { objective, batches: vec![batch], ..wish.clone() };
        let ranking = on_any_part(market, &one, fleet, cuts, stop);
        states = states.saturating_add(ranking.states);
        if !ranking.candidates.is_empty() {
            let found = Ranking { states, is_bounded, is_stopped: reached.is_some(), ..ranking };
            return Attempt { passed_over, ..Attempt::of(found, Some(size), doubtful.or(Some(size))) };
        }
        // Stopped, it goes on to look for anything that fits, and says from where on it did not prove anything.
        if ranking.is_stopped && reached.is_none() {
            reached = Some(size);
        }
        is_bounded |= ranking.is_bounded;
        if ranking.is_bounded || ranking.is_stopped {
            doubtful = doubtful.or(Some(size));
        }
        passed_over.push((format!("micro-batch {}", batch.micro_batch_size), size));
    }
    let nothing = Ranking { states, is_bounded, is_stopped: reached.is_some(), ..Ranking::default() };
    Attempt { passed_over, ..Attempt::of(nothing, None, doubtful) }
}
