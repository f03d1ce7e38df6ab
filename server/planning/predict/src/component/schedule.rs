//! The peak of an iteration.
//!
//! Every micro-batch allocates the same, so each kind of pass is played once and the schedule is folded:
//! a kind of pass peaks highest where most micro-batches are in flight, and where the gradients exist.
//! A test holds the fold to a replay of every event of every micro-batch (`memory_optimizations`), which is what stages with memory
//! actions need.

use loadmaster_proto::training::Schedule;

use super::machine::{ClassBytes, Machine};
use super::stage::{PassTurn, ReplayStage};
use crate::{MOST_BYTES, PeakCurve};

/// Bytes of a stage's kinds of passes, from which the peak of any schedule is read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StageBytes {
    /// What a micro-batch in flight holds.
    in_flight: ClassBytes,
    /// The parameters' gradients.
    gradients: ClassBytes,
    /// Highest moment of a forward pass: what this micro-batch holds then.
    forward: ClassBytes,
    /// Highest moment of the first backward pass: what this micro-batch and the new gradients hold then.
    first_backward: ClassBytes,
    /// Highest moment of a later backward pass: what this micro-batch holds then.
    later_backward: ClassBytes,
    /// Highest moment of the step, beyond the gradients.
    step: ClassBytes,
}

/// Where a stage is in its pipeline, and how often it is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) schedule: Schedule,
    pub(super) stages: u32,
    pub(super) stage: u32,
    pub(super) micro_batches: u32,
}

impl StageBytes {
    /// The larger of both for each kind of pass: no less than the peak of either, and exactly that where one of
    /// them needs more in all.
    pub(super) fn fullest(self, other: Self) -> Self {
        let larger =
            |one: ClassBytes, other: ClassBytes| if other.total() > one.total() { other } else { one };
        Self {
            in_flight: larger(self.in_flight, other.in_flight),
            gradients: larger(self.gradients, other.gradients),
            forward: larger(self.forward, other.forward),
            first_backward: larger(self.first_backward, other.first_backward),
            later_backward: larger(self.later_backward, other.later_backward),
            step: larger(self.step, other.step),
        }
    }

    /// Plays each kind of pass once.
    pub(super) fn of(stage: &ReplayStage<'_>) -> Self {
        let mut machine = Machine::default();
        let micro_batch = stage.forward(&mut machine, PassTurn::Later);
        let (forward, in_flight) = (machine.peak(), machine.held());
        machine.reset_peak();
        stage.backward(&mut machine, micro_batch);
        let later_backward = machine.peak();

        let mut machine = Machine::default();
        let micro_batch = stage.forward(&mut machine, PassTurn::First);
        machine.reset_peak();
        let created = stage.backward(&mut machine, micro_batch);
        let (first_backward, gradients) = (machine.peak(), machine.held());
        machine.reset_peak();
        stage.step(&mut machine, created);
        let step = machine.peak().minus(gradients);
        Self { in_flight, gradients, forward, first_backward, later_backward, step }
    }

    /// What is held at the highest moment of an iteration, parameters and optimizer state not counted.
    /// `synchronisation` are buffers that are held once, between the last backward pass and the step.
    pub(super) fn peak(&self, place: Place, synchronisation: ClassBytes) -> ClassBytes {
        let mut peak = ClassBytes::default();
        let mut consider = |candidate: ClassBytes| {
            if candidate.total() > peak.total() {
                peak = candidate;
            }
        };
        let Place { schedule, stages, stage, micro_batches } = place;
        let most = schedule.in_flight(stages, stage, micro_batches);
        let others = |count: u32| self.in_flight.times(u64::from(count));
        if schedule.updates_always() {
            // Every backward pass creates gradients, for the update behind it, and the others in flight wait.
            let others = others(most.saturating_sub(1));
            let updated = [synchronisation, self.step].map(|more| self.gradients.plus(more));
            for moment in [self.forward, self.first_backward].into_iter().chain(updated) {
                consider(others.plus(moment));
            }
            return peak;
        }
        // The last forward pass before the first backward pass, and that one.
        consider(self.forward.plus(others(most.saturating_sub(1))));
        consider(self.first_backward.plus(others(most.saturating_sub(1))));
        if micro_batches > most {
            // One forward, one backward: as many in flight once more, now with gradients.
            consider(self.forward.plus(others(most.saturating_sub(1))).plus(self.gradients));
            consider(self.later_backward.plus(others(most.saturating_sub(1))).plus(self.gradients));
        } else if micro_batches > 1 {
            consider(self.later_backward.plus(others(most.saturating_sub(2))).plus(self.gradients));
        }
        consider(self.gradients.plus(synchronisation));
        consider(self.gradients.plus(self.step));
        peak
    }
}

impl StageBytes {
    /// [`Self::peak`] for any number of micro-batches in flight out of these, in all: what `constant` adds to
    /// every moment included. Most in flight adds the same to each moment of a pass, so the highest one with one
    /// micro-batch in flight is the highest with any number. Under PipeDream each of them has a version of the weights,
    /// of so many bytes, one of which is in `constant`.
    pub(super) fn curve(
        &self,
        (schedule, micro_batches): (Schedule, u32),
        synchronisation: u64,
        constant: u64,
        version: u64,
    ) -> PeakCurve {
        let [in_flight, gradients, forward, first, later, step] = [
            self.in_flight,
            self.gradients,
            self.forward,
            self.first_backward,
            self.later_backward,
            self.step,
        ]
        .map(|bytes| bytes.total().min(MOST_BYTES));
        let [synchronisation, constant] = [synchronisation, constant].map(|bytes| bytes.min(MOST_BYTES));
        let before = forward.max(first);
        if schedule.updates_always() {
            let one = before.max(gradients + synchronisation.max(step)) + constant;
            let each = in_flight + version.min(MOST_BYTES);
            return PeakCurve {
                least: 0,
                one,
                one_of_last: one,
                each,
                micro_batches,
                margin: None,
                most: None,
            };
        }
        let again = (forward + gradients).max(later + gradients);
        // The last one in flight is back when a later backward pass begins.
        let rest = if micro_batches > 1 { (later + gradients).saturating_sub(in_flight) } else { 0 };
        PeakCurve {
            least: gradients + synchronisation.max(step) + constant,
            one: before.max(again) + constant,
            one_of_last: before.max(rest) + constant,
            each: in_flight,
            micro_batches,
            margin: None,
            most: None,
        }
    }
}
