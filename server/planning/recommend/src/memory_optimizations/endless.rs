//! How long as many micro-batches take in the long run of PipeDream whose stages do memory actions.

use loadmaster_proto::error::Invalid;

use super::links::CopyLinks;
use super::seconds::{Timed, device_of, mean_backward, used};
use super::swaps;
use crate::plan::PlanBuilder;
use crate::result::QuestionError;
use crate::search::Candidate;
use loadmaster_predict::{ActionsPrediction, PipelineActions};
use loadmaster_search::Seconds;
use loadmaster_simulate::copies::{
    Copied, CopiesError, DeviceTimes, Endless, LayerSeconds, LongRun, StageSteps, long_run,
};
use loadmaster_simulate::{Edge, Order, Pipeline, iteration_seconds};

impl PlanBuilder<'_> {
    /// By its closed form where nothing is copied, else by simulation. None without times.
    pub(super) fn endless(
        &self,
        candidate: &Candidate,
        stages: &PipelineActions,
        links: &dyn Fn() -> CopyLinks,
    ) -> Result<Option<Timed>, QuestionError> {
        let micro_batches = candidate.batch.micro_batches;
        let count = candidate.stages.len();
        let simulated = Endless::simulated(count, micro_batches);
        let (mut seconds, mut devices) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let has_no_sense = |error: CopiesError| Invalid::field("stage_actions", error.to_string());
        for (index, (stage, acted)) in candidate.stages.iter().zip(&stages.acted).enumerate() {
            let Some((layers, exchange)) = self.layers(candidate, stage) else { return Ok(None) };
            let Some(priced) = stage.seconds else { return Ok(None) };
            seconds.push(Seconds { backward: mean_backward(acted, stage.first, &layers), ..priced });
            if stages.actions.iter().any(swaps) {
                let place = [index, count].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
                let of = endless_of(acted, place.into(), (stage.first, &layers), exchange, simulated);
                devices.push(of.map_err(has_no_sense)?);
            }
        }
        let edges: Vec<Edge> = candidate.edges.iter().map(|&both| Edge::halves(both)).collect();
        let overlap = candidate.overlap;
        let backward = seconds.iter().map(|of| of.backward).collect();
        let used = used(devices.iter().map(|endless| &endless.device));
        if used.is_empty() {
            let pipeline =
                Pipeline { stages: &seconds, edges: &edges, micro_batches, order: Order::PipeDream, overlap };
            let Ok(alone) = iteration_seconds(&pipeline) else { return Ok(None) };
            // Where all share cores, no slower than all of it at once.
            let work: f64 = seconds.iter().map(|of| f64::from(micro_batches) * (of.passes() + of.step)).sum();
            let on_cores = self.cores_of_all(candidate).map(|cores| work / cores.slots);
            let iteration = alone.max(on_cores.unwrap_or(0.0));
            let copied = untouched(&seconds, micro_batches, iteration);
            return Ok(Some(Timed { copied, edges, backward, copy_rates: None, rates: String::new() }));
        }
        let links = links();
        let (rates, links) = (links.told(&used), links.links(&used));
        let copy_rates = Some(links.rates_of(&used));
        let LongRun { copied, .. } =
            long_run(&devices, &edges, overlap, &links, (micro_batches, None)).map_err(has_no_sense)?;
        Ok(Some(Timed { copied, edges, backward, copy_rates, rates }))
    }
}

/// What a stage at this place of so many does for so many micro-batches, whose layers from the first one on take these seconds.
pub(crate) fn endless_of(
    acted: &ActionsPrediction,
    place: (u32, u32),
    (first_layer, layers): (usize, &[LayerSeconds]),
    exchange_seconds: f64,
    micro_batches: u32,
) -> Result<Endless, CopiesError> {
    let trips = device_of(acted, place, (first_layer, layers), exchange_seconds)?.trips;
    let steps = StageSteps { place, steps: &acted.steps, first_layer, layers, exchange_seconds };
    Endless::of(&steps, &trips, micro_batches)
}

fn untouched(stages: &[Seconds], micro_batches: u32, iteration: f64) -> Copied {
    let busy = |of: &Seconds| DeviceTimes {
        end: iteration,
        busy: f64::from(micro_batches) * (of.passes() + of.step),
        ..DeviceTimes::default()
    };
    Copied {
        iteration_seconds: iteration,
        iterations: 1,
        is_steady: true,
        devices: stages.iter().map(busy).collect(),
        ..Copied::default()
    }
}
