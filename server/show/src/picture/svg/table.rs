//! Facts in rows and columns.

use super::notes::{width_of, within};
use super::scene::{Anchor, Scene, Style};
use crate::picture::figure::Table;
use crate::picture::tint::Tint;

const ROW: f64 = 20.0;
/// Space between columns.
const SPACE: f64 = 16.0;
/// The widest column.
const WIDEST: f64 = 420.0;

pub(super) fn draw(table: &Table, width: f64) -> Scene {
    let cell = |row: &[String], column: usize| row.get(column).map_or(0.0, |text| width_of(text));
    let widths: Vec<f64> = (0..table.head.len())
        .map(|column| {
            let cells = table.rows.iter().map(|row| cell(row, column));
            cells.fold(cell(&table.head, column), f64::max).min(WIDEST)
        })
        .collect();
    let total: f64 = widths.iter().map(|width| width + SPACE).sum();
    let mut scene = Scene::new(width.max(total));
    let rows = std::iter::once(&table.head).chain(&table.rows);
    for (index, row) in rows.enumerate() {
        let y = scene.height + 14.0;
        let mut x = 0.0;
        for (text, width) in row.iter().zip(&widths) {
            let style = if index == 0 { Style::Tint(Tint::Strong) } else { Style::Plain };
            scene.text((x, y), Anchor::Start, style, &within(text, *width + 1.0));
            x += width + SPACE;
        }
        scene.height += ROW;
        let line = scene.height;
        scene.line((0.0, line), (total, line), Style::Tint(Tint::Faint));
    }
    scene
}
