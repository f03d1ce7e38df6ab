//! The lanes of copies: a direction of a link each, below the stage whose blocks it carries; and of what its host updates.

use loadmaster_proto::wire::v1::{CopyLane, Lane, Timeline};

use super::pass::Pass;
use super::schedule::ScheduleRow;
use crate::text::{bytes, count, percent, plural, seconds};

/// Lanes of copies that are drawn; of more, the busiest.
const MOST_ROWS: usize = 32;

/// Rows of copies, each with the stage that it is below, and what is left out.
pub(super) fn rows(timeline: &Timeline) -> (Vec<(i32, ScheduleRow)>, Option<String>) {
    let mut lanes: Vec<(usize, &CopyLane)> = timeline.copies.iter().enumerate().collect();
    lanes.sort_by(|(_, one), (_, other)| other.busy_seconds.total_cmp(&one.busy_seconds));
    let hidden = lanes.len().saturating_sub(MOST_ROWS);
    lanes.truncate(MOST_ROWS);
    lanes.sort_by_key(|(place, _)| *place);
    let mut rows: Vec<(i32, ScheduleRow)> = lanes.iter().map(|(_, lane)| row(lane, timeline)).collect();
    rows.extend(timeline.lanes.iter().filter_map(|lane| updates(lane, timeline)));
    // To a place and back from there, one below the other.
    rows.sort_by_key(|(stage, _)| *stage);
    let note = (hidden > 0).then(|| {
        format!("left out: {} of links that copy less than those that are drawn", plural(hidden, "direction"))
    });
    (rows, note)
}

fn row(lane: &CopyLane, timeline: &Timeline) -> (i32, ScheduleRow) {
    let ends = (lane.from_stage, lane.to_stage);
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
fn updates(lane: &Lane, timeline: &Timeline) -> Option<(i32, ScheduleRow)> {
    let mut passes: Vec<Pass> = lane.updates.iter().filter_map(Pass::of_update).collect();
    if passes.is_empty() {
        return None;
    }
    passes.sort_by(|one, other| one.start.total_cmp(&other.start));
    let stage = usize::try_from(lane.stage).unwrap_or(0);
    let title =
        format!("the host's steps for stage {stage}: in {} (predicted)", seconds(lane.update_seconds));
    let busy = used(lane.update_seconds, timeline);
    let label = "  host step".to_owned();
    Some((lane.stage, ScheduleRow { label, stage, passes, is_of_copies: true, busy, title }))
}

fn used(busy_seconds: f64, timeline: &Timeline) -> String {
    let share = busy_seconds / timeline.iteration_seconds;
    if share.is_finite() { format!("used {}", percent(share)) } else { String::new() }
}
