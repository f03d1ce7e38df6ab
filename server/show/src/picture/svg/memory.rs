//! The memory of the devices: a stacked bar per device, with its capacity and what was measured.

use super::notes::{legend, width_of_cells, within};
use super::scene::{Anchor, Scene, Style};
use crate::picture::axis;
use crate::picture::figure::memory::{DeviceBar, Memory};
use crate::picture::tint::Tint;
use crate::text::bytes;

const BAR: f64 = 18.0;
/// Height of a bar with the space below it.
const ROW: f64 = 26.0;

pub(super) fn draw(memory: &Memory, width: f64) -> Scene {
    let mut scene = Scene::new(width);
    let names = width_of_cells(memory.columns.0).min(width * 0.22);
    let amounts = width_of_cells(memory.columns.1).min(width * 0.44);
    let left = names + 10.0;
    let room = width - left - amounts - 12.0;
    let scale = |bytes: f64| (bytes / memory.scale_bytes.max(1) as f64).clamp(0.0, 1.0) * room;
    let bottom = memory.bars.len() as f64 * ROW;

    for mark in axis::bytes(0.0, memory.scale_bytes as f64, (room / 80.0) as usize) {
        let x = left + scale(mark.at);
        scene.line((x, 0.0), (x, bottom), Style::Tint(Tint::Faint));
        scene.text((x, bottom + 13.0), Anchor::Middle, Style::Tint(Tint::Faint), &mark.text);
    }
    scene.text((left + room / 2.0, bottom + 29.0), Anchor::Middle, Style::Tint(Tint::Faint), &memory.axis());
    for (row, bar) in memory.bars.iter().enumerate() {
        let y = row as f64 * ROW + 4.0;
        let name = within(&bar.label, names);
        scene.text((names, y + 13.0), Anchor::End, Style::Plain, &name);
        one(&mut scene, memory, bar, (left, y), &scale);
        scene.text(
            (left + room + 12.0, y + 13.0),
            Anchor::Start,
            Style::Plain,
            &within(&bar.amount, amounts),
        );
    }
    scene.height = bottom + 36.0;
    scene.below(legend(&entries(memory), width));
    scene
}

fn one(
    scene: &mut Scene,
    memory: &Memory,
    bar: &DeviceBar,
    (left, y): (f64, f64),
    scale: &impl Fn(f64) -> f64,
) {
    let capacity = bar.capacity_bytes.map(|capacity| scale(capacity as f64));
    if let Some(capacity) = capacity {
        scene.rect((left, y), (capacity, BAR), Style::Frame, &bar.title);
    }
    let mut sum = 0_i64;
    for &(place, of) in &bar.parts {
        let from = scale(sum as f64);
        sum = sum.saturating_add(of.max(0));
        let part = memory.parts.iter().find(|part| place == Some(part.0));
        let (tint, name) = part.map_or((Tint::Whole, "predicted peak"), |part| (Tint::Part(part.0), part.2));
        let title = format!("{name}: {} (predicted) · {}", bytes(of), bar.title);
        scene.rect((left + from, y), (scale(sum as f64) - from, BAR), Style::Tint(tint), &title);
    }
    if let Some(high) = bar.high_bytes.filter(|&high| high > sum) {
        let (from, to) = (scale(sum as f64), scale(high as f64));
        let title = format!("margin: up to {} (predicted) · {}", bytes(high), bar.title);
        scene.rect((left + from, y), (to - from, BAR), Style::Tint(Tint::Margin), &title);
    }
    let mut mark = |at: f64, tint: Tint| {
        scene.line((left + at, y - 3.0), (left + at, y + BAR + 3.0), Style::Tint(tint));
    };
    if let Some(capacity) = capacity {
        mark(capacity, Tint::Capacity);
    }
    if let Some(measured) = bar.measured_bytes {
        mark(scale(measured as f64), Tint::Measured);
    }
}

fn entries(memory: &Memory) -> Vec<(Tint, &str)> {
    let mut entries: Vec<(Tint, &str)> = Vec::new();
    if memory.has_whole() {
        entries.push((Tint::Whole, "predicted peak"));
    }
    entries.extend(memory.parts.iter().map(|&(place, _, name)| (Tint::Part(place), name)));
    if memory.has_margin {
        entries.push((Tint::Margin, "margin of the prediction"));
    }
    if memory.has_capacity() {
        entries.push((Tint::Capacity, "allowed to training"));
    }
    if memory.has_measured {
        entries.push((Tint::Measured, "highest measured peak of the stage"));
    }
    entries
}
