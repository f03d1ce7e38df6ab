//! What a stored plan does moment by moment: what its stages copy, who waits for that, and what devices hold.
//!
//! | module | question |
//! |---|---|
//! | here | what happens in an iteration of a plan, step by step, and on which lanes of passes and copies? |
//! | `curve` | what does a device hold when? |
//! | `chunks` | which lanes does a plan in chunks have, and what does its device hold? |
//! | `interleaved` | what do its stages do together, or would, several on each device? |
//!
//! A plan keeps the seconds of its stages, of its edges and of what copies go over; its profile, in what proportion layers take
//! those seconds and what each holds. A profile may have changed since: then nothing is reported rather than something that
//! contradicts the plan.

mod chunks;
mod curve;
mod interleaved;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::training::actions::Absence;
use loadmaster_proto::training::{RecomputePolicy, TrainingSpec};

use super::interleaved::InterleavingError;
use super::memory_optimizations::{
    LayersOfStage, TimedStage, in_proportion, mean_again, settings, stage_seconds,
};
use super::problem::ProfiledChain;
pub use chunks::ChunkedTimeline;
pub(super) use chunks::LanesOfPlan;
pub use curve::{CurvePoint, StageCurve};
pub use interleaved::InterleavedTimeline;
use loadmaster_predict::{
    ActionsError, ActionsPrediction, Away, LayerCost, PipelineActions, PredictionError, Share, StageSetting,
};
use loadmaster_search::Seconds;
use loadmaster_simulate::copies::{
    Copied, CopiesError, CopyPipeline, Done, Endless, Keep, LaneOf, Links, LongRun, Shown, TimedWait,
    WayTimes, long_run, simulate,
};
use loadmaster_simulate::{Edge, Lane, Order, Overlap, Pipeline, TimedPass, iteration_seconds};

/// Most steps of all stages: replaying more would take seconds.
const MOST_STEPS: u64 = 200_000;
/// How far simulated seconds may be from the plan's, as a share of these.
const SAME: f64 = 1e-6;

/// An iteration of a plan.
#[derive(Debug)]
pub struct IterationTimeline {
    /// What was simulated, with every step, copy and wait.
    pub copied: Copied,
    /// By stage.
    acted: Vec<ActionsPrediction>,
    /// By stage, what a device sets aside for others.
    peer_pools: Vec<u64>,
    /// By stage, what each step is that was simulated: all of them once, or under PipeDream those of the micro-batches of an
    /// iteration in the long run.
    done: Vec<Vec<Done>>,
}

/// Why no one can tell what a plan does over time.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// There are no seconds.
    #[error("the profile of the plan has no layer times")]
    NoTimes,
    /// It is not known how fast its copies are.
    #[error(
        "the plan does not contain the bandwidths of its copies between devices and CPU memory. Create a new plan with \
         RecommendPlan"
    )]
    NoRates,
    /// Its state is in chunks: [`ChunkedTimeline`] is its timeline.
    #[error("the plan uses chunked training")]
    InChunks,
    /// The tensors in its chunks are not known.
    #[error(
        "the profile of the plan contains only the names of layers, not the model. Profile a stored model"
    )]
    NoModel,
    /// Its chunks cannot be laid out.
    #[error(transparent)]
    Chunks(#[from] Invalid),
    /// Another program made it.
    #[error(
        "the prediction of the plan is from predictor {of_plan}, but this planner has predictor {here}. Create a new \
         plan with RecommendPlan"
    )]
    OtherPredictor {
        /// The plan's.
        of_plan: String,
        /// The profile's now.
        here: &'static str,
    },
    /// Something else than the plan would be shown.
    #[error(
        "the profile has changed since the plan was made: an iteration would now take {now} s, not {then} s. Create a \
         new plan with RecommendPlan"
    )]
    Changed {
        /// Seconds that are simulated.
        now: f64,
        /// Seconds of the plan.
        then: f64,
    },
    /// Too much to replay.
    #[error(
        "the stages of the plan have {steps} steps per iteration, but the planner simulates at most {MOST_STEPS} steps"
    )]
    TooLarge {
        /// About how many.
        steps: u64,
    },
    /// Its stages are no chunks.
    #[error(
        "the plan's {stages} stages cannot be divided into {chunks} per device, or the {micro_batches} micro-batches \
         are not a multiple of the number of devices. Use another number of virtual pipeline stages"
    )]
    NoChunks {
        /// How many there are.
        stages: usize,
        /// Chunks per device.
        chunks: usize,
        /// Of an iteration.
        micro_batches: u32,
    },
    /// Its actions are none of stages that take turns.
    #[error(transparent)]
    InterleavingError(#[from] InterleavingError),
    /// Its actions have no prediction.
    #[error(transparent)]
    Actions(#[from] ActionsError),
    /// Nor have its stages.
    #[error(transparent)]
    Prediction(#[from] PredictionError),
    /// They have no times.
    #[error(transparent)]
    Copies(#[from] CopiesError),
}

impl IterationTimeline {
    /// Replays and simulates a plan from the profile that it was made of.
    ///
    /// # Errors
    /// What is missing, or no longer so.
    pub fn of(plan: &Plan, chain: &ProfiledChain) -> Result<Self, TimelineError> {
        if plan.stages.iter().any(|stage| stage.chunks.is_some()) {
            return Err(TimelineError::InChunks);
        }
        let then = plan.iteration_seconds().ok_or(TimelineError::NoTimes)?;
        check_predictor(plan, chain)?;
        let all: u64 = plan.stages.iter().map(|of| of.config.layers().count() as u64).sum();
        let TrainingSpec { schedule, micro_batches, .. } = plan.training;
        let played = match schedule.updates_always() {
            true => Endless::simulated(plan.stages.len(), micro_batches),
            false => micro_batches,
        };
        check_steps(all, played)?;
        let settings = settings(plan);
        let (acted, peer_pools) = replayed(plan, chain, &settings)?;
        let links = links_of(plan, &acted)?;
        let (mut devices, mut endless) = (Vec::with_capacity(acted.len()), Vec::new());
        let mut passes = Vec::with_capacity(acted.len());
        for ((stage, setting), acted) in plan.stages.iter().zip(&settings).zip(&acted) {
            let seconds = stage_seconds(stage).ok_or(TimelineError::NoTimes)?;
            let layers = layers(chain, setting, acted, seconds).ok_or(TimelineError::NoTimes)?;
            let timed = TimedStage::new(acted, stage.config.first_layer, &layers);
            let place = (setting.stage_index, setting.stage_count);
            passes.push(seconds);
            if schedule.updates_always() {
                endless.push(timed.endless(place, played)?);
            } else {
                devices.push(timed.device(place)?);
            }
        }
        let (edges, overlap) = transfers_of(plan);
        let (copied, done) = if schedule.updates_always() {
            // As the plan's seconds were found.
            let is_closed = endless.iter().all(|of| of.device.trips.is_empty());
            let pipeline = Pipeline {
                stages: &passes,
                edges: &edges,
                micro_batches: 1,
                order: Order::PipeDream,
                overlap,
            };
            let each = iteration_seconds(&pipeline).ok().filter(|_| is_closed);
            let LongRun { copied, done, .. } =
                long_run(&endless, &edges, overlap, &links, (micro_batches, each))?;
            (copied, done)
        } else {
            let stepped = CopyPipeline { devices: &devices, edges: &edges, overlap, links: &links };
            let in_order = |of: &ActionsPrediction| (0..of.steps.all().len()).map(Done::step).collect();
            (simulate(&stepped, Keep { steps: true, copies: true })?, acted.iter().map(in_order).collect())
        };
        check_same(copied.iteration_seconds, then)?;
        Ok(Self { copied, acted, peer_pools, done })
    }

    /// How many stages there are.
    pub fn stages(&self) -> usize {
        self.acted.len()
    }
}

/// # Errors
/// Another program predicted the plan.
fn check_predictor(plan: &Plan, chain: &ProfiledChain) -> Result<(), TimelineError> {
    let (of_plan, here) = (plan.predictor.clone(), chain.predictor.name());
    if of_plan == here { Ok(()) } else { Err(TimelineError::OtherPredictor { of_plan, here }) }
}

/// # Errors
/// So many layers do too many steps with so many micro-batches.
fn check_steps(layers: u64, micro_batches: u32) -> Result<(), TimelineError> {
    let steps = layers.saturating_mul(3 * u64::from(micro_batches));
    if steps > MOST_STEPS { Err(TimelineError::TooLarge { steps }) } else { Ok(()) }
}

/// # Errors
/// An iteration takes other seconds now than those of its plan.
fn check_same(now: f64, then: f64) -> Result<(), TimelineError> {
    if (now - then).abs() > SAME * then { Err(TimelineError::Changed { now, then }) } else { Ok(()) }
}

/// What the copies of a plan go over.
///
/// # Errors
/// It copies, and it is not known how fast.
fn links_of(plan: &Plan, acted: &[ActionsPrediction]) -> Result<Links, TimelineError> {
    match &plan.found.copy_rates {
        Some(rates) => Ok(Links::of_rates(rates)),
        None if acted.iter().any(|own| !own.away.is_empty()) => Err(TimelineError::NoRates),
        None => Ok(Links::default()),
    }
}

/// What the stages of a plan send each other takes each way, and whether that overlaps computing.
fn transfers_of(plan: &Plan) -> (Vec<Edge>, Overlap) {
    let edges = plan.found.edge_seconds.iter().map(|&both| Edge::halves(both)).collect();
    (edges, plan.found.iteration.as_ref().map_or_else(Overlap::default, |own| own.overlap))
}

/// What each stage needs with its actions, and sets aside for others.
fn replayed(
    plan: &Plan,
    chain: &ProfiledChain,
    settings: &[StageSetting],
) -> Result<(Vec<ActionsPrediction>, Vec<u64>), TimelineError> {
    let actions = plan.stage_actions();
    if actions.is_empty() {
        let untouched = |of: &StageSetting| chain.predictor.acted(of, &Default::default());
        let acted = settings.iter().map(untouched).collect::<Result<Vec<_>, _>>()?;
        return Ok((acted, vec![0; settings.len()]));
    }
    let stages = PipelineActions::of(&*chain.predictor, chain.model.as_ref(), settings, &actions)?;
    Ok((stages.acted, stages.peer_pools))
}

/// Seconds of a stage's layers that add up to the plan's, and of adding its gradients up with those of others; none where the
/// profile does not tell. The plan's backward pass has what the stage recomputes.
fn layers(
    chain: &ProfiledChain,
    setting: &StageSetting,
    acted: &ActionsPrediction,
    seconds: Seconds,
) -> Option<LayersOfStage> {
    let first = setting.stage.first_layer;
    let costs = chain.predictor.layer_costs(Share::of(setting));
    let costs: Option<Vec<LayerCost>> =
        costs.get(first..=setting.stage.last_layer)?.iter().copied().collect();
    let costs = costs?;
    let (all, _) = in_proportion(&costs, seconds, RecomputePolicy::None);
    let again = mean_again(acted, first, &all);
    let backward = (seconds.backward - again).max(0.0);
    Some(in_proportion(&costs, Seconds { backward, ..seconds }, RecomputePolicy::None))
}

/// The copies that go over a way.
#[derive(Debug)]
pub struct CopyLane<'a> {
    /// Which one, and how much in all.
    pub times: WayTimes,
    /// Its copies in order, none of which overlap.
    pub copies: Vec<LaneCopy<'a>>,
}

/// A block, or a stripe of it, on its way.
#[derive(Debug)]
pub struct LaneCopy<'a> {
    /// Whose it is.
    pub stage: u32,
    /// Whether it comes back.
    pub is_back: bool,
    /// What it is.
    pub absence: &'a Absence,
    /// How much of it goes this way.
    pub bytes: u64,
    /// Seconds since the start of the iteration.
    pub start: f64,
    pub end: f64,
}

impl IterationTimeline {
    /// Returns the passes of a stage's devices: each is from the start of its first step to the end of its last one.
    pub fn lane(&self, stage: usize) -> Option<Lane> {
        let (acted, times) = (self.acted.get(stage)?, self.copied.devices.get(stage)?);
        let flushes = acted.steps.turn().is_none();
        let mut lane = Lane { passes: Vec::new(), step: None, busy: times.busy };
        for (done, &(start, end)) in self.done.get(stage)?.iter().zip(&times.steps) {
            let Some(pass) = done.pass(*acted.steps.all().get(done.step)?) else {
                // Updates behind every backward pass are no end of anything.
                if flushes {
                    lane.step = Some((lane.step.map_or(start, |(start, _)| start), end));
                }
                continue;
            };
            match lane.passes.last_mut().filter(|last| last.pass == pass) {
                Some(last) => last.end = end,
                None => {
                    lane.passes.push(TimedPass { stage: u32::try_from(stage).ok()?, pass, start, end });
                }
            }
        }
        Some(lane)
    }

    /// When a stage's devices wait for copies, in order.
    pub fn waits(&self, stage: usize) -> impl Iterator<Item = &TimedWait> {
        self.copied.waits.iter().filter(move |wait| wait.device as usize == stage)
    }

    /// All ways that copies use.
    pub fn ways(&self) -> Vec<CopyLane<'_>> {
        ways_of(&self.copied, |device, trip, place| {
            let away = self.acted.get(device as usize)?.away.get(trip as usize)?;
            Some((device, &away.absence, part(away, place)))
        })
    }
}

/// All ways that copies use. `of_trip` gets a trip of a device, and the device at the far end of its way. It returns the
/// stage, the reason for the absence, and the bytes there.
fn ways_of<'a>(
    copied: &Copied,
    of_trip: impl Fn(u32, u32, Option<u32>) -> Option<(u32, &'a Absence, u64)>,
) -> Vec<CopyLane<'a>> {
    let mut ways = Vec::new();
    for lane in copied.lanes() {
        let LaneOf::Way(way) = lane.of else { continue };
        let Some(times) = copied.ways.iter().find(|times| times.way == way) else { continue };
        let copies = lane.spans.iter().filter_map(|span| {
            let Shown::Copy { device, trip, is_back } = span.what else { return None };
            let (from, to) = way.ends();
            let (stage, absence, bytes) = of_trip(device, trip, if is_back { from } else { to })?;
            Some(LaneCopy { stage, is_back, absence, bytes, start: span.start, end: span.end })
        });
        ways.push(CopyLane { times: *times, copies: copies.collect() });
    }
    ways
}

/// What of a block is with a stage, or with the host.
fn part(away: &Away, place: Option<u32>) -> u64 {
    let stripes = away.stripes.iter().filter(|(stage, _)| Some(*stage) == place);
    if away.stripes.is_empty() { away.bytes } else { stripes.map(|(_, bytes)| bytes).sum() }
}
