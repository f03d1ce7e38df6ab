//! What a search does with more than the usual effort: a better plan near the best that is known, and a better bound.
//!
//! The search that builds plans from their last stage on ([`simulated`](loadmaster_search::simulated)) ends with a bound that hardly
//! rises with its effort: it goes into depth, and what it leaves out first is what bounds all. So further effort is spent
//! otherwise, in two ways.
//!
//! * *Plans nearby*: the same search, of plans whose stages begin a few layers from where those of the best plan do. It begins
//!   anew around each better plan, and farther away once there is none.
//! * *Thresholds*: the same search, of plans faster than a threshold between bound and best plan. The lower the threshold, the
//!   more it leaves out at once. Where it comes to its end, no plan of the variant is faster than that.
//!
//! Both count what stages wait for their first micro-batch to come back, which bounds plans better.

use super::candidate::Candidate;
use super::inquiry::Inquiry;
use super::rank::{VariantSearch, is_of};
use super::ranking::Ranking;
use loadmaster_search::Ended;
use loadmaster_search::cost::Market;
use loadmaster_search::simulated::{Fastest, Terms};

/// Layers by which the beginnings of stages may differ from those of the best plan, at most.
const FARTHEST: usize = 4;

/// The part of further effort that one look may take, and that all looks at plans nearby may take together.
const LOOKS: u64 = 12;
const NEARBY: u64 = 3;

/// The part of its work that a look takes at least.
const LEAST_LOOK: u64 = 64;

/// By what part of itself a bound may be below a value that it equals but for rounding.
const SAME: f64 = 1e-12;

/// Where between bound and best plan the first threshold of a variant is, and the least part of it that is tried.
const FIRST: f64 = 0.5;
const LEAST: f64 = 1.0 / 64.0;

/// A variant that may have a better plan.
#[derive(Debug, Clone, Copy)]
struct OpenVariant {
    /// Its place among the variants.
    index: usize,
    /// No plan of it is faster.
    bound: f64,
    /// Where the next threshold is between that and the best plan.
    part: f64,
}

/// A search that goes on.
pub(super) struct Refinement<'a, 'b, M> {
    search: &'b VariantSearch<'a, M>,
    /// The slowest iteration that is allowed.
    at_most: f64,
    /// The least that any variant may take, by variant: infinite where none is better.
    open: &'b mut [f64],
    plans: Vec<Candidate>,
    states: u64,
}

impl<'a, 'b, M: Market> Refinement<'a, 'b, M> {
    pub(super) fn new(search: &'b VariantSearch<'a, M>, at_most: f64, open: &'b mut [f64]) -> Self {
        Self { search, at_most, open, plans: Vec::new(), states: 0 }
    }

    /// Improves plans and bounds, as far as the effort goes. `best` is the best plan within the limits; it and `open` are left as
    /// they are where nothing better comes of it.
    pub(super) fn run(mut self, ranking: &mut Ranking, best: Candidate) {
        let whole = self.inquiry().effort.further().left();
        let best = self.nearby(best, whole / NEARBY, whole / LOOKS);
        self.thresholds(best, whole / LOOKS);
        ranking.candidates.append(&mut self.plans);
        ranking.states = ranking.states.saturating_add(self.states);
    }

    fn inquiry(&self) -> Inquiry<'a, M> {
        self.search.inquiry
    }

    /// Looks at plans of a variant that are faster than `below`: the fastest, and whether none was left out.
    fn look(
        &mut self,
        index: usize,
        begins: Option<&[bool]>,
        below: f64,
        work: u64,
    ) -> (Option<Candidate>, Ended, f64) {
        let Inquiry { effort, .. } = self.inquiry();
        let own = effort.part_of_further(work);
        let mut fastest = Fastest::below(below);
        let asked = self.search.ask(&self.search.variants[index]);
        let terms = Terms { counts_waits: true, ..self.inquiry().terms() };
        let (plans, outcome) = asked.simulated_among(terms, begins, &mut fastest, &own);
        effort.take_further(&own, work, work / LEAST_LOOK + 1);
        self.states = self.states.saturating_add(outcome.states);
        self.search.count(outcome.states);
        let best = plans.into_iter().min_by(|one, other| {
            let seconds = |plan: &Candidate| plan.simulated.unwrap_or(f64::INFINITY);
            seconds(one).total_cmp(&seconds(other))
        });
        self.plans.extend(best.clone());
        (best, outcome.ended, outcome.open_seconds)
    }

    /// The best plan that comes of looks near the best that is known.
    fn nearby(&mut self, mut best: Candidate, all: u64, each: u64) -> Candidate {
        let further = self.inquiry().effort.further();
        let enough = further.left().saturating_sub(all);
        let layers = self.inquiry().market.layers();
        let mut distance = 1;
        while distance <= FARTHEST && further.left() > enough && !further.is_over() {
            let Some(index) = self.search.variants.iter().position(|variant| is_of(&best, variant)) else {
                break;
            };
            let mut begins = vec![false; layers];
            for stage in &best.stages {
                let near = stage.first.saturating_sub(distance)..=(stage.first + distance).min(layers - 1);
                begins[near].fill(true);
            }
            let below = best.simulated.unwrap_or(f64::INFINITY).min(self.at_most);
            let (found, _, _) = self.look(index, Some(&begins), below, each);
            match found {
                Some(found) => {
                    self.search.report(found.simulated.unwrap_or(f64::INFINITY), None);
                    (best, distance) = (found, 1);
                }
                None => distance += 1,
            }
        }
        best
    }

    /// Raises the bounds of the variants that may have something better than the best plan, the lowest first.
    fn thresholds(&mut self, best: Candidate, each: u64) {
        let further = self.inquiry().effort.further().clone();
        let mut least = best.simulated.unwrap_or(f64::INFINITY).min(self.at_most);
        let variants = self.open.iter().enumerate();
        let mut open: Vec<OpenVariant> =
            variants.map(|(index, &bound)| OpenVariant { index, bound, part: FIRST }).collect();
        while !further.is_over() {
            open.retain(|variant| variant.bound * (1.0 + SAME) < least);
            let lowest = open.iter_mut().min_by(|one, other| one.bound.total_cmp(&other.bound));
            let Some(variant) = lowest.filter(|variant| variant.part >= LEAST) else { break };
            let OpenVariant { index, bound, part } = *variant;
            let threshold = if part >= 1.0 { least } else { bound + part * (least - bound) };
            let (found, ended, left_out) = self.look(index, None, threshold, each);
            let is_proven = ended == Ended::Proven;
            variant.part = if is_proven { (2.0 * part).min(1.0) } else { part / 2.0 };
            // What is faster than the threshold was looked at, and left out no earlier than this.
            let above = if is_proven { threshold } else { left_out.min(threshold) };
            if let Some(seconds) = found.and_then(|plan| plan.simulated) {
                least = least.min(seconds);
            }
            variant.bound = bound.max(above.min(least));
            self.open[index] = variant.bound;
            self.search.report(least, Some(&*self.open));
        }
    }
}
