//! From a variant to its best plan: the one place that knows which search answers which objective.

use std::rc::Rc;

use loadmaster_proto::plan::objective::SearchMode;
use loadmaster_proto::training::Schedule;

use super::candidate::Candidate;
use super::device_mapping::{KnownOrders, MappedCandidate, OnBestDevices};
use super::effort::Effort;
use super::inquiry::{Inquiry, KnownLayouts};
use crate::problem::{Criteria, Variant};
use loadmaster_search::cost::Market;
use loadmaster_search::fleet::Subset;
use loadmaster_search::memory;
use loadmaster_search::paper::{self, Bayesian, Recursion};
use loadmaster_search::pareto;
use loadmaster_search::simulated::{self, Outcome, Terms, Wanted, Whole};
use loadmaster_search::time::{self, Cap, Limits, Time};
use loadmaster_search::{
    Best, Cuts, Ended, Fleet, KindSet, Layouts, LinkId, Pin, PlacedStage, Places, Question, Searched,
    StageAt, StageCosts, Stop,
};

/// Work of listing so many places.
fn work_of(places: usize) -> u64 {
    const PLACE: u64 = 50;
    PLACE.saturating_mul(places as u64)
}

/// The same with the steps between them.
pub(crate) fn listing_of(places: &Places) -> u64 {
    work_of(places.count()).saturating_add(LOOK.saturating_mul(places.step_count() as u64))
}

/// Work of a look at where a stage may go on.
const LOOK: u64 = 20;

/// What a search of one variant found.
#[derive(Debug, Clone)]
pub(crate) struct Solved {
    /// The best plan; none where there is none, or none was found in time.
    pub(crate) best: Option<Candidate>,
    /// No plan of the variant is worth less: peak in the unit, or seconds by AMP's formula, which bounds no simulation.
    /// Infinite where there is no plan; none where nothing is known.
    pub(crate) bound: Option<f64>,
    /// States weighed.
    pub(crate) states: u64,
    /// How it ended.
    pub(crate) ended: Ended,
}

impl Solved {
    /// Nothing was there to be searched.
    fn nothing() -> Self {
        Self { best: None, bound: Some(f64::INFINITY), states: 0, ended: Ended::Proven }
    }

    /// What the searches of several orders of nodes come to; the first is the order to be kept on a tie.
    fn all(solved: impl IntoIterator<Item = Self>, is_less: impl Fn(&Candidate, &Candidate) -> bool) -> Self {
        solved.into_iter().fold(Self::nothing(), |all, one| {
            let best = match (all.best, one.best) {
                (Some(best), Some(other)) if is_less(&other, &best) => Some(other),
                (Some(best), _) => Some(best),
                (None, other) => other,
            };
            Self {
                best,
                bound: all.bound.zip(one.bound).map(|(a, b)| a.min(b)),
                states: all.states.saturating_add(one.states),
                ended: all.ended.and(one.ended),
            }
        })
    }
}

/// A variant with its prices, ready to be asked about.
#[derive(Debug)]
pub(crate) struct PricedVariant<'a, C> {
    costs: C,
    layouts: Rc<Layouts>,
    choices: Vec<usize>,
    variant: &'a Variant,
    criteria: &'a Criteria,
    subset: &'a Subset,
    cuts: &'a Cuts,
    orders: &'a KnownOrders,
}

impl<'a, C: StageCosts> PricedVariant<'a, C> {
    /// Prices a variant on the devices.
    pub(crate) fn new<M: Market<Costs = C>>(inquiry: Inquiry<'a, M>, variant: &'a Variant) -> Self {
        Self::on(inquiry, variant, &KnownLayouts::default())
    }

    /// The same, where others ask about the same devices.
    pub(crate) fn on<M: Market<Costs = C>>(
        inquiry: Inquiry<'a, M>,
        variant: &'a Variant,
        known: &KnownLayouts,
    ) -> Self {
        Self::priced(inquiry, variant, known.layouts(inquiry, &variant.sizes()))
    }

    /// Prices the stages of a plan that is given: those of a variant, on so many devices one after another, in the
    /// fleet's order.
    pub(crate) fn along<M: Market<Costs = C>>(
        inquiry: Inquiry<'a, M>,
        variant: &'a Variant,
        stages: &[u32],
    ) -> Self {
        let layouts = Layouts {
            places: vec![Places::along(inquiry.fleet(), stages)],
            looks: 0,
            is_complete: true,
            relaxed: (Fleet::default(), Places::default()),
        };
        Self::priced(inquiry, variant, Rc::new(layouts))
    }

    fn priced<M: Market<Costs = C>>(
        inquiry: Inquiry<'a, M>,
        variant: &'a Variant,
        layouts: Rc<Layouts>,
    ) -> Self {
        let Inquiry { market, subset, criteria, cuts, orders, .. } = inquiry;
        // All orders share their links.
        let links = layouts.places.first().map_or(&[][..], Places::links);
        let costs = market.costs(variant.schedule, variant.batch, &variant.choices, links);
        let choices = (0..variant.choices.len()).collect();
        Self { costs, layouts, choices, variant, criteria, subset, cuts, orders }
    }

    /// Whether there is a question for every order of the nodes.
    pub(crate) fn has_all_orders(&self) -> bool {
        self.layouts.is_complete
    }

    /// The questions, one for each order of the nodes, with or without the devices' capacities.
    pub(crate) fn questions(&self, within_capacity: bool) -> impl Iterator<Item = Question<'_, C>> {
        self.layouts.places.iter().map(move |places| self.question(places, within_capacity))
    }

    fn question<'q>(&'q self, places: &'q Places, within_capacity: bool) -> Question<'q, C> {
        let Self { costs, subset, choices, cuts, .. } = self;
        let question = self.variant.question(costs, (&subset.fleet, places), choices, cuts);
        Question { within_capacity, ..question }
    }

    /// The plan with the lowest peaks that fits, in the mode that the criteria name.
    pub(crate) fn lowest_peaks(&self, stop: &Stop) -> Solved {
        let (criteria, unit) = (self.criteria, self.criteria.unit);
        // CAPTURE knows replicas or shards, not replicas of shards.
        let pure: Vec<usize> = self
            .choices
            .iter()
            .copied()
            .filter(|&choice| {
                self.variant.choices[choice].data == 1 || self.variant.choices[choice].tensor == 1
            })
            .collect();
        let solved = self.questions(true).map(|question| {
            let found = match criteria.mode {
                SearchMode::Capture => {
                    let question = Question { choices: &pure, stages: question.stages.clone(), ..question };
                    let found = paper::enumeration(&question, unit, stop);
                    match found.ended {
                        // What was asked may have a better plan than what the paper searches.
                        Ended::Proven if pure.len() < self.choices.len() => {
                            Searched { bound: None, ended: Ended::Bounded, ..found }
                        }
                        _ => found,
                    }
                }
                SearchMode::McapBruteForce => paper::brute_force(&question, unit, stop),
                SearchMode::McapBayesian => {
                    let settings = Bayesian { seed: criteria.seed, ..Bayesian::default() };
                    paper::bayesian(&question, unit, &settings, stop)
                }
                SearchMode::Exact | SearchMode::Mpress | SearchMode::Amp | SearchMode::AmpAnnealing => {
                    memory::leximax(&question, unit, stop)
                }
            };
            let bound = found.bound.as_ref().map(|peaks| peaks.highest().map_or(0.0, |peak| peak as f64));
            self.solved(&question, found, bound)
        });
        self.limited(Solved::all(solved, |a, b| a.peaks(unit) < b.peaks(unit)))
    }

    /// The fastest plan by the closed form, in the mode that the criteria name, whose peaks keep to a cap and that is
    /// faster than `below`.
    pub(crate) fn fastest(&self, cap: Option<Cap>, below: Option<f64>, stop: &Stop) -> Solved {
        if self.criteria.mode != SearchMode::Amp {
            return self.fastest_of(true, cap, below, stop);
        }
        // AMP proves nothing, so nothing is pruned by what came before either.
        let solved = self.questions(true).map(|question| {
            let found = paper::pipe_ast(&question, Recursion::Equation, stop);
            self.solved(&question, found, None)
        });
        Solved::all(solved.collect::<Vec<_>>(), |a, b| a.closed_form < b.closed_form)
    }

    /// The fastest plan by the closed form if devices held any number of bytes.
    pub(crate) fn fastest_of_any(&self, below: Option<f64>, stop: &Stop) -> Solved {
        self.fastest_of(false, None, below, stop)
    }

    fn fastest_of(&self, within_capacity: bool, cap: Option<Cap>, below: Option<f64>, stop: &Stop) -> Solved {
        let Some(any) = self.layouts.places.first() else { return Solved::nothing() };
        let limits = Limits { cap, below: below.map(Time) };
        let question = self.question(any, within_capacity);
        let (order, found) = time::fastest_over(&question, &self.layouts, &limits, stop);
        let places = order.and_then(|order| self.layouts.places.get(order)).unwrap_or(any);
        let bound = found.bound.map(|bound| bound.0);
        self.solved(&self.question(places, within_capacity), found, bound)
    }

    /// All plans of the variant that no other one beats in both memory and time by the closed form, and what the
    /// search for them came to. The fastest of each order of the nodes first.
    pub(crate) fn front(&self, stop: &Stop) -> (Vec<Candidate>, Solved) {
        let mut points: Vec<Candidate> = Vec::new();
        let solved: Vec<Solved> = self
            .questions(true)
            .map(|question| {
                let front = pareto::front(&question, self.criteria.unit, stop);
                let of = |point: &pareto::Point| self.candidate(&question, &point.plan.stages);
                let fastest = front.points.first();
                let solved = Solved {
                    best: fastest.and_then(of),
                    bound: match (fastest, front.ended) {
                        (Some(point), Ended::Proven) => Some(point.plan.value.0),
                        (None, Ended::Proven) => Some(f64::INFINITY),
                        _ => None,
                    },
                    states: front.states,
                    ended: front.ended,
                };
                points.extend(front.points.iter().filter_map(of));
                solved
            })
            .collect();
        (points, self.limited(Solved::all(solved, |a, b| a.closed_form < b.closed_form)))
    }

    /// Hands every plan of the variant that is wanted over, as far as the effort goes, and says what was left out.
    pub(crate) fn simulated<W: Wanted>(
        &self,
        terms: Terms,
        wanted: &mut W,
        effort: &Effort,
    ) -> (Vec<Candidate>, Outcome) {
        self.simulated_among(terms, None, wanted, effort)
    }

    /// The same of plans whose stages begin with some of the layers, of which it then says what was left out.
    pub(crate) fn simulated_among<W: Wanted>(
        &self,
        terms: Terms,
        begins: Option<&[bool]>,
        wanted: &mut W,
        effort: &Effort,
    ) -> (Vec<Candidate>, Outcome) {
        let (mut plans, mut all) = (Vec::new(), Outcome::NOTHING);
        let outcomes: Vec<Outcome> = self
            .questions(true)
            .map(|question| {
                let outcome = self.search(&question, terms, begins, wanted, effort);
                let found = wanted.found().into_iter();
                plans.extend(found.filter_map(|plan| {
                    let candidate = self.candidate(&question, &plan.stages)?;
                    Some(Candidate { simulated: terms.is_timed.then_some(plan.seconds), ..candidate })
                }));
                outcome
            })
            .collect();
        for outcome in outcomes {
            all = all.and(outcome);
        }
        if !self.layouts.is_complete {
            let least = self.relaxed(terms, &effort.prices()).unwrap_or(Whole { seconds: 0.0, highest: 0 });
            all = all.and(Outcome {
                states: 0,
                ended: Ended::Bounded,
                open_seconds: least.seconds,
                open_peak: least.highest,
            });
        }
        (plans, all)
    }

    /// The same of one order of the nodes. Where links between devices of a node are unlike, what is handed over is first put on
    /// the best of them.
    fn search<W: Wanted>(
        &self,
        question: &Question<'_, C>,
        terms: Terms,
        begins: Option<&[bool]>,
        wanted: &mut W,
        effort: &Effort,
    ) -> Outcome {
        let (prices, passes) = (&effort.prices(), &effort.passes);
        if !terms.is_timed || !self.subset.fleet.has_unlike_links() {
            return simulated::search_among(question, terms, begins, wanted, prices, passes);
        }
        let place = |stages: &[PlacedStage]| self.map_devices(question, stages);
        let mut placed = OnBestDevices::new(wanted, &place, passes);
        let outcome = simulated::search_among(question, terms, begins, &mut placed, prices, passes);
        outcome.and(placed.left_out())
    }

    /// What every plan needs at least in whatever order of the nodes; none where it is not known.
    fn relaxed(&self, terms: Terms, stop: &Stop) -> Option<Whole> {
        let (fleet, places) = &self.layouts.relaxed;
        let cuts = self.cuts.without_pins();
        let costs = Best::of(&self.costs, &self.subset.fleet);
        let question = self.variant.question(&costs, (fleet, places), &self.choices, &cuts);
        simulated::at_least(&question, terms, stop)
    }

    /// What no plan is faster than, in a look at the layers one by one; 0 where stages may be faster than their layers.
    pub(crate) fn layers_take(&self) -> f64 {
        let Some(layers) = self.layer_seconds() else { return 0.0 };
        let all: f64 = layers.iter().sum();
        let stages = (*self.variant.stages.end()).min(layers.len()).max(1);
        let batches = self.variant.batch.micro_batches;
        let held = self.variant.schedule.in_flight(u32::try_from(stages).unwrap_or(u32::MAX), 0, batches);
        // Some stage takes its share at least, of every micro-batch.
        let share = f64::from(batches) / stages as f64;
        if self.variant.schedule == Schedule::PipeDream {
            return all * share;
        }
        let trips = f64::from(batches.div_ceil(held.max(1)));
        all * trips.max(share)
    }

    /// Seconds of both passes of each layer at least, wherever it is; none where stages may be faster than their layers.
    pub(crate) fn layer_seconds(&self) -> Option<Vec<f64>> {
        if !self.costs.adds_up() {
            return None;
        }
        let links = self.layouts.places.first().map_or(0, |places| places.links().len()).max(1);
        let kinds = || self.subset.fleet.nodes.iter().map(|node| KindSet::one(node.kind));
        let kinds: std::collections::BTreeSet<KindSet> = kinds().collect();
        let of_layer = |layer: usize| {
            let mut least = f64::INFINITY;
            for &choice in &self.choices {
                for &kinds in &kinds {
                    for link in (0..links).filter_map(|link| LinkId::try_from(link).ok()) {
                        let alone = StageAt::anywhere(layer, layer, kinds);
                        let at = StageAt { choice, tensor_link: link, data_link: link, ..alone };
                        let passes = self.costs.seconds(&at).map(|seconds| seconds.passes());
                        least = least.min(passes.unwrap_or(f64::INFINITY));
                    }
                }
            }
            least
        };
        Some((0..self.costs.layers()).map(of_layer).collect())
    }

    /// A candidate whose devices have so many of its interleaved stages, with edges over the links of the very
    /// devices: `whole` are these, once.
    pub(crate) fn interleaved(&self, candidate: Candidate, each: u32, whole: &Subset) -> Candidate {
        let mut candidate = candidate.in_turn(each, &self.costs, whole);
        candidate.simulate();
        candidate
    }

    /// Places of all orders together: what it takes to keep this.
    pub(crate) fn size(&self) -> usize {
        self.layouts.places.iter().map(Places::count).sum()
    }

    /// Work that it took to list them.
    pub(crate) fn work(&self) -> u64 {
        work_of(self.size())
    }

    /// The same with all that was looked at for them.
    pub(crate) fn listing(&self) -> u64 {
        let looks = LOOK.saturating_mul(self.layouts.looks as u64);
        self.layouts.places.iter().map(listing_of).fold(looks, u64::saturating_add)
    }

    /// Any plan that fits, or that there is, and the states weighed for it.
    pub(crate) fn any_fit(&self, within_capacity: bool, stop: &Stop) -> (Option<Candidate>, u64) {
        let mut states = 0_u64;
        for question in self.questions(within_capacity) {
            let found = memory::bottleneck(&question, self.criteria.unit, stop);
            states = states.saturating_add(found.states);
            if let Some(best) = found.best {
                return (self.candidate(&question, &best.stages), states);
            }
        }
        (None, states)
    }

    /// The plan of given stages on all devices in their order, each by its layers and its choice's index; none where its
    /// costs do not know one of them. Whether it fits does not matter.
    pub(crate) fn given(&self, stages: &[(usize, usize, usize)]) -> Option<Candidate> {
        let (batch, overlap) = (self.variant.batch, self.criteria.overlap);
        let mut questions = self.questions(false);
        questions.find_map(|question| Candidate::given(&question, stages, batch, overlap, self.subset))
    }

    /// The plan that placed stages are, on the best devices of their nodes; none where its costs do not know one of them.
    pub(crate) fn candidate(&self, question: &Question<'_, C>, stages: &[PlacedStage]) -> Option<Candidate> {
        self.map_devices(question, stages).map(|mapped| mapped.candidate)
    }

    fn map_devices(&self, question: &Question<'_, C>, stages: &[PlacedStage]) -> Option<MappedCandidate> {
        let candidate =
            Candidate::of(question, stages, self.variant.batch, self.criteria.overlap, self.subset)?;
        Some(self.on_best_devices(candidate))
    }

    /// The same stages on the best devices of their nodes.
    pub(crate) fn on_best_devices(&self, candidate: Candidate) -> MappedCandidate {
        let Self { subset, costs, .. } = self;
        let device = |pin: &Pin| Some(*subset.origin.get(pin.device)? as usize);
        let pins = self.cuts.pins().iter().filter_map(|pin| Some(Pin { device: device(pin)?, ..*pin }));
        let pins: Vec<Pin> = pins.collect();
        candidate.map_devices(costs, &subset.unlike(), &pins, self.orders)
    }

    fn solved<V>(&self, question: &Question<'_, C>, found: Searched<V>, bound: Option<f64>) -> Solved {
        let nothing = found.best.is_none() && found.ended == Ended::Proven;
        Solved {
            best: found.best.and_then(|best| self.candidate(question, &best.stages)),
            bound: bound.or_else(|| nothing.then_some(f64::INFINITY)),
            states: found.states,
            ended: found.ended,
        }
    }

    /// Orders that were not searched may hold anything.
    fn limited(&self, solved: Solved) -> Solved {
        match solved.ended {
            Ended::Proven if !self.layouts.is_complete => {
                Solved { ended: Ended::Bounded, bound: None, ..solved }
            }
            _ => solved,
        }
    }
}
