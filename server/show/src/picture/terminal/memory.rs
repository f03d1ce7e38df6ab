//! The memory of the devices as text: a bar of letters per device.

use super::line::{Line, legend};
use crate::picture::figure::memory::{DeviceBar, Memory};
use crate::picture::tint::Tint;
use crate::text::bar::Bar;
use crate::text::bytes;
use crate::text::label::{cells, column};
use crate::text::terminal_abilities::Look;

/// Cells of a bar that is still worth drawing.
const LEAST_CELLS: usize = 10;

pub(super) fn draw(memory: &Memory, width: usize, look: Look) -> Vec<Line> {
    let names = memory.columns.0.min(width / 4);
    let amounts = memory.columns.1.min(width / 2);
    let room = width.saturating_sub(names + amounts + 3);
    // Where there is no room for both, the bar is worth more than the end of the numbers.
    let room = room.max(LEAST_CELLS);

    let mut lines = vec![axis(memory, names, room, look)];
    for bar in &memory.bars {
        let mut line = Line::plain(format!("{} ", column(&bar.label, names, look)));
        line.append(cells_of(bar, memory, room, look));
        line.text(format!(" {}", bar.amount));
        lines.push(line);
    }
    lines.extend(signs(memory, width, look));
    lines
}

/// What the two ends of the bars are.
fn axis(memory: &Memory, names: usize, room: usize, look: Look) -> Line {
    let end = bytes(memory.scale_bytes);
    let what = memory.axis();
    let mut line = Line::plain(format!("{} 0 B", " ".repeat(names)));
    let free = room.saturating_sub(3 + cells(&end));
    if cells(&what) + 2 <= free {
        let before = (free - cells(&what)) / 2;
        line.text(format!("{}{what}{}", " ".repeat(before), " ".repeat(free - cells(&what) - before)));
    } else {
        line.text(" ".repeat(free));
    }
    line.text(column(&end, cells(&end).min(room), look));
    line
}

/// A bar of exactly `room` cells, marks included.
fn cells_of(bar: &DeviceBar, memory: &Memory, room: usize, look: Look) -> Line {
    let mut row: Bar<(char, Option<Tint>)> = Bar::new(room, memory.scale_bytes, (' ', None));
    row.parts(bar.parts.iter().map(|&(place, bytes)| {
        let part = memory.parts.iter().find(|part| place == Some(part.0));
        let (letter, tint) = part.map_or(('=', Tint::Whole), |part| (part.1, Tint::Part(part.0)));
        ((letter, Some(tint)), bytes)
    }));
    if let Some(high) = bar.high_bytes {
        row.fill_to(row.cells(high), ('~', Some(Tint::Margin)));
    }
    let capacity = bar.capacity_bytes.map(|bytes| row.cells(bytes));
    row.fill_to(capacity.unwrap_or(0), (if look.unicode { '·' } else { '.' }, Some(Tint::Faint)));
    // A mark stands in the last cell of what it ends.
    if let Some(capacity) = capacity {
        row.mark_in(capacity, (if look.unicode { '│' } else { '|' }, Some(Tint::Capacity)));
    }
    if let Some(measured) = bar.measured_bytes {
        row.mark_in(row.cells(measured), (if look.unicode { '◆' } else { '^' }, Some(Tint::Measured)));
    }
    let mut line = Line::default();
    for run in row.into_cells().chunk_by(|a, b| a.1 == b.1) {
        line.tinted(run.iter().map(|&(c, _)| c).collect::<String>(), run[0].1);
    }
    line
}

/// What the letters mean, of those that are seen.
fn signs(memory: &Memory, width: usize, look: Look) -> Vec<Line> {
    let letters: Vec<String> = memory.parts.iter().map(|part| part.1.to_string()).collect();
    let mut entries: Vec<(&str, Tint, &str)> = Vec::new();
    if memory.has_whole() {
        entries.push(("=", Tint::Whole, "predicted"));
    }
    let parts = memory.parts.iter().zip(&letters);
    entries.extend(parts.map(|(&(place, _, name), letter)| (letter.as_str(), Tint::Part(place), name)));
    if memory.has_margin {
        entries.push(("~", Tint::Margin, "margin"));
    }
    if memory.has_capacity() {
        entries.push((if look.unicode { "·" } else { "." }, Tint::Faint, "free"));
        entries.push((if look.unicode { "│" } else { "|" }, Tint::Capacity, "allowed to training"));
    }
    if memory.has_measured {
        let mark = if look.unicode { "◆" } else { "^" };
        entries.push((mark, Tint::Measured, "highest measured peak of the stage"));
    }
    legend(&entries, width)
}
