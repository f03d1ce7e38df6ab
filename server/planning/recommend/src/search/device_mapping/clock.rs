//! What an iteration takes where edges take other seconds.

use crate::search::Candidate;
use loadmaster_search::Seconds;
use loadmaster_simulate::{
    Edge, KnownTurns, MAX_PASSES, Order, Overlap, Pipeline, at_least, ends, iteration,
};

/// Passes that are simulated at most to find the devices of one plan.
const MOST_PASSES: u64 = 400_000;

/// What an iteration takes where edges take other seconds.
pub(super) struct Clock {
    stages: Vec<Seconds>,
    micro_batches: u32,
    order: Order,
    overlap: Overlap,
    turns: KnownTurns,
    /// Whether it simulates: there may be too many passes.
    pub(super) is_simulated: bool,
    /// Passes that were simulated.
    pub(super) passes: u64,
}

impl Clock {
    /// Of a plan; none without times.
    pub(super) fn of(candidate: &Candidate) -> Option<Self> {
        let (stages, _) = candidate.timed()?;
        Some(Self {
            stages,
            micro_batches: candidate.batch.micro_batches,
            order: Order::from(candidate.schedule),
            overlap: candidate.overlap,
            turns: KnownTurns::default(),
            is_simulated: candidate.passes() <= MAX_PASSES,
            passes: 0,
        })
    }

    fn with<T>(&mut self, edges: &[f64], run: impl FnOnce(&Pipeline<'_>, &mut KnownTurns) -> T) -> T {
        let edges: Vec<Edge> = edges.iter().map(|&both| Edge::halves(both)).collect();
        let Self { stages, micro_batches, order, overlap, turns, .. } = self;
        let pipeline = Pipeline {
            stages,
            edges: &edges,
            micro_batches: *micro_batches,
            order: *order,
            overlap: *overlap,
        };
        run(&pipeline, turns)
    }

    pub(super) fn seconds(&mut self, edges: &[f64]) -> Option<f64> {
        if !self.is_simulated {
            return Some(self.closed_form(edges));
        }
        self.passes = self.passes.saturating_add(self.passes_each());
        self.with(edges, |pipeline, turns| ends(pipeline, turns).ok().map(|ends| ends.iteration))
    }

    pub(super) fn at_least(&mut self, edges: &[f64]) -> f64 {
        let (is_simulated, formula) = (self.is_simulated, self.closed_form(edges));
        self.with(edges, |pipeline, _| if is_simulated { at_least(pipeline) } else { formula })
    }

    pub(super) fn closed_form(&mut self, edges: &[f64]) -> f64 {
        self.with(edges, |of, _| iteration(of.stages, of.edges, of.micro_batches, of.overlap))
    }

    fn passes_each(&self) -> u64 {
        (self.stages.len() as u64).saturating_mul(2 * u64::from(self.micro_batches)).max(1)
    }

    /// How many pipelines may yet be simulated.
    pub(super) fn left(&self) -> usize {
        let left = MOST_PASSES.saturating_sub(self.passes) / self.passes_each();
        usize::try_from(left).unwrap_or(usize::MAX)
    }
}
