//! The front: memory across, time up, a disc per plan.

use super::notes::{width_of, within};
use super::scene::{Anchor, Scene, Shape, Style};
use crate::picture::axis;
use crate::picture::figure::front::{Front, Point};
use crate::picture::tint::Tint;

/// Height of the plot.
const HEIGHT: f64 = 340.0;

pub(super) fn draw(front: &Front, width: f64) -> Scene {
    let mut scene = Scene::new(width);
    let (low_bytes, high_bytes) = front.bytes_range();
    let (low_seconds, high_seconds) = front.seconds_range();
    let marks = axis::seconds(low_seconds, high_seconds, 8);
    let left = marks.iter().map(|mark| width_of(&mark.text)).fold(0.0, f64::max) + 10.0;
    let (top, room) = (22.0, width - left - 30.0);
    let x = |bytes: f64| left + (bytes - low_bytes) / (high_bytes - low_bytes) * room;
    let y = |seconds: f64| top + HEIGHT - (seconds - low_seconds) / (high_seconds - low_seconds) * HEIGHT;

    scene.text((0.0, 12.0), Anchor::Start, Style::Tint(Tint::Faint), front.seconds_axis);
    scene.rect((left, top), (room, HEIGHT), Style::Frame, "");
    for mark in marks {
        scene.line((left, y(mark.at)), (left + room, y(mark.at)), Style::Tint(Tint::Faint));
        scene.text((left - 6.0, y(mark.at) + 4.0), Anchor::End, Style::Tint(Tint::Faint), &mark.text);
    }
    for mark in axis::bytes(low_bytes, high_bytes, (room / 100.0) as usize) {
        scene.line((x(mark.at), top), (x(mark.at), top + HEIGHT), Style::Tint(Tint::Faint));
        scene.text((x(mark.at), top + HEIGHT + 15.0), Anchor::Middle, Style::Tint(Tint::Faint), &mark.text);
    }
    scene.text(
        (left + room / 2.0, top + HEIGHT + 32.0),
        Anchor::Middle,
        Style::Tint(Tint::Faint),
        &front.bytes_axis,
    );

    // Between two plans of the front nothing is possible but the slower one's time: a staircase.
    let mut points: Vec<&Point> = front.points.iter().collect();
    points.sort_by(|a, b| a.bytes.total_cmp(&b.bytes).then(b.seconds.total_cmp(&a.seconds)));
    let mut stairs: Vec<(f64, f64)> = Vec::new();
    for point in &points {
        let (px, py) = (x(point.bytes), y(point.seconds));
        stairs.extend(stairs.last().map(|&(_, before)| (px, before)));
        stairs.push((px, py));
    }
    scene.shapes.push(Shape::Path { points: stairs, style: Style::Tint(Tint::Point) });
    // The plan itself last, so that nothing hides it.
    points.sort_by_key(|point| point.chosen);
    for point in points {
        let (tint, radius) = if point.chosen { (Tint::Chosen, 7.0) } else { (Tint::Point, 4.5) };
        let (x, y, style) = (x(point.bytes), y(point.seconds), Style::Tint(tint));
        scene.shapes.push(Shape::Disc { x, y, radius, style, title: point.title.clone() });
    }
    let bottom = top + HEIGHT + 52.0;
    if let Some(point) = front.points.iter().find(|point| point.chosen) {
        let (style, title) = (Style::Tint(Tint::Chosen), String::new());
        scene.shapes.push(Shape::Disc { x: left + 6.0, y: bottom - 4.0, radius: 5.0, style, title });
        let text = within(&format!("this plan: {}", point.title), room - 18.0);
        scene.text((left + 18.0, bottom), Anchor::Start, Style::Plain, &text);
    }
    scene.height = bottom + 8.0;
    scene
}
