//! How long an iteration takes whose stages also copy, and how long as many micro-batches take in the long run of PipeDream.

use std::collections::BTreeSet;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::prediction::StageSeconds;
use loadmaster_proto::plan::rates::CopyRates;
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::actions::StageActions;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};
use loadmaster_proto::warning::WarningCode;

use super::links::{CopyLinks, or_other_rates};
use super::swaps;
use crate::context::Context;
use crate::search::{Candidate, CandidateStage};
use loadmaster_predict::{ActionsPrediction, Away, LayerCost, PipelineActions, Share, StageSetting};
use loadmaster_search::Seconds;
use loadmaster_simulate::copies::{
    Copied, CopiesError, CopyPipeline, DeviceSteps, DeviceTimes, Endless, Keep, LayerSeconds, Links, LongRun,
    Parcel, Place, StageSteps, Trip, Way, long_run, simulate,
};
use loadmaster_simulate::{Edge, Order, Pipeline, interleaved_seconds, iteration, iteration_seconds};

/// An iteration with copies.
pub(crate) struct Timed {
    pub(crate) copied: Copied,
    pub(crate) edges: Vec<Edge>,
    /// Mean seconds of a backward pass of each stage, what it recomputes included.
    pub(crate) backward: Vec<f64>,
    /// How fast copies are, and which cores are shared; none where there is neither.
    pub(crate) copy_rates: Option<CopyRates>,
    /// Where the rates of copies come from, human-readable.
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
    let Some(layers) = all_layer_seconds(context, candidate) else { return Ok(None) };
    let own = TimedStage::all(candidate, &stages.acted, &layers);
    if candidate.schedule.updates_always() {
        return endless(context, candidate, (&own, &stages.actions), copies);
    }
    let count = u32::try_from(own.len()).unwrap_or(u32::MAX);
    let devices = (0..).zip(&own).map(|(index, stage)| stage.device((index, count)));
    let devices: Vec<DeviceSteps> = devices.collect::<Result<_, _>>().map_err(has_no_sense)?;
    let (copies, used) = (copies(), used(&own));
    let (edges, links) = (candidate.edge_halves(), copies.links(&used));
    let stepped =
        CopyPipeline { devices: &devices, edges: &edges, overlap: candidate.overlap, links: &links };
    let copied = simulate(&stepped, Keep { copies: true, ..Keep::default() }).map_err(has_no_sense)?;
    Ok(Some(Timed::new(candidate, copied, (&own, &stages.actions), (&copies, &links, &used))))
}

/// That no iteration of these actions can be simulated.
pub(crate) fn has_no_sense(error: CopiesError) -> Invalid {
    Invalid::field("memory.stage_memory_optimizations", error.to_string())
}

/// [`layer_seconds`] of all stages of a candidate.
pub(crate) fn all_layer_seconds(context: &Context<'_>, candidate: &Candidate) -> Option<Vec<LayersOfStage>> {
    candidate.stages.iter().map(|stage| layer_seconds(context, candidate, stage)).collect()
}

/// Seconds of a stage's layers, which add up to those that the stage is priced with, and of adding its gradients up
/// with those of others; none without times.
pub(super) fn layer_seconds(
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
) -> LayersOfStage {
    let sum = |of: fn(&LayerCost) -> f64| costs.iter().map(of).sum::<f64>();
    let [forward, backward, step] =
        [sum(|of| of.seconds.forward), sum(|of| of.seconds.backward), sum(|of| of.seconds.step)];
    let factor = |priced: f64, sum: f64| if sum > 0.0 { priced / sum } else { 0.0 };
    // A priced backward pass has what it recomputes.
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

/// A stage that was replayed, with its seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimedStage<'a> {
    pub(crate) acted: &'a ActionsPrediction,
    first_layer: usize,
    layers: &'a [LayerSeconds],
    /// Of adding its gradients up with those of other devices.
    exchange_seconds: f64,
}

impl<'a> TimedStage<'a> {
    /// A stage that begins with this layer.
    pub(crate) fn new(acted: &'a ActionsPrediction, first_layer: usize, own: &'a LayersOfStage) -> Self {
        let (layers, exchange_seconds) = own;
        Self { acted, first_layer, layers, exchange_seconds: *exchange_seconds }
    }

    /// The stages of a candidate.
    pub(crate) fn all(
        candidate: &Candidate,
        acted: impl IntoIterator<Item = &'a ActionsPrediction>,
        layers: &'a [LayersOfStage],
    ) -> Vec<Self> {
        let own = candidate.stages.iter().zip(acted).zip(layers);
        own.map(|((stage, acted), layers)| Self::new(acted, stage.first, layers)).collect()
    }

    /// Its steps at this place of so many.
    pub(crate) fn steps(&self, place: (u32, u32)) -> StageSteps<'a> {
        let Self { acted, first_layer, layers, exchange_seconds } = *self;
        StageSteps { place, steps: &acted.steps, first_layer, layers, exchange_seconds }
    }

    /// Its blocks' ways out and back.
    pub(crate) fn trips(&self) -> Vec<Trip> {
        self.acted.away.iter().map(trip).collect()
    }

    /// What its device does, at this place of so many.
    pub(crate) fn device(&self, place: (u32, u32)) -> Result<DeviceSteps, CopiesError> {
        Ok(DeviceSteps { steps: self.steps(place).timed()?, trips: self.trips() })
    }

    /// The same for so many micro-batches of a pipeline that never flushes.
    pub(crate) fn endless(&self, place: (u32, u32), micro_batches: u32) -> Result<Endless, CopiesError> {
        let DeviceSteps { trips, .. } = self.device(place)?;
        Endless::of(&self.steps(place), &trips, micro_batches)
    }

    /// Mean seconds of its backward pass over its slots, what it recomputes included.
    fn mean_backward(&self) -> f64 {
        let backward: f64 = self.layers.iter().map(|layer| layer.backward).sum();
        backward + mean_again(self.acted, self.first_layer, self.layers)
    }
}

/// A block's way out and back.
fn trip(away: &Away) -> Trip {
    let parcels = match away.stripes.as_slice() {
        [] => vec![Parcel { place: Place::Host, bytes: away.bytes }],
        stripes => {
            stripes.iter().map(|&(stage, bytes)| Parcel { place: Place::Peer(stage), bytes }).collect()
        }
    };
    Trip { at: away.absence.at, parcels }
}

/// The ways that copies of stages go over.
pub(crate) fn used(stages: &[TimedStage<'_>]) -> BTreeSet<Way> {
    let trips =
        (0..).zip(stages).flat_map(|(own, stage)| stage.trips().into_iter().map(move |trip| (own, trip)));
    let ways = trips
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

/// Mean seconds over its slots of what a stage recomputes for a micro-batch.
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
    /// What was simulated of a candidate whose stages do these actions; `used` are the ways that their copies go over, on these links.
    pub(crate) fn new(
        candidate: &Candidate,
        copied: Copied,
        (stages, actions): (&[TimedStage<'_>], &[StageActions]),
        (copies, links, used): (&CopyLinks, &Links, &BTreeSet<Way>),
    ) -> Self {
        let has_more = !used.is_empty() || !links.cores.is_empty();
        Self {
            backward: stages.iter().map(TimedStage::mean_backward).collect(),
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

    /// How fast copies are, and who says so, human-readable; none where nothing is copied.
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
            // Of passes that recompute what they do; it knows no copies.
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
            plan.warnings.push(WarningCode::RatesUsed.says(or_other_rates(&rates)));
        }
    }
}

/// Returns the seconds by the closed form where nothing is copied, else by simulation; none without times.
fn endless(
    context: &Context<'_>,
    candidate: &Candidate,
    (stages, actions): (&[TimedStage<'_>], &[StageActions]),
    copies: &dyn Fn() -> CopyLinks,
) -> Result<Option<Timed>, Invalid> {
    let (micro_batches, overlap) = (candidate.batch.micro_batches, candidate.overlap);
    let edges = candidate.edge_halves();
    let used = used(stages);
    if used.is_empty() {
        let own = candidate.stages.iter().zip(stages);
        let seconds =
            own.map(|(stage, timed)| Some(Seconds { backward: timed.mean_backward(), ..stage.seconds? }));
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
    let count = u32::try_from(stages.len()).unwrap_or(u32::MAX);
    let simulated = Endless::simulated(stages.len(), micro_batches);
    let devices = (0..).zip(stages).map(|(index, stage)| stage.endless((index, count), simulated));
    let devices: Vec<Endless> = devices.collect::<Result<_, _>>().map_err(has_no_sense)?;
    let copies = copies();
    let links = copies.links(&used);
    let LongRun { copied, .. } =
        long_run(&devices, &edges, overlap, &links, (micro_batches, None)).map_err(has_no_sense)?;
    Ok(Some(Timed::new(candidate, copied, (stages, actions), (&copies, &links, &used))))
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
