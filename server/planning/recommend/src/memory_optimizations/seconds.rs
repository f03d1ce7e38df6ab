//! How long an iteration takes whose stages also copy, and how long as many micro-batches take in the long run of PipeDream.

use std::collections::BTreeSet;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::offload::CopyPace;
use loadmaster_proto::plan::prediction::StageSeconds;
use loadmaster_proto::plan::rates::CopyRates;
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::RecomputePolicy;

use super::links::{CopiesAsPlanned, CopyLinks, StageDevice, or_other_rates};
use super::swaps;
use crate::plan::PlanBuilder;
use crate::result::QuestionError;
use crate::search::{Candidate, CandidateStage};
use loadmaster_predict::{ActionsPrediction, Away, LayerCost, PipelineActions, Share, StageSetting};
use loadmaster_search::Seconds;
use loadmaster_simulate::copies::{
    Copied, CopiesError, CopyPipeline, DeviceSteps, DeviceTimes, Endless, Keep, LayerSeconds, LongRun,
    Parcel, Place, StageSteps, Trip, Way, long_run, simulate,
};
use loadmaster_simulate::{Edge, Order, Pipeline, interleaved_seconds, iteration, iteration_seconds};

/// An iteration with copies.
pub(crate) struct Timed {
    pub(crate) copied: Copied,
    pub(crate) edges: Vec<Edge>,
    /// Mean seconds of a backward pass of each stage, what it computes again included.
    pub(crate) backward: Vec<f64>,
    /// How fast copies are, and which cores are shared; none where there is neither.
    pub(crate) copy_rates: Option<CopyRates>,
    /// Where the rates of copies come from, for people.
    pub(crate) rates: String,
}

impl PlanBuilder<'_> {
    /// Simulates an iteration; none where the profile has no times.
    pub(super) fn timed(
        &self,
        candidate: &Candidate,
        stages: &PipelineActions,
        pace: CopyPace,
    ) -> Result<Option<Timed>, QuestionError> {
        self.timed_over(candidate, stages, &|| self.copy_links(candidate, pace))
    }

    /// The same of a plan that is bound to nodes: what nobody says of their copies is as the plan had it.
    pub(crate) fn timed_as_planned(
        &self,
        candidate: &Candidate,
        stages: &PipelineActions,
        planned: CopiesAsPlanned,
    ) -> Result<Option<Timed>, QuestionError> {
        self.timed_over(candidate, stages, &|| self.copy_links_as_planned(candidate, planned))
    }

    fn timed_over(
        &self,
        candidate: &Candidate,
        stages: &PipelineActions,
        links: &dyn Fn() -> CopyLinks,
    ) -> Result<Option<Timed>, QuestionError> {
        if candidate.schedule.updates_always() {
            return self.endless(candidate, stages, links);
        }
        let count = u32::try_from(candidate.stages.len()).unwrap_or(u32::MAX);
        let links = links();
        let mut devices = Vec::with_capacity(candidate.stages.len());
        let mut backward = Vec::with_capacity(candidate.stages.len());
        for (index, stage) in candidate.stages.iter().enumerate() {
            let Some((layers, exchange_seconds)) = self.layers(candidate, stage) else { return Ok(None) };
            let acted = &stages.acted[index];
            let place = (u32::try_from(index).unwrap_or(u32::MAX), count);
            let device = device_of(acted, place, (stage.first, &layers), exchange_seconds)
                .map_err(|error| Invalid::field("stage_actions", error.to_string()))?;
            backward.push(mean_backward(acted, stage.first, &layers));
            devices.push(device);
        }
        let used = used(devices.iter());
        let told = stages.actions.iter().any(swaps).then(|| links.told(&used));
        let (links, rates) = (links.links(&used), told.unwrap_or_default());
        let edges: Vec<Edge> = candidate.edges.iter().map(|&both| Edge::halves(both)).collect();
        let stepped =
            CopyPipeline { devices: &devices, edges: &edges, overlap: candidate.overlap, links: &links };
        let copied = simulate(&stepped, Keep { copies: true, ..Keep::default() })
            .map_err(|error| Invalid::field("stage_actions", error.to_string()))?;
        let has_more = !used.is_empty() || !links.cores.is_empty();
        let copy_rates = has_more.then(|| links.rates_of(&used));
        Ok(Some(Timed { copied, edges, backward, copy_rates, rates }))
    }

    /// What copies between the devices of stages go over, one device for each of them.
    pub(crate) fn copy_links(&self, candidate: &Candidate, pace: CopyPace) -> CopyLinks {
        let links = CopyLinks::of(&self.places(candidate), &self.chain.device_kind, pace);
        links.on(self.shared_cores(candidate))
    }

    /// The same of a plan that is bound to nodes.
    pub(crate) fn copy_links_as_planned(&self, candidate: &Candidate, planned: CopiesAsPlanned) -> CopyLinks {
        let links = CopyLinks::as_planned(&self.places(candidate), &self.chain.device_kind, planned);
        links.on(self.shared_cores(candidate))
    }

    /// The devices of stages, with their nodes as far as these are described.
    fn places(&self, candidate: &Candidate) -> Vec<Vec<StageDevice<'_>>> {
        let place = |&device: &u32| {
            let known = self.fleet.device(device);
            let node = known.and_then(|known| self.fleet.described(&known.node));
            (node, known.map_or(device, |known| known.index))
        };
        candidate.stages.iter().map(|stage| stage.devices.iter().map(place).collect()).collect()
    }

    /// Seconds of a stage's layers, which add up to those that the stage is priced with, and of adding its gradients up
    /// with those of others; none without times.
    pub(crate) fn layers(
        &self,
        candidate: &Candidate,
        stage: &CandidateStage,
    ) -> Option<(Vec<LayerSeconds>, f64)> {
        let priced = stage.seconds?;
        let setting = StageSetting {
            stage: stage.config(),
            stage_index: 0,
            stage_count: 1,
            training: loadmaster_proto::training::TrainingSpec {
                micro_batch_size: candidate.batch.micro_batch_size,
                ..self.training
            },
        };
        let costs = self.chain.predictor.layer_costs(Share::of(&setting));
        let costs: Option<Vec<LayerCost>> = costs.get(stage.first..=stage.last)?.iter().copied().collect();
        Some(in_proportion(&costs?, priced, stage.choice.recompute))
    }
}

/// Layers' seconds in the proportions of their costs, adding up to what a stage is priced with.
pub(crate) fn in_proportion(
    costs: &[LayerCost],
    priced: Seconds,
    recompute: RecomputePolicy,
) -> (Vec<LayerSeconds>, f64) {
    let sum = |of: fn(&LayerCost) -> f64| costs.iter().map(of).sum::<f64>();
    let [forward, backward, step] =
        [sum(|of| of.seconds.forward), sum(|of| of.seconds.backward), sum(|of| of.seconds.step)];
    let factor = |priced: f64, sum: f64| if sum > 0.0 { priced / sum } else { 0.0 };
    // A priced backward pass has what it computes again.
    let again = if recompute == RecomputePolicy::None { 0.0 } else { priced.forward };
    let forward = factor(priced.forward, forward);
    let backward = factor((priced.backward - again).max(0.0), backward);
    let updates = step.min(priced.step);
    let update = factor(updates, step);
    let of_layer = |of: &LayerCost| LayerSeconds {
        forward: of.seconds.forward * forward,
        backward: of.seconds.backward * backward,
        again: of.seconds.forward * forward,
        update: of.seconds.step * update,
    };
    (costs.iter().map(of_layer).collect(), (priced.step - updates).max(0.0))
}

/// What a device does of a stage at this place of so many, whose layers from the first one on take these seconds.
pub(crate) fn device_of(
    acted: &ActionsPrediction,
    place: (u32, u32),
    (first_layer, layers): (usize, &[LayerSeconds]),
    exchange_seconds: f64,
) -> Result<DeviceSteps, CopiesError> {
    let steps = StageSteps { place, steps: &acted.steps, first_layer, layers, exchange_seconds };
    Ok(DeviceSteps { steps: steps.timed()?, trips: acted.away.iter().map(trip).collect() })
}

/// A block's way out and back.
pub(crate) fn trip(away: &Away) -> Trip {
    let parcels = match away.stripes.as_slice() {
        [] => vec![Parcel { place: Place::Host, bytes: away.bytes }],
        stripes => {
            stripes.iter().map(|&(stage, bytes)| Parcel { place: Place::Peer(stage), bytes }).collect()
        }
    };
    Trip { at: away.absence.at, parcels }
}

/// The ways that copies go over.
pub(super) fn used<'a>(devices: impl Iterator<Item = &'a DeviceSteps>) -> BTreeSet<Way> {
    let parcels = (0..).zip(devices).flat_map(|(own, device)| {
        device.trips.iter().flat_map(|trip| &trip.parcels).map(move |parcel| (own, parcel.place))
    });
    parcels.flat_map(|(own, place)| ways_to(own, place)).collect()
}

/// The ways between a stage's device and where its blocks go: out, and back.
pub(crate) fn ways_to(own: u32, place: Place) -> [Way; 2] {
    match place {
        Place::Host => [Way::ToHost(own), Way::FromHost(own)],
        Place::Peer(peer) => [Way::Between { from: own, to: peer }, Way::Between { from: peer, to: own }],
    }
}

/// Mean seconds of a stage's backward pass over its slots, what it computes again included.
pub(crate) fn mean_backward(acted: &ActionsPrediction, first: usize, layers: &[LayerSeconds]) -> f64 {
    layers.iter().map(|of| of.backward).sum::<f64>() + mean_again(acted, first, layers)
}

/// Mean seconds over its slots of what a stage computes again for a micro-batch.
pub(crate) fn mean_again(acted: &ActionsPrediction, first: usize, layers: &[LayerSeconds]) -> f64 {
    let slots = acted.steps.slots();
    let again: f64 = (0..slots)
        .flat_map(|slot| acted.steps.runs(slot))
        .filter(|run| run.is_recomputed)
        .flat_map(|run| run.layers.clone())
        .filter_map(|layer| layers.get(layer.checked_sub(first)?))
        .map(|of| of.again)
        .sum();
    again / f64::from(slots.max(1))
}

impl Timed {
    /// Seconds of an iteration.
    pub(crate) fn iteration_seconds(&self) -> f64 {
        self.copied.iteration_seconds
    }

    /// How fast copies are, and who says so, for people; none where nothing is copied.
    pub(crate) fn told(self) -> Option<String> {
        Some(self.rates).filter(|rates| !rates.is_empty())
    }

    /// Seconds for which a stage's device waits for its copies to a stage, or to the host.
    pub(super) fn waited(&self, stage: usize, peer: Option<u32>) -> f64 {
        let own = u32::try_from(stage).unwrap_or(u32::MAX);
        let ways = ways_to(own, peer.map_or(Place::Host, Place::Peer));
        // Two stages that have blocks with each other share the ways between them, and each waits for its own.
        let waits = self.copied.waits.iter().filter(|wait| wait.device == own && ways.contains(&wait.way));
        waits.map(|wait| wait.end - wait.start).sum()
    }

    /// Writes what was simulated into a plan.
    pub(crate) fn tell(self, plan: &mut Plan) {
        let Self { copied, edges, backward, copy_rates, rates } = self;
        plan.found.copy_rates = copy_rates;
        for (stage, backward) in plan.stages.iter_mut().zip(backward) {
            if let Some(seconds) = &mut stage.seconds {
                seconds.backward = backward;
            }
        }
        let seconds = |of: &PlanStage| {
            let StageSeconds { forward, backward, step } = of.seconds?;
            Some(Seconds { forward, backward, step })
        };
        let stages: Vec<Seconds> = plan.stages.iter().filter_map(seconds).collect();
        if let Some(estimate) = &mut plan.found.iteration {
            let devices = copied.devices.len().max(1) as f64;
            let busy: f64 = copied.devices.iter().map(|of| of.busy).sum();
            estimate.seconds = copied.iteration_seconds;
            // Of passes that compute again what they do; it knows no copies.
            let micro_batches = plan.training.micro_batches;
            estimate.closed_form = match (plan.training.schedule.updates_always(), plan.virtual_stages) {
                (true, _) => copied.iteration_seconds,
                (false, 0 | 1) => iteration(&stages, &edges, micro_batches, estimate.overlap),
                (false, each) => interleaved_seconds(&stages, &edges, micro_batches, each),
            };
            if copied.iteration_seconds > 0.0 {
                estimate.bubble = (1.0 - busy / (devices * copied.iteration_seconds)).max(0.0);
            }
        }
        if !rates.is_empty() {
            plan.warnings.push(or_other_rates(&rates));
        }
    }
}

impl PlanBuilder<'_> {
    /// Returns the seconds by the closed form where nothing is copied, else by simulation; none without times.
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
                let device = endless_of(acted, place.into(), (stage.first, &layers), exchange, simulated);
                devices.push(device.map_err(has_no_sense)?);
            }
        }
        let edges: Vec<Edge> = candidate.edges.iter().map(|&both| Edge::halves(both)).collect();
        let overlap = candidate.overlap;
        let backward = seconds.iter().map(|own| own.backward).collect();
        let used = used(devices.iter().map(|endless| &endless.device));
        if used.is_empty() {
            let pipeline =
                Pipeline { stages: &seconds, edges: &edges, micro_batches, order: Order::PipeDream, overlap };
            let Ok(alone) = iteration_seconds(&pipeline) else { return Ok(None) };
            // Where all share cores, no slower than all of it at once.
            let work: f64 =
                seconds.iter().map(|own| f64::from(micro_batches) * (own.passes() + own.step)).sum();
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

/// Returns the steps of a stage at this place for so many micro-batches, whose layers from the first one on take these seconds.
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
    let busy = |own: &Seconds| DeviceTimes {
        end: iteration,
        busy: f64::from(micro_batches) * (own.passes() + own.step),
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
