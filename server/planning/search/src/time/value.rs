//! What a given plan is worth.

use std::fmt;

use super::super::{PlacedStage, Question, StageAt, StageCosts, Unit};
use super::Limits;

/// Seconds of an iteration, by the closed form.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Time(pub f64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0)
    }
}

/// The terms of an iteration's seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Parts {
    /// Σ t: both passes of one micro-batch through all stages.
    pub passes: f64,
    /// Σ e: the inputs of the stages of one micro-batch.
    pub inputs: f64,
    /// max t.
    pub largest: f64,
    /// max s.
    pub step: f64,
}

impl Parts {
    /// All of it, for this many micro-batches.
    pub fn time(&self, micro_batches: u32) -> Time {
        let repeats = f64::from(micro_batches.saturating_sub(1));
        Time(self.passes + self.inputs + repeats * self.largest + self.step)
    }
}

/// The terms of a plan, whether it fits or not; none where one of its stages cannot be run so.
pub fn parts<C: StageCosts>(question: &Question<'_, C>, stages: &[PlacedStage]) -> Option<Parts> {
    parts_with(question, stages, |_, _| Some(0.0))
}

/// What a plan is worth within the limits, squeezed where it must be; none where it breaks them.
pub(super) fn realised<C: StageCosts>(
    question: &Question<'_, C>,
    stages: &[PlacedStage],
    limits: &Limits,
) -> Option<Time> {
    let is_limited = limits.are_of_bytes(question);
    let longer = |at: &StageAt, in_flight: u32| {
        let peak = question.costs.peak(at, in_flight).filter(|_| is_limited);
        match peak.map_or(0, |peak| limits.excess(question, at, peak)) {
            _ if is_limited && peak.is_none() => None,
            0 => Some(0.0),
            less => Some(question.costs.squeezed(at, in_flight, less, true)?.at_most),
        }
    };
    Some(parts_with(question, stages, longer)?.time(question.micro_batches))
}

/// The terms of a plan whose stages take so much longer than they do by themselves.
fn parts_with<C: StageCosts>(
    question: &Question<'_, C>,
    stages: &[PlacedStage],
    longer: impl Fn(&StageAt, u32) -> Option<f64>,
) -> Option<Parts> {
    let mut parts = Parts::default();
    for (index, stage) in stages.iter().enumerate() {
        let step = question.places.steps(stage.from).get(stage.step)?;
        let at = question.stage_at(step, stage.first, stage.last, stage.choice);
        let seconds = question.costs.seconds(&at)?;
        let passes = seconds.passes() + longer(&at, question.in_flight(stages.len() - 1 - index))?;
        parts.passes += passes;
        if let Some(before) = stage.first.checked_sub(1) {
            parts.inputs += question.costs.cut_seconds(before, step.entry, stage.choice);
        }
        parts.largest = parts.largest.max(passes);
        parts.step = parts.step.max(seconds.step);
    }
    Some(parts)
}

/// The highest peak of a plan's stages; none where one of them cannot be run so.
pub fn highest_peak<C: StageCosts>(
    question: &Question<'_, C>,
    stages: &[PlacedStage],
    unit: Unit,
) -> Option<u64> {
    let mut highest = 0;
    for (index, stage) in stages.iter().enumerate() {
        let step = question.places.steps(stage.from).get(stage.step)?;
        let at = question.stage_at(step, stage.first, stage.last, stage.choice);
        let peak = question.costs.peak(&at, question.in_flight(stages.len() - 1 - index))?;
        highest = highest.max(unit.of(peak.bytes, question.fleet.capacity(at.kinds)));
    }
    Some(highest)
}

/// Whether every stage of a plan keeps to the limits on its bytes.
pub fn is_within_limits<C: StageCosts>(
    question: &Question<'_, C>,
    stages: &[PlacedStage],
    limits: &Limits,
) -> bool {
    let fits = |(index, stage): (usize, &PlacedStage)| {
        let step = question.places.steps(stage.from).get(stage.step)?;
        let at = question.stage_at(step, stage.first, stage.last, stage.choice);
        let peak = question.costs.peak(&at, question.in_flight(stages.len() - 1 - index))?;
        Some(limits.excess(question, &at, peak) == 0)
    };
    let is_limited = limits.are_of_bytes(question);
    !is_limited || stages.iter().enumerate().all(|stage| fits(stage) == Some(true))
}
