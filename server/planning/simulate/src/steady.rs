//! PipeDream in the long run.
//!
//! The passes of all micro-batches are one endless graph that repeats itself with every micro-batch, so the
//! time for a micro-batch settles at the largest ratio of seconds to micro-batches over its cycles. Stage s of
//! S has S − s micro-batches in flight, which leaves these cycles alone: forward from stage i to stage j and
//! back, which takes j − i + 1 micro-batches, and every link by itself.

use loadmaster_proto::training::schedule::Pass;

use super::engine::{self, EngineOptions};
use super::order::{self, Order};
use super::pipeline::{Lane, Pipeline, SimulateError, Simulated, TimedPass, bubble};
use super::{Edge, Overlap};

/// Micro-batches, in multiples of the stages, after which a window is drawn.
const FILLING: u32 = 4;

/// Seconds per micro-batch in the long run, exactly.
pub(super) fn period(pipeline: &Pipeline<'_>) -> f64 {
    let Pipeline { stages, edges, overlap, .. } = *pipeline;
    // What exchanging with the stage behind an edge adds to a device's own time.
    let delay = |edge: Option<&Edge>| match overlap {
        Overlap::Computing => 0.0,
        Overlap::Nothing => edge.map_or(0.0, |edge| edge.both()),
    };
    let mut longest = edges.iter().map(|edge| edge.forward.max(edge.backward)).fold(0.0, f64::max);
    for (first, turning) in stages.iter().enumerate() {
        let in_front = first.checked_sub(1).and_then(|edge| edges.get(edge));
        let mut way = turning.backward + delay(in_front) + turning.step;
        for (last, stage) in stages.iter().enumerate().skip(first) {
            let edge = edges.get(last);
            longest = longest.max((way + stage.forward + delay(edge)) / (last + 1 - first) as f64);
            // Beyond it, and back from the next stage.
            let (Some(edge), Some(next)) = (edge, stages.get(last + 1)) else { break };
            way += stage.forward + edge.forward + next.backward + edge.backward;
        }
    }
    longest
}

/// The steady state, with a window of as many micro-batches as an iteration has, once the pipeline is full.
pub(super) fn simulate(pipeline: &Pipeline<'_>) -> Result<Simulated, SimulateError> {
    let Pipeline { stages, micro_batches, .. } = *pipeline;
    let count = u32::try_from(stages.len()).unwrap_or(u32::MAX);
    let filled = count.saturating_mul(FILLING);
    // As many once more let the window end before the pipeline runs dry.
    let all = micro_batches.saturating_add(filled.saturating_mul(2));
    let endless = Pipeline { micro_batches: all, ..*pipeline };
    endless.check()?;
    let turns = Order::PipeDream.turns(stages.len(), all);
    let run = engine::run(&endless, &turns, EngineOptions { keep_passes: true, updates_always: true })?;
    let iteration_seconds = f64::from(micro_batches) * period(pipeline);
    let back = |wanted: u32| {
        let first = run.lanes.first();
        let mut passes = first.into_iter().flat_map(|lane| &lane.passes);
        passes.find(|timed| timed.pass == Pass::Backward(wanted)).map_or(0.0, |timed| timed.end)
    };
    let from = back(filled.saturating_sub(1));
    let window = from..from + iteration_seconds;
    let lanes: Vec<Lane> = run
        .lanes
        .into_iter()
        .map(|lane| {
            let within = lane.passes.into_iter().filter_map(|timed| {
                let (start, end) = (timed.start.max(window.start), timed.end.min(window.end));
                (start < end).then_some(TimedPass { start: start - from, end: end - from, ..timed })
            });
            let passes: Vec<TimedPass> = within.collect();
            let busy = passes.iter().map(|timed| timed.end - timed.start).sum();
            Lane { passes, step: None, busy }
        })
        .collect();
    let in_flight = order::in_flight(&turns, stages.len());
    Ok(Simulated {
        iteration_seconds,
        passes_seconds: iteration_seconds,
        bubble: bubble(&lanes, iteration_seconds),
        lanes,
        weight_versions: in_flight.clone(),
        in_flight,
        at_once: order::at_once(&turns),
    })
}
