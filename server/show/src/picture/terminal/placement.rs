//! The stages on the devices as text: a box per node, and a line per stage.

use super::line::Line;
use crate::picture::figure::placement::{NodeBox, Placement, PlacementCell, StageNote};
use crate::picture::tint::Tint;
use crate::text::label::{cells, column, fit};
use crate::text::terminal_abilities::Look;

/// Characters of a box: corners clockwise from the top left, then horizontal and vertical.
fn frame(look: Look) -> [&'static str; 6] {
    if look.unicode { ["┌", "┐", "┘", "└", "─", "│"] } else { ["+", "+", "+", "+", "-", "|"] }
}

pub(super) fn draw(placement: &Placement, width: usize, look: Look) -> Vec<Line> {
    let mut lines: Vec<Line> = shelves(&placement.boxes, width, look);
    let legend = if look.unicode {
        "labels: stage · r = replica · t = tensor shard · ×n = n devices"
    } else {
        "labels: stage, r = replica, t = tensor shard, xn = n devices"
    };
    lines.push(Line::all(legend, Tint::Faint));
    lines.extend(stages(&placement.stages, look));
    lines
}

/// The boxes, next to each other where they fit.
fn shelves(boxes: &[NodeBox], width: usize, look: Look) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut shelf: Vec<Vec<Line>> = Vec::new();
    let mut used = 0;
    for node in boxes {
        let drawn = one(node, width, look);
        let wide = drawn.first().map_or(0, Line::cells);
        if !shelf.is_empty() && used + 1 + wide > width {
            put(&mut lines, std::mem::take(&mut shelf));
            used = 0;
        }
        used += wide + usize::from(used > 0);
        shelf.push(drawn);
    }
    put(&mut lines, shelf);
    lines
}

/// Puts boxes side by side.
fn put(lines: &mut Vec<Line>, shelf: Vec<Vec<Line>>) {
    let height = shelf.iter().map(Vec::len).max().unwrap_or(0);
    for row in 0..height {
        let mut line = Line::default();
        let mut begin = 0;
        for (index, drawn) in shelf.iter().enumerate() {
            if index > 0 {
                begin += 1;
            }
            line.pad(begin);
            if let Some(part) = drawn.get(row) {
                line.append(part.clone());
            }
            begin += drawn.first().map_or(0, Line::cells);
        }
        lines.push(line);
    }
}

/// One box: a title in its upper edge, and the devices in rows.
fn one(node: &NodeBox, width: usize, look: Look) -> Vec<Line> {
    let [top_left, top_right, bottom_right, bottom_left, across, down] = frame(look);
    let inner_most = width.saturating_sub(4);
    let cell = node.cells.iter().map(|cell| cells(&cell.label)).max().unwrap_or(1).min(inner_most);
    let per_row = ((inner_most + 1) / (cell + 1)).max(1);
    let rows: Vec<&[PlacementCell]> = node.cells.chunks(per_row).collect();
    let widest = rows.iter().map(|row| row.len() * (cell + 1) - 1).max().unwrap_or(0);
    let title = [node.name.as_str(), node.kind.as_str()].into_iter().filter(|part| !part.is_empty());
    let title = title.collect::<Vec<_>>().join(&format!(" {} ", look.dot()));
    let inner = widest.max((cells(&title) + 2).min(inner_most));
    let title = fit(&title, inner.saturating_sub(1), look);

    let mut top = Line::plain(format!("{top_left}{across} "));
    top.tinted(title.clone(), Tint::Strong);
    let rest = (inner + 2).saturating_sub(3 + cells(&title)).max(1);
    top.text(format!(" {}{top_right}", across.repeat(rest)));
    let mut lines = vec![top];
    for row in rows {
        let mut line = Line::plain(format!("{down} "));
        for (index, device) in row.iter().enumerate() {
            if index > 0 {
                line.text(" ");
            }
            line.tinted(column(&device.label, cell, look), Tint::Stage(device.stage));
        }
        line.pad(inner + 3);
        line.text(down);
        lines.push(line);
    }
    lines.push(Line::plain(format!("{bottom_left}{}{bottom_right}", across.repeat(inner + 2))));
    lines
}

fn stages(notes: &[StageNote], look: Look) -> Vec<Line> {
    let widest = |of: fn(&StageNote) -> &str, most: usize| {
        notes
            .iter()
            .filter(|note| note.stage.is_some())
            .map(|note| cells(of(note)))
            .max()
            .unwrap_or(0)
            .min(most)
    };
    let layers = widest(|note| &note.layers, 40);
    let sharing = widest(|note| &note.sharing, 24);
    let line = |note: &StageNote| {
        let Some(stage) = note.stage else {
            return Line::all(format!("       {}", note.layers), Tint::Faint);
        };
        let mut line = Line::plain("stage ");
        line.tinted(format!("{stage:>3}"), Tint::Stage(stage));
        line.text(format!(
            "  {}  {}  {}",
            column(&note.layers, layers, look),
            column(&note.sharing, sharing, look),
            note.devices
        ));
        if !note.recompute.is_empty() {
            line.text(format!(", recomputes {}", note.recompute));
        }
        line
    };
    notes.iter().map(line).collect()
}
