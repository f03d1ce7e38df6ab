//! How long an iteration takes: in closed form (AMP, 3.2 and 3.3), at least, and exactly.
//!
//! | module | question | AMP |
//! |---|---|---|
//! | `closed_form` | how long do bytes over links and a pipeline take by formula, and a pipeline at least? | 3.3, eq. 4, eq. 5 |
//! | `simulate` | how long exactly? | |
//! | `pipeline` | what is simulated, and what comes of it? | |
//! | `order` | which pass comes after which on a device? | |
//! | `engine` | when does each start? | |
//! | `sequence` | when is all over, of pipelines that differ in seconds alone? | |
//! | `steady` | how long does PipeDream take for a micro-batch in the long run? | |
//! | `copies` | how long if blocks of memory leave devices and come back meanwhile? | |
//! | `plan_timeline` | what does a plan do, under its own schedule or another one? | |
//!
//! AMP's formula prices a search in constant time per stage. It is no bound: under 1F1B a heavy early stage
//! works while the others pass micro-batches on, and under GPipe the slowest forward and the slowest backward
//! pass may be of different stages. [`lower_bound`] is one, and [`simulate()`] is exact.

mod closed_form;
pub mod copies;
mod engine;
mod order;
mod pipeline;
mod plan_timeline;
mod sequence;
mod simulate;
mod steady;
#[cfg(test)]
mod tests;

pub use closed_form::{
    all_reduce, interleaved as interleaved_seconds, iteration, lower_bound, point_to_point,
};
pub use loadmaster_proto::training::overlap::Overlap;
pub use order::{Order, Turn};
pub use pipeline::{Lane, MAX_PASSES, Pipeline, SimulateError, Simulated, TimedPass};
pub use plan_timeline::{AskedOrder, NO_COPIES, PlanTimeline, has_times, is_stepped, timeline};
pub use simulate::{Ends, KnownTurns, at_least, ends, iteration_seconds, simulate, summarize};

/// Seconds on the slowest device of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Seconds {
    /// Forward pass of one micro-batch, collectives included.
    pub forward: f64,
    /// Backward pass of one micro-batch, recomputation and collectives included.
    pub backward: f64,
    /// Once per iteration: gradient synchronisation and optimizer step.
    pub step: f64,
}

impl Seconds {
    /// Both passes of one micro-batch.
    pub fn passes(self) -> f64 {
        self.forward + self.backward
    }
}

/// Seconds that one micro-batch takes between two neighbouring stages.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Edge {
    /// Activations, forward.
    pub forward: f64,
    /// Their gradients, backward.
    pub backward: f64,
}

impl Edge {
    /// Activations and gradients have the same bytes, so each takes half of both.
    pub fn halves(both: f64) -> Self {
        Self { forward: both / 2.0, backward: both / 2.0 }
    }

    /// Both ways.
    pub fn both(self) -> f64 {
        self.forward + self.backward
    }
}

/// The largest of a few seconds; 0 of none.
fn most(seconds: impl Iterator<Item = f64>) -> f64 {
    seconds.fold(0.0, f64::max)
}
