//! Where chunks are: a row for each chunk, or for a few of them, over the steps of an iteration.

use super::notes::{legend, lines, width_of_cells, within};
use super::scene::{Anchor, Scene, Style};
use crate::picture::axis;
use crate::picture::figure::residency::{Band, Cells, Place, Residency};
use crate::picture::tint::Tint;
use crate::text::terminal_abilities::Look;

/// Rows of a band; of more chunks several share one.
const MOST_ROWS: usize = 40;
/// Height of a row, of few and of many.
const ROW: f64 = 14.0;
const THIN_ROW: f64 = 8.0;
/// Rows that are few enough to have a name each.
const NAMED: usize = 24;
/// Pixels of the narrowest column.
const PIECE: f64 = 3.0;

pub(super) fn draw(residency: &Residency, width: f64) -> Scene {
    let mut scene = Scene::new(width);
    let (left, room) = across(residency.names, width);
    let mut meaning = String::new();
    for band in &residency.bands {
        if band.is_gradients {
            let what = "gradients in chunks of their own";
            scene.text((0.0, scene.height + 14.0), Anchor::Start, Style::Plain, what);
            scene.height += 20.0;
        }
        let cells = residency.cells(band, (MOST_ROWS, (room / PIECE) as usize), Look::FILE);
        rows(&mut scene, band, &cells, (left, room));
        meaning = cells.meaning();
        scene.height += 8.0;
    }
    steps(&mut scene, residency.steps, (left, room));
    let mut entries: Vec<(Tint, &str)> = residency
        .places()
        .filter(|&place| place != Place::Host)
        .map(|place| (tint(place, false), place.name()))
        .collect();
    if residency.bands.iter().any(|band| band.is_gradients) {
        entries.push((tint(Place::There, true), "gradients on the device"));
    }
    scene.below(legend(&entries, width));
    scene.below(lines(&[format!("{meaning}; without a colour: {}", Place::Host.name())], "", width));
    scene
}

/// Where what is drawn over steps begins, and how wide it is.
pub(super) fn across(names: usize, width: f64) -> (f64, f64) {
    let left = width_of_cells(names).min(width * 0.2) + 10.0;
    (left, width - left - 12.0)
}

/// Steps below what is drawn.
pub(super) fn steps(scene: &mut Scene, steps: usize, (left, room): (f64, f64)) {
    let end = steps as f64;
    for mark in axis::counts(0.0, end, (room / 80.0) as usize) {
        let at = (left + mark.at / end * room, scene.height + 8.0);
        scene.text(at, Anchor::Middle, Style::Tint(Tint::Faint), &mark.text);
    }
    scene.height += 16.0;
}

fn rows(scene: &mut Scene, band: &Band, cells: &Cells, (left, room): (f64, f64)) {
    let height = if cells.rows.len() <= NAMED { ROW } else { THIN_ROW };
    let whole = height * cells.rows.len() as f64;
    scene.rect((left, scene.height), (room, whole), Style::Frame, "");
    let wide = room / cells.columns.len().max(1) as f64;
    // Of many rows those are named that have room for it.
    let every = if cells.rows.len() <= NAMED { 1 } else { 2 };
    for (index, row) in cells.rows.iter().enumerate() {
        let top = scene.height + index as f64 * height;
        if index % every == 0 {
            let name = within(&row.label, left - 6.0);
            let base = top + height.min(12.0) - 1.0;
            scene.text((left - 6.0, base), Anchor::End, Style::Tint(Tint::Faint), &name);
        }
        let mut at = 0;
        for run in row.places.chunk_by(|one, other| one == other) {
            let (first, last) = (at, at + run.len() - 1);
            at += run.len();
            let place = run[0];
            if place == Place::Host {
                continue;
            }
            // What several chunks and steps share is told below.
            let title = if cells.are_single() {
                title(&row.label, place, band, (first, last))
            } else {
                String::new()
            };
            let (x, size) = (left + first as f64 * wide, (run.len() as f64 * wide, height - 1.0));
            scene.rect((x, top), size, Style::Tint(tint(place, band.is_gradients)), &title);
        }
    }
    scene.height += whole;
}

fn title(label: &str, place: Place, band: &Band, (first, last): (usize, usize)) -> String {
    let what = if band.is_gradients { "gradients of " } else { "" };
    let steps = if first == last { format!("step {first}") } else { format!("steps {first} to {last}") };
    format!("{what}{label}: {}, {steps} (planned)", place.name())
}

fn tint(place: Place, is_gradients: bool) -> Tint {
    match place {
        Place::Host => Tint::Faint,
        Place::Coming => Tint::Back,
        Place::Leaving => Tint::Out,
        Place::There if is_gradients => Tint::Gradients,
        Place::There => Tint::Resident,
        Place::ForGood => Tint::Kept,
    }
}
