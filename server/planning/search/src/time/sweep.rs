//! The least of sum + (m − 1) · largest passes + largest step over all paths, exactly.
//!
//! With both maxima bounded, the rest is a shortest path ([`Program`]). So the bounds are searched: a
//! [`Window`] is a range of each, and no plan in it is better than the shortest path within its upper ends, plus
//! what its lower ends cost.
//!
//! The window with the lowest such bound is looked at next. Its shortest path is a
//! plan; better ones in the window have a smaller largest stage or a smaller largest step than that plan, which
//! leaves smaller windows. The search ends when no window's bound is below the best plan.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::super::Stop;
use super::levels::{Bounds, By, Levels, Squeezing};
use super::program::{Fold, Program};
use super::step_classes::StepGraph;
use super::tables::{Cost, Priced, Tables};

/// By how much bounds are widened until squeezed stages make a plan within them.
const WIDER: f64 = 1.25;

/// A stage of a path: its arc, last layer and choice.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathStage {
    pub(super) arc: usize,
    pub(super) last: usize,
    pub(super) choice: usize,
}

/// What a sweep found.
#[derive(Debug, Default)]
pub(super) struct Swept {
    /// The best path with its value, where one is below the limit; and the node where it begins.
    pub(super) best: Option<(f64, u32, Vec<PathStage>)>,
    /// No path is below this; infinite where there is none.
    pub(super) bound: f64,
    /// States weighed.
    pub(super) states: u64,
    /// Whether it was stopped before the bound reached the best.
    pub(super) is_stopped: bool,
}

/// Ranges of the largest passes and the largest step.
#[derive(Debug, Clone, Copy)]
struct Window {
    /// No path in it has a smaller sum.
    sum: f64,
    low: Bounds,
    high: Bounds,
    /// No path in it has a smaller value.
    bound: f64,
}

impl PartialEq for Window {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Window {}

impl PartialOrd for Window {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The lowest bound is the greatest, for a heap; then the narrower window, which is likelier to hold a plan.
impl Ord for Window {
    fn cmp(&self, other: &Self) -> Ordering {
        let bound = other.bound.total_cmp(&self.bound);
        bound.then_with(|| other.high.passes.total_cmp(&self.high.passes))
    }
}

/// A path that the program found within bounds.
struct Path {
    /// At least.
    sum: f64,
    /// At least.
    largest: Bounds,
    /// What it is really worth: more than the two say where it is not known how stages are best squeezed.
    value: f64,
    start: u32,
    stages: Vec<PathStage>,
}

/// A search in progress.
struct Sweep<'a> {
    graph: &'a StepGraph,
    tables: &'a Tables<'a>,
    /// m − 1.
    repeats: f64,
    program: Program<'a>,
    levels: Levels,
    to_end: Vec<f64>,
    /// The best value so far, or the limit.
    value: f64,
    best: Option<(u32, Vec<PathStage>)>,
    windows: BinaryHeap<Window>,
    /// The least that plans may be worth that were given up without proof.
    unproven: f64,
}

/// What a search on a smaller graph, whose plans are valued no worse, leaves to a larger one.
#[derive(Debug)]
pub(super) struct Survey {
    /// No plan's largest stages are smaller.
    low: Bounds,
    /// No plan's sum is smaller.
    sum: f64,
    /// By place and layer: whether a plan through it may be better than the limit of the survey.
    alive: Vec<bool>,
}

/// The best path below `limit`.
pub(super) fn sweep(
    graph: &StepGraph,
    tables: &Tables<'_>,
    micro_batches: u32,
    limit: f64,
    survey: Option<&Survey>,
    stop: &Stop,
) -> Swept {
    let mut sweep = Sweep::new(graph, tables, micro_batches, limit, stop);
    let bound = match survey {
        Some(survey) => {
            sweep.program.keep_places(&survey.alive);
            sweep.search(survey.sum, survey.low)
        }
        None => sweep.run(),
    };
    let Sweep { program, value, best, .. } = sweep;
    Swept {
        best: best.map(|(start, stages)| (value, start, stages)),
        bound,
        states: program.states,
        is_stopped: program.is_stopped,
    }
}

/// What is left of a graph below `limit`; none where nothing is, or it was stopped.
pub(super) fn survey(
    graph: &StepGraph,
    tables: &Tables<'_>,
    micro_batches: u32,
    limit: f64,
    places: usize,
    stop: &Stop,
) -> Option<Survey> {
    let mut sweep = Sweep::new(graph, tables, micro_batches, limit, stop);
    let low = sweep.least()?;
    let sum = sweep.free_sum()?;
    sweep.narrow(low, sweep.highest(sum, low));
    let alive = sweep.program.places_left(places);
    (!sweep.program.is_stopped).then_some(Survey { low, sum, alive })
}

impl<'a> Sweep<'a> {
    fn new(
        graph: &'a StepGraph,
        tables: &'a Tables<'a>,
        micro_batches: u32,
        limit: f64,
        stop: &'a Stop,
    ) -> Self {
        Self {
            graph,
            tables,
            repeats: f64::from(micro_batches.saturating_sub(1)),
            program: Program::new(graph, tables.layers, stop),
            levels: Levels::of(graph, tables),
            to_end: Vec::new(),
            value: limit,
            best: None,
            windows: BinaryHeap::new(),
            unproven: f64::INFINITY,
        }
    }

    /// Searches until nothing better can be; the bound.
    fn run(&mut self) -> f64 {
        let Some(low) = self.least() else {
            return if self.program.is_stopped { 0.0 } else { f64::INFINITY };
        };
        let Some(sum) = self.free_sum() else { return self.cost(0.0, low) };
        // The plan with the smallest largest stage is often near the best. Where it has to be squeezed, one that is
        // not too far from it.
        let mut passes = low.passes;
        loop {
            if let Some(path) = self.shortest(Bounds { passes, step: f64::INFINITY }) {
                self.offer(path);
                break;
            }
            if self.program.is_stopped || self.tables.squeezer.is_none() || passes.is_infinite() {
                break;
            }
            let longest = self.tables.longest();
            // From nothing too it gets somewhere.
            let wider = (passes * WIDER).max(longest / 1024.0);
            passes = if passes < longest { wider } else { f64::INFINITY };
        }
        self.search(sum, low)
    }

    /// What no plan's sum is below; none where there is no plan.
    fn free_sum(&mut self) -> Option<f64> {
        self.fill(By::Sum, Bounds::NONE, Squeezing::Ignored);
        self.program.fill_to_end(&self.levels, Fold::Sum, &mut self.to_end);
        let sum = self.program.best(&self.to_end).map(|(_, sum)| sum);
        sum.filter(|_| !self.program.is_stopped)
    }

    /// Searches the windows from these lower ends; the bound: the best itself, or the limit if nothing is below.
    fn search(&mut self, sum: f64, low: Bounds) -> f64 {
        if self.cost(sum, low) >= self.value {
            return self.value;
        }
        let high = self.highest(sum, low);
        self.narrow(low, high);
        self.push(sum, low, high);
        while let Some(window) = self.windows.pop() {
            if window.bound >= self.value {
                break;
            }
            let path = self.shortest(window.high);
            if self.program.is_stopped {
                return window.bound;
            }
            if let Some(path) = path {
                self.split(&window, path);
            }
        }
        self.value.min(self.unproven)
    }

    fn fill(&mut self, by: By, bounds: Bounds, squeezing: Squeezing) {
        if !self.program.work(self.levels.work()) {
            self.levels.fill(self.tables, by, bounds, squeezing);
        }
    }

    fn cost(&self, sum: f64, largest: Bounds) -> f64 {
        let repeated = if self.repeats > 0.0 { self.repeats * largest.passes } else { 0.0 };
        sum + repeated + largest.step
    }

    /// The least that the largest passes and the largest step of any plan can be; none where there is no plan.
    fn least(&mut self) -> Option<Bounds> {
        let mut least = |by: By| {
            self.fill(by, Bounds::NONE, Squeezing::Ignored);
            self.program.fill_to_end(&self.levels, Fold::Largest, &mut self.to_end);
            let found = self.program.best(&self.to_end).map(|(_, value)| value);
            if self.program.is_stopped { None } else { found }
        };
        Some(Bounds { passes: least(By::LargestPasses)?, step: least(By::LargestStep)? })
    }

    /// The most that the two can be in a plan that is better than the best so far.
    fn highest(&self, sum: f64, low: Bounds) -> Bounds {
        let room = self.value - self.cost(sum, low);
        let passes = if self.repeats > 0.0 { low.passes + room / self.repeats } else { f64::INFINITY };
        // Rounded up, so that rounding excludes nothing.
        Bounds { passes: passes.next_up(), step: (low.step + room).next_up() }
    }

    /// Drops states through which no plan can be better than the best so far.
    fn narrow(&mut self, low: Bounds, high: Bounds) {
        self.levels.focus(self.graph, self.tables, high, self.program.alive());
        self.fill(By::Sum, high, Squeezing::Asked);
        let mut from_start = Vec::new();
        self.program.fill_from_start(&self.levels, Fold::Sum, &mut from_start);
        self.program.fill_to_end(&self.levels, Fold::Sum, &mut self.to_end);
        if !self.program.is_stopped {
            self.program.keep_below(&from_start, &self.to_end, self.value - self.cost(0.0, low));
            self.levels.focus(self.graph, self.tables, high, self.program.alive());
        }
    }

    /// The shortest path within bounds.
    fn shortest(&mut self, bounds: Bounds) -> Option<Path> {
        loop {
            self.fill(By::Sum, bounds, Squeezing::Asked);
            self.program.fill_to_end(&self.levels, Fold::Sum, &mut self.to_end);
            if self.program.is_stopped {
                return None;
            }
            let (start, sum) = self.program.best(&self.to_end)?;
            let found = self.program.path(&self.levels, Fold::Sum, &self.to_end, start);
            let mut path = Path {
                sum,
                largest: Bounds { passes: 0.0, step: 0.0 },
                value: 0.0,
                start,
                stages: Vec::with_capacity(found.len()),
            };
            let (mut longer, mut largest_at_most) = (0.0, 0.0_f64);
            let mut is_refined = false;
            let mut first = 0;
            for (arc, last) in found {
                let (priced, cost) = self.chosen(arc, first, last, bounds)?;
                let stage = first * self.tables.layers + last;
                is_refined |= self.tables.refine(priced, stage, self.graph.arcs[arc].label.in_flight);
                path.largest.passes = path.largest.passes.max(cost.passes);
                path.largest.step = path.largest.step.max(cost.step);
                longer += cost.passes_at_most - cost.passes;
                largest_at_most = largest_at_most.max(cost.passes_at_most);
                path.stages.push(PathStage { arc, last, choice: cost.choice });
                first = last + 1;
            }
            if !is_refined {
                let largest = Bounds { passes: largest_at_most, ..path.largest };
                path.value = self.cost(sum + longer, largest);
                return Some(path);
            }
        }
    }

    /// The choice behind a level's value: of equals the one with the smallest passes, then step.
    fn chosen(&self, arc: usize, first: usize, last: usize, bounds: Bounds) -> Option<(&'a Priced, Cost)> {
        let stage = first * self.tables.layers + last;
        let value = self.levels.get(arc).values[stage];
        let taken = self.graph.arcs[arc].label;
        let choices = self.tables.of_step[taken.like as usize].iter();
        let choices = choices.filter_map(|priced| {
            let own = self.tables.value(priced, stage, By::Sum, bounds, taken.in_flight, Squeezing::Asked)?;
            Some((priced, self.tables.cost(priced, stage, taken.in_flight)?)).filter(|_| own == value)
        });
        choices.min_by(|(_, one), (_, other)| {
            one.passes.total_cmp(&other.passes).then(one.step.total_cmp(&other.step))
        })
    }

    /// Keeps a path if it is better than the best.
    fn offer(&mut self, path: Path) {
        let at_least = self.cost(path.sum, path.largest);
        if at_least < path.value {
            self.unproven = self.unproven.min(at_least);
        }
        if path.value < self.value {
            self.value = path.value;
            self.best = Some((path.start, path.stages));
        }
    }

    /// Takes the path of a window, and leaves the parts of it that may hold a better one.
    fn split(&mut self, window: &Window, path: Path) {
        let sum = path.sum.max(window.sum);
        let largest = path.largest;
        self.offer(path);
        let Window { low, high, .. } = *window;
        // Smaller passes, any step.
        if largest.passes > low.passes {
            let below = largest.passes.next_down();
            let middle = low.passes + (below - low.passes) / 2.0;
            self.push(sum, low, Bounds { passes: middle, ..high });
            self.push(sum, Bounds { passes: middle.next_up(), ..low }, Bounds { passes: below, ..high });
        }
        // No smaller passes, but a smaller step.
        if largest.step > low.step {
            let low = Bounds { passes: low.passes.max(largest.passes), ..low };
            let below = largest.step.next_down();
            let middle = low.step + (below - low.step) / 2.0;
            self.push(sum, low, Bounds { step: middle, ..high });
            self.push(sum, Bounds { step: middle.next_up(), ..low }, Bounds { step: below, ..high });
        }
    }

    /// Keeps a window for later, if it may hold something better.
    fn push(&mut self, sum: f64, low: Bounds, high: Bounds) {
        let bound = self.cost(sum, low);
        if low.passes <= high.passes && low.step <= high.step && bound < self.value {
            self.windows.push(Window { sum, low, high, bound });
        }
    }
}
