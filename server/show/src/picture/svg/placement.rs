//! The stages on the devices: nodes as boxes, devices as squares in them, and a line per stage.

use super::notes::{lines, width_of, within};
use super::scene::{Anchor, Scene, Style};
use crate::picture::figure::placement::{NodeBox, Placement, StageNote};
use crate::picture::tint::Tint;

/// Height of a device.
const DEVICE: f64 = 34.0;
/// Space between devices, and between a box and what is in it.
const SPACE: f64 = 4.0;
/// Height of a box's title.
const TITLE: f64 = 20.0;

pub(super) fn draw(placement: &Placement, width: f64) -> Scene {
    let mut scene = Scene::new(width);
    let labels = placement.boxes.iter().flat_map(|node| &node.cells).map(|cell| width_of(&cell.label));
    // Devices of all nodes have one width, so that nodes can be compared.
    let device = (labels.fold(24.0_f64, f64::max) + 5.0).min(width - 2.0 * SPACE);
    let (mut x, mut y, mut tallest) = (0.0, 0.0, 0.0_f64);
    for node in &placement.boxes {
        let drawn = one(node, device, width);
        if x > 0.0 && x + drawn.width > width {
            x = 0.0;
            y += tallest + 10.0;
            tallest = 0.0;
        }
        tallest = tallest.max(drawn.height);
        let wide = drawn.width;
        scene.beside(drawn, x, y);
        x += wide + 10.0;
    }
    scene.height += 8.0;
    let labels = "labels: stage, r = replica, t = tensor shard, ×n = n devices drawn as one, # = index";
    scene.below(lines(&[labels.to_owned()], "", width));
    scene.height += 3.0;
    scene.below(stages(&placement.stages, width));
    scene
}

fn one(node: &NodeBox, device: f64, width: f64) -> Scene {
    let per_row = (((width - SPACE) / (device + SPACE)) as usize).clamp(1, 8);
    let columns = node.cells.len().clamp(1, per_row);
    let title =
        if node.kind.is_empty() { node.name.clone() } else { format!("{} · {}", node.name, node.kind) };
    let wide = (columns as f64 * (device + SPACE) + SPACE).max(width_of(&title) + 2.0 * SPACE).min(width);
    let rows = node.cells.len().div_ceil(per_row);
    let mut scene = Scene::new(wide);
    scene.height = TITLE + rows as f64 * (DEVICE + SPACE) + SPACE;
    let height = scene.height;
    scene.rect((0.0, 0.0), (wide, height), Style::Frame, &title);
    scene.text((SPACE, 15.0), Anchor::Start, Style::Plain, &within(&title, wide - 2.0 * SPACE));
    for (index, cell) in node.cells.iter().enumerate() {
        let (row, column) = (index / per_row, index % per_row);
        let x = SPACE + column as f64 * (device + SPACE);
        let y = TITLE + SPACE + row as f64 * (DEVICE + SPACE);
        scene.rect((x, y), (device, DEVICE), Style::Tint(Tint::Stage(cell.stage)), &cell.title);
        let (label, middle) = (within(&cell.label, device), x + device / 2.0);
        let base = if cell.index.is_empty() { y + DEVICE / 2.0 + 4.0 } else { y + 16.0 };
        scene.text((middle, base), Anchor::Middle, Style::OnColour, &label);
        if !cell.index.is_empty() {
            let index = within(&cell.index, device);
            scene.text((middle, y + 28.0), Anchor::Middle, Style::OnColourSmall, &index);
        }
    }
    scene
}

/// A square, layers, how they are shared, where: in columns.
fn stages(notes: &[StageNote], width: f64) -> Scene {
    const LINE: f64 = 20.0;
    let mut scene = Scene::new(width);
    let widest = |of: fn(&StageNote) -> &str, most: f64| {
        notes.iter().map(|note| width_of(of(note))).fold(0.0, f64::max).min(most)
    };
    let layers = widest(|note| &note.layers, width * 0.4);
    let sharing = widest(|note| &note.sharing, width * 0.25);
    for note in notes {
        let y = scene.height + 14.0;
        match note.stage {
            Some(stage) => {
                scene.rect((0.0, y - 11.0), (30.0, 15.0), Style::Tint(Tint::Stage(stage)), "");
                scene.text((15.0, y), Anchor::Middle, Style::OnColour, &stage.to_string());
                let mut x = 40.0;
                scene.text((x, y), Anchor::Start, Style::Plain, &within(&note.layers, layers));
                x += layers + 16.0;
                scene.text((x, y), Anchor::Start, Style::Plain, &within(&note.sharing, sharing));
                x += sharing + 16.0;
                let mut place = note.devices.clone();
                if !note.recompute.is_empty() {
                    place.push_str(&format!(", recomputes {}", note.recompute));
                }
                scene.text((x, y), Anchor::Start, Style::Plain, &within(&place, width - x));
            }
            None => scene.text((40.0, y), Anchor::Start, Style::Tint(Tint::Faint), &note.layers),
        }
        scene.height += LINE;
    }
    scene
}
