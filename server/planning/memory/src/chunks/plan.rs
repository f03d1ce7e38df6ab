//! What a question is answered with, and what it is worth.

use loadmaster_predict::Away;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::residency::intervals::{Intervals, Moved, ResidencyInterval};
use loadmaster_proto::chunks::stage::{ChunkResidency, ChunkedStage, Chunks};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::measure::offload::{CopyCount, Offload};
use loadmaster_proto::plan::findings::optimality_gap;
use loadmaster_proto::plan::rates::LaneRates;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::StageActions;

use super::lanes::{LaneScene, Lanes, TakesMore};
use super::pass_costs::PassCosts;
use super::step_memory::resident;

/// How a model is trained in chunks, and what that takes.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkPlan {
    /// How, with planned intervals.
    pub stage: ChunkedStage,
    /// What is recomputed.
    pub recompute: RecomputePolicy,
    /// What is done so that activations are on the host, with the pool that they take there; nothing where they are on the
    /// device.
    pub actions: StageActions,
    /// What that moves; none where nothing is done.
    pub offload: Option<Offload>,
    /// Its iteration.
    pub lanes: Lanes,
    /// Bytes that it moves: exact, since they follow from the intervals.
    pub moved: Moved,
    /// Bytes that each step must find beside payloads: `N(t)` with its margin.
    pub needed: Vec<u64>,
    /// Bytes of chunks on the device in each step, with those that are always there: `R(t)`.
    pub resident: Vec<u64>,
    /// Bytes of the host that its chunks take.
    pub host_bytes: Bytes,
    /// What the search knows of other choices; none of a plan that no one searched.
    pub certificate: Option<Certificate>,
}

/// What a search for the fastest plan knows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Certificate {
    /// Choices that fit, without those of an embedding whose passes alone take as long as the best.
    pub choices: usize,
    /// Those of them that were simulated. The others cannot be faster, or were too many.
    pub simulated: usize,
    /// No choice that was searched takes fewer seconds.
    pub bound_seconds: f64,
    /// No intervals take fewer seconds, by whatever rule, of the stages that were searched.
    pub any_intervals_seconds: f64,
    /// Of the chosen chunks no intervals in the room that there is fetch fewer bytes of payloads, by whatever rule.
    /// Known where all of them are equal, or few of them are not.
    pub fetches_fewest: bool,
}

impl ChunkPlan {
    /// The most bytes of the device in a step: `max N(t) + R(t)`.
    pub fn peak(&self) -> Bytes {
        let all = self.needed.iter().zip(&self.resident);
        Bytes(all.map(|(needed, resident)| needed.saturating_add(*resident)).max().unwrap_or(0))
    }

    /// Bytes of the host that it takes, for chunks and activations.
    pub fn host(&self) -> Bytes {
        Bytes(self.host_bytes.0.saturating_add(self.actions.host_pool.0))
    }

    /// The optimality gap to the choices that were not simulated.
    pub fn gap(&self) -> f64 {
        let seconds = self.lanes.iteration_seconds;
        let bound = self.certificate.map_or(0.0, |of| of.bound_seconds);
        optimality_gap(seconds, bound.min(seconds))
    }

    /// Simulates a stage with these intervals.
    ///
    /// # Errors
    /// What is wrong with the intervals.
    pub(super) fn of(
        stage: ChunkedStage,
        chunks: &Chunks,
        intervals: Vec<ResidencyInterval>,
        ground: &PassCosts,
        rates: LaneRates,
    ) -> Result<Self, Invalid> {
        let told = stage.told(chunks, &intervals)?;
        let lanes = scene(&stage, chunks, &told, (ground, rates)).simulate();
        let plan = Self::told(&stage, chunks, &told, (ground, lanes));
        Ok(plan.planned(intervals))
    }

    /// The same until it is known that an iteration takes more seconds than these.
    ///
    /// # Errors
    /// What is wrong with the intervals.
    pub(super) fn within(
        most_seconds: f64,
        stage: &ChunkedStage,
        chunks: &Chunks,
        intervals: Vec<ResidencyInterval>,
        (ground, rates): (&PassCosts, LaneRates),
    ) -> Result<Result<Self, TakesMore>, Invalid> {
        let told = stage.told(chunks, &intervals)?;
        let lanes = scene(stage, chunks, &told, (ground, rates)).simulate_within(most_seconds);
        let plan = lanes.map(|lanes| Self::told(stage, chunks, &told, (ground, lanes)));
        Ok(plan.map(|plan| plan.planned(intervals)))
    }

    fn told(
        stage: &ChunkedStage,
        chunks: &Chunks,
        intervals: &Intervals<'_>,
        (ground, lanes): (&PassCosts, Lanes),
    ) -> Self {
        Self {
            recompute: ground.course.recompute,
            actions: ground.actions.clone(),
            offload: offload(
                &ground.actions,
                &ground.costs.away,
                lanes.kept_fetch_seconds + lanes.kept_leave_seconds,
            ),
            lanes,
            moved: chunks.moved(intervals),
            needed: ground.costs.needed.clone(),
            resident: resident(chunks, intervals),
            host_bytes: Bytes(chunks.host.bytes),
            certificate: None,
            stage: stage.clone(),
        }
    }

    fn planned(self, intervals: Vec<ResidencyInterval>) -> Self {
        let stage = ChunkedStage { residency: ChunkResidency::Planned(intervals), ..self.stage };
        Self { stage, ..self }
    }
}

fn scene<'a>(
    stage: &ChunkedStage,
    chunks: &'a Chunks,
    intervals: &'a Intervals<'a>,
    (ground, rates): (&'a PassCosts, LaneRates),
) -> LaneScene<'a> {
    let costs = &ground.costs;
    LaneScene { chunks, intervals, update: stage.update, away: &costs.away, seconds: &costs.seconds, rates }
}

/// What a stage in chunks moves that does these actions, of which this is away, in an iteration whose passes wait so long for it;
/// none where it does nothing.
pub(super) fn offload(actions: &StageActions, away: &[Away], waited_seconds: f64) -> Option<Offload> {
    let bytes = away.iter().map(|away| away.bytes).fold(0, u64::saturating_add);
    let copies = CopyCount { peer: None, out_bytes: bytes, in_bytes: bytes, waited_seconds };
    (!actions.is_empty()).then(|| Offload {
        host_peak: actions.host_pool,
        peer_pool_peak: Bytes(0),
        copies: if bytes > 0 { vec![copies] } else { Vec::new() },
    })
}
