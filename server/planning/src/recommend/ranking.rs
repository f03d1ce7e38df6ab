//! The plans of a wish on one set of devices, best first.
//!
//! Every variant is first asked for its best plan by a formula, which takes no time; these are simulated. Then the
//! search that simulates what it builds ([`simulated`]) looks for better ones, and says what no plan is better than.

use std::cmp::Ordering;

use loadmaster_proto::plan::objective::{Objective, SearchMode};

use super::annealed::annealed;
use super::candidate::Candidate;
use super::effort::Effort;
use super::lack::may_start_on;
use super::market::Market;
use super::part::Part;
use super::solve::{Asked, Solved};
use super::variant::{Variant, variants};
use super::wish::Wish;
use crate::search::simulated::{self, Fastest, Front, LowestPeaks, Outcome, Terms};
use crate::search::time::Cap;
use crate::search::{Cuts, Ended, Unit};

/// Of plans whose formula is this much above the lowest nothing is asked any more before simulations begin.
const NEAR: f64 = 1.1;

/// Places of the variants that are kept between the two rounds; the others are priced again.
const MOST_KEPT: usize = 50_000;

/// By what part of itself a limit may be exceeded by rounding.
const SAME: f64 = 1e-12;

/// Points of a front whose seconds differ by no more than this part of them differ by rounding.
const ROUNDING: f64 = 1e-9;

/// What a wish comes to on one set of devices.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranking {
    /// Plans, best first; one for each variant that has any, and of a front all.
    pub candidates: Vec<Candidate>,
    /// No plan is worth less: peak in the wish's unit, or simulated seconds. Infinite where there is none; unset where
    /// nothing is known.
    pub bound: Option<f64>,
    /// States weighed.
    pub states: u64,
    /// Whether it was stopped from outside.
    pub is_stopped: bool,
    /// Whether part of the space was too large to look at whole.
    pub is_bounded: bool,
    /// Variants of which no plan fits.
    pub unfit: Vec<Variant>,
}

impl Ranking {
    /// Nothing yet, and no plan known to be possible.
    fn none() -> Self {
        Self { bound: Some(f64::INFINITY), ..Self::default() }
    }

    fn ended(&mut self, ended: Ended) {
        match ended {
            Ended::Proven => {}
            Ended::Stopped => self.is_stopped = true,
            Ended::Bounded => self.is_bounded = true,
        }
    }

    /// Takes in what a search by a formula, or of peaks alone, came to.
    fn add(&mut self, variant: &Variant, solved: Solved) {
        self.states = self.states.saturating_add(solved.states);
        self.ended(solved.ended);
        self.bound = self.bound.zip(solved.bound).map(|(a, b)| a.min(b));
        match solved.best {
            Some(best) => self.candidates.push(best),
            None if solved.ended == Ended::Proven => self.unfit.push(variant.clone()),
            None => {}
        }
    }

    /// What was not asked about any more may hold anything.
    fn stop(&mut self) {
        self.is_stopped = true;
        self.bound = None;
    }
}

/// How a wish's plans are weighed.
pub(super) fn terms<M: Market>(market: &M, wish: &Wish) -> Terms {
    Terms {
        overlap: wish.overlap,
        unit: wish.unit,
        most_bytes: wish.constraints.max_peak_bytes,
        is_timed: market.has_times()
            && (wish.objective.is_timed() || wish.constraints.max_iteration_seconds.is_some()),
    }
}

/// Searches every variant of a wish on a part of the fleet.
pub(super) fn rank<M: Market>(market: &M, wish: &Wish, part: &Part, cuts: &Cuts, effort: &Effort) -> Ranking {
    let mut ranking = Ranking::none();
    let Some(cuts) = part.cuts(cuts) else { return ranking };
    if !may_start_on(wish, part) {
        return ranking;
    }
    let variants = variants(wish, part, market.layers());
    let search = Search { market, wish, part, cuts: &cuts, variants: &variants, effort };
    if wish.objective.is_timed() {
        let kept = search.by_formula(&mut ranking);
        if wish.mode == SearchMode::Exact {
            search.by_simulation(&mut ranking, kept);
        } else {
            // The papers' programs prove nothing.
            ranking.is_bounded = true;
            ranking.bound = None;
        }
    } else {
        search.lowest_peaks(&mut ranking);
        if wish.mode == SearchMode::Exact {
            search.within_limits(&mut ranking);
        }
    }
    settle(&mut ranking, wish);
    ranking
}

/// The best plans of a wish by its formula alone, simulated: quick, and nothing is proven.
pub(super) fn rank_by_formula<M: Market>(
    market: &M,
    wish: &Wish,
    part: &Part,
    cuts: &Cuts,
    effort: &Effort,
) -> Vec<Candidate> {
    let mut ranking = Ranking::none();
    let Some(cuts) = part.cuts(cuts) else { return Vec::new() };
    let variants = variants(wish, part, market.layers());
    let search = Search { market, wish, part, cuts: &cuts, variants: &variants, effort };
    if wish.objective.is_timed() {
        search.by_formula(&mut ranking);
    } else {
        search.lowest_peaks(&mut ranking);
    }
    settle(&mut ranking, wish);
    ranking.candidates
}

/// One search over the variants of a wish.
struct Search<'a, M> {
    market: &'a M,
    wish: &'a Wish,
    part: &'a Part,
    cuts: &'a Cuts,
    variants: &'a [Variant],
    effort: &'a Effort,
}

/// A variant after the first look at it.
struct Variety<'a, C> {
    /// Its prices; none where they were too large to be kept.
    asked: Option<Box<Asked<'a, C>>>,
    /// What no plan of it is faster than.
    at_least: f64,
}

/// Variants, as far as they were looked at.
type Kept<'a, C> = Vec<Variety<'a, C>>;

impl<'a, M: Market> Search<'a, M> {
    fn ask(&self, variant: &'a Variant) -> Asked<'a, M::Costs> {
        Asked::new(self.market, self.wish, variant, self.part, self.cuts)
    }

    /// The fastest plan of each variant by AMP's formula, or its front, as far as it is near the fastest of all.
    fn by_formula(&self, ranking: &mut Ranking) -> Kept<'a, M::Costs> {
        let Self { wish, effort, .. } = *self;
        if wish.mode == SearchMode::AmpAnnealing {
            if let Some(first) = self.variants.first() {
                let solved = annealed(self.market, wish, self.variants, self.part, self.cuts, &effort.stop);
                ranking.add(first, solved);
            }
            return Vec::new();
        }
        let cap = wish.constraints.max_peak_bytes.map(|most| Cap { unit: Unit::Bytes, most });
        let formula = effort.formula();
        let (mut kept, mut size, mut least) = (Vec::new(), 0_usize, f64::INFINITY);
        for variant in self.variants {
            if formula.is_requested() {
                ranking.stop();
                break;
            }
            let asked = self.ask(variant);
            effort.list(asked.work());
            let at_least = asked.layers_take();
            size = size.saturating_add(asked.size());
            kept.push(Variety { asked: (size <= MOST_KEPT).then(|| Box::new(asked)), at_least });
        }
        // Those whose layers take least first: what they have leaves out the more of the others.
        let mut order: Vec<usize> = (0..kept.len()).collect();
        order.sort_by(|&one, &other| kept[one].at_least.total_cmp(&kept[other].at_least));
        // The fastest that was simulated so far: no plan of a variant whose layers take longer is of interest.
        let mut simulated = f64::INFINITY;
        for index in order {
            if formula.is_requested() {
                ranking.stop();
                break;
            }
            if formula.is_spent() {
                break;
            }
            let at_least = kept[index].at_least;
            if at_least > simulated && wish.objective != Objective::Pareto && wish.mode == SearchMode::Exact {
                kept[index].asked = None;
                continue;
            }
            let variant = &self.variants[index];
            let own;
            let asked = match &kept[index].asked {
                Some(asked) => asked,
                None => {
                    own = Box::new(self.ask(variant));
                    &own
                }
            };
            if wish.objective == Objective::Pareto {
                let (points, solved) = asked.front(wish.unit, &formula);
                ranking.states = ranking.states.saturating_add(solved.states);
                ranking.is_stopped |= solved.ended == Ended::Stopped;
                if points.is_empty() && solved.ended == Ended::Proven {
                    ranking.unfit.push(variant.clone());
                }
                ranking.candidates.extend(points);
            } else {
                let below = (least * NEAR).is_finite().then_some(least * NEAR);
                let solved = asked.fastest(wish, cap, below, &formula);
                let found = solved.best.as_ref().and_then(|best| best.closed_form);
                least = least.min(found.unwrap_or(f64::INFINITY));
                let is_pruned = below.is_some() && solved.best.is_none();
                ranking.states = ranking.states.saturating_add(solved.states);
                ranking.is_stopped |= solved.ended == Ended::Stopped;
                if solved.best.is_none() && solved.ended == Ended::Proven && !is_pruned {
                    ranking.unfit.push(variant.clone());
                }
                if let Some(mut best) = solved.best {
                    let is_promising = best.at_least().is_none_or(|seconds| seconds < simulated);
                    let work = best.passes().saturating_mul(simulated::PASS);
                    if is_promising && (simulated.is_infinite() || effort.passes.take(work)) {
                        best.simulate();
                        let keeps = wish.constraints.max_iteration_seconds.unwrap_or(f64::INFINITY);
                        let own = best.simulated.filter(|&seconds| seconds <= keeps);
                        simulated = simulated.min(own.unwrap_or(f64::INFINITY));
                    }
                    ranking.candidates.push(best);
                }
            }
        }
        // Formulas bound no simulation.
        ranking.is_bounded = false;
        ranking.bound = Some(f64::INFINITY);
        if wish.objective == Objective::Pareto {
            ranking.candidates.iter_mut().for_each(Candidate::simulate);
        }
        kept
    }

    /// Better plans than those that are known, by simulation; and what no plan is better than.
    fn by_simulation(&self, ranking: &mut Ranking, mut kept: Kept<'a, M::Costs>) {
        let (wish, effort, terms) = (self.wish, self.effort, terms(self.market, self.wish));
        let limit = wish.constraints.max_iteration_seconds;
        let within = |plan: &&Candidate| {
            let most = wish.constraints.max_peak_bytes.unwrap_or(u64::MAX);
            let in_time = |seconds: f64| limit.is_none_or(|limit| seconds <= limit);
            plan.peak_bytes() <= most && plan.simulated.is_some_and(in_time)
        };
        let known = || ranking.candidates.iter().filter(within);
        let at_most = limit.map_or(f64::INFINITY, |limit| limit * (1.0 + 2.0 * SAME));
        let least = known().filter_map(|plan| plan.simulated).fold(f64::INFINITY, f64::min);
        let mut fastest = Fastest::below(at_most.min(least));
        let mut front = Front {
            within: limit,
            known: known()
                .filter_map(|plan| Some((plan.simulated?, plan.peaks(wish.unit).highest().unwrap_or(0))))
                .collect(),
            found: Vec::new(),
        };
        let is_front = wish.objective == Objective::Pareto;
        let mut all = Outcome::NOTHING;
        kept.resize_with(self.variants.len(), || Variety { asked: None, at_least: 0.0 });
        // Those with the fastest plans first: what they have leaves out the more of the others.
        let mut order: Vec<usize> = (0..self.variants.len()).collect();
        let seconds = |index: &usize| {
            let own = ranking.candidates.iter().filter(|plan| is_of(plan, &self.variants[*index]));
            own.filter_map(|plan| plan.simulated).fold(f64::INFINITY, f64::min)
        };
        order.sort_by(|one, other| seconds(one).total_cmp(&seconds(other)).then(one.cmp(other)));
        let mut found = Vec::new();
        for index in order {
            if self.effort.is_requested() {
                all = all.and(Outcome::STOPPED);
                break;
            }
            let at_least = kept[index].at_least;
            if !is_front && at_least > fastest.below {
                continue;
            }
            let own;
            let asked = match &kept[index].asked {
                Some(asked) => asked,
                None => {
                    own = Box::new(self.ask(&self.variants[index]));
                    &own
                }
            };
            let (plans, mut outcome) = if is_front {
                asked.simulated(terms, &mut front, effort)
            } else {
                asked.simulated(terms, &mut fastest, effort)
            };
            outcome.open_seconds = outcome.open_seconds.max(at_least);
            found.extend(plans);
            all = all.and(outcome);
            kept[index].asked = None;
        }
        ranking.candidates.extend(found);
        ranking.states = ranking.states.saturating_add(all.states);
        ranking.ended(all.ended);
        // Of plans beyond the limit nobody wants to know.
        let open = if all.open_seconds > at_most { f64::INFINITY } else { all.open_seconds };
        let best = ranking.candidates.iter().filter(within).filter_map(|plan| plan.simulated);
        ranking.bound = Some(best.fold(open, f64::min));
        if open >= ranking.bound.unwrap_or(0.0) && !ranking.is_stopped && wish.objective != Objective::Pareto
        {
            // What was left out is no better.
            ranking.is_bounded = false;
        }
    }

    /// The plan with the lowest peaks of each variant, in the mode that the wish names.
    fn lowest_peaks(&self, ranking: &mut Ranking) {
        let stop = self.effort.peaks();
        for variant in self.variants {
            if self.effort.is_requested() {
                ranking.stop();
                break;
            }
            if stop.is_spent() {
                // What was not asked about may hold anything.
                (ranking.is_bounded, ranking.bound) = (true, None);
                break;
            }
            let asked = self.ask(variant);
            stop.take(asked.work());
            let solved = asked.lowest_peaks(self.wish, &stop);
            ranking.add(variant, solved);
        }
    }

    /// Where limits rule out plans with the lowest peaks: the lowest ones within them.
    fn within_limits(&self, ranking: &mut Ranking) {
        let Self { wish, effort, .. } = *self;
        let constraints = &wish.constraints;
        let limit = constraints.max_iteration_seconds;
        // The lowest share of a device need not be the fewest bytes.
        let is_capped = constraints.max_peak_bytes.is_some() && wish.unit == Unit::Share;
        if limit.is_none() && !is_capped {
            return;
        }
        if limit.is_some() {
            ranking.candidates.iter_mut().for_each(Candidate::simulate);
        }
        let most = constraints.max_peak_bytes.unwrap_or(u64::MAX);
        let keeps = |plan: &Candidate| {
            let in_time = limit.is_none_or(|limit| plan.seconds().is_some_and(|seconds| seconds <= limit));
            in_time && plan.peak_bytes() <= most
        };
        let best = ranking.candidates.iter().min_by(|one, other| one.by_peaks(other, wish.unit));
        if best.is_some_and(keeps) && !ranking.is_bounded && !ranking.is_stopped {
            return;
        }
        if limit.is_some() {
            // Points between memory and time by the formula are where to begin.
            for variant in self.variants {
                if effort.is_requested() {
                    break;
                }
                let (mut points, solved) = self.ask(variant).front(wish.unit, &effort.formula());
                points.iter_mut().for_each(Candidate::simulate);
                ranking.states = ranking.states.saturating_add(solved.states);
                ranking.candidates.extend(points.into_iter().filter(keeps));
            }
        }
        let best = ranking.candidates.iter().filter(|plan| keeps(plan));
        let best = best.min_by(|one, other| one.by_peaks(other, wish.unit));
        let known = best.map(|plan| (plan.peaks(wish.unit), plan.seconds().unwrap_or(0.0)));
        let within = limit.unwrap_or(f64::INFINITY);
        let mut wanted = LowestPeaks::within(within, known);
        let (mut all, mut found) = (Outcome::NOTHING, Vec::new());
        for variant in self.variants {
            if effort.is_requested() {
                all = all.and(Outcome::STOPPED);
                break;
            }
            let (plans, outcome) = self.ask(variant).simulated(terms(self.market, wish), &mut wanted, effort);
            found.extend(plans);
            all = all.and(outcome);
        }
        ranking.candidates.extend(found);
        ranking.states = ranking.states.saturating_add(all.states);
        (ranking.is_bounded, ranking.is_stopped) =
            (all.ended == Ended::Bounded, all.ended == Ended::Stopped || effort.is_requested());
        let highest =
            wanted.known.and_then(|(peaks, _)| peaks.highest()).map_or(f64::INFINITY, |peak| peak as f64);
        let open = if all.open_peak == u64::MAX { f64::INFINITY } else { all.open_peak as f64 };
        // Without the limits no plan was lower either.
        let free = ranking.bound.unwrap_or(0.0);
        ranking.bound = Some(highest.min(open.max(free)));
    }
}

/// Whether a plan is one of a variant.
fn is_of(plan: &Candidate, variant: &Variant) -> bool {
    (plan.batch, plan.schedule) == (variant.batch, variant.schedule)
        && variant.stages.contains(&plan.stages.len())
        && plan.stages.iter().all(|stage| variant.choices.contains(&stage.choice))
}

/// Drops what the wish does not allow, simulates what is shown, and puts all in order.
pub(super) fn settle(ranking: &mut Ranking, wish: &Wish) {
    let Ranking { candidates, is_bounded, .. } = ranking;
    if let Some(most) = wish.constraints.max_peak_bytes {
        candidates.retain(|candidate| candidate.peak_bytes() <= most);
    }
    if !wish.objective.is_timed() {
        candidates.sort_by(|a, b| a.by_peaks(b, wish.unit));
        let limited = wish.constraints.max_iteration_seconds.is_some();
        let simulated = if limited { candidates.len() } else { wish.alternatives + 1 };
        candidates.iter_mut().take(simulated).for_each(Candidate::simulate);
    }
    if let Some(limit) = wish.constraints.max_iteration_seconds {
        candidates.iter_mut().for_each(Candidate::simulate);
        let found = candidates.len();
        candidates.retain(|candidate| candidate.seconds().is_some_and(|seconds| seconds <= limit));
        // A program of a paper looks at one plan of many.
        *is_bounded |= candidates.len() < found && wish.mode != SearchMode::Exact;
    }
    if wish.objective == Objective::Pareto {
        keep_front(candidates, wish.unit);
    } else {
        candidates.sort_by(|a, b| order(wish, a, b));
    }
}

/// Simulates all plans that may be the fastest: those that take no longer at least than the fastest of them. The
/// others are not ranked by simulation.
pub(super) fn simulate_best(plans: &mut [Candidate]) {
    plans.sort_by(|a, b| {
        a.closed_form.unwrap_or(f64::INFINITY).total_cmp(&b.closed_form.unwrap_or(f64::INFINITY))
    });
    let mut least = f64::INFINITY;
    for plan in plans {
        if plan.at_least().is_none_or(|seconds| seconds < least) {
            plan.simulate();
            least = least.min(plan.simulated.unwrap_or(f64::INFINITY));
        }
    }
}

/// The order of a wish's objective.
pub(super) fn order(wish: &Wish, one: &Candidate, other: &Candidate) -> Ordering {
    if !wish.objective.is_timed() {
        return one.by_peaks(other, wish.unit);
    }
    // What was not simulated takes longer than what was.
    let rank = |candidate: &Candidate| candidate.simulated.is_none();
    rank(one).cmp(&rank(other)).then_with(|| one.by_seconds(other, wish.unit))
}

/// Keeps the plans that no other one beats in both, the fastest first: the highest peak, and simulated seconds.
/// Plans whose seconds differ by rounding are equally fast.
pub(super) fn keep_front(candidates: &mut Vec<Candidate>, unit: Unit) {
    candidates.iter_mut().for_each(Candidate::simulate);
    let peak = |candidate: &Candidate| candidate.peaks(unit).highest().unwrap_or(0);
    let seconds = |candidate: &Candidate| candidate.seconds().unwrap_or(f64::INFINITY);
    candidates.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)).then(peak(a).cmp(&peak(b))));
    let mut front: Vec<Candidate> = Vec::new();
    for candidate in candidates.drain(..) {
        let Some(last) = front.last() else {
            front.push(candidate);
            continue;
        };
        if peak(&candidate) >= peak(last) {
            continue;
        }
        if seconds(&candidate) <= seconds(last) * (1.0 + ROUNDING) {
            front.pop();
        }
        front.push(candidate);
    }
    *candidates = front;
}
