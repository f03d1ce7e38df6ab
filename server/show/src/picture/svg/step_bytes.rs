//! What the device of a plan in chunks holds over the steps of an iteration: two areas below the line of the capacity, and
//! a line for what was measured.

use super::notes::{legend, lines, within};
use super::residency::{across, steps};
use super::scene::{Anchor, Scene, Shape, Style};
use super::timeline::{area, stairs};
use crate::picture::axis;
use crate::picture::figure::step_bytes::{DeviceBytes, StepBytes};
use crate::picture::tint::Tint;
use crate::text::bytes;

/// Height of the chart.
const HEIGHT: f64 = 140.0;
/// Room above it for what it says.
const CAPTION: f64 = 30.0;
/// Pixels of the narrowest column.
const PIECE: f64 = 2.0;

pub(super) fn draw(of: &StepBytes, width: f64) -> Scene {
    let mut scene = Scene::new(width);
    let faint = Style::Tint(Tint::Faint);
    let (left, room) = across(of.names, width);
    scene.text((0.0, 14.0), Anchor::Start, Style::Plain, &within(&of.label, width));
    let top = CAPTION;
    let y = |amount: i64| top + HEIGHT * (1.0 - (amount as f64 / of.scale_bytes as f64).clamp(0.0, 1.0));
    scene.rect((left, top), (room, HEIGHT), Style::Frame, &of.label);
    for mark in axis::bytes(0.0, of.scale_bytes as f64, 4) {
        let y = y(mark.at as i64);
        scene.line((left, y), (left + room, y), faint);
        scene.text((left - 6.0, y + 4.0), Anchor::End, faint, &mark.text);
    }
    let held = of.columns((room / PIECE) as usize);
    let heights =
        |amount: fn(&DeviceBytes) -> i64| held.iter().map(|held| y(amount(held))).collect::<Vec<f64>>();
    let (none, other, both) = (heights(|_| 0), heights(|held| held.other), heights(|held| held.total()));
    let most = |amount: fn(&DeviceBytes) -> i64| bytes(of.held.iter().map(amount).max().unwrap_or(0));
    let told = [
        (Tint::OTHER, (&none, &other), format!("N, besides chunks: at most {}", most(|held| held.other))),
        (Tint::Resident, (&other, &both), format!("R, chunks: at most {}", most(|held| held.chunks))),
    ];
    for (tint, (lower, upper), title) in &told {
        area(&mut scene, (left, room), (lower, upper), *tint, &format!("{title} ({})", of.source));
    }
    if let Some(capacity) = of.capacity_bytes {
        let y = y(capacity);
        scene.line((left, y), (left + room, y), Style::Tint(Tint::Capacity));
    }
    let measured: Vec<f64> = of.measured_columns((room / PIECE) as usize).into_iter().map(y).collect();
    if !measured.is_empty() {
        let points = stairs((left, room), &measured);
        scene.shapes.push(Shape::Path { points, style: Style::Tint(Tint::Measured) });
    }
    scene.height = top + HEIGHT + 8.0;
    steps(&mut scene, of.steps, (left, room));
    let named: Vec<(Tint, String)> =
        told.iter().map(|(tint, _, title)| (*tint, format!("{title} ({})", of.source))).collect();
    let mut entries: Vec<(Tint, &str)> = named.iter().map(|(tint, text)| (*tint, text.as_str())).collect();
    if of.capacity_bytes.is_some() {
        entries.push((Tint::Capacity, "allowed to training"));
    }
    if !of.measured.is_empty() {
        entries.push((Tint::Measured, "measured, both"));
    }
    scene.below(legend(&entries, width));
    let meaning: Vec<String> = of.meaning(held.len()).into_iter().collect();
    scene.below(lines(&meaning, "", width));
    scene
}
