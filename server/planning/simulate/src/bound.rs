//! What no schedule of an order of passes can beat.

use loadmaster_proto::training::Schedule;

use super::pipeline::Pipeline;
use super::{Edge, Order, Overlap, most, steady};
use crate::Seconds;

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
