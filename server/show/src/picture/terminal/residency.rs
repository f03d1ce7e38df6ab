//! Where chunks are as text: a line for each chunk, or for a few of them, a cell for each step.

use super::line::{Line, legend, wrapped};
use super::schedule::ruler;
use super::stack::{Glyph, Stack};
use crate::picture::axis;
use crate::picture::figure::pieces::Pieces;
use crate::picture::figure::residency::{Place, Residency};
use crate::picture::tint::Tint;
use crate::text::terminal_abilities::Look;

/// Lines of a band; of more chunks several share one.
const MOST_ROWS: usize = 24;
/// Cells of a line that is still worth drawing.
const LEAST_CELLS: usize = 16;
/// Cells for one mark of the axis and the space before the next.
const CELLS_PER_MARK: usize = 10;

pub(super) fn draw(residency: &Residency, width: usize, look: Look) -> Vec<Line> {
    let (names, room) = room(residency.names, width);
    let frame = Stack { names, scale_bytes: 1, capacity_bytes: None, look };
    let mut lines = Vec::new();
    for band in &residency.bands {
        if band.is_gradients {
            lines.push(Line::plain("gradients in chunks of their own:"));
        }
        let cells = residency.cells(band, (MOST_ROWS, room), look);
        let columns = columns(cells.columns.len(), room);
        for row in &cells.rows {
            let cell = |&column: &usize| {
                row.places.get(column).map_or((' ', None), |&place| glyph(place, band.is_gradients, look))
            };
            lines.push(frame.framed(&row.label, columns.iter().map(cell).collect()));
        }
        if !band.is_gradients {
            lines.extend(wrapped(&cells.meaning(), width, None));
        }
    }
    lines.extend(steps(residency.steps, names, room));
    lines.extend(signs(residency, width, look));
    lines
}

/// Cells beside what is drawn over steps, and of that.
pub(super) fn room(names: usize, width: usize) -> (usize, usize) {
    let names = names.min(width / 4);
    (names, width.saturating_sub(names + 3).max(LEAST_CELLS))
}

/// The column that is in each of so many cells.
pub(super) fn columns(columns: usize, room: usize) -> Vec<usize> {
    let cells = Pieces::new(room, columns);
    (0..room).map(|cell| cells.of(cell)).collect()
}

/// Steps below what is drawn.
pub(super) fn steps(steps: usize, names: usize, room: usize) -> [Line; 2] {
    ruler(&axis::counts(0.0, steps as f64, room / CELLS_PER_MARK), steps as f64, names, room)
}

/// A character and a colour for a place.
fn glyph(place: Place, is_gradients: bool, look: Look) -> Glyph {
    let (unicode, ascii, tint) = match place {
        Place::Host => ('·', '.', Tint::Faint),
        Place::Coming => ('«', '<', Tint::Back),
        Place::Leaving => ('»', '>', Tint::Out),
        Place::There if is_gradients => ('▒', '%', Tint::Gradients),
        Place::There => ('▓', '=', Tint::Resident),
        Place::ForGood => ('█', '#', Tint::Kept),
    };
    (if look.unicode { unicode } else { ascii }, Some(tint))
}

fn signs(residency: &Residency, width: usize, look: Look) -> Vec<Line> {
    let has_gradients = residency.bands.iter().any(|band| band.is_gradients);
    let sign = |place: Place, is_gradients: bool| {
        let (c, tint) = glyph(place, is_gradients, look);
        (c.to_string().repeat(2), tint.unwrap_or(Tint::Faint))
    };
    let mut signs: Vec<((String, Tint), &str)> =
        residency.places().map(|place| (sign(place, false), place.name())).collect();
    if has_gradients {
        signs.push((sign(Place::There, true), "gradients on the device"));
    }
    let entries: Vec<(&str, Tint, &str)> =
        signs.iter().map(|((sign, tint), name)| (sign.as_str(), *tint, *name)).collect();
    legend(&entries, width)
}
