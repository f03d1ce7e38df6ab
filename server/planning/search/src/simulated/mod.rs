//! The best plans by their *simulated* iteration, exactly: what certificates in seconds are based on.
//!
//! AMP's formula ([`time`](super::time)) prices millions of stages quickly, but is neither what an iteration takes
//! nor a bound of it. So what it finds is where this search begins. It builds plans from the last stage to the
//! first, simulates each part that it has, and leaves a part out once no plan that ends with it is wanted.
//!
//! A part of a pipeline is a pipeline: under GPipe and 1F1B the last k stages do among themselves what they do
//! in the whole, only later. Let F be when the first stage of such a part has ended its passes, and I when
//! everything is over, both from the first input on. With the stages before it not chosen yet, no iteration
//! is shorter than the largest of
//!
//! ```text
//! forward passes and transfers before it, at least   + I
//! both passes and transfers before it, at least      + F
//! the stages before it, each working through all its micro-batches once the first one is there
//! ```
//!
//! Where waits are counted, there is one more bound. A stage before the part has k micro-batches in flight at most. So its first
//! backward pass follows at most k forward passes, and comes after a round trip of the first micro-batch through everything that
//! follows. With f and b the stage's own passes, R that round trip, and m micro-batches, no iteration is shorter than
//!
//! ```text
//! both passes and transfers before the stage + f + R + k · b + (m − k) · (f + b)
//! ```
//!
//! Under PipeDream nothing is filled or drained: the long run takes what its slowest cycle does, and those of a part are
//! cycles of the whole. So no iteration is shorter than that of the part, or than any other stage working through all its
//! micro-batches and the updates behind them.
//!
//! | module | what it does |
//! |---|---|
//! | `tables` | seconds and room of every stage, and what the stages before any place and layer take at least |
//! | `branch` | builds the plans |
//! | `acceptance` | which plans are wanted: the fastest, the lowest peaks within a time, a front |

mod acceptance;
mod branch;
mod tables;
#[cfg(test)]
mod tests;

pub use acceptance::{Fastest, Least, LowestPeaks, SimulatedFront, Wanted, Weighed};

use super::{Ended, Question, StageCosts, Stop, Unit};
use branch::Branch;
pub use branch::PASS;
use loadmaster_simulate::Overlap;
use tables::StageTables;
pub use tables::Whole;

/// Name and version of this search.
pub const SOLVER: &str = "simulated/1";

/// How a plan is weighed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Whether transfers occupy the devices.
    pub overlap: Overlap,
    /// How peaks are compared.
    pub unit: Unit,
    /// The most bytes of any device besides its capacity.
    pub most_bytes: Option<u64>,
    /// Whether seconds count; otherwise stages take none, and need not have any.
    pub is_timed: bool,
    /// Whether bounds count what stages wait for their first micro-batch to come back: more is left out unseen, at some work for
    /// every stage that is looked at.
    pub counts_waits: bool,
}

/// What a search came to, besides what it handed over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// Parts of plans weighed.
    pub states: u64,
    /// [`Ended::Proven`] if no plan that is wanted was left out.
    pub ended: Ended,
    /// No plan that was left out is faster; infinite where none was.
    pub open_seconds: f64,
    /// No plan that was left out has a lower highest peak, in the terms' unit; `u64::MAX` where none was.
    pub open_peak: u64,
}

impl Outcome {
    /// Nothing was there to be searched.
    pub const NOTHING: Self =
        Self { states: 0, ended: Ended::Proven, open_seconds: f64::INFINITY, open_peak: u64::MAX };

    /// Stopped before anything was looked at.
    pub const STOPPED: Self = Self { states: 0, ended: Ended::Stopped, open_seconds: 0.0, open_peak: 0 };

    /// What two searches come to together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            states: self.states.saturating_add(other.states),
            ended: self.ended.and(other.ended),
            open_seconds: self.open_seconds.min(other.open_seconds),
            open_peak: self.open_peak.min(other.open_peak),
        }
    }
}

/// Hands over every plan of a question that is wanted when it is found.
///
/// What is left out for want of effort or time is bounded by the outcome: `prices` may be spent on asking for stages,
/// `stop` on simulating.
pub fn search<C: StageCosts>(
    question: &Question<'_, C>,
    terms: Terms,
    wanted: &mut dyn Wanted,
    prices: &Stop,
    stop: &Stop,
) -> Outcome {
    search_among(question, terms, None, wanted, prices, stop)
}

/// The same of plans whose stages begin with some of the layers: `true` for each that one may begin with. Without these it is
/// [`search`]; with them the outcome is of these plans alone.
pub fn search_among<C: StageCosts>(
    question: &Question<'_, C>,
    terms: Terms,
    begins: Option<&[bool]>,
    wanted: &mut dyn Wanted,
    prices: &Stop,
    stop: &Stop,
) -> Outcome {
    let Some(tables) = StageTables::of(question, terms, prices) else {
        return Outcome { states: 0, ended: prices.ended(), open_seconds: 0.0, open_peak: 0 };
    };
    Branch::new(question, terms, begins, &tables, wanted, stop).run()
}

/// What every plan of a question needs at least, in one look at its stages; none where it is too large to tell.
pub fn at_least<C: StageCosts>(question: &Question<'_, C>, terms: Terms, stop: &Stop) -> Option<Whole> {
    StageTables::of(question, terms, stop).map(|tables| tables.whole())
}
