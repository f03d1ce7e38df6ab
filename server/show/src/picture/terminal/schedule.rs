//! One iteration as text: a lane per stage, compressed to the width.

use super::line::{Line, axis_texts, legend};
use crate::picture::axis;
use crate::picture::figure::pass::{EVER, Kind, MOSTLY, Pass, columns};
use crate::picture::figure::schedule::{Schedule, ScheduleRow};
use crate::picture::tint::Tint;
use crate::text::label::column;
use crate::text::terminal_abilities::Look;

/// Cells of a lane that is still worth drawing.
const LEAST_CELLS: usize = 16;
/// Cells for one mark of the axis and the space before the next.
const CELLS_PER_MARK: usize = 14;

/// A character and a colour for what is done.
fn glyph(kind: Option<Kind>, look: Look) -> (char, Tint) {
    let (unicode, ascii, tint) = match kind {
        None => ('·', '.', Tint::Faint),
        Some(Kind::Forward) => ('░', '-', Tint::Forward),
        Some(Kind::Backward) => ('▓', '=', Tint::Backward),
        Some(Kind::Again) => ('▒', '+', Tint::ForwardLater),
        Some(Kind::Step) => ('█', '#', Tint::Step),
        Some(Kind::Exchange) => ('╬', '%', Tint::Exchange),
        Some(Kind::Wait) => ('×', 'x', Tint::Wait),
        Some(Kind::Out) => ('»', '>', Tint::Out),
        Some(Kind::Back) => ('«', '<', Tint::Back),
    };
    // A coloured cell needs no pattern, and its number is read more easily without.
    let shown = if look.color && kind.is_some() {
        ' '
    } else if look.unicode {
        unicode
    } else {
        ascii
    };
    (shown, tint)
}

pub(super) fn draw(schedule: &Schedule, width: usize, look: Look) -> Vec<Line> {
    let (names, busy) = (schedule.columns.0.min(width / 4), schedule.columns.1.min(width / 3));
    let room = width.saturating_sub(names + busy + 4).max(LEAST_CELLS);
    let (open, close) = if look.unicode { ("│", "│") } else { ("|", "|") };
    let mut lines = Vec::new();
    for lane in &schedule.lanes {
        let mut line = Line::plain(format!("{} ", column(&lane.label, names, look)));
        if lane.title.is_empty() {
            lines.push(line);
            continue;
        }
        line.tinted(open, Tint::Faint);
        line.append(cells_of(lane, schedule, room, look));
        line.tinted(close, Tint::Faint);
        line.text(format!(" {}", lane.busy));
        lines.push(line);
    }
    lines.extend(scale(schedule.end_seconds, names, room));
    lines.extend(signs(schedule, width, look));
    lines
}

/// A lane of exactly `room` cells. A pass that is wide enough begins with the number of its micro-batch.
fn cells_of(lane: &ScheduleRow, schedule: &Schedule, room: usize, look: Look) -> Line {
    let share = if lane.is_of_copies { EVER } else { MOSTLY };
    let kinds = columns(&lane.passes, schedule.end_seconds, room, share);
    let mut row: Vec<(char, Tint)> = kinds.iter().map(|&kind| glyph(kind, look)).collect();
    let scale = room as f64 / schedule.end_seconds;
    for kind in [Kind::Forward, Kind::Backward] {
        let passes = || lane.passes.iter().filter(|pass| pass.kind == kind && !pass.goes_on);
        // Numbers of some passes only would look like a pattern that is not there.
        let all = passes().all(|pass| {
            let digits = pass.micro_batch.to_string().len();
            ((pass.end - pass.start) * scale).floor() > digits as f64
        });
        passes().filter(|_| all).for_each(|pass| number(pass, &kinds, &mut row, scale));
    }
    // Nobody waits after the end.
    let end = (schedule.iteration_seconds * scale).round() as usize;
    row.iter_mut().skip(end).for_each(|cell| cell.0 = ' ');
    let mut line = Line::default();
    for run in row.chunk_by(|a, b| a.1 == b.1) {
        line.tinted(run.iter().map(|&(c, _)| c).collect::<String>(), run[0].1);
    }
    line
}

/// Writes the number of a pass's micro-batch into its cells, where one cell of it stays to be seen.
fn number(pass: &Pass, kinds: &[Option<Kind>], row: &mut [(char, Tint)], scale: f64) {
    let (from, to) = ((pass.start * scale).round() as usize, (pass.end * scale).round() as usize);
    let digits = pass.micro_batch.to_string();
    let own = |at: usize| kinds.get(at).copied().flatten() == Some(pass.kind);
    if to.saturating_sub(from) > digits.len() && (from..to).all(own) {
        row.iter_mut().skip(from).zip(digits.chars()).for_each(|(cell, digit)| cell.0 = digit);
    }
}

/// Seconds below the lanes.
pub(super) fn scale(end: f64, names: usize, room: usize) -> [Line; 2] {
    ruler(&axis::seconds(0.0, end, room / CELLS_PER_MARK), end, names, room)
}

/// Marks below what is drawn in `room` cells, from 0 to `end`.
pub(super) fn ruler(marks: &[axis::Mark], end: f64, names: usize, room: usize) -> [Line; 2] {
    let place = |at: f64| ((at / end * room as f64).round() as usize).min(room);
    let mut ticks = vec![' '; room + 1];
    marks.iter().for_each(|mark| ticks[place(mark.at)] = '\'');
    let marks: Vec<(usize, &str)> = marks.iter().map(|mark| (place(mark.at), mark.text.as_str())).collect();
    let indent = " ".repeat(names + 2);
    [ticks.into_iter().collect(), axis_texts(&marks, room + 1)]
        .map(|text: String| Line::plain(format!("{indent}{text}")))
}

fn signs(schedule: &Schedule, width: usize, look: Look) -> Vec<Line> {
    let kinds = schedule.kinds().into_iter().map(Some);
    let glyphs = kinds.chain([None]).map(|kind| {
        let (c, tint) = glyph(kind, look);
        (c.to_string().repeat(2), tint, kind.map_or("waiting", Kind::name))
    });
    let glyphs: Vec<_> = glyphs.collect();
    let mut entries: Vec<(&str, Tint, &str)> =
        glyphs.iter().map(|(text, tint, name)| (text.as_str(), *tint, *name)).collect();
    entries.push(("0 1 2", Tint::Faint, "micro-batches"));
    legend(&entries, width)
}
