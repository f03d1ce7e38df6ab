//! AMP's formulas: seconds of bytes over links, of a pipeline, and a lower bound of any schedule.

use loadmaster_proto::cluster::Link;
use loadmaster_proto::training::Schedule;

use super::pipeline::Pipeline;
use super::{Edge, Order, Overlap, most, steady};
use crate::Seconds;

/// Seconds of one pipeline's passes (AMP, eq. 4): `(m − 1) · max t_i + Σ e_i + Σ t_i`, where `t_i` are both
/// passes of a micro-batch through a stage and `e_i` its way over an edge and back.
///
/// AMP takes links to be idle whenever they are needed. One that is busy longer in a direction than any stage
/// computes keeps the pipeline waiting like a stage that slow, so the largest of both counts here. Transfers that
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

/// Seconds that an iteration takes at least, steps included: never more than the simulation says, with or
/// without transfers that overlap computing.
///
/// Before a stage works, the first micro-batch comes to it through all stages before; after its last pass,
/// which is a backward one, that micro-batch goes back through them. In between the stage
///
/// * passes every micro-batch in both ways, one after another: `m · t_i`;
/// * under 1F1B takes the next micro-batch beyond its `k_i` in flight only when one is back, so that at least
///   `⌈m / k_i⌉` round trips to the end of the pipeline follow each other.
///
/// Under GPipe the forward passes are over before the backward passes begin at the last stage, so each half is
/// a flow line of its own: `Σ f_i + Σ e_i + (m − 1) · max f_i`, and likewise backward.
///
/// PipeDream's is what it takes in the long run.
pub fn lower_bound(schedule: Schedule, stages: &[Seconds], edges: &[Edge], micro_batches: u32) -> f64 {
    let m = f64::from(micro_batches);
    if schedule == Schedule::PipeDream {
        let (order, overlap) = (Order::PipeDream, Overlap::Computing);
        return m * steady::period(&Pipeline { stages, edges, micro_batches, order, overlap });
    }
    let count = u32::try_from(stages.len()).unwrap_or(u32::MAX);
    let edge = |index: usize| edges.get(index).copied().unwrap_or_default();
    // Seconds from a stage's forward pass to the end of its backward pass, by stage.
    let mut round_trips = vec![0.0; stages.len()];
    let mut rest = 0.0;
    for (index, stage) in stages.iter().enumerate().rev() {
        rest += stage.passes() + edge(index).both();
        if let Some(round_trip) = round_trips.get_mut(index) {
            *round_trip = rest;
        }
    }
    let (mut bound, mut arrival) = (0.0_f64, 0.0);
    // From the end of a stage's last pass to the end of all the steps up to its own.
    let mut after = 0.0_f64;
    for (index, stage) in stages.iter().enumerate() {
        // The edge after the last stage does not exist and costs nothing.
        after = if index == 0 { stage.step } else { stage.step.max(after) };
        let position = u32::try_from(index).unwrap_or(u32::MAX);
        let in_flight = schedule.in_flight(count, position, micro_batches).max(1);
        let trips = f64::from(micro_batches.div_ceil(in_flight));
        let round_trip = round_trips.get(index).copied().unwrap_or_default();
        let busy = (m * stage.passes()).max(trips * round_trip);
        bound = bound.max(arrival + busy + after);
        arrival += stage.forward + edge(index).forward;
        after += stage.backward + edge(index).backward;
    }
    match schedule {
        Schedule::OneFOneB | Schedule::PipeDream => bound,
        Schedule::Gpipe => {
            let line = |passes: fn(&Seconds) -> f64, way: fn(&Edge) -> f64| {
                let all = stages.iter().map(passes).sum::<f64>() + edges.iter().map(way).sum::<f64>();
                all + (m - 1.0).max(0.0) * most(stages.iter().map(passes))
            };
            let first_step = stages.first().map_or(0.0, |stage| stage.step);
            let passes = line(|stage| stage.forward, |edge| edge.forward)
                + line(|stage| stage.backward, |edge| edge.backward);
            bound.max(passes + first_step)
        }
    }
}

/// Seconds until `bytes` that one device sends have arrived at another: `v / b` and the latency (AMP, 3.3).
pub fn point_to_point(bytes: f64, link: Link) -> f64 {
    bytes / link.bytes_per_second + link.latency_seconds
}

/// Seconds of a ring all-reduce of `bytes` over `workers` devices whose slowest link is `link`:
/// `2 (n − 1) M / (n B)`, and a latency for each of the ring's `2 (n − 1)` turns (AMP, 3.3). A ring of one has
/// nothing to send.
pub fn all_reduce(bytes: f64, workers: u32, link: Link) -> f64 {
    let turns = 2.0 * f64::from(workers.saturating_sub(1));
    turns * (bytes / (f64::from(workers.max(1)) * link.bytes_per_second) + link.latency_seconds)
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::cluster::LinkOrigin;
    use proptest::prelude::*;

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

    fn link(bytes_per_second: f64, latency_seconds: f64) -> Link {
        Link { bytes_per_second, latency_seconds, origin: LinkOrigin::Given }
    }

    /// By hand: 600 bytes over 4 devices at 100 bytes a second are 6 turns of 150 bytes.
    #[test]
    fn a_ring_takes_2_n_minus_1_turns_of_an_nth() {
        assert_eq!(all_reduce(600.0, 4, link(100.0, 0.0)), 9.0);
        assert_eq!(all_reduce(600.0, 4, link(100.0, 0.5)), 12.0);
        assert_eq!(all_reduce(600.0, 2, link(100.0, 0.0)), 6.0);
        assert_eq!(
            (all_reduce(600.0, 1, link(100.0, 9.0)), all_reduce(600.0, 0, link(1.0, 9.0))),
            (0.0, 0.0)
        );
        assert_eq!(point_to_point(600.0, link(100.0, 0.25)), 6.25);
    }

    proptest! {
        /// More devices, more bytes or a slower link never take less; however many devices, each byte
        /// crosses the link less than twice.
        #[test]
        fn a_ring_grows_with_devices_and_stays_below_twice_the_bytes(
            bytes in 0.0..1e12_f64, workers in 1_u32..2_000, bandwidth in 1.0..1e12_f64, latency in 0.0..1.0_f64,
        ) {
            let seconds = all_reduce(bytes, workers, link(bandwidth, latency));
            prop_assert!(seconds <= all_reduce(bytes, workers + 1, link(bandwidth, latency)));
            prop_assert!(seconds <= all_reduce(bytes * 2.0, workers, link(bandwidth, latency)));
            prop_assert!(seconds <= all_reduce(bytes, workers, link(bandwidth / 2.0, latency)));
            prop_assert!(all_reduce(bytes, workers, link(bandwidth, 0.0)) <= 2.0 * bytes / bandwidth);
        }
    }
}
