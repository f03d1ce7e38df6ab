//! How long an iteration takes whose stages also copy, and how long as many micro-batches take in the long run of PipeDream.

use std::collections::BTreeSet;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::prediction::StageSeconds;
use loadmaster_proto::plan::rates::CopyRates;
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};

use super::links::{CopyLinks, or_other_rates};
use super::swaps;
use crate::context::Context;
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

/// Seconds of a stage's layers, and of adding its gradients up with those of others.
pub(crate) type LayersOfStage = (Vec<LayerSeconds>, f64);

/// Simulates an iteration of stages whose copies go over these links; none where the profile has no times.
///
/// # Errors
/// Actions of which no iteration can be simulated.
pub(crate) fn timed(
    context: &Context<'_>,
    candidate: &Candidate,
    stages: &PipelineActions,
    copies: &dyn Fn() -> CopyLinks,
) -> Result<Option<Timed>, Invalid> {
    let layers = candidate.stages.iter().map(|stage| layer_seconds(context, candidate, stage));
    let Some(layers) = layers.collect::<Option<Vec<_>>>() else { return Ok(None) };
    if candidate.schedule.updates_always() {
        return endless(context, candidate, (stages, &layers), copies);
    }
    let count = u32::try_from(candidate.stages.len()).unwrap_or(u32::MAX);
    let own = (0..).zip(&candidate.stages).zip(&stages.acted).zip(&layers);
    let devices = own.map(|(((index, stage), acted), (layers, exchange_seconds))| {
        device_of(acted, (index, count), (stage.first, layers), *exchange_seconds)
    });
    let devices: Vec<DeviceSteps> = devices.collect::<Result<_, _>>().map_err(has_no_sense)?;
    let (copies, used) = (copies(), used(&stages.acted));
    let (edges, links) = (candidate.edge_halves(), copies.links(&used));
    let stepped =
        CopyPipeline { devices: &devices, edges: &edges, overlap: candidate.overlap, links: &links };
    let copied = simulate(&stepped, Keep { copies: true, ..Keep::default() }).map_err(has_no_sense)?;
    Ok(Some(Timed::new(candidate, copied, (&stages.acted, &layers, &stages.actions), (&copies, &used))))
}

/// That no iteration of these actions can be simulated.
pub(crate) fn has_no_sense(error: CopiesError) -> Invalid {
    Invalid::field("stage_actions", error.to_string())
}

/// Seconds of a stage's layers, which add up to those that the stage is priced with, and of adding its gradients up
/// with those of others; none without times.
pub(crate) fn layer_seconds(
    context: &Context<'_>,
    candidate: &Candidate,
    stage: &CandidateStage,
) -> Option<LayersOfStage> {
    let priced = stage.seconds?;
    let setting = StageSetting {
        stage: stage.config(),
        stage_index: 0,
        stage_count: 1,
        training: TrainingSpec { micro_batch_size: candidate.batch.micro_batch_size, ..context.training },
    };
    let costs = context.chain.predictor.layer_costs(Share::of(&setting));
    let costs: Option<Vec<LayerCost>> = costs.get(stage.first..=stage.last)?.iter().copied().collect();
    Some(in_proportion(&costs?, priced, stage.choice.recompute))
}

/// Seconds that a stage of a plan is predicted to take; none without times.
pub(crate) fn stage_seconds(stage: &PlanStage) -> Option<Seconds> {
    let StageSeconds { forward, backward, step } = stage.seconds?;
    Some(Seconds { forward, backward, step })
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

/// The ways that copies of stages go over.
pub(crate) fn used<'a>(acted: impl IntoIterator<Item = &'a ActionsPrediction>) -> BTreeSet<Way> {
    let away = (0..).zip(acted).flat_map(|(own, acted)| acted.away.iter().map(move |away| (own, trip(away))));
    let ways = away
        .flat_map(|(own, trip)| trip.parcels.into_iter().flat_map(move |parcel| ways_to(own, parcel.place)));
    ways.collect()
}

/// The ways between a stage's device and where its blocks go: out, and back.
fn ways_to(own: u32, place: Place) -> [Way; 2] {
    match place {
        Place::Host => [Way::ToHost(own), Way::FromHost(own)],
        Place::Peer(peer) => [Way::Between { from: own, to: peer }, Way::Between { from: peer, to: own }],
    }
}

/// Mean seconds of a stage's backward pass over its slots, what it computes again included.
fn mean_backward(acted: &ActionsPrediction, first: usize, layers: &[LayerSeconds]) -> f64 {
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
    /// What was simulated of a candidate whose stages were replayed with these actions, in layers that take so many seconds; `used`
    /// are the ways that their copies go over.
    pub(crate) fn new<'s>(
        candidate: &Candidate,
        copied: Copied,
        (acted, layers, actions): (
            impl IntoIterator<Item = &'s ActionsPrediction>,
            &[LayersOfStage],
            &[StageActions],
        ),
        (copies, used): (&CopyLinks, &BTreeSet<Way>),
    ) -> Self {
        let own = acted.into_iter().zip(&candidate.stages).zip(layers);
        let backward = own.map(|((acted, stage), (layers, _))| mean_backward(acted, stage.first, layers));
        let links = copies.links(used);
        let has_more = !used.is_empty() || !links.cores.is_empty();
        Self {
            backward: backward.collect(),
            copy_rates: has_more.then(|| links.rates_of(used)),
            rates: if actions.iter().any(swaps) { copies.told(used) } else { String::new() },
            copied,
            edges: candidate.edge_halves(),
        }
    }

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
        let stages: Vec<Seconds> = plan.stages.iter().filter_map(stage_seconds).collect();
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

/// Returns the seconds by the closed form where nothing is copied, else by simulation; none without times.
fn endless(
    context: &Context<'_>,
    candidate: &Candidate,
    (stages, layers): (&PipelineActions, &[LayersOfStage]),
    copies: &dyn Fn() -> CopyLinks,
) -> Result<Option<Timed>, Invalid> {
    let (micro_batches, overlap) = (candidate.batch.micro_batches, candidate.overlap);
    let edges = candidate.edge_halves();
    let used = used(&stages.acted);
    if used.is_empty() {
        let own = candidate.stages.iter().zip(&stages.acted).zip(layers);
        let seconds = own.map(|((stage, acted), (layers, _))| {
            Some(Seconds { backward: mean_backward(acted, stage.first, layers), ..stage.seconds? })
        });
        let Some(seconds) = seconds.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let order = Order::PipeDream;
        let pipeline = Pipeline { stages: &seconds, edges: &edges, micro_batches, order, overlap };
        let Ok(alone) = iteration_seconds(&pipeline) else { return Ok(None) };
        // Where all share cores, no slower than all of it at once.
        let work: f64 = seconds.iter().map(|own| f64::from(micro_batches) * (own.passes() + own.step)).sum();
        let on_cores = context.cores_of_all(candidate).map(|cores| work / cores.slots);
        let copied = untouched(&seconds, micro_batches, alone.max(on_cores.unwrap_or(0.0)));
        let backward = seconds.iter().map(|own| own.backward).collect();
        return Ok(Some(Timed { copied, edges, backward, copy_rates: None, rates: String::new() }));
    }
    let count = u32::try_from(candidate.stages.len()).unwrap_or(u32::MAX);
    let simulated = Endless::simulated(candidate.stages.len(), micro_batches);
    let own = (0..).zip(&candidate.stages).zip(&stages.acted).zip(layers);
    let devices = own.map(|(((index, stage), acted), (layers, exchange_seconds))| {
        endless_of(acted, (index, count), (stage.first, layers), *exchange_seconds, simulated)
    });
    let devices: Vec<Endless> = devices.collect::<Result<_, _>>().map_err(has_no_sense)?;
    let copies = copies();
    let links = copies.links(&used);
    let LongRun { copied, .. } =
        long_run(&devices, &edges, overlap, &links, (micro_batches, None)).map_err(has_no_sense)?;
    Ok(Some(Timed::new(candidate, copied, (&stages.acted, layers, &stages.actions), (&copies, &used))))
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
