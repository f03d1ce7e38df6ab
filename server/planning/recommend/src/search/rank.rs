//! The plans of criteria on one set of devices, best first.
//!
//! Every variant is first asked for its best plan by a formula, which takes no time; these are simulated. Then the
//! search that simulates what it builds ([`simulated`]) looks for better ones, and says what no plan is better than.

use loadmaster_proto::plan::objective::{Objective, SearchMode};

use super::annealing::anneal;
use super::candidate::Candidate;
use super::inquiry::{Inquiry, KnownLayouts};
use super::ranking::{Ranking, settle};
use super::refinement::Refinement;
use super::solve::PricedVariant;
use crate::problem::Variant;
use loadmaster_search::cost::Market;
use loadmaster_search::fleet::Subset;
use loadmaster_search::simulated::{self, Fastest, LowestPeaks, Outcome, SimulatedFront};
use loadmaster_search::time::Cap;
use loadmaster_search::{Ended, Unit};

/// Of plans whose formula is this much above the lowest nothing is asked any more before simulations begin.
const NEAR: f64 = 1.1;

/// Places of the variants that are kept between the two rounds; the others are priced once more.
const MOST_KEPT: usize = 50_000;

/// By what part of itself a limit may be exceeded by rounding.
const SAME: f64 = 1e-12;

/// Searches every variant of criteria on its devices.
pub(crate) fn rank<M: Market>(inquiry: Inquiry<'_, M>) -> Ranking {
    let mut ranking = Ranking::none();
    if !inquiry.may_start() {
        return ranking;
    }
    let variants = inquiry.variants();
    let search = VariantSearch::of(inquiry, &variants);
    // Where links of a node are unlike, no plan is slower than with edges over the slowest of them, which is where good ones are
    // looked for, and none faster than with edges over the best, which is where they are proven.
    let best = inquiry.fleet().has_unlike_links().then(|| inquiry.subset.with_fastest_edges());
    let proving = best.as_ref().map(|best| search.on(best));
    let is_exact = inquiry.criteria.mode == SearchMode::Exact;
    if inquiry.criteria.objective.is_timed() {
        let mut kept = search.by_formula(&mut ranking);
        if let Some(proving) = proving.as_ref().filter(|_| is_exact) {
            // What is kept of the first look has other prices.
            kept = proving.by_formula(&mut ranking);
        }
        if is_exact {
            proving.as_ref().unwrap_or(&search).by_simulation(&mut ranking, kept);
        } else {
            // The papers' programs prove nothing.
            ranking.is_bounded = true;
            ranking.bound = None;
        }
    } else {
        search.lowest_peaks(&mut ranking);
        if is_exact {
            proving.as_ref().unwrap_or(&search).within_limits(&mut ranking);
        }
    }
    settle(&mut ranking, inquiry.criteria);
    ranking
}

/// The best plans of criteria by its formula alone, simulated: quick, and nothing is proven.
pub(crate) fn rank_by_formula<M: Market>(inquiry: Inquiry<'_, M>) -> Vec<Candidate> {
    let mut ranking = Ranking::none();
    let variants = inquiry.variants();
    let search = VariantSearch::of(inquiry, &variants);
    if inquiry.criteria.objective.is_timed() {
        search.by_formula(&mut ranking);
    } else {
        search.lowest_peaks(&mut ranking);
    }
    settle(&mut ranking, inquiry.criteria);
    ranking.candidates
}

/// One search over the variants of criteria.
pub(super) struct VariantSearch<'a, M> {
    pub(super) inquiry: Inquiry<'a, M>,
    pub(super) variants: &'a [Variant],
    layouts: KnownLayouts,
}

/// A variant after the first look at it.
struct Variety<'a, C> {
    /// Its prices; none where they were too large to be kept.
    asked: Option<Box<PricedVariant<'a, C>>>,
    /// What no plan of it is faster than.
    at_least: f64,
}

/// Variants, as far as they were looked at.
type Varieties<'a, C> = Vec<Variety<'a, C>>;

impl<'a, M: Market> VariantSearch<'a, M> {
    fn of(inquiry: Inquiry<'a, M>, variants: &'a [Variant]) -> Self {
        Self { inquiry, variants, layouts: KnownLayouts::default() }
    }

    /// The same variants on the same devices, priced otherwise.
    fn on<'b>(&'b self, subset: &'b Subset) -> VariantSearch<'b, M>
    where
        'a: 'b,
    {
        VariantSearch::of(self.inquiry.on(subset, self.inquiry.cuts), self.variants)
    }

    pub(super) fn ask(&self, variant: &'a Variant) -> PricedVariant<'a, M::Costs> {
        PricedVariant::on(self.inquiry, variant, &self.layouts)
    }

    /// The fastest plan of each variant by AMP's formula, or its front, as far as it is near the fastest of all.
    fn by_formula(&self, ranking: &mut Ranking) -> Varieties<'a, M::Costs> {
        let Inquiry { criteria, effort, .. } = self.inquiry;
        if criteria.mode == SearchMode::AmpAnnealing {
            if let Some(first) = self.variants.first() {
                let solved = anneal(self.inquiry, self.variants);
                ranking.add(first, solved);
            }
            return Vec::new();
        }
        let cap = criteria.constraints.max_peak_bytes.map(|most| Cap { unit: Unit::Bytes, most });
        let formula = effort.formula();
        let (mut kept, mut size, mut least) = (Vec::new(), 0_usize, f64::INFINITY);
        for variant in self.variants {
            if formula.is_requested() {
                ranking.stop();
                break;
            }
            let asked = self.ask(variant);
            effort.list(asked.listing());
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
            if at_least > simulated
                && criteria.objective != Objective::Pareto
                && criteria.mode == SearchMode::Exact
            {
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
            if criteria.objective == Objective::Pareto {
                let (points, solved) = asked.front(&formula);
                self.weighed(ranking, solved.states);
                ranking.is_stopped |= solved.ended == Ended::Stopped;
                if points.is_empty() && solved.ended == Ended::Proven {
                    ranking.unfit.push(variant.clone());
                }
                ranking.candidates.extend(points);
            } else {
                let below = (least * NEAR).is_finite().then_some(least * NEAR);
                let solved = asked.fastest(cap, below, &formula);
                let found = solved.best.as_ref().and_then(|best| best.closed_form);
                least = least.min(found.unwrap_or(f64::INFINITY));
                let is_pruned = below.is_some() && solved.best.is_none();
                self.weighed(ranking, solved.states);
                ranking.is_stopped |= solved.ended == Ended::Stopped;
                if solved.best.is_none() && solved.ended == Ended::Proven && !is_pruned {
                    ranking.unfit.push(variant.clone());
                }
                if let Some(mut best) = solved.best {
                    let is_promising = best.at_least().is_none_or(|seconds| seconds < simulated);
                    let work = best.passes().saturating_mul(simulated::PASS);
                    if is_promising && (simulated.is_infinite() || effort.passes.take(work)) {
                        best.simulate();
                        let keeps = criteria.constraints.max_iteration_seconds.unwrap_or(f64::INFINITY);
                        let own = best.simulated.filter(|&seconds| seconds <= keeps);
                        simulated = simulated.min(own.unwrap_or(f64::INFINITY));
                        self.report(simulated, None);
                    }
                    ranking.candidates.push(best);
                }
            }
        }
        // Formulas bound no simulation.
        ranking.is_bounded = false;
        ranking.bound = Some(f64::INFINITY);
        if criteria.objective == Objective::Pareto {
            ranking.candidates.iter_mut().for_each(Candidate::simulate);
        }
        kept
    }

    /// Better plans than those that are known, by simulation; and what no plan is better than.
    fn by_simulation(&self, ranking: &mut Ranking, mut kept: Varieties<'a, M::Costs>) {
        let (Inquiry { criteria, effort, .. }, terms) = (self.inquiry, self.inquiry.terms());
        let limit = criteria.constraints.max_iteration_seconds;
        let within = |plan: &&Candidate| self.keeps_limits(plan);
        let known = || ranking.candidates.iter().filter(within);
        let at_most = limit.map_or(f64::INFINITY, |limit| limit * (1.0 + 2.0 * SAME));
        let least = known().filter_map(|plan| plan.simulated).fold(f64::INFINITY, f64::min);
        let mut fastest = Fastest::below(at_most.min(least));
        let mut front = SimulatedFront {
            within: limit,
            known: known()
                .filter_map(|plan| Some((plan.simulated?, plan.peaks(criteria.unit).highest().unwrap_or(0))))
                .collect(),
            found: Vec::new(),
        };
        let is_front = criteria.objective == Objective::Pareto;
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
        // What no plan of each variant is faster than, as far as it may have a better one.
        let mut open: Vec<f64> = kept.iter().map(|variety| variety.at_least).collect();
        for index in order {
            if self.inquiry.effort.is_requested() {
                all = all.and(Outcome::STOPPED);
                break;
            }
            let at_least = kept[index].at_least;
            if !is_front && at_least > fastest.below {
                open[index] = f64::INFINITY;
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
            open[index] = outcome.open_seconds;
            kept[index].asked = None;
            self.count(outcome.states);
            let found = fastest.best.as_ref().map_or(f64::INFINITY, |best| best.seconds);
            self.report(found.min(least), Some(&open));
        }
        ranking.candidates.extend(found);
        ranking.states = ranking.states.saturating_add(all.states);
        ranking.ended(all.ended);
        let is_open = all.ended == Ended::Bounded && criteria.objective == Objective::MinIterationTime;
        if is_open && let Some(best) = self.best_within(ranking) {
            Refinement::new(self, at_most, &mut open).run(ranking, best);
            all.open_seconds = open.into_iter().fold(f64::INFINITY, f64::min);
            if effort.is_requested() {
                ranking.is_stopped = true;
            }
        }
        // Of plans beyond the limit no one wants to know.
        let open = if all.open_seconds > at_most { f64::INFINITY } else { all.open_seconds };
        let best = ranking.candidates.iter().filter(within).filter_map(|plan| plan.simulated);
        let best = best.fold(f64::INFINITY, f64::min);
        ranking.bound = Some(best.min(open));
        if open >= best * (1.0 - SAME) && !ranking.is_stopped && criteria.objective != Objective::Pareto {
            // What was left out is no better.
            ranking.is_bounded = false;
        }
    }

    /// Counts states, in the ranking and in the progress of the request.
    fn weighed(&self, ranking: &mut Ranking, states: u64) {
        ranking.states = ranking.states.saturating_add(states);
        self.count(states);
    }

    /// Counts states in the progress of the request.
    pub(super) fn count(&self, states: u64) {
        if let Some(progress) = self.inquiry.effort.progress() {
            progress.count(states);
        }
    }

    /// Reports the seconds of the fastest plan that is known, and a bound: no plan of a variant is faster than its value in
    /// `open`. A bound of some of the devices bounds nothing else.
    pub(super) fn report(&self, fastest: f64, open: Option<&[f64]>) {
        let Inquiry { criteria, effort, .. } = self.inquiry;
        let Some(progress) = effort.progress() else { return };
        if criteria.objective != Objective::MinIterationTime {
            return;
        }
        progress.found(fastest);
        if let Some(open) = open.filter(|_| !criteria.is_merged && !criteria.constraints.allow_idle_devices) {
            progress.bounded(open.iter().copied().fold(fastest, f64::min));
        }
    }

    /// Whether a plan keeps the limits on its peaks and, simulated, on its time.
    fn keeps_limits(&self, plan: &Candidate) -> bool {
        let constraints = &self.inquiry.criteria.constraints;
        let most = constraints.max_peak_bytes.unwrap_or(u64::MAX);
        let in_time = |seconds: f64| constraints.max_iteration_seconds.is_none_or(|limit| seconds <= limit);
        plan.peak_bytes() <= most && plan.simulated.is_some_and(in_time)
    }

    /// The fastest plan within the limits.
    fn best_within(&self, ranking: &Ranking) -> Option<Candidate> {
        let within = ranking.candidates.iter().filter(|plan| self.keeps_limits(plan));
        let seconds = |plan: &Candidate| plan.simulated.unwrap_or(f64::INFINITY);
        within.min_by(|one, other| seconds(one).total_cmp(&seconds(other))).cloned()
    }

    /// The plan with the lowest peaks of each variant, in the mode that the criteria name.
    fn lowest_peaks(&self, ranking: &mut Ranking) {
        let stop = self.inquiry.effort.peaks();
        for variant in self.variants {
            if self.inquiry.effort.is_requested() {
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
            let solved = asked.lowest_peaks(&stop);
            ranking.add(variant, solved);
        }
    }

    /// Where limits rule out plans with the lowest peaks: the lowest ones within them.
    fn within_limits(&self, ranking: &mut Ranking) {
        let Inquiry { criteria, effort, .. } = self.inquiry;
        let constraints = &criteria.constraints;
        let limit = constraints.max_iteration_seconds;
        // The lowest share of a device need not be the fewest bytes.
        let is_capped = constraints.max_peak_bytes.is_some() && criteria.unit == Unit::Share;
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
        let best = ranking.candidates.iter().min_by(|one, other| one.by_peaks(other, criteria.unit));
        if best.is_some_and(keeps) && !ranking.is_bounded && !ranking.is_stopped {
            return;
        }
        if limit.is_some() {
            // Points between memory and time by the formula are where to begin.
            for variant in self.variants {
                if effort.is_requested() {
                    break;
                }
                let (mut points, solved) = self.ask(variant).front(&effort.formula());
                points.iter_mut().for_each(Candidate::simulate);
                ranking.states = ranking.states.saturating_add(solved.states);
                ranking.candidates.extend(points.into_iter().filter(keeps));
            }
        }
        let best = ranking.candidates.iter().filter(|plan| keeps(plan));
        let best = best.min_by(|one, other| one.by_peaks(other, criteria.unit));
        let known = best.map(|plan| (plan.peaks(criteria.unit), plan.seconds().unwrap_or(0.0)));
        let within = limit.unwrap_or(f64::INFINITY);
        let mut wanted = LowestPeaks::within(within, known);
        let (mut all, mut found) = (Outcome::NOTHING, Vec::new());
        for variant in self.variants {
            if effort.is_requested() {
                all = all.and(Outcome::STOPPED);
                break;
            }
            let (plans, outcome) = self.ask(variant).simulated(self.inquiry.terms(), &mut wanted, effort);
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
pub(super) fn is_of(plan: &Candidate, variant: &Variant) -> bool {
    (plan.batch, plan.schedule) == (variant.batch, variant.schedule)
        && variant.stages.contains(&plan.stages.len())
        && plan.stages.iter().all(|stage| variant.choices.contains(&stage.choice))
}
