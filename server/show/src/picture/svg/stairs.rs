//! Bytes over time or steps as staircases.

use super::scene::{Scene, Shape, Style};
use crate::picture::tint::Tint;

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
