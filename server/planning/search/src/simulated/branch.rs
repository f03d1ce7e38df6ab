//! Builds plans from the last stage to the first, the most promising first.

use loadmaster_proto::training::Schedule;

use super::super::memory::{Peaks, Run};
use super::super::{Ended, PlaceId, PlacedStage, Question, Seconds, StageCosts, Stop};
use super::tables::StageTables;
use super::{Least, Outcome, Terms, Wanted, Weighed};
use loadmaster_simulate::{Edge, KnownTurns, Order, Pipeline, ends};

/// Work of a simulated pass.
pub const PASS: u64 = 5;

/// Work of a look at a stage that is left out without a simulation, where as many are as waits are counted for.
const LOOK: u64 = 3;

/// The last stages of a plan, the first of them last.
#[derive(Debug, Default)]
struct LastStages {
    stages: Vec<PlacedStage>,
    seconds: Vec<Seconds>,
    /// Between each stage and the one that was chosen before it, which follows it.
    edges: Vec<f64>,
    runs: Vec<Run>,
}

/// A stage that may come before the part.
#[derive(Debug)]
struct Child {
    stage: PlacedStage,
    seconds: Seconds,
    /// Of the edge between it and the part.
    edge: f64,
    run: Run,
    /// What plans with it need at least.
    least: Least,
}

/// A search in progress.
pub(super) struct Branch<'a, C> {
    question: &'a Question<'a, C>,
    terms: Terms,
    /// By layer, whether a stage may begin with it; none where all may.
    begins: Option<&'a [bool]>,
    tables: &'a StageTables,
    wanted: &'a mut dyn Wanted,
    stop: &'a Stop,
    part: LastStages,
    turns: KnownTurns,
    outcome: Outcome,
    is_over: bool,
}

impl<'a, C: StageCosts> Branch<'a, C> {
    pub(super) fn new(
        question: &'a Question<'a, C>,
        terms: Terms,
        begins: Option<&'a [bool]>,
        tables: &'a StageTables,
        wanted: &'a mut dyn Wanted,
        stop: &'a Stop,
    ) -> Self {
        let (part, turns, outcome) = (LastStages::default(), KnownTurns::default(), Outcome::NOTHING);
        Self { question, terms, begins, tables, wanted, stop, part, turns, outcome, is_over: false }
    }

    pub(super) fn run(mut self) -> Outcome {
        let whole = self.tables.whole();
        let least = Least { seconds: whole.seconds, highest: whole.highest, peaks: Peaks::default() };
        if whole.seconds.is_finite() && self.wanted.may_be(&least) {
            self.extend(self.question.places.last(), self.tables.layers);
            // Whatever was left out is a plan too.
            self.outcome.open_seconds = self.outcome.open_seconds.max(whole.seconds);
            self.outcome.open_peak = self.outcome.open_peak.max(whole.highest);
        }
        self.outcome
    }

    /// All plans that end with the part, whose first stage begins at this place and layer.
    fn extend(&mut self, place: PlaceId, layer: usize) {
        let mut children = self.children(place, layer);
        children.sort_by(|one, other| {
            let by_seconds = one.least.seconds.total_cmp(&other.least.seconds);
            by_seconds.then(one.least.highest.cmp(&other.least.highest))
        });
        for child in children {
            if !self.wanted.may_be(&child.least) {
                continue;
            }
            if self.is_over {
                self.leave(&child.least);
                continue;
            }
            let Child { stage, seconds, edge, run, least } = child;
            if stage.first == 0 {
                self.finish(stage, least);
                continue;
            }
            self.part.stages.push(stage);
            self.part.seconds.push(seconds);
            self.part.edges.push(edge);
            self.part.runs.push(run);
            self.extend(stage.from, stage.first);
            self.part.stages.pop();
            self.part.seconds.pop();
            self.part.edges.pop();
            self.part.runs.pop();
        }
    }

    /// The stages that may come before the part and may lead to a plan that is wanted.
    fn children(&mut self, place: PlaceId, layer: usize) -> Vec<Child> {
        let (question, tables) = (self.question, self.tables);
        let after = self.part.stages.len();
        let in_flight = question.in_flight(after);
        let begins = self.begins;
        let part = self.part_seconds();
        let may_begin =
            |first: usize| begins.is_none_or(|begins| begins.get(first).copied().unwrap_or(false));
        let mut children = Vec::new();
        if after >= *question.stages.end() {
            return children;
        }
        for entry in &tables.into[place as usize] {
            let step = &question.places.steps(entry.from)[entry.step];
            let capacity = question.fleet.capacity(step.kinds);
            for &table in &entry.tables {
                for first in (0..layer).filter(|&first| may_begin(first)) {
                    let last = layer - 1;
                    let cell = tables.cell(table, first, last);
                    if tables.counts_waits && !self.stop.take(LOOK) {
                        self.is_over = true;
                        self.outcome.ended = self.stop.ended();
                    }
                    let before = tables.before(entry.from, first);
                    let is_walled = entry.walls.get(first).is_some_and(|&wall| wall < layer);
                    if cell.held < in_flight || before.forward.is_infinite() || is_walled {
                        continue;
                    }
                    if first == 0 && after + 1 < *question.stages.start() {
                        continue;
                    }
                    let stage = tables.placed(entry, table, first, last);
                    let at = question.stage_at(step, first, last, stage.choice);
                    let Some(peak) = question.costs.peak(&at, in_flight) else { continue };
                    let run = Run { peak: self.terms.unit.of(peak.bytes, capacity), devices: step.devices };
                    let peaks = Peaks::of(self.part.runs.iter().copied().chain([run]));
                    let edge = self.edge(&stage);
                    let once = if self.is_endless() { 0.0 } else { before.both + cell.seconds.passes() };
                    let waiting = match tables.counts_waits {
                        true => before.waiting + self.input(&stage) + cell.seconds.passes() + edge + part,
                        false => 0.0,
                    };
                    let least = Least {
                        seconds: before.busy.max(once).max(waiting),
                        highest: before.highest.max(peaks.highest().unwrap_or(0)),
                        peaks,
                    };
                    if self.is_over || !self.wanted.may_be(&least) {
                        if self.is_over {
                            self.leave(&least);
                        }
                        continue;
                    }
                    self.outcome.states += 1;
                    let child = Child { stage, seconds: cell.seconds, edge, run, least };
                    children.extend(self.weigh(child));
                }
            }
        }
        children
    }

    /// Simulates the part with one more stage; none where no plan with it is wanted.
    fn weigh(&mut self, mut child: Child) -> Option<Child> {
        let passes =
            (self.part.stages.len() as u64 + 1).saturating_mul(2 * u64::from(self.question.micro_batches));
        // A pass of a long pipeline with many micro-batches takes as long as thousands of short ones.
        if self.stop.is_requested() || !self.stop.take(passes.saturating_mul(PASS)) {
            self.is_over = true;
            self.outcome.ended = self.stop.ended();
            self.leave(&child.least);
            return None;
        }
        let stages: Vec<Seconds> =
            std::iter::once(child.seconds).chain(self.part.seconds.iter().rev().copied()).collect();
        let own = (!self.part.stages.is_empty()).then_some(child.edge);
        let edges = own.into_iter().chain(self.part.edges.iter().skip(1).rev().copied());
        let edges: Vec<Edge> = edges.map(Edge::halves).collect();
        let pipeline = Pipeline {
            stages: &stages,
            edges: &edges,
            micro_batches: self.question.micro_batches,
            order: Order::from(self.question.schedule),
            overlap: self.terms.overlap,
        };
        let ended = ends(&pipeline, &mut self.turns);
        let Ok(ended) = ended else {
            // Too many passes: what it takes at least is all that is known.
            self.is_over = true;
            self.outcome.ended = Ended::Bounded;
            self.leave(&child.least);
            return None;
        };
        let before = self.tables.before(child.stage.from, child.stage.first);
        let input = self.input(&child.stage);
        child.least.seconds = if child.stage.first == 0 {
            ended.iteration
        } else if self.is_endless() {
            child.least.seconds.max(ended.iteration)
        } else {
            let late = before.forward + input / 2.0 + ended.iteration;
            let back = before.both + input + ended.first_passes;
            child.least.seconds.max(late).max(back)
        };
        self.wanted.may_be(&child.least).then_some(child)
    }

    /// Whether nothing is ever flushed: no micro-batch waits for a pipeline to fill.
    fn is_endless(&self) -> bool {
        self.question.schedule == Schedule::PipeDream
    }

    /// Seconds of both passes of a micro-batch through the part, transfers within it included.
    fn part_seconds(&self) -> f64 {
        let passes: f64 = self.part.seconds.iter().map(|seconds| seconds.passes()).sum();
        passes + self.part.edges.iter().sum::<f64>()
    }

    /// Seconds of the edge between a stage and the part: the slower side counts.
    fn edge(&self, stage: &PlacedStage) -> f64 {
        let Some(next) = self.part.stages.last() else { return 0.0 };
        let Some(step) = self.question.places.steps(next.from).get(next.step) else { return 0.0 };
        self.question.edge_seconds(stage.last, step.entry, stage.choice, next.choice)
    }

    /// Seconds of a stage's own input, at least: who sends it is not known.
    fn input(&self, stage: &PlacedStage) -> f64 {
        let (Some(cut), Some(step)) =
            (stage.first.checked_sub(1), self.question.places.steps(stage.from).get(stage.step))
        else {
            return 0.0;
        };
        self.question.costs.cut_seconds(cut, step.entry, stage.choice)
    }

    fn finish(&mut self, stage: PlacedStage, least: Least) {
        let stages = std::iter::once(stage).chain(self.part.stages.iter().rev().copied()).collect();
        self.wanted.take(Weighed { stages, seconds: least.seconds, peaks: least.peaks });
    }

    /// Leaves plans out that may be wanted.
    fn leave(&mut self, least: &Least) {
        self.outcome.open_seconds = self.outcome.open_seconds.min(least.seconds);
        self.outcome.open_peak = self.outcome.open_peak.min(least.highest);
    }
}
