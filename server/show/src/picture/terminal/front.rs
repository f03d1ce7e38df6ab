//! The front as text: a plot with memory across and time up.

use super::line::{Line, axis_texts, legend, wrapped};
use crate::picture::axis;
use crate::picture::figure::front::Front;
use crate::picture::tint::Tint;
use crate::text::label::cells;
use crate::text::terminal_abilities::Look;

/// Lines of the plot.
const ROWS: usize = 16;
/// Lines between two marks of the seconds.
const ROWS_PER_MARK: usize = 4;
/// Cells for one mark of the bytes and the space before the next.
const CELLS_PER_MARK: usize = 16;

pub(super) fn draw(front: &Front, width: usize, look: Look) -> Vec<Line> {
    let (low_bytes, high_bytes) = front.bytes_range();
    let (low_seconds, high_seconds) = front.seconds_range();
    let marks = axis::seconds(low_seconds, high_seconds, ROWS / ROWS_PER_MARK);
    let labels = marks.iter().map(|mark| cells(&mark.text)).max().unwrap_or(0);
    let room = width.saturating_sub(labels + 3).max(10);
    let place = |value: f64, low: f64, high: f64, count: usize| {
        let share = ((value - low) / (high - low)).clamp(0.0, 1.0);
        ((share * count as f64) as usize).min(count - 1)
    };
    let row_of = |seconds: f64| ROWS - 1 - place(seconds, low_seconds, high_seconds, ROWS);

    let mut grid = vec![vec![None; room]; ROWS];
    for point in &front.points {
        let cell = &mut grid[row_of(point.seconds)][place(point.bytes, low_bytes, high_bytes, room)];
        *cell = Some(point.chosen || *cell == Some(true));
    }
    let (point, chosen) = marks_of(look);
    let edge = if look.unicode { ["│", "┤", "└", "─", "┴"] } else { ["|", "+", "+", "-", "+"] };
    let mut lines = vec![Line::all(front.seconds_axis, Tint::Faint)];
    for (row, line_of) in grid.iter().enumerate() {
        let mark = marks.iter().find(|mark| row_of(mark.at) == row);
        let text = mark.map_or("", |mark| mark.text.as_str());
        let mut line =
            Line::plain(format!("{text:>labels$} {}", if mark.is_some() { edge[1] } else { edge[0] }));
        for cell in line_of {
            match cell {
                None => line.text(" "),
                Some(false) => line.tinted(point, Tint::Point),
                Some(true) => line.tinted(chosen, Tint::Chosen),
            }
        }
        lines.push(line);
    }
    let byte_marks = axis::bytes(low_bytes, high_bytes, (room / CELLS_PER_MARK).max(1));
    let mut ticks = vec![edge[3]; room];
    let at = |mark: &axis::Mark| place(mark.at, low_bytes, high_bytes, room);
    byte_marks.iter().for_each(|mark| ticks[at(mark)] = edge[4]);
    let byte_marks: Vec<(usize, &str)> =
        byte_marks.iter().map(|mark| (at(mark), mark.text.as_str())).collect();
    let texts = axis_texts(&byte_marks, room);
    let indent = " ".repeat(labels + 1);
    lines.push(Line::plain(format!("{indent}{}{}", edge[2], ticks.concat())));
    lines.push(Line::plain(format!("{indent} {texts}")));
    lines.extend(wrapped(&front.bytes_axis, width, Some(Tint::Faint)));
    lines.extend(signs(front, width, look));
    lines
}

/// A plan, and the one that the picture is of.
fn marks_of(look: Look) -> (&'static str, &'static str) {
    if look.unicode { ("•", "◆") } else { ("o", "#") }
}

fn signs(front: &Front, width: usize, look: Look) -> Vec<Line> {
    let (point, chosen) = marks_of(look);
    let mut lines = legend(&[(point, Tint::Point, "a plan"), (chosen, Tint::Chosen, "this plan")], width);
    let what = match front.points.iter().find(|point| point.chosen) {
        Some(point) => format!("this plan: {}", point.title),
        None => "this plan is not among the points".to_owned(),
    };
    lines.extend(wrapped(&what, width, None));
    lines
}
