//! What a plan in chunks does over time: its lanes, and what its device holds.

use loadmaster_proto::chunks::activations;
use loadmaster_proto::chunks::residency::intervals::Intervals;
use loadmaster_proto::chunks::stage::{ChunkResidency, ChunkedStage, Chunks};
use loadmaster_proto::model::Model;
use loadmaster_proto::plan::rates::LaneRates;
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::training::TrainingSpec;
use loadmaster_proto::training::actions::{ActionContext, Step};

use super::{CurvePoint, StageCurve, TimelineError, check_predictor, check_same, check_steps};
use crate::plan::scaled;
use crate::problem::ProfiledChain;
use loadmaster_memory::chunks::{LaneScene, LaneSpan, LaneWork, Lanes, ProfiledPasses, StepMemory};
use loadmaster_predict::{Away, Breakdown, Margin, Moments};

/// An iteration of a plan in chunks, on one of its devices, all of which do as much at the same time.
#[derive(Debug)]
pub struct ChunkedTimeline {
    /// How long it takes, and who waits.
    pub lanes: Lanes,
    /// What lanes do, in the order in which it begins.
    pub spans: Vec<LaneSpan>,
    /// What the plan does.
    pub chunks: Chunks,
    /// What of micro-batches is on the host, and when.
    pub away: Vec<Away>,
    /// What each step holds, by component.
    held: Vec<Breakdown>,
    /// Bytes of micro-batches on the host at the boundary before each step; nothing where none are there.
    kept: Vec<u64>,
}

/// The lanes of a plan in chunks, which can be simulated at the plan's rates and at others.
#[derive(Debug)]
pub(crate) struct LanesOfPlan {
    stage: ChunkedStage,
    chunks: Chunks,
    /// What is there besides, with what micro-batches have on the host.
    moments: Moments,
    seconds: Vec<f64>,
    rates: LaneRates,
    /// Seconds of the plan.
    then: f64,
}

impl LanesOfPlan {
    /// Of steps as the plan's profile has them.
    ///
    /// # Errors
    /// What is missing, or no longer so.
    pub(crate) fn of(plan: &Plan, chain: &ProfiledChain) -> Result<Self, TimelineError> {
        let ([stage], Some(then)) = (plan.stages.as_slice(), plan.iteration_seconds()) else {
            return Err(TimelineError::NoTimes);
        };
        let (Some(own), Some(model)) = (&stage.chunks, &chain.model) else {
            return Err(TimelineError::NoModel);
        };
        if !matches!(own.residency, ChunkResidency::Planned(_)) {
            return Err(TimelineError::NoRates);
        }
        check_predictor(plan, chain)?;
        check_steps(model.layers().len() as u64, plan.training.micro_batches)?;
        let rates = plan.found.lane_rates.ok_or(TimelineError::NoRates)?;
        let chunks = own.lay_out_split(model, &plan.training, &stage.config)?;
        let passes = passes(plan, stage, chain, model);
        let seconds = seconds(plan, stage, passes.seconds(&chunks.steps)?)?;
        let training = TrainingSpec { recompute: stage.recompute, ..plan.training };
        let acted = ActionContext {
            model: Some(model),
            training: &training,
            stage: &stage.config,
            index: 0,
            count: 1,
        };
        activations::check(&stage.actions, acted)?;
        let moments = passes.moments(&chunks, stage.recompute, &stage.actions)?;
        let of = Self { stage: (**own).clone(), chunks, moments, seconds, rates, then };
        of.intervals()?;
        Ok(of)
    }

    fn intervals(&self) -> Result<Intervals<'_>, TimelineError> {
        let ChunkResidency::Planned(intervals) = &self.stage.residency else {
            return Err(TimelineError::NoRates);
        };
        Ok(self.stage.told(&self.chunks, intervals)?)
    }

    fn fixture<'a>(&'a self, intervals: &'a Intervals<'a>, rates: LaneRates) -> LaneScene<'a> {
        LaneScene {
            chunks: &self.chunks,
            intervals,
            update: self.stage.update,
            away: &self.moments.away,
            seconds: &self.seconds,
            rates,
        }
    }

    /// Those of the plan.
    pub(crate) fn rates(&self) -> LaneRates {
        self.rates
    }

    /// How many steps there are.
    pub(crate) fn steps(&self) -> usize {
        self.seconds.len()
    }

    /// Seconds of all passes, which no rates make fewer.
    pub(crate) fn passes_seconds(&self) -> f64 {
        self.seconds.iter().sum()
    }

    /// Seconds of an iteration at these rates.
    ///
    /// # Errors
    /// The plan's intervals are none of its chunks.
    pub(crate) fn seconds(&self, rates: LaneRates) -> Result<f64, TimelineError> {
        let intervals = self.intervals()?;
        let (lanes, _) = self.fixture(&intervals, rates).simulate_with_spans();
        Ok(lanes.iteration_seconds)
    }

    /// # Errors
    /// At the plan's own rates an iteration would take other seconds than the plan's.
    pub(crate) fn check_is_unchanged(&self) -> Result<(), TimelineError> {
        check_same(self.seconds(self.rates)?, self.then)
    }
}

/// Passes of a rank as the profile knows them.
fn passes<'a>(
    plan: &Plan,
    stage: &PlanStage,
    chain: &'a ProfiledChain,
    model: &'a Model,
) -> ProfiledPasses<'a> {
    ProfiledPasses {
        predictor: &*chain.predictor,
        model,
        training: plan.training,
        ranks: stage.config.data_degree,
        shards: stage.config.tensor_degree,
        margin: Margin::Share(0.0),
        factors: [1.0; 2],
    }
}

impl ChunkedTimeline {
    /// Simulates a plan in chunks with the rates that it was made of, and steps as its profile has them.
    ///
    /// # Errors
    /// What is missing, or no longer so.
    pub fn of(plan: &Plan, chain: &ProfiledChain) -> Result<Self, TimelineError> {
        let of_plan = LanesOfPlan::of(plan, chain)?;
        let [stage] = plan.stages.as_slice() else { return Err(TimelineError::NoModel) };
        let intervals = of_plan.intervals()?;
        let (lanes, spans) = of_plan.fixture(&intervals, of_plan.rates).simulate_with_spans();
        check_same(lanes.iteration_seconds, of_plan.then)?;
        drop(intervals);
        let LanesOfPlan { chunks, moments, .. } = of_plan;
        let held = held(stage, &chunks, &moments);
        let kept = moments.pool.map_or_else(Vec::new, |pool| pool.at_boundaries);
        Ok(Self { lanes, spans, held, kept, chunks, away: moments.away })
    }

    /// The most micro-batches between forward and backward pass at once.
    pub fn in_flight(&self) -> usize {
        let mut open = std::collections::BTreeSet::new();
        let most = self.chunks.steps.all().iter().map(|step| {
            match *step {
                Step::Forward { micro_batch, .. } => drop(open.insert(micro_batch)),
                Step::Backward { micro_batch, layer: 0 } => drop(open.remove(&micro_batch)),
                _ => {}
            }
            open.len()
        });
        most.max().unwrap_or(0)
    }

    /// What a device holds, in at most so many points; none where that is not what the plan says.
    pub fn curve(&self, plan: &Plan, most: usize) -> Option<StageCurve> {
        let [stage] = plan.stages.as_slice() else { return None };
        let peak = stage.predicted_peak;
        let starts = self.starts();
        let is_same = self.held.iter().map(|held| held.total()).max() == Some(peak);
        if !is_same || starts.len() != self.held.len() {
            return None;
        }
        let steps_per_point = starts.len().div_ceil(most.max(1)).max(1);
        let point = |(index, (starts, held)): (usize, (&[f64], &[Breakdown]))| {
            let fullest = held
                .iter()
                .copied()
                .reduce(|one, next| if next.total() > one.total() { next } else { one })?;
            let kept = self.kept.iter().skip(index * steps_per_point).take(starts.len()).max();
            let host = kept.copied().unwrap_or(0);
            Some(CurvePoint { start: *starts.first()?, held: fullest, host, peer_pools: 0 })
        };
        let pieces = starts.chunks(steps_per_point).zip(self.held.chunks(steps_per_point));
        let points = pieces.enumerate().filter_map(point).collect();
        let chunk_bytes = stage.chunk_run.as_ref().map_or(0, |run| run.host_bytes.0);
        let host_pool = chunk_bytes.saturating_add(stage.actions.host_pool.0);
        Some(StageCurve { peak, host_pool, peer_pool: 0, steps_per_point, points })
    }

    /// When each step's payloads are there: what leaves is gone, and what comes has memory.
    fn starts(&self) -> Vec<f64> {
        let mut starts = Vec::with_capacity(self.held.len());
        let mut since = Some(0.0);
        for span in &self.spans {
            match span.work {
                LaneWork::Wait(_, true)
                | LaneWork::WaitForKept(_, true)
                | LaneWork::WaitForRows(true)
                | LaneWork::Gather(_) => since = since.or(Some(span.start)),
                LaneWork::Step(_) => starts.push(since.take().unwrap_or(span.start)),
                LaneWork::Wait(_, false)
                | LaneWork::WaitForKept(_, false)
                | LaneWork::WaitForRows(false)
                | LaneWork::Scatter(_) => {}
                LaneWork::Out(_) | LaneWork::Back(_) => {}
                LaneWork::Up(..) | LaneWork::Down(..) | LaneWork::Update(..) => {}
                LaneWork::RowsUp(_) | LaneWork::RowsDown(_) | LaneWork::Rows(_) => {}
                LaneWork::UpdateOnDevice(_) => {}
            }
        }
        starts
    }
}

/// Seconds of each step, which add up to the plan's: those of the profile, and what they were multiplied with.
fn seconds(plan: &Plan, stage: &PlanStage, profiled: Vec<f64>) -> Result<Vec<f64>, TimelineError> {
    let of_plan = stage.seconds.ok_or(TimelineError::NoTimes)?;
    let then = (of_plan.forward + of_plan.backward) * f64::from(plan.training.micro_batches);
    let factor = then / profiled.iter().sum::<f64>();
    if !factor.is_finite() {
        return Err(TimelineError::NoTimes);
    }
    Ok(profiled.into_iter().map(|seconds| seconds * factor).collect())
}

/// What each step holds as the plan says it, by component as the profile says it.
fn held(stage: &PlanStage, chunks: &Chunks, moments: &Moments) -> Vec<Breakdown> {
    let Some(run) = &stage.chunk_run else { return Vec::new() };
    let held = StepMemory { other: &run.other_bytes, resident: &run.payload_bytes };
    let sums = run.other_bytes.iter().zip(&run.payload_bytes).map(|(one, other)| one.saturating_add(*other));
    let parts = sums.zip(&moments.curve).enumerate().map(|(step, (sum, besides))| {
        let parts = held.breakdown(step, besides.most, chunks);
        scaled(parts, parts.total(), sum)
    });
    parts.collect()
}
