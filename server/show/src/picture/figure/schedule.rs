//! One iteration as a timeline: what the devices of each stage do, when they wait, and the copies of their blocks.

use loadmaster_proto::wire::v1::{
    CopyTimeline, Plan, ProfileCoverage, SimulatedSchedule, StageTimeline, Timeline,
};

use super::pass::{Kind, Pass, with_waits};
use crate::text::label::{cells, safe, sentence};
use crate::text::{bytes, count, percent, plural, seconds, severity, word};

/// Lanes that are drawn; of more, the first and the last.
const MOST_LANES: usize = 32;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Schedule {
    /// One per stage, each with those of its copies below.
    pub lanes: Vec<ScheduleRow>,
    /// Seconds at the right end, the same for all lanes; above 0.
    pub end_seconds: f64,
    /// Where the iteration ends: earlier than the right end beside a longer one.
    pub iteration_seconds: f64,
    /// Cells that the longest label and the longest share take; common to pictures side by side.
    pub columns: (usize, usize),
    /// `1f1b: 1.23 s per iteration, 18.2 % bubble`.
    pub summary: String,
    /// Where the numbers are from, and what is left out, for people.
    pub notes: Vec<String>,
}

/// What the devices of one stage do.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ScheduleRow {
    /// `stage 3`; of the row that stands for lanes left out, how many they are.
    pub label: String,
    pub stage: usize,
    /// Its passes and waits in order, or its copies, each within the iteration.
    pub passes: Vec<Pass>,
    /// Whether it is of copies over a direction of a link.
    pub is_of_copies: bool,
    /// `busy 81.2 %`.
    pub busy: String,
    /// All that is known of the lane.
    pub title: String,
}

impl Schedule {
    /// Of a plan's timeline; nothing where it has no lanes.
    pub(crate) fn of(plan: &Plan, timeline: &Timeline) -> Option<Self> {
        if timeline.stage_timelines.is_empty() {
            return None;
        }
        let mut notes = Vec::new();
        let total = timeline.stage_timelines.len();
        let half = if total > MOST_LANES { MOST_LANES / 2 } else { total };
        let (ways, left_out) = copy_rows(timeline);
        let whole = |lane: &StageTimeline| {
            let own = ways.iter().filter(|(stage, _)| *stage == lane.stage).map(|(_, row)| row.clone());
            std::iter::once(row(lane, timeline)).chain(own).collect::<Vec<_>>()
        };
        let mut lanes: Vec<ScheduleRow> =
            timeline.stage_timelines.iter().take(half).flat_map(whole).collect();
        if total > half {
            let label = format!("{} more", count(i64::try_from(total - 2 * half).unwrap_or(i64::MAX)));
            lanes.push(ScheduleRow { label, stage: half, ..ScheduleRow::default() });
            lanes.extend(timeline.stage_timelines.iter().skip(total - half).flat_map(whole));
            notes.push(format!("left out in the middle: {}", plural(total - 2 * half, "stage")));
        }
        notes.extend(left_out);
        let listed: usize = timeline.stage_timelines.iter().map(|lane| lane.passes.len()).sum();
        let valid: usize =
            timeline.stage_timelines.iter().flat_map(|lane| &lane.passes).filter_map(Pass::of).count();
        if valid < listed {
            notes.push(format!("{} passes without a valid time are not drawn", listed - valid));
        }
        if timeline.truncated {
            notes.push("later passes are not listed; the totals include them".to_owned());
        }
        notes.push(source(plan));
        let trial = plan.trials.iter().find(|trial| trial.failure_message.is_empty());
        notes.extend(trial.map(|trial| {
            let took = seconds(trial.iteration_seconds);
            format!("measured: {took} per iteration in {}, under the plan's own schedule", safe(&trial.run))
        }));
        notes.extend(
            timeline
                .warnings
                .iter()
                .take(20)
                .map(|warning| format!("{}: {}", severity(warning), sentence(&warning.message))),
        );
        let ends = lanes.iter().flat_map(|lane| &lane.passes).map(|pass| pass.end);
        let whole = Some(timeline.iteration_seconds).filter(|whole| (0.0..=1e12).contains(whole));
        let end_seconds = ends.chain(whole).fold(f64::MIN_POSITIVE, f64::max);
        let widest =
            |of: fn(&ScheduleRow) -> &str| lanes.iter().map(|lane| cells(of(lane))).max().unwrap_or(0);
        let columns = (widest(|lane| &lane.label), widest(|lane| &lane.busy));
        let summary = summary(plan, timeline);
        Some(Self { columns, lanes, end_seconds, iteration_seconds: end_seconds, summary, notes })
    }
}

impl Schedule {
    /// What a legend has to explain.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let drawn = |kind: &Kind| self.lanes.iter().flat_map(|lane| &lane.passes).any(|of| of.kind == *kind);
        Kind::ALL.into_iter().filter(|kind| kind.is_usual() || drawn(kind)).collect()
    }
}

fn summary(plan: &Plan, timeline: &Timeline) -> String {
    let in_chunks = plan.stages.iter().find_map(|stage| stage.chunked_training.as_ref());
    let is_told =
        timeline.stage_timelines.iter().flat_map(|lane| &lane.passes).any(|pass| pass.layer.is_some());
    let order = match (in_chunks.filter(|_| is_told), timeline.schedule()) {
        (Some(chunks), _) => {
            let order =
                word(chunks.micro_batch_order().as_str_name(), "MICRO_BATCH_ORDER_").replace(' ', "-");
            format!("chunks in {order} order")
        }
        (None, SimulatedSchedule::Unspecified) => "the plan's schedule".to_owned(),
        (None, SimulatedSchedule::OneFOneB) => "1f1b".to_owned(),
        (None, order) => word(order.as_str_name(), "SIMULATED_SCHEDULE_"),
    };
    format!(
        "{order}: {} per iteration, {} of the devices' time is bubble (predicted)",
        seconds(timeline.iteration_seconds),
        percent(timeline.bubble_ratio)
    )
}

/// Where the seconds are from.
fn source(plan: &Plan) -> String {
    let mut text = format!("predicted: simulated from the layer times of {}", safe(&plan.profile));
    let Some(iteration) = &plan.iteration else { return text };
    match iteration.coverage() {
        ProfileCoverage::Unspecified => {}
        origin => text.push_str(&format!(" ({})", word(origin.as_str_name(), "PROFILE_COVERAGE_"))),
    }
    if !iteration.link_speed_origin.is_empty() {
        text.push_str(&format!("; links: {}", sentence(&iteration.link_speed_origin)));
    }
    text
}

fn row(lane: &StageTimeline, timeline: &Timeline) -> ScheduleRow {
    let stage = usize::try_from(lane.stage).unwrap_or(0);
    // With several stages in turn a lane is a device's.
    let whose = if timeline.schedule() == SimulatedSchedule::Interleaved { "device" } else { "stage" };
    let share = lane.busy_seconds / timeline.iteration_seconds;
    let mut busy = if share.is_finite() { format!("busy {}", percent(share)) } else { String::new() };
    let mut title = format!(
        "{whose} {stage}: busy for {} (predicted); at most {} micro-batch{} in flight",
        seconds(lane.busy_seconds),
        lane.in_flight_micro_batch_count,
        if lane.in_flight_micro_batch_count == 1 { "" } else { "es" }
    );
    if lane.weight_version_count > 1 {
        title.push_str(&format!("; {} versions of the weights at once", lane.weight_version_count));
    }
    if lane.waited_seconds > 0.0 {
        title.push_str(&format!("; waits for copies for {}", seconds(lane.waited_seconds)));
        // Single waits may be too short to be seen.
        let share = lane.waited_seconds / timeline.iteration_seconds;
        if share.is_finite() {
            busy.push_str(&format!(", waits {}", percent(share)));
        }
    }
    let passes = with_waits(lane.passes.iter().filter_map(Pass::of), &lane.waits);
    ScheduleRow { label: format!("{whose} {stage}"), stage, passes, is_of_copies: false, busy, title }
}

/// Lanes of copies that are drawn; of more, the busiest.
const MOST_ROWS: usize = 32;

/// Rows of copies, each with the stage that it is below, and what is left out.
fn copy_rows(timeline: &Timeline) -> (Vec<(i32, ScheduleRow)>, Option<String>) {
    let mut lanes: Vec<(usize, &CopyTimeline)> = timeline.copy_timelines.iter().enumerate().collect();
    lanes.sort_by(|(_, one), (_, other)| other.busy_seconds.total_cmp(&one.busy_seconds));
    let hidden = lanes.len().saturating_sub(MOST_ROWS);
    lanes.truncate(MOST_ROWS);
    lanes.sort_by_key(|(place, _)| *place);
    let mut rows: Vec<(i32, ScheduleRow)> = lanes.iter().map(|(_, lane)| copy_row(lane, timeline)).collect();
    rows.extend(timeline.stage_timelines.iter().filter_map(|lane| updates(lane, timeline)));
    // To a place and back from there, one below the other.
    rows.sort_by_key(|(stage, _)| *stage);
    let note = (hidden > 0).then(|| {
        format!(
            "not drawn: {} of links, with less copy time than the links that are drawn",
            plural(hidden, "direction")
        )
    });
    (rows, note)
}

fn copy_row(lane: &CopyTimeline, timeline: &Timeline) -> (i32, ScheduleRow) {
    let ends = (lane.sender_stage, lane.receiver_stage);
    let owner = lane.copies.first().map(|copy| copy.stage).or(ends.0).or(ends.1).unwrap_or(0);
    let place =
        |stage: Option<i32>| stage.map_or_else(|| "host".to_owned(), |stage| format!("stage {stage}"));
    let label = match ends {
        (from, to) if from == Some(owner) => format!("  to {}", place(to)),
        (from, _) => format!("  from {}", place(from)),
    };
    let busy = used(lane.busy_seconds, timeline);
    let title = format!(
        "{} to {}: {} copies, {}, in {}; waited for {} (predicted)",
        place(ends.0),
        place(ends.1),
        count(lane.copy_count),
        bytes(lane.bytes),
        seconds(lane.busy_seconds),
        seconds(lane.waited_seconds)
    );
    let mut passes: Vec<Pass> = lane.copies.iter().filter_map(Pass::of_copy).collect();
    passes.sort_by(|one, other| one.start.total_cmp(&other.start));
    let stage = usize::try_from(owner).unwrap_or(0);
    (owner, ScheduleRow { label, stage, passes, is_of_copies: true, busy, title })
}

/// What the host updates for a stage; none where it does not.
fn updates(lane: &StageTimeline, timeline: &Timeline) -> Option<(i32, ScheduleRow)> {
    let mut passes: Vec<Pass> = lane.updates.iter().filter_map(Pass::of_update).collect();
    if passes.is_empty() {
        return None;
    }
    passes.sort_by(|one, other| one.start.total_cmp(&other.start));
    let stage = usize::try_from(lane.stage).unwrap_or(0);
    let title =
        format!("CPU optimizer steps of stage {stage} take {} (predicted)", seconds(lane.update_seconds));
    let busy = used(lane.update_seconds, timeline);
    let label = "  host step".to_owned();
    Some((lane.stage, ScheduleRow { label, stage, passes, is_of_copies: true, busy, title }))
}

fn used(busy_seconds: f64, timeline: &Timeline) -> String {
    let share = busy_seconds / timeline.iteration_seconds;
    if share.is_finite() { format!("used {}", percent(share)) } else { String::new() }
}
