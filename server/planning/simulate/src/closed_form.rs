//! AMP's formula.

use super::{Edge, Overlap};
use crate::Seconds;

/// Seconds of one pipeline's passes (AMP, eq. 4): `(m − 1) · max t_i + Σ e_i + Σ t_i`, where `t_i` are both
/// passes of a micro-batch through a stage and `e_i` its way over an edge and back.
///
/// AMP takes links to be idle whenever they are needed. One that is busy longer in a direction than any stage
/// computes keeps the pipeline waiting like a stage that slow, so the largest of both counts here; transfers that
/// keep devices from computing count as part of the stages at both of their ends.
pub(super) fn pipeline(stages: &[Seconds], edges: &[Edge], micro_batches: u32, overlap: Overlap) -> f64 {
    let all: f64 = stages.iter().map(|stage| stage.passes()).sum();
    let ways: f64 = edges.iter().map(|edge| edge.both()).sum();
    let longest = match overlap {
        Overlap::Computing => {
            let links = edges.iter().map(|edge| edge.forward.max(edge.backward));
            super::most(stages.iter().map(|stage| stage.passes()).chain(links))
        }
        Overlap::Nothing => {
            let edge =
                |index: Option<usize>| index.and_then(|index| edges.get(index)).map_or(0.0, |of| of.both());
            let busy = |(index, stage): (usize, &Seconds)| {
                stage.passes() + edge(index.checked_sub(1)) + edge(Some(index))
            };
            super::most(stages.iter().enumerate().map(busy))
        }
    };
    f64::from(micro_batches.saturating_sub(1)) * longest + ways + all
}

/// Seconds of one iteration (AMP, eq. 5): the slowest pipeline, then the slowest synchronisation. The
/// replicas of a stage work side by side within it, so there is one pipeline; the synchronisation is that of
/// its stages, and the optimizer step counts with it.
pub fn iteration(stages: &[Seconds], edges: &[Edge], micro_batches: u32, overlap: Overlap) -> f64 {
    pipeline(stages, edges, micro_batches, overlap) + super::most(stages.iter().map(|stage| stage.step))
}

/// The same of stages of which each device has several, `each` of them (Megatron-LM, SC'21, 2.2): with `T_d` what one
/// micro-batch takes on device d, `m · max T_d + (Σ T_d − max T_d) / each + Σ e_i`, and the slowest step. Of devices that are alike
/// that is the paper's `m · T + (devices − 1) · T / each`.
pub fn interleaved(stages: &[Seconds], edges: &[Edge], micro_batches: u32, each: u32) -> f64 {
    let each = each.max(1);
    let devices = (stages.len() / each as usize).max(1);
    let sum = |device: usize, of: fn(&Seconds) -> f64| {
        stages.iter().skip(device).step_by(devices).map(of).sum::<f64>()
    };
    let passes = |device| sum(device, |stage| stage.passes());
    let longest = super::most((0..devices).map(passes));
    let others = (0..devices).map(passes).sum::<f64>() - longest;
    let ways: f64 = edges.iter().map(|edge| edge.both()).sum();
    let step = super::most((0..devices).map(|device| sum(device, |stage| stage.step)));
    f64::from(micro_batches) * longest + others / f64::from(each) + ways + step
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
        let overlap = Overlap::Computing;
        assert_eq!(pipeline(&stages, &edges, 4, overlap), 3.0 * 6.0 + 1.25 + 11.0);
        assert_eq!(iteration(&stages, &edges, 4, overlap), 30.75);
        assert_eq!(pipeline(&stages, &edges, 1, overlap), 12.25);
        assert_eq!((pipeline(&[], &[], 3, overlap), iteration(&[], &[], 3, overlap)), (0.0, 0.0));
    }

    /// By hand: a link that takes 5 s forward, and devices that spend their transfers themselves.
    #[test]
    fn a_busy_link_counts_like_a_slow_stage() {
        let stages = [stage(1.0, 1.0, 0.0), stage(1.0, 1.0, 0.0)];
        let edges = [Edge { forward: 5.0, backward: 0.5 }];
        assert_eq!(pipeline(&stages, &edges, 3, Overlap::Computing), 2.0 * 5.0 + 5.5 + 4.0);
        assert_eq!(pipeline(&stages, &edges, 3, Overlap::Nothing), 2.0 * 7.5 + 5.5 + 4.0);
    }

    /// Where devices are alike interleaving divides the bubble by the stages of each, and with one each it is AMP's.
    #[test]
    fn interleaving_divides_the_bubble() {
        let halves = [stage(1.0, 2.0, 0.5); 8];
        assert_eq!(interleaved(&halves, &[], 8, 2), 8.0 * 6.0 + 3.0 * 6.0 / 2.0 + 1.0);
        let whole = [stage(2.0, 4.0, 1.0); 4];
        assert_eq!(interleaved(&whole, &[], 8, 1), iteration(&whole, &[], 8, Overlap::Computing));
    }
}
