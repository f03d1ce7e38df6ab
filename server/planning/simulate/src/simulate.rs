//! Exactly how long an iteration takes: every pass of every micro-batch, on every device.
//!
//! A device works through its passes in a fixed order ([`Order`]); a pass starts as soon as the device is free
//! and its input is there. So nothing has to be decided while time goes by, and one walk over the passes gives
//! all times (`engine`). A transfer takes its edge's seconds; those of one device in one direction follow each
//! other, because they share a link. It overlaps computing or occupies both ends ([`Overlap`](super::Overlap)).
//!
//! PipeDream never ends an iteration: every micro-batch updates the weights of each stage that it comes back
//! to. Its steady state is known in closed form (`steady`), and a window of it is drawn.

use std::rc::Rc;

use loadmaster_proto::training::Schedule;

use super::closed_form::lower_bound;
use super::engine::{self, EngineOptions};
use super::order::{self, Order};
use super::pipeline::{Pipeline, SimulateError, Simulated, bubble};
use super::sequence::Sequence;
use super::steady;

/// Simulates an iteration, or PipeDream's steady state, with all times.
///
/// # Errors
/// Numbers that make no pipeline; the text names them.
pub fn simulate(pipeline: &Pipeline<'_>) -> Result<Simulated, SimulateError> {
    simulated(pipeline, EngineOptions { keep_passes: true, ..EngineOptions::default() })
}

/// The same without the times of passes, which are most of its memory. Of PipeDream's steady state they are drawn all the same.
///
/// # Errors
/// As [`simulate`].
pub fn summarize(pipeline: &Pipeline<'_>) -> Result<Simulated, SimulateError> {
    simulated(pipeline, EngineOptions::default())
}

fn simulated(pipeline: &Pipeline<'_>, walk: EngineOptions) -> Result<Simulated, SimulateError> {
    pipeline.check()?;
    match pipeline.order {
        Order::PipeDream => steady::simulate(pipeline),
        Order::Gpipe | Order::OneFOneB | Order::Interleaved { .. } => {
            let turns = pipeline.order.turns(pipeline.stages.len(), pipeline.micro_batches);
            let run = engine::run(pipeline, &turns, walk)?;
            let in_flight = order::in_flight(&turns, pipeline.stages.len());
            Ok(Simulated {
                iteration_seconds: run.iteration,
                passes_seconds: run.passes,
                bubble: bubble(&run.lanes, run.passes),
                lanes: run.lanes,
                weight_versions: vec![1; in_flight.len()],
                in_flight,
                at_once: order::at_once(&turns),
            })
        }
    }
}

/// Seconds of an iteration alone: what [`simulate`] says, in a fraction of its time.
///
/// # Errors
/// As [`simulate`].
pub fn iteration_seconds(pipeline: &Pipeline<'_>) -> Result<f64, SimulateError> {
    pipeline.check()?;
    if pipeline.order == Order::PipeDream {
        return Ok(f64::from(pipeline.micro_batches) * steady::period(pipeline));
    }
    let turns = pipeline.order.turns(pipeline.stages.len(), pipeline.micro_batches);
    Ok(engine::run(pipeline, &turns, EngineOptions::default())?.iteration)
}

/// When the passes of a pipeline's first stage and its whole iteration end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ends {
    /// The last pass of the first stage.
    pub first_passes: f64,
    /// The last step.
    pub iteration: f64,
}

/// When the passes of a pipeline's first stage end, and all of it. In the long run of PipeDream all stages take equally
/// long.
///
/// # Errors
/// As [`simulate`].
pub fn ends(pipeline: &Pipeline<'_>, known: &mut KnownTurns) -> Result<Ends, SimulateError> {
    pipeline.check()?;
    if pipeline.order == Order::PipeDream {
        let iteration = iteration_seconds(pipeline)?;
        return Ok(Ends { first_passes: iteration, iteration });
    }
    if let Some(sequence) = known.of(pipeline) {
        return Ok(sequence.ends(pipeline));
    }
    let turns = pipeline.order.turns(pipeline.stages.len(), pipeline.micro_batches);
    let run = engine::run(pipeline, &turns, EngineOptions::default())?;
    let first = run.lanes.first().and_then(|lane| lane.step).map_or(run.passes, |(start, _)| start);
    Ok(Ends { first_passes: first, iteration: run.iteration })
}

/// The passes of pipelines that are asked for repeatedly.
#[derive(Debug, Clone, Default)]
pub struct KnownTurns {
    known: Vec<(TurnsOf, Rc<Sequence>)>,
    /// Of all of them.
    passes: usize,
}

/// What turns depend on: the order, stages and micro-batches.
type TurnsOf = (Order, usize, u32);

impl KnownTurns {
    /// Most passes that are kept.
    const MOST: usize = 1 << 18;

    /// The sequence of a pipeline's passes; none where there is no room for it.
    fn of(&mut self, pipeline: &Pipeline<'_>) -> Option<Rc<Sequence>> {
        let asked = (pipeline.order, pipeline.stages.len(), pipeline.micro_batches);
        if let Some((_, sequence)) = self.known.iter().find(|known| known.0 == asked) {
            return Some(Rc::clone(sequence));
        }
        let passes = asked.1.saturating_mul(2).saturating_mul(asked.2 as usize);
        if self.passes.saturating_add(passes) > Self::MOST {
            return None;
        }
        let sequence = Rc::new(Sequence::of(&asked.0.turns(asked.1, asked.2), asked.1)?);
        self.passes += sequence.len();
        self.known.push((asked, Rc::clone(&sequence)));
        Some(sequence)
    }
}

/// Seconds that the iteration takes at least, in a few operations per stage: what prunes before a simulation.
pub fn at_least(pipeline: &Pipeline<'_>) -> f64 {
    let Pipeline { stages, edges, micro_batches, order, .. } = *pipeline;
    match order {
        Order::Gpipe => lower_bound(Schedule::Gpipe, stages, edges, micro_batches),
        Order::OneFOneB => lower_bound(Schedule::OneFOneB, stages, edges, micro_batches),
        // Chunks of one device follow each other; the first micro-batch crosses everything.
        Order::Interleaved { devices } => {
            let each = devices.max(1) as usize;
            let lane = |device: usize| stages.iter().skip(device).step_by(each).map(|stage| stage.passes());
            let busiest = (0..each).map(|device| lane(device).sum::<f64>()).fold(0.0, f64::max);
            let once = stages.iter().map(|stage| stage.passes()).sum::<f64>()
                + edges.iter().map(|edge| edge.both()).sum::<f64>();
            let step = stages.first().map_or(0.0, |stage| stage.step);
            (f64::from(micro_batches) * busiest).max(once + step)
        }
        Order::PipeDream => f64::from(micro_batches) * steady::period(pipeline),
    }
}
