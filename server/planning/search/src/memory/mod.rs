//! The plan with the lowest peaks, exactly (CAPTURE, III-C; mCAP).
//!
//! CAPTURE and mCAP enumerate every plan and take the one with the lowest highest peak; among equals they
//! drop the highest devices and compare the rest, and at last choose at random. Here the order is *leximax* over devices
//! (see [`Peaks`]). Equal plans are decided by the smallest first stage, then the first of the steps that
//! it may take, then the second stage, and so on. Among choices with equal bytes the first is taken. The same
//! question has the same answer for ever.
//!
//! | file | does |
//! |---|---|
//! | `classes` | the stages that a path can take, where the number of stages left matters (`search::graph`), and which of them have equal bytes |
//! | `costs` | asks for the bytes of every stage that a path can meet, once |
//! | `reach` | from which layers and places the end can be reached within a limit, 64 layers at a time |
//! | `widest_paths`, `leximax` | of all plans within it, the leximax-lowest, one distinct peak per round |
//! | `exact` | the lowest highest cost, and all of these together |
//! | `coarse_bounds` | questions that are too large for that |
//! | `shortfall` | where nothing fits: what is missing, and where |

mod bits;
mod classes;
mod coarse_bounds;
mod costs;
mod effort;
mod exact;
mod leximax;
mod peaks;
mod reach;
mod shortfall;
mod widest_paths;

pub use peaks::{Peaks, Run};
pub use shortfall::{Obstacle, Shortage, Shortfall, explain};

use super::{Assignment, Ended, PlacedStage, Question, Searched, StageCosts, Stop, Unit};
use costs::Measure;
use effort::SizeLimits;

/// Name and version of the search, for plans.
pub const SOLVER: &str = "leximax/2";

/// Finds the plan with the leximax-lowest peaks.
///
/// Where the space is too large for the memory of a planner it ends [`Bounded`](super::Ended::Bounded). Then one of two
/// promises holds. Either the highest peak is the lowest possible one, but the others may not be. Or, under 1F1B, the
/// plan is the best of those that fit if every stage holds as many micro-batches as the first of the longest pipeline.
pub fn leximax<C: StageCosts>(question: &Question<'_, C>, unit: Unit, stop: &Stop) -> Searched<Peaks> {
    leximax_within(question, unit, stop, SizeLimits::USUAL)
}

fn leximax_within<C: StageCosts>(
    question: &Question<'_, C>,
    unit: Unit,
    stop: &Stop,
    limits: SizeLimits,
) -> Searched<Peaks> {
    let found = exact::leximax(question, Measure::Peak(unit), stop, limits);
    ended(found.unwrap_or_else(|why| coarse_bounds::leximax(question, unit, stop, limits, why)), stop)
}

/// What effort ended is bounded.
fn ended<V>(found: Searched<V>, stop: &Stop) -> Searched<V> {
    let is_spent = found.ended == Ended::Stopped && stop.is_spent();
    Searched { ended: if is_spent { stop.ended() } else { found.ended }, ..found }
}

/// Finds a plan with the lowest highest peak, and does not look at the other peaks: enough to know whether
/// anything fits.
pub fn bottleneck<C: StageCosts>(question: &Question<'_, C>, unit: Unit, stop: &Stop) -> Searched<u64> {
    let found = exact::bottleneck(question, Measure::Peak(unit), stop, SizeLimits::USUAL);
    let found = found.unwrap_or_else(|why| {
        let found = coarse_bounds::leximax(question, unit, stop, SizeLimits::USUAL, why);
        let highest = |best: Assignment<Peaks>| {
            let value = best.value.highest()?;
            Some(Assignment { stages: best.stages, value })
        };
        let bound = found.bound.and_then(|bound| bound.highest());
        Searched { best: found.best.and_then(highest), bound, states: found.states, ended: found.ended }
    });
    ended(found, stop)
}

/// The peaks of a plan that was found by whatever means; none where a stage cannot be run so, or does not fit where
/// that is asked.
pub fn peaks_of<C: StageCosts>(
    question: &Question<'_, C>,
    unit: Unit,
    stages: &[PlacedStage],
) -> Option<Peaks> {
    let runs = stages.iter().enumerate().map(|(index, stage)| {
        let step = question.places.steps(stage.from).get(stage.step)?;
        let at = question.stage_at(step, stage.first, stage.last, stage.choice);
        let peak = question.costs.peak(&at, question.in_flight(stages.len() - 1 - index))?;
        let capacity = question.fleet.capacity(step.kinds);
        let fits = !question.within_capacity || peak.needed <= capacity.0;
        fits.then(|| Run { peak: unit.of(peak.bytes, capacity), devices: step.devices })
    });
    runs.collect::<Option<Vec<Run>>>().map(Peaks::of)
}

#[cfg(test)]
mod tests;
