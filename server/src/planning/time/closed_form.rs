//! AMP's formula.

use super::{Edge, slowest};
use crate::planning::search::Seconds;

/// Seconds of one pipeline's passes (AMP, eq. 4): `(m − 1) · max t_i + Σ e_i + Σ t_i`, where `t_i` are both
/// passes of a micro-batch through a stage and `e_i` its way over an edge and back.
pub fn pipeline(stages: &[Seconds], edges: &[Edge], micro_batches: u32) -> f64 {
    let all: f64 = stages.iter().map(|stage| stage.passes()).sum();
    let ways: f64 = edges.iter().map(|edge| edge.both()).sum();
    f64::from(micro_batches.saturating_sub(1)) * slowest(stages) + ways + all
}

/// Seconds of one iteration (AMP, eq. 5): the slowest pipeline, then the slowest synchronisation. The
/// replicas of a stage work side by side within it, so there is one pipeline; the synchronisation is that of
/// its stages, and the optimizer step counts with it.
pub fn iteration(stages: &[Seconds], edges: &[Edge], micro_batches: u32) -> f64 {
    pipeline(stages, edges, micro_batches) + super::most(stages.iter().map(|stage| stage.step))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(forward: f64, backward: f64, step: f64) -> Seconds {
        Seconds { forward, backward, step }
    }

    /// By hand, on three stages and four micro-batches.
    #[test]
    fn the_slowest_stage_counts_for_every_further_micro_batch() {
        let stages = [stage(1.0, 2.0, 0.5), stage(2.0, 4.0, 0.1), stage(1.0, 1.0, 0.2)];
        let edges = [Edge { forward: 0.25, backward: 0.5 }, Edge::halves(0.5)];
        assert_eq!(pipeline(&stages, &edges, 4), 3.0 * 6.0 + 1.25 + 11.0);
        assert_eq!(iteration(&stages, &edges, 4), 30.75);
        assert_eq!(pipeline(&stages, &edges, 1), 12.25);
        assert_eq!((pipeline(&[], &[], 3), iteration(&[], &[], 3)), (0.0, 0.0));
    }
}
