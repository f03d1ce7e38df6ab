//! The plans of a wish on one set of devices, best first.

use std::cmp::Ordering;

use loadmaster_proto::objective::{Objective, SearchMode};

use super::annealed::annealed;
use super::candidate::Candidate;
use super::market::Market;
use super::part::Part;
use super::solve::{Asked, Solved};
use super::variant::{Variant, variants};
use super::wish::Wish;
use crate::planning::search::time::Cap;
use crate::planning::search::{Cuts, Ended, Stop, Unit};

/// Plans whose closed form is this much above the lowest are simulated as well: the simulation ranks them.
const SIMULATED_WITHIN: f64 = 1.1;

/// Most plans that are simulated.
const MOST_SIMULATED: usize = 64;

/// What a wish comes to on one set of devices.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranking {
    /// Plans, best first; one for each variant that has any, and of a front all.
    pub candidates: Vec<Candidate>,
    /// No plan is worth less: peak in the wish's unit, or seconds by the closed form. Infinite where there is
    /// none; unset where nothing is known because the search was stopped.
    pub bound: Option<f64>,
    /// States weighed.
    pub states: u64,
    /// Whether it was stopped from outside.
    pub is_stopped: bool,
    /// Whether part of the space was too large to look at whole.
    pub is_bounded: bool,
    /// Variants of which no plan fits.
    pub unfit: Vec<Variant>,
    /// Variants asked about.
    pub asked: usize,
}

impl Ranking {
    fn add(&mut self, variant: &Variant, solved: Solved, is_pruned: bool) {
        self.asked += 1;
        self.states = self.states.saturating_add(solved.states);
        match solved.ended {
            Ended::Proven => {}
            Ended::Stopped => self.is_stopped = true,
            Ended::Bounded => self.is_bounded = true,
        }
        self.bound = match (self.bound, solved.bound) {
            (Some(bound), Some(other)) => Some(bound.min(other)),
            (Some(_), None) | (None, _) => None,
        };
        match solved.best {
            Some(best) => self.candidates.push(best),
            None if solved.ended == Ended::Proven && !is_pruned => self.unfit.push(variant.clone()),
            None => {}
        }
    }

    /// What was not asked about any more may hold anything.
    fn stop(&mut self) {
        self.is_stopped = true;
        self.bound = None;
    }
}

/// Searches every variant of a wish on a part of the fleet.
pub(super) fn rank<M: Market>(market: &M, wish: &Wish, part: &Part, cuts: &Cuts, stop: &Stop) -> Ranking {
    let mut ranking = Ranking { bound: Some(f64::INFINITY), ..Ranking::default() };
    let Some(cuts) = part.cuts(cuts) else { return ranking };
    if wish.rules.is_some_and(|rules| rules.even_nodes) && !part.is_even() {
        return ranking;
    }
    let variants = variants(wish, part, market.layers());
    let ask = |variant| Asked::new(market, wish, variant, part, &cuts);
    let is_timed = matches!(wish.objective, Objective::MinIterationTime | Objective::Pareto);
    let limit = wish.constraints.max_iteration_seconds;
    match (wish.objective, is_timed) {
        (Objective::Pareto, _) => {
            for variant in &variants {
                if stop.is_requested() {
                    ranking.stop();
                    break;
                }
                front(&mut ranking, &ask(variant), variant, wish, stop);
            }
        }
        (_, true) if wish.mode == SearchMode::AmpAnnealing => {
            if let Some(first) = variants.first() {
                ranking.add(first, annealed(market, wish, &variants, part, &cuts, stop), true);
            }
        }
        (_, true) => fastest(&mut ranking, &variants, ask, wish, stop),
        // The least memory within a time limit is a point of the front.
        (_, false) if limit.is_some() => {
            for variant in &variants {
                if stop.is_requested() {
                    ranking.stop();
                    break;
                }
                front(&mut ranking, &ask(variant), variant, wish, stop);
            }
            // Seconds bound nothing that is counted in bytes.
            ranking.bound = ranking.bound.filter(|bound| bound.is_infinite());
        }
        (_, false) => {
            for variant in &variants {
                if stop.is_requested() {
                    ranking.stop();
                    break;
                }
                let solved = ask(variant).lowest_peaks(wish, stop);
                ranking.add(variant, solved, false);
            }
        }
    }
    settle(&mut ranking, wish);
    ranking
}

/// The fastest plan of each variant, as far as it is near the fastest of all.
fn fastest<'a, C: crate::planning::search::StageCosts>(
    ranking: &mut Ranking,
    variants: &'a [Variant],
    ask: impl Fn(&'a Variant) -> Asked<'a, C>,
    wish: &Wish,
    stop: &Stop,
) {
    let cap = cap(wish);
    let mut least = f64::INFINITY;
    for variant in variants {
        if stop.is_requested() {
            ranking.stop();
            return;
        }
        let below =
            (least * SIMULATED_WITHIN).min(wish.constraints.max_iteration_seconds.unwrap_or(f64::INFINITY));
        let below = below.is_finite().then_some(below);
        let solved = ask(variant).fastest(wish, cap, below, stop);
        let found = solved.best.as_ref().and_then(|best| best.closed_form);
        least = least.min(found.unwrap_or(f64::INFINITY));
        ranking.add(variant, solved, below.is_some());
    }
}

/// All plans of a variant that no other one of it beats in both memory and time.
fn front<C: crate::planning::search::StageCosts>(
    ranking: &mut Ranking,
    asked: &Asked<'_, C>,
    variant: &Variant,
    wish: &Wish,
    stop: &Stop,
) {
    let (points, solved) = asked.front(wish.unit, stop);
    let has_best = solved.best.is_some();
    ranking.add(variant, solved, false);
    // The best of the answer is one of the points.
    if has_best {
        ranking.candidates.pop();
    }
    ranking.candidates.extend(points);
    // Of plans below a cap in bytes the front in shares may lack one.
    ranking.is_bounded |= wish.unit == Unit::Share && wish.constraints.max_peak_bytes.is_some();
}

/// The cap on peaks that a wish names.
fn cap(wish: &Wish) -> Option<Cap> {
    wish.constraints.max_peak_bytes.map(|most| Cap { unit: Unit::Bytes, most })
}

/// Drops what the wish does not allow, simulates what is near the best, and puts all in order.
pub(super) fn settle(ranking: &mut Ranking, wish: &Wish) {
    let Ranking { candidates, is_bounded, .. } = ranking;
    if let Some(most) = wish.constraints.max_peak_bytes {
        let found = candidates.len();
        candidates.retain(|candidate| candidate.peak_bytes() <= most);
        // The lowest share need not be the fewest bytes: another plan may keep to the cap.
        *is_bounded |= wish.unit == Unit::Share && candidates.len() < found;
    }
    match wish.objective {
        Objective::MinIterationTime | Objective::Pareto => {
            candidates.sort_by(|a, b| a.by_seconds(b, wish.unit));
            simulate_near(candidates);
        }
        _ => {
            candidates.sort_by(|a, b| a.by_peaks(b, wish.unit));
            let shown = wish.alternatives + 1;
            let limited = wish.constraints.max_iteration_seconds.is_some();
            let simulated = if limited { MOST_SIMULATED } else { shown };
            candidates.iter_mut().take(simulated).for_each(Candidate::simulate);
        }
    }
    if let Some(limit) = wish.constraints.max_iteration_seconds {
        candidates.retain(|candidate| {
            let keeps = |seconds: Option<f64>| seconds.is_some_and(|seconds| seconds <= limit);
            // Searches know the closed form alone: where the simulation disagrees, a plan that was not looked at
            // may keep to the limit.
            *is_bounded |= keeps(candidate.closed_form) && !keeps(candidate.seconds());
            keeps(candidate.seconds())
        });
    }
    if wish.objective == Objective::Pareto {
        keep_front(candidates, wish.unit);
    } else {
        candidates.sort_by(|a, b| order(wish, a, b));
    }
}

/// Simulates the plans whose closed forms are near the lowest; the others are not ranked by simulation.
pub(super) fn simulate_near(plans: &mut [Candidate]) {
    let least = plans.iter().filter_map(|plan| plan.closed_form).fold(f64::INFINITY, f64::min);
    let mut left = MOST_SIMULATED;
    for plan in plans {
        if left > 0 && plan.closed_form.is_some_and(|seconds| seconds <= least * SIMULATED_WITHIN) {
            plan.simulate();
            left -= 1;
        } else {
            plan.simulated = None;
        }
    }
}

/// The order of a wish's objective.
pub(super) fn order(wish: &Wish, one: &Candidate, other: &Candidate) -> Ordering {
    match wish.objective {
        Objective::MinIterationTime | Objective::Pareto => {
            // What was simulated was so because its closed form is among the lowest.
            let rank = |candidate: &Candidate| candidate.simulated.is_none();
            rank(one).cmp(&rank(other)).then_with(|| one.by_seconds(other, wish.unit))
        }
        _ => one.by_peaks(other, wish.unit),
    }
}

/// Keeps the plans that no other one beats in both, the fastest first.
///
/// Both are compared as the searches compare them: the highest peak, and seconds by the closed form.
pub(super) fn keep_front(candidates: &mut Vec<Candidate>, unit: Unit) {
    let peak = |candidate: &Candidate| candidate.peaks(unit).highest().unwrap_or(0);
    let seconds = |candidate: &Candidate| candidate.closed_form.unwrap_or(f64::INFINITY);
    candidates.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)).then(peak(a).cmp(&peak(b))));
    let mut least = u64::MAX;
    candidates.retain(|candidate| {
        let is_less = peak(candidate) < least;
        least = least.min(peak(candidate));
        is_less
    });
}
