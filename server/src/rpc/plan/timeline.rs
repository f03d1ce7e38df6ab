//! What a plan's iteration copies and what its devices hold meanwhile, in a timeline.

use std::sync::Arc;

use loadmaster_predict::choose::PredictorKind;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::Plan;
use loadmaster_proto::warning::WarningCode;
use loadmaster_proto::wire::v1;
use loadmaster_recommend::{
    ChunkedTimeline, CopyLane, InterleavedTimeline, IterationTimeline, LaneCopy, ProfiledChain, StageCurve,
    TimelineError,
};
use loadmaster_simulate::{AskedOrder, Lane, Overlap};

use super::Plans;
use super::message::number;
use super::simulate::spans;
use crate::store::records::PlanRecord;

/// Most copies, waits and points of curves that a timeline lists, each: with as many passes as may be asked for, it stays below
/// the 4 MiB that clients take.
pub(super) const MOST: usize = 10_000;

/// Whether a timeline tells of memory, and what of.
pub(super) enum AskedMemory {
    /// No one wants to know.
    No,
    /// The profile of the plan.
    Of(Arc<ProfiledChain>),
    /// Why that cannot be read.
    Unread(String),
}

impl Plans {
    /// The profile that a plan was made of, as it is now.
    pub(super) async fn memory_of(&self, record: &PlanRecord, is_asked: bool) -> AskedMemory {
        if !is_asked {
            return AskedMemory::No;
        }
        let name = record.content.profile.clone();
        // `component/4` is what the kind `component` made.
        let kind = record.content.predictor.split('/').next();
        let kind = kind.and_then(|kind| kind.parse::<PredictorKind>().ok());
        let read = async {
            let revisions = self.revisions(std::slice::from_ref(&name), None).await?;
            let profiled = self.chain(name, kind, &revisions).await?;
            self.for_model_of(&record.content, profiled).await
        };
        match read.await {
            Ok(chain) => AskedMemory::Of(chain),
            Err(error) => AskedMemory::Unread(error.to_string()),
        }
    }
}

impl AskedMemory {
    /// What a plan does over time; none where no one asked, or why it cannot be told.
    pub(super) fn over_time(
        &self,
        plan: &Plan,
        order: AskedOrder,
        overlap: Option<Overlap>,
    ) -> Option<Result<IterationTimeline, String>> {
        self.told(plan, (order, overlap), IterationTimeline::of)
    }

    /// The same of a plan in chunks.
    pub(super) fn in_chunks(
        &self,
        plan: &Plan,
        order: AskedOrder,
        overlap: Option<Overlap>,
    ) -> Option<Result<ChunkedTimeline, String>> {
        self.told(plan, (order, overlap), ChunkedTimeline::of)
    }

    fn told<T>(
        &self,
        plan: &Plan,
        (order, overlap): (AskedOrder, Option<Overlap>),
        of: impl Fn(&Plan, &ProfiledChain) -> Result<T, TimelineError>,
    ) -> Option<Result<T, String>> {
        let is_own = order == AskedOrder::Own && overlap.is_none();
        match self {
            Self::No => None,
            Self::Of(_) if !is_own => Some(Err(
                "memory and copies are simulated only for the plan's own schedule and communication overlap"
                    .to_owned(),
            )),
            Self::Of(chain) => Some(of(plan, chain).map_err(|error| error.to_string())),
            Self::Unread(why) => Some(Err(why.clone())),
        }
    }
}

impl AskedMemory {
    /// What its stages would do as so many chunks of each device; none where no one asked.
    pub(super) fn interleaved(
        &self,
        plan: &Plan,
        chunks: u32,
    ) -> Option<Result<InterleavedTimeline, String>> {
        match self {
            Self::No => None,
            Self::Of(chain) => {
                Some(InterleavedTimeline::of(plan, chain, chunks).map_err(|error| error.to_string()))
            }
            Self::Unread(why) => Some(Err(why.clone())),
        }
    }
}

/// Has a timeline tell of a plan's stages as chunks, with their memory actions.
pub(super) fn tell_interleaved(answer: &mut v1::Timeline, of: &InterleavedTimeline, listed: usize) {
    // What was said is of stages that are cut into chunks, and of passes alone.
    answer.warnings.clear();
    let devices = of.devices.len().max(1);
    let each = listed / devices;
    answer.iteration_seconds = of.copied.iteration_seconds;
    let busy: f64 = of.lanes.iter().map(|lane| lane.busy).sum();
    if of.copied.iteration_seconds > 0.0 {
        answer.bubble_ratio = (1.0 - busy / (devices as f64 * of.copied.iteration_seconds)).max(0.0);
    }
    answer.truncated = of.lanes.iter().any(|lane| lane.passes.len() > each);
    let lane = |(device, lane): (usize, &Lane)| {
        let waits = || of.copied.waits.iter().filter(move |wait| wait.device as usize == device);
        v1::StageTimeline {
            stage: number(device),
            passes: spans(lane, each, devices),
            busy_seconds: lane.busy,
            weight_version_count: 1,
            waits: waits().take(each.min(MOST)).map(|wait| wait_span(wait.way.ends(), wait)).collect(),
            waited_seconds: of.copied.devices.get(device).map_or(0.0, |of| of.waited.all()),
            ..v1::StageTimeline::default()
        }
    };
    answer.stage_timelines = of.lanes.iter().enumerate().map(lane).collect();
    let ways = of.ways();
    let each_way = listed.min(MOST) / ways.len().max(1);
    answer.copy_timelines = ways.iter().map(|way| copy_lane(way, each_way)).collect();
    for (device, held) in of.devices.iter().enumerate() {
        let stages: Vec<String> = held.stages.iter().map(ToString::to_string).collect();
        answer.warnings.push(WarningCode::ScheduleDiffers.says(format!(
            "with an interleaved schedule, device {device} of {devices} has the stages {} as virtual pipeline stages. \
             The device needs at most {} of its own memory and {} of CPU (host) memory. Loadmaster simulates this \
             schedule, but cannot train with it.",
            stages.join(", "),
            Bytes(held.peak),
            Bytes(held.host)
        )).into());
    }
}

/// Adds what a plan copies and holds to its timeline, and gives it the passes that wait for copies.
pub(super) fn tell(answer: &mut v1::Timeline, plan: &Plan, of: &IterationTimeline, listed: usize) {
    let passes = listed / of.stages().max(1);
    let listed = listed.min(MOST);
    let each = listed / of.stages().max(1);
    let is_stepped = loadmaster_simulate::is_stepped(plan);
    if is_stepped {
        answer.warnings.retain(|warning| warning.code != WarningCode::CopiesNotSimulated.as_str());
        answer.iteration_seconds = of.copied.iteration_seconds;
        answer.bubble_ratio = plan.found.iteration.as_ref().map_or(answer.bubble_ratio, |of| of.bubble);
        if !of.copied.is_steady {
            let iterations = of.copied.iterations;
            answer.warnings.push(WarningCode::TimelineRepresentative.says(format!(
                "none of {iterations} simulated iterations has the same timing as the previous one: seconds are the \
                 mean of the later half of these iterations, and spans show the last iteration"
            )).into());
        }
    }
    let stages = answer.stage_timelines.len();
    for (stage, lane) in answer.stage_timelines.iter_mut().enumerate() {
        if let Some(simulated) = of.lane(stage).filter(|_| is_stepped) {
            answer.truncated |= simulated.passes.len() > passes;
            lane.passes = spans(&simulated, passes, stages);
            lane.busy_seconds = simulated.busy;
        }
        lane.waits = of.waits(stage).take(each).map(|wait| wait_span(wait.way.ends(), wait)).collect();
        answer.truncated |= of.waits(stage).nth(each).is_some();
        lane.waited_seconds = of.copied.devices.get(stage).map_or(0.0, |of| of.waited.all());
    }
    let ways = of.ways();
    let each_way = listed / ways.len().max(1);
    answer.truncated |= ways.iter().any(|way| way.copies.len() > each_way);
    answer.copy_timelines = ways.iter().map(|way| copy_lane(way, each_way)).collect();
    for (stage, of_plan) in plan.stages.iter().enumerate() {
        match of.curve(plan, stage, each) {
            Some(curve) => answer.memory_curves.push(memory_curve(stage, of_plan.capacity, &curve, plan)),
            None => answer.warnings.push(WarningCode::TimelineIncomplete.says(format!(
                "memory over time of stage {stage} is not shown: the profile has changed, and no longer predicts the \
                 peaks that the plan contains"
            )).of_stage(stage).into()),
        }
    }
}

fn wait_span(
    (from, to): (Option<u32>, Option<u32>),
    wait: &loadmaster_simulate::copies::TimedWait,
) -> v1::WaitSpan {
    v1::WaitSpan {
        peer: if wait.is_back { from } else { to }.map(number),
        fetch: wait.is_back,
        start_seconds: wait.start,
        end_seconds: wait.end,
        ..v1::WaitSpan::default()
    }
}

fn copy_lane(way: &CopyLane<'_>, most: usize) -> v1::CopyTimeline {
    let (from, to) = way.times.way.ends();
    v1::CopyTimeline {
        sender_stage: from.map(number),
        receiver_stage: to.map(number),
        copies: way.copies.iter().take(most).map(copy_span).collect(),
        copy_count: i64::try_from(way.times.copies).unwrap_or(i64::MAX),
        bytes: Bytes(way.times.bytes).to_wire(),
        busy_seconds: way.times.busy,
        waited_seconds: way.times.waited.all(),
    }
}

fn copy_span(copy: &LaneCopy<'_>) -> v1::CopySpan {
    v1::CopySpan {
        stage: number(copy.stage),
        fetch: copy.is_back,
        block: v1::MemoryBlock::from(copy.absence.block).into(),
        layer: number(copy.absence.layer),
        micro_batch: copy.absence.micro_batch.map(number),
        bytes: Bytes(copy.bytes).to_wire(),
        start_seconds: copy.start,
        end_seconds: copy.end,
        ..v1::CopySpan::default()
    }
}

pub(super) fn memory_curve(stage: usize, capacity: u64, curve: &StageCurve, plan: &Plan) -> v1::MemoryCurve {
    let points = curve.points.iter().map(|point| v1::MemoryPoint {
        start_seconds: point.start,
        breakdown: Some(point.held.to_wire(plan.ledger)),
        host_bytes: Bytes(point.host).to_wire(),
        peer_pool_bytes: Bytes(point.peer_pools).to_wire(),
    });
    v1::MemoryCurve {
        stage: number(stage),
        capacity_bytes: Bytes(capacity).to_wire(),
        peak_bytes: Bytes(curve.peak).to_wire(),
        points: points.collect(),
        point_step_count: number(curve.steps_per_point),
        host_pool_bytes: Bytes(curve.host_pool).to_wire(),
        peer_pool_bytes: Bytes(curve.peer_pool).to_wire(),
    }
}
