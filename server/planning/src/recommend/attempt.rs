//! One search for a wish: which devices, which batch, and the best plans on them.

use loadmaster_proto::plan::objective::Objective;

use super::candidate::Candidate;
use super::effort::Effort;
use super::fewest::fewest;
use super::lack::may_start_on;
use super::market::{Batch, Market};
use super::part::{Part, Parts};
use super::ranking::{Ranking, rank};
use super::relaxed::least;
use super::wish::Wish;
use crate::search::{Cuts, Fleet};
use crate::simulate::MAX_PASSES;

/// Most parts of a fleet that are searched whole: the others only where a look at them says that they may be better.
const MOST_SEARCHED: usize = 512;

/// Most devices or micro-batches that are named as not looked at whole.
pub(super) const MOST_NAMED: usize = 8;

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
    /// What was not looked at whole, and may have a better plan: for people.
    pub open: Vec<String>,
    /// Variants of which no plan fits, of the devices and the batch that the best plan is on.
    pub unfit: Vec<super::variant::Variant>,
}

impl Attempt {
    pub(super) fn of(ranking: Ranking, value: Option<f64>, bound: Option<f64>) -> Self {
        Self {
            candidates: ranking.candidates,
            value,
            bound,
            states: ranking.states,
            is_stopped: ranking.is_stopped,
            is_bounded: ranking.is_bounded,
            passed_over: Vec::new(),
            open: Vec::new(),
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
    effort: &Effort,
) -> Attempt {
    match wish.objective {
        Objective::MinDevices | Objective::MinCost => fewest(market, wish, fleet, cuts, effort),
        Objective::MaxBatch => largest_batch(market, wish, fleet, cuts, effort),
        // Of several models the caller asks for one after another.
        Objective::MinPeakMemory | Objective::MaxModel | Objective::MinIterationTime | Objective::Pareto => {
            let ranking = on_any_part(market, wish, fleet, cuts, effort);
            let value = best_value(wish, &ranking.candidates);
            let bound = ranking.bound.filter(|bound| bound.is_finite());
            Attempt::of(ranking, value, bound)
        }
    }
}

/// A plan's value in the objective's terms.
pub(super) fn value(wish: &Wish, candidate: &Candidate) -> Option<f64> {
    match wish.objective {
        // The formula stands in for what is too large to be simulated, and for nothing else.
        Objective::MinIterationTime | Objective::Pareto => {
            let is_too_large = candidate.passes() > MAX_PASSES;
            candidate.simulated.or_else(|| candidate.closed_form.filter(|_| is_too_large))
        }
        Objective::MinDevices => Some(f64::from(candidate.devices())),
        Objective::MinCost => candidate.hourly_price,
        Objective::MaxBatch => Some(f64::from(candidate.batch.micro_batch_size)),
        Objective::MinPeakMemory | Objective::MaxModel => {
            candidate.peaks(wish.unit).highest().map(|peak| peak as f64)
        }
    }
}

/// The best value of any of these plans.
pub(super) fn best_value(wish: &Wish, plans: &[Candidate]) -> Option<f64> {
    let values = plans.iter().filter_map(|plan| value(wish, plan));
    if wish.objective.is_maximum() { values.reduce(f64::max) } else { values.reduce(f64::min) }
}

/// All devices, or any part of them where devices may stay idle.
pub(super) fn on_any_part<M: Market>(
    market: &M,
    wish: &Wish,
    fleet: &Fleet,
    cuts: &Cuts,
    effort: &Effort,
) -> Ranking {
    if !wish.constraints.allow_idle_devices {
        return rank(market, wish, &Part::whole(fleet), cuts, effort);
    }
    let is_even = wish.rules.is_some_and(|rules| rules.even_nodes);
    let (parts, is_complete) = Parts::of(fleet, cuts, is_even).all();
    let mut all = Ranking { bound: Some(f64::INFINITY), ..Ranking::default() };
    let mut known: Vec<(Vec<u32>, f64)> = Vec::new();
    let mut searched = 0;
    // The whole first: a search that is stopped early should not end on a corner of the fleet.
    for part in parts {
        if effort.is_requested() {
            all.is_stopped = true;
            all.bound = None;
            break;
        }
        if effort.is_listed_out() && !all.candidates.is_empty() {
            // Of parts that are not even listed nothing is known.
            all.is_bounded = true;
            all.bound = None;
            break;
        }
        // With as many devices of each kind no part has a better plan than they would have in one node.
        let mut counts = vec![0; fleet.kinds.len()];
        part.fleet.nodes.iter().for_each(|node| counts[node.kind] += node.devices);
        let at_least = match known.iter().find(|(other, _)| *other == counts) {
            Some((_, at_least)) => *at_least,
            None => {
                let found = least(market, wish, fleet, &counts, cuts, effort);
                let at_least = if wish.objective.is_timed() { found.seconds } else { found.highest };
                known.push((counts, at_least));
                at_least
            }
        };
        let best = best_value(wish, &all.candidates).unwrap_or(f64::INFINITY);
        let is_front = wish.objective == Objective::Pareto;
        if at_least.is_infinite() || (!is_front && at_least > best) {
            continue;
        }
        if searched >= MOST_SEARCHED || effort.is_spent() && !all.candidates.is_empty() {
            all.is_bounded = true;
            all.bound = all.bound.map(|bound| bound.min(at_least));
            continue;
        }
        searched += 1;
        let one = rank(market, wish, &part, cuts, effort);
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
    if wish.objective == Objective::Pareto {
        super::ranking::keep_front(&mut all.candidates, wish.unit);
    } else {
        all.candidates.sort_by(|a, b| super::ranking::order(wish, a, b));
    }
    let best = best_value(wish, &all.candidates);
    if let (Some(bound), Some(best)) = (all.bound, best) {
        all.bound = Some(bound.min(best));
        // Parts that were left out have nothing better.
        if is_complete && bound >= best && wish.objective != Objective::Pareto && !all.is_stopped {
            all.is_bounded = false;
        }
    }
    all
}

/// The first variant of a wish that fits, if any, whatever the limits on time and peaks.
pub(super) fn first_fit<M: Market>(
    market: &M,
    wish: &Wish,
    part: &Part,
    cuts: &Cuts,
    effort: &Effort,
) -> Option<Candidate> {
    let cuts = part.cuts(cuts)?;
    if !may_start_on(wish, part) {
        return None;
    }
    let stop = effort.peaks();
    super::variant::variants(wish, part, market.layers()).iter().find_map(|variant| {
        if stop.is_over() {
            return None;
        }
        let asked = super::solve::Asked::new(market, wish, variant, part, &cuts);
        stop.take(asked.work());
        asked.any_fit(wish, &stop).0
    })
}

/// The first of these micro-batches, the largest first, that fits if all after one that fits do too: where to begin,
/// and no more.
fn fits_by_halves<M: Market>(
    market: &M,
    wish: &Wish,
    batches: &[Batch],
    fleet: &Fleet,
    cuts: &Cuts,
    effort: &Effort,
) -> Option<usize> {
    let whole = Part::whole(fleet);
    let (mut low, mut high) = (0, batches.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let one = Wish { batches: vec![*batches.get(middle)?], ..wish.clone() };
        match first_fit(market, &one, &whole, cuts, effort) {
            Some(_) => high = middle,
            None => low = middle + 1,
        }
    }
    (low < batches.len()).then_some(low)
}

/// The largest micro-batch that fits: from the largest listed one down, so that nothing is taken for granted of
/// sizes in between. Those above one that fits are passed over, and said to be open, once nothing is left to look at
/// them with.
fn largest_batch<M: Market>(market: &M, wish: &Wish, fleet: &Fleet, cuts: &Cuts, effort: &Effort) -> Attempt {
    let timed = wish.constraints.max_iteration_seconds.is_some();
    let objective = if timed { Objective::MinIterationTime } else { Objective::MinPeakMemory };
    let mut batches: Vec<Batch> = wish.batches.clone();
    batches.sort_by_key(|batch| std::cmp::Reverse(batch.micro_batch_size));
    let (mut states, mut passed_over, mut open) = (0_u64, Vec::new(), Vec::new());
    let (mut is_stopped, mut is_bounded) = (false, false);
    // All sizes share it.
    let last = Effort::last_look();
    // The first size of which it is not proven that no plan fits.
    let mut doubtful = None;
    // Asked for where nothing is left to prove with, and not before.
    let mut known = None;
    let mut is_passed = |index: usize| {
        let halves = || fits_by_halves(market, wish, &batches, fleet, cuts, &effort.to_halve());
        let known: Option<usize> = *known.get_or_insert_with(halves);
        known.is_some_and(|known| index < known)
    };
    for (index, &batch) in batches.iter().enumerate() {
        let size = f64::from(batch.micro_batch_size);
        if effort.is_blind() && !effort.is_requested() && is_passed(index) {
            is_bounded = true;
            doubtful = doubtful.or(Some(size));
            if open.len() < MOST_NAMED {
                open.push(format!("micro-batch {}", batch.micro_batch_size));
            }
            continue;
        }
        let one = Wish { objective, batches: vec![batch], ..wish.clone() };
        // Stopped, it still looks for anything that fits, and says from where on it proved nothing.
        let ranking = if effort.is_requested() {
            let plan = first_fit(market, &one, &Part::whole(fleet), cuts, &last);
            let mut ranking =
                Ranking { candidates: plan.into_iter().collect(), is_stopped: true, ..Ranking::default() };
            super::ranking::settle(&mut ranking, &one);
            ranking
        } else {
            on_any_part(market, &one, fleet, cuts, effort)
        };
        states = states.saturating_add(ranking.states);
        is_stopped |= ranking.is_stopped;
        if !ranking.candidates.is_empty() {
            let found =
                Ranking { states, is_bounded, is_stopped: is_stopped && doubtful.is_some(), ..ranking };
            return Attempt { passed_over, open, ..Attempt::of(found, Some(size), doubtful.or(Some(size))) };
        }
        if ranking.is_bounded || ranking.is_stopped {
            is_bounded |= ranking.is_bounded;
            doubtful = doubtful.or(Some(size));
        }
        passed_over.push((format!("micro-batch {}", batch.micro_batch_size), size));
    }
    let nothing = Ranking { states, is_bounded, is_stopped, ..Ranking::default() };
    Attempt { passed_over, open, ..Attempt::of(nothing, None, doubtful) }
}
