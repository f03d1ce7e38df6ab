//! The iteration of a plan in chunks in a timeline: passes and exchanges, both directions of the link, and updates on the host.

use loadmaster_memory::chunks::{LaneSpan, LaneWork};
use loadmaster_predict::Away;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::embedding::HostTable;
use loadmaster_proto::chunks::residency::intervals::{IntervalCopies, ResidencyInterval};
use loadmaster_proto::plan::Plan;
use loadmaster_proto::training::actions::Step;
use loadmaster_proto::warning::WarningCode;
use loadmaster_proto::wire::v1;
use loadmaster_recommend::ChunkedTimeline;

use super::message::number;
use super::timeline::{MOST, memory_curve};

/// Lists that a timeline in chunks has besides passes: waits, updates, copies each way, and points of the curve.
const LISTS: usize = 5;

/// Has a timeline tell of a plan in chunks.
pub(super) fn tell(answer: &mut v1::Timeline, plan: &Plan, of: &ChunkedTimeline, listed: usize) {
    let each = listed.min(MOST) / LISTS;
    let lists = Lists::of(of);
    answer.iteration_seconds = of.lanes.iteration_seconds;
    answer.bubble_ratio = plan.found.iteration.as_ref().map_or(answer.bubble_ratio, |of| of.bubble);
    let [up, down] = [lists.up.copies.len(), lists.down.copies.len()];
    let longest = [lists.waits.len(), lists.updates.len(), up, down].into_iter().max().unwrap_or(0);
    answer.truncated = lists.passes.len() > listed || longest > each;
    let way = |CopyList { mut copies, requested, bytes }: CopyList, is_back: bool| {
        let (busy, waited) = match is_back {
            true => (of.lanes.busy.up, of.lanes.fetch_seconds + of.lanes.kept_fetch_seconds),
            false => (of.lanes.busy.down, of.lanes.leave_seconds + of.lanes.kept_leave_seconds),
        };
        copies.truncate(each);
        v1::CopyTimeline {
            sender_stage: (!is_back).then_some(0),
            receiver_stage: is_back.then_some(0),
            copies,
            copy_count: requested,
            bytes,
            busy_seconds: busy,
            waited_seconds: waited,
        }
    };
    answer.copy_timelines = vec![way(lists.down, false), way(lists.up, true)];
    answer.copy_timelines.retain(|way| way.copy_count > 0);
    let first = |mut passes: Vec<v1::PassSpan>| {
        passes.truncate(listed);
        passes
    };
    answer.stage_timelines = vec![v1::StageTimeline {
        stage: 0,
        passes: first(lists.passes),
        busy_seconds: of.lanes.busy.compute,
        in_flight_micro_batch_count: number(of.in_flight()),
        weight_version_count: 1,
        waits: lists.waits.into_iter().take(each).collect(),
        waited_seconds: of.lanes.waited_seconds() - of.lanes.exchange_seconds,
        updates: lists.updates.into_iter().take(each).collect(),
        update_seconds: of.lanes.busy.update,
    }];
    for stage in &plan.stages {
        match of.curve(plan, each) {
            Some(curve) => answer.memory_curves.push(memory_curve(0, stage.capacity, &curve, plan)),
            None => answer.warnings.push(WarningCode::TimelineIncomplete.says(
                "memory over time is not shown: the profile has changed, and no longer predicts the peaks that the \
                 plan contains",
            ).into()),
        }
        if stage.config.data_degree > 1 {
            let ranks = stage.config.data_degree;
            let why = format!("the lanes show one of {ranks} ranks; all of them do the same work");
            answer.warnings.push(WarningCode::TimelineRepresentative.says(why).into());
        }
    }
    if of.lanes.cycle > 1 {
        let cycle = of.lanes.cycle;
        let which = if of.lanes.is_steady {
            format!("the same timing repeats every {cycle} iterations")
        } else {
            format!("the timing of the last {cycle} simulated iterations does not repeat")
        };
        answer.warnings.push(
            WarningCode::TimelineRepresentative
                .says(format!(
                    "{which}: seconds are the mean of these iterations, and spans show the last iteration"
                ))
                .into(),
        );
    }
}

/// What lanes do, in order.
#[derive(Default)]
struct Lists {
    passes: Vec<v1::PassSpan>,
    waits: Vec<v1::WaitSpan>,
    updates: Vec<v1::UpdateSpan>,
    up: CopyList,
    down: CopyList,
}

/// Copies that go one way in an iteration, and how many the iteration requests with how many bytes.
#[derive(Default)]
struct CopyList {
    copies: Vec<v1::CopySpan>,
    requested: i64,
    bytes: i64,
}

impl CopyList {
    fn push(&mut self, span: &LaneSpan, copy: v1::CopySpan) {
        if span.is_requested {
            self.requested += 1;
            self.bytes = self.bytes.saturating_add(copy.bytes);
        }
        if span.start < span.end {
            self.copies.push(copy);
        }
    }
}

impl Lists {
    fn of(of: &ChunkedTimeline) -> Self {
        let mut lists = Self::default();
        of.spans.iter().for_each(|span| lists.add(of, span));
        lists
    }

    fn add(&mut self, of: &ChunkedTimeline, span: &LaneSpan) {
        use v1::pass_span::Kind;
        let LaneSpan { work, start: start_seconds, end: end_seconds, .. } = *span;
        let about = |kind: Kind, chunk: usize| v1::PassSpan {
            kind: kind.into(),
            chunk: Some(number(chunk)),
            start_seconds,
            end_seconds,
            ..v1::PassSpan::default()
        };
        match work {
            LaneWork::Step(step) => {
                let Some((kind, micro_batch, layer)) = pass(of, step) else { return };
                self.passes.push(v1::PassSpan {
                    kind: kind.into(),
                    micro_batch,
                    layer: Some(layer),
                    start_seconds,
                    end_seconds,
                    ..v1::PassSpan::default()
                });
            }
            LaneWork::UpdateOnDevice(chunk) => self.passes.push(about(Kind::OptimizerStep, chunk)),
            LaneWork::Gather(chunk) => self.passes.push(about(Kind::AllGather, chunk)),
            LaneWork::Scatter(chunk) => self.passes.push(about(Kind::ReduceScatter, chunk)),
            LaneWork::Wait(interval, back) => self.waits.push(wait(span, Some(interval.payload.chunk), back)),
            LaneWork::WaitForKept(_, back) => self.waits.push(wait(span, None, back)),
            LaneWork::WaitForRows(back) => self.waits.push(wait(span, Some(HostTable::CHUNK), back)),
            LaneWork::Update(chunk, parameters) => self.updates.push(v1::UpdateSpan {
                chunk: number(chunk),
                parameter_count: i64::try_from(parameters).unwrap_or(i64::MAX),
                start_seconds,
                end_seconds,
            }),
            LaneWork::Up(interval, copies) => self.up.push(span, copy(of, span, &interval, copies, true)),
            LaneWork::Down(interval, copies) => {
                self.down.push(span, copy(of, span, &interval, copies, false))
            }
            LaneWork::Out(index) => {
                kept(of, span, index, false).into_iter().for_each(|copy| self.down.push(span, copy));
            }
            LaneWork::Back(index) => {
                kept(of, span, index, true).into_iter().for_each(|copy| self.up.push(span, copy));
            }
            LaneWork::RowsUp(step) => self.up.push(span, rows(of, span, step, true)),
            LaneWork::RowsDown(step) => self.down.push(span, rows(of, span, step, false)),
            // Copies of rows begin when these are gathered, and no pass waits for their addition.
            LaneWork::Rows(_) => {}
        }
    }
}

fn wait(span: &LaneSpan, chunk: Option<usize>, back: bool) -> v1::WaitSpan {
    v1::WaitSpan {
        peer: None,
        fetch: back,
        start_seconds: span.start,
        end_seconds: span.end,
        chunk: chunk.map(number),
    }
}

/// What a micro-batch keeps, on its way to the host or back.
fn kept(of: &ChunkedTimeline, span: &LaneSpan, index: usize, back: bool) -> Option<v1::CopySpan> {
    let Away { absence, bytes, .. } = of.away.get(index)?;
    Some(v1::CopySpan {
        stage: 0,
        fetch: back,
        block: v1::MemoryBlock::from(absence.block).into(),
        layer: number(absence.layer),
        micro_batch: absence.micro_batch.map(number),
        bytes: Bytes(*bytes).to_wire(),
        start_seconds: span.start,
        end_seconds: span.end,
        chunk: None,
        partial_gradients: false,
    })
}

/// Rows of a table on the host that come for a step, or their gradients, which leave behind it.
fn rows(of: &ChunkedTimeline, span: &LaneSpan, step: usize, back: bool) -> v1::CopySpan {
    let block = if back { v1::MemoryBlock::Weights } else { v1::MemoryBlock::Gradients };
    let pass = pass(of, step);
    v1::CopySpan {
        stage: 0,
        fetch: back,
        block: block.into(),
        layer: pass.map_or(0, |(_, _, layer)| layer),
        micro_batch: pass.map(|(_, micro_batch, _)| micro_batch),
        bytes: Bytes(of.chunks.row_bytes()).to_wire(),
        start_seconds: span.start,
        end_seconds: span.end,
        chunk: Some(number(HostTable::CHUNK)),
        partial_gradients: false,
    }
}

/// What a step is, of which micro-batch and layer.
fn pass(of: &ChunkedTimeline, step: usize) -> Option<(v1::pass_span::Kind, i32, i32)> {
    use v1::pass_span::Kind;
    let (kind, micro_batch, layer) = match *of.chunks.steps.all().get(step)? {
        Step::Forward { micro_batch, layer } => (Kind::Forward, micro_batch, layer),
        Step::Again { micro_batch, layer } => (Kind::Recomputation, micro_batch, layer),
        Step::Backward { micro_batch, layer } => (Kind::Backward, micro_batch, layer),
        Step::Renew | Step::Exchange | Step::Update { .. } => return None,
    };
    Some((kind, number(micro_batch), number(layer)))
}

fn copy(
    of: &ChunkedTimeline,
    span: &LaneSpan,
    interval: &ResidencyInterval,
    copies: IntervalCopies,
    back: bool,
) -> v1::CopySpan {
    let chunk = interval.payload.chunk;
    let unfinished = if back { copies.comes_unfinished } else { copies.leaves_unfinished };
    let are_gradients = unfinished || (!back && copies.is_complete);
    let block = if are_gradients { v1::MemoryBlock::Gradients } else { v1::MemoryBlock::Weights };
    // What it comes for, or what it leaves behind.
    let pass = pass(of, if back { interval.at.needed } else { interval.at.leaves.saturating_sub(1) });
    v1::CopySpan {
        stage: 0,
        fetch: back,
        block: block.into(),
        layer: pass.map_or(0, |(_, _, layer)| layer),
        micro_batch: pass.map(|(_, micro_batch, _)| micro_batch),
        bytes: Bytes(of.chunks.copied_bytes(chunk, unfinished)).to_wire(),
        start_seconds: span.start,
        end_seconds: span.end,
        chunk: Some(number(chunk)),
        partial_gradients: unfinished,
    }
}
