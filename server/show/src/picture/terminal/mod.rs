//! Pictures as text: within a width, with the characters and colours that a [`Look`] allows.

mod front;
mod line;
mod memory;
mod placement;
mod residency;
mod schedule;
mod stack;
mod step_bytes;
mod timeline;

use super::figure::Figure;
use super::sheet::Sheet;
use super::tint::Tint;
use crate::picture::figure::Table;
use crate::table::grid::{Grid, Side};
use crate::text::label::fit;
use crate::text::terminal_abilities::Look;
use line::{Line, wrapped};

/// Narrower than this nothing can be told apart.
const NARROWEST: usize = 40;
/// Wider than this nothing is found again.
pub const WIDEST: usize = 200;

/// All pictures of a sheet, none of its lines longer than `width` cells (40 at least).
pub fn render(sheet: &Sheet, width: usize, look: Look) -> String {
    let width = width.clamp(NARROWEST, WIDEST);
    let mut text = String::new();
    let mut write = |lines: &[Line]| lines.iter().for_each(|line| text.push_str(&line.render(width, look)));
    for contradiction in sheet.contradictions.iter().filter(|_| !sheet.follows_table) {
        write(&wrapped(contradiction, width, Some(Tint::Strong)));
    }
    for block in sheet.blocks.iter().filter(|block| !block.file_only) {
        write(&[Line::plain("")]);
        for (index, (plan, figure)) in block.figures.iter().enumerate() {
            let facts = [block.title, plan, figure.summary()];
            let heading = facts
                .into_iter()
                .filter(|fact| !fact.is_empty())
                .collect::<Vec<_>>()
                .join(&format!(" {} ", look.dot()));
            if index > 0 {
                write(&[Line::plain("")]);
            }
            write(&wrapped(&heading, width, Some(Tint::Strong)));
            write(&draw(figure, width, look));
            for note in figure.notes() {
                write(&wrapped(note, width, Some(Tint::Faint)));
            }
        }
    }
    for warning in sheet.warnings.iter().filter(|_| !sheet.follows_table) {
        write(&wrapped(warning, width, None));
    }
    text
}

fn draw(figure: &Figure, width: usize, look: Look) -> Vec<Line> {
    match figure {
        Figure::Placement(placement) => placement::draw(placement, width, look),
        Figure::Memory(memory) => memory::draw(memory, width, look),
        Figure::Schedule(schedule) => schedule::draw(schedule, width, look),
        Figure::MemoryTimeline(over_time) => timeline::draw(over_time, width, look),
        Figure::Residency(residency) => residency::draw(residency, width, look),
        Figure::StepBytes(step_bytes) => step_bytes::draw(step_bytes, width, look),
        Figure::Front(front) => front::draw(front, width, look),
        Figure::Table(of) => table(of, width, look),
    }
}

/// Columns that share the width: a long cell is cut, so that no line is.
fn table(table: &Table, width: usize, look: Look) -> Vec<Line> {
    let columns: Vec<(&str, Side)> = table.head.iter().map(|title| (title.as_str(), Side::Left)).collect();
    let widest = |column: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(column)).chain(table.head.get(column));
        cells.map(|cell| crate::text::label::cells(cell)).max().unwrap_or(0)
    };
    let widths = shared(&(0..columns.len()).map(widest).collect::<Vec<_>>(), width);
    let cut = |cells: &[String]| -> Vec<String> {
        cells.iter().zip(&widths).map(|(cell, &width)| fit(cell, width, look)).collect()
    };
    let head = cut(&table.head);
    let columns: Vec<(&str, Side)> = head.iter().map(|title| (title.as_str(), Side::Left)).collect();
    // Escape sequences of its own would be counted as text here.
    let mut grid = Grid::new(&columns, Look { color: false, width: None, ..look });
    table.rows.iter().for_each(|row| grid.rows(cut(row)));
    grid.render().lines().map(Line::plain).collect()
}

/// Widths of columns that add up to `width` with two spaces between them: the widest give way first.
fn shared(wanted: &[usize], width: usize) -> Vec<usize> {
    let room = width.saturating_sub(2 * wanted.len());
    let mut widths = wanted.to_vec();
    while widths.iter().sum::<usize>() > room {
        let Some(widest) = widths.iter_mut().max() else { break };
        if *widest == 0 {
            break;
        }
        *widest -= 1;
    }
    widths
}
