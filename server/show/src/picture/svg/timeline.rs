//! What devices hold over time: stacked areas and stairs below the line of the capacity, and a strip for each pool.

use super::notes::{legend, width_of_cells, within};
use super::scene::{Anchor, Scene, Shape, Style};
use crate::picture::axis;
use crate::picture::figure::timeline::{Chart, Level, MemoryTimeline, POOLS};
use crate::picture::tint::Tint;
use crate::text::bytes;

/// Height of a chart, and of the strip of a pool.
const HEIGHT: f64 = 96.0;
const STRIP: f64 = 18.0;
/// Room above a chart for what it says.
const CAPTION: f64 = 30.0;
/// Pixels of a piece of time.
const PIECE: f64 = 2.0;

pub(super) fn draw(over_time: &MemoryTimeline, width: f64) -> Scene {
    let mut scene = Scene::new(width);
    let (names, beside) = over_time.columns;
    let left = width_of_cells(names.max(over_time.widest())).min(width * 0.2) + 10.0;
    let room = width - left - width_of_cells(beside).min(width * 0.2) - 12.0;
    for chart in &over_time.charts {
        let caption = within(&chart.label, width);
        scene.text((0.0, scene.height + 14.0), Anchor::Start, Style::Plain, &caption);
        scene.height += CAPTION;
        let top = scene.height;
        one(&mut scene, chart, over_time, (left, top), room);
        scene.height += 8.0;
    }
    for mark in axis::seconds(0.0, over_time.end_seconds, (room / 80.0) as usize) {
        let at = (left + mark.at / over_time.end_seconds * room, scene.height + 8.0);
        scene.text(at, Anchor::Middle, Style::Tint(Tint::Faint), &mark.text);
    }
    scene.height += 16.0;
    let mut entries: Vec<(Tint, &str)> =
        over_time.parts.iter().map(|&(place, _, name)| (Tint::Part(place), name)).collect();
    if over_time.charts.iter().any(|chart| over_time.shown_capacity(chart).is_some()) {
        entries.push((Tint::Capacity, "allowed to training"));
    }
    let used = |pool: usize| over_time.charts.iter().any(|chart| chart.pools[pool] > 0);
    if used(0) || used(1) {
        let text =
            "in host: blocks of this stage in CPU memory; hosted: blocks of other stages on this device";
        entries.push((Tint::Out, text));
    }
    scene.below(legend(&entries, width));
    scene
}

fn one(scene: &mut Scene, chart: &Chart, over_time: &MemoryTimeline, (left, top): (f64, f64), room: f64) {
    let faint = Style::Tint(Tint::Faint);
    let held = over_time.columns(chart, (room / PIECE) as usize);
    let y = |amount: f64| top + HEIGHT * (1.0 - (amount / over_time.scale_bytes as f64).clamp(0.0, 1.0));
    scene.rect((left, top), (room, HEIGHT), Style::Frame, &chart.label);
    for mark in axis::bytes(0.0, over_time.scale_bytes as f64, 3) {
        scene.line((left, y(mark.at)), (left + room, y(mark.at)), faint);
        scene.text((left - 6.0, y(mark.at) + 4.0), Anchor::End, faint, &mark.text);
    }
    let mut below = vec![0_i64; held.len()];
    for &(place, _, name) in &over_time.parts {
        let part =
            |level: &Option<Level>| level.map_or(0, |level| level.parts.get(place).copied().unwrap_or(0));
        let above: Vec<i64> =
            below.iter().zip(&held).map(|(&below, level)| below.saturating_add(part(level))).collect();
        let most = held.iter().map(part).max().unwrap_or(0);
        let title = format!("{name}: at most {} (predicted) · {}", bytes(most), chart.label);
        let ends = |sums: &[i64]| sums.iter().map(|&sum| y(sum as f64)).collect::<Vec<f64>>();
        area(scene, (left, room), (&ends(&below), &ends(&above)), Tint::Part(place), &title);
        below = above;
    }
    if let Some(capacity) = over_time.shown_capacity(chart) {
        let y = y(capacity as f64);
        scene.line((left, y), (left + room, y), Style::Tint(Tint::Capacity));
    }
    scene.height = top + HEIGHT;
    for pool in over_time.pools(chart) {
        let (top, most) = (scene.height + 4.0, chart.pools[pool]);
        let bottom = top + STRIP;
        let level = |level: &Option<Level>| {
            bottom - STRIP * level.map_or(0.0, |level| level.pools[pool] as f64 / most.max(1) as f64)
        };
        let heights: Vec<f64> = held.iter().map(level).collect();
        scene.rect((left, top), (room, STRIP), Style::Frame, "");
        let title = format!("{}: at most {} (predicted)", POOLS[pool], bytes(most));
        area(scene, (left, room), (&vec![bottom; heights.len()], &heights), Tint::Out, &title);
        scene.text((left - 6.0, top + 13.0), Anchor::End, faint, POOLS[pool]);
        scene.height = bottom;
    }
}

/// What lies between two staircases of as many steps; nothing where that is nothing.
pub(super) fn area(
    scene: &mut Scene,
    across: (f64, f64),
    (lower, upper): (&[f64], &[f64]),
    tint: Tint,
    title: &str,
) {
    if lower.iter().zip(upper).all(|(lower, upper)| lower - upper < 0.01) {
        return;
    }
    let points = stairs(across, upper).into_iter().chain(stairs(across, lower).into_iter().rev()).collect();
    scene.shapes.push(Shape::Area { points, style: Style::Tint(tint), title: title.to_owned() });
}

/// The corners of a staircase over so much room.
pub(super) fn stairs((left, room): (f64, f64), heights: &[f64]) -> Vec<(f64, f64)> {
    let step = room / heights.len().max(1) as f64;
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut at = 0;
    for run in heights.chunk_by(|one, other| one == other) {
        points.push((left + at as f64 * step, run[0]));
        at += run.len();
        points.push((left + at as f64 * step, run[0]));
    }
    points
}
