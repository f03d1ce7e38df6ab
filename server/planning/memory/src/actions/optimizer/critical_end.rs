//! When an iteration ends at the soonest, by one of its stages.

use super::stage_policy::Stage;
use crate::actions::Question;
use loadmaster_simulate::copies::LayerSeconds;
use loadmaster_simulate::{Edge, Order};

/// Seconds that a stage's passes forward, backward and updates take.
pub(super) fn seconds(stage: &Stage<'_>) -> [f64; 3] {
    let sum = |of: fn(&LayerSeconds) -> f64| -> f64 {
        stage.blocks.layers.iter().map(|layer| of(&layer.seconds)).sum()
    };
    [sum(|of| of.forward), sum(|of| of.backward), sum(|of| of.update)]
}

/// When an iteration ends at the soonest.
pub(super) struct CriticalEnd {
    /// By the passes of a stage up to the last one forward, and the way of that micro-batch to the last stage and back.
    pub(super) middle: f64,
    /// By all of its passes.
    pub(super) passes: f64,
    /// By these and its updates, where its part of the iteration ends then.
    pub(super) updates: f64,
}

impl CriticalEnd {
    pub(super) fn of(
        question: &Question<'_>,
        stages: &[Stage<'_>],
        stage: &Stage<'_>,
        edges: &[Edge],
    ) -> Self {
        let [forward, backward, update] = seconds(stage);
        let (mut head, mut back) = (0.0, 0.0);
        for (below, edge) in stages.iter().take(stage.index).zip(edges) {
            head += seconds(below)[0] + edge.forward;
            back += seconds(below)[1] + edge.backward;
        }
        let above = stages.iter().skip(stage.index + 1).zip(edges.iter().skip(stage.index));
        let round: f64 = above
            .map(|(above, edge)| seconds(above)[..2].iter().sum::<f64>() + edge.forward + edge.backward)
            .sum();
        let in_flight = question.in_flight(stage.index);
        // The first backward pass comes behind as many forward passes, and behind the way of its micro-batch to the last stage
        // and back; under GPipe that of the last one.
        let last = if question.order == Order::Gpipe { in_flight } else { 1 };
        let first_back = head + (f64::from(in_flight) * forward).max(f64::from(last) * forward + round);
        let behind = f64::from(question.micro_batches - in_flight);
        let passes = first_back + behind * forward + f64::from(question.micro_batches) * backward;
        let first_update = stages.first().map_or(0.0, |first| seconds(first)[2]);
        let after = if stage.index > 0 { (back + first_update).max(update) } else { update };
        Self {
            middle: first_back + behind * (forward + backward) + round + backward + after,
            passes: passes + after,
            updates: passes + update,
        }
    }
}
