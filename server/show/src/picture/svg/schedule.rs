//! One iteration: a lane per stage over a common axis of seconds.

use super::notes::{legend, width_of, width_of_cells, within};
use super::scene::{Anchor, Rectangle, Scene, Style};
use crate::picture::axis;
use crate::picture::figure::pass::{EVER, Kind, MOSTLY, Pass, columns};
use crate::picture::figure::schedule::{Schedule, ScheduleRow};
use crate::picture::tint::Tint;

const LANE: f64 = 22.0;
/// Height of a lane with the space below it.
const ROW: f64 = 28.0;
/// The same of copies.
const THIN_LANE: f64 = 10.0;
const THIN_ROW: f64 = 15.0;
/// Passes that are drawn one by one, over all lanes; of more, each piece of time shows what takes most of it. They are most of the
/// bytes of a page, which is to come soon.
const ONE_BY_ONE: usize = 512;
/// Pixels of a piece of time, at least, and most of them over all lanes.
const PIECE: f64 = 2.0;
const MOST_PIECES: usize = 4_000;

pub(super) fn draw(schedule: &Schedule, width: f64) -> Scene {
    let mut scene = Scene::new(width);
    let (names, busy) = schedule.columns;
    let (names, busy) = (width_of_cells(names).min(width * 0.2), width_of_cells(busy).min(width * 0.25));
    let left = names + 10.0;
    let room = width - left - busy - 12.0;
    let scale = room / schedule.end_seconds;
    let bottom: f64 = schedule.lanes.iter().map(|lane| heights(lane).1).sum();
    for mark in axis::seconds(0.0, schedule.end_seconds, (room / 80.0) as usize) {
        let x = left + mark.at * scale;
        scene.line((x, 0.0), (x, bottom), Style::Tint(Tint::Faint));
        scene.text((x, bottom + 13.0), Anchor::Middle, Style::Tint(Tint::Faint), &mark.text);
    }
    let passes: usize = schedule.lanes.iter().map(|lane| lane.passes.len()).sum();
    let mut top = 0.0;
    for lane in &schedule.lanes {
        let (height, row) = heights(lane);
        let y = top + 3.0;
        top += row;
        let (base, style) =
            if lane.is_of_copies { (y + 9.0, Style::Tint(Tint::Faint)) } else { (y + 15.0, Style::Plain) };
        scene.text((names, base), Anchor::End, style, &within(lane.label.trim_start(), names));
        if lane.title.is_empty() {
            continue;
        }
        scene.rect((left, y), (schedule.iteration_seconds * scale, height), Style::Frame, &lane.title);
        if passes <= ONE_BY_ONE {
            lane.passes.iter().for_each(|pass| one(&mut scene, pass, (left, y), height, scale));
        } else {
            let most = (MOST_PIECES / schedule.lanes.len()).clamp(1, ((room / PIECE) as usize).max(1));
            pieces(&mut scene, lane, (schedule.end_seconds, most), (left, y), room);
        }
        scene.text((left + room + 12.0, base), Anchor::Start, style, &lane.busy);
    }
    scene.height = bottom + 20.0;
    let mut entries: Vec<(Tint, &str)> =
        schedule.kinds().into_iter().map(|kind| (tint(kind, 0), kind.name())).collect();
    if passes <= ONE_BY_ONE && schedule.lanes.iter().flat_map(|lane| &lane.passes).any(|pass| pass.chunk > 0)
    {
        entries.push((Tint::ForwardLater, "forward, later chunk of layers"));
        entries.push((Tint::BackwardLater, "backward, later chunk of layers"));
    }
    scene.below(legend(&entries, width));
    if passes > ONE_BY_ONE {
        let note = format!(
            "{passes} passes: each segment of the axis shows the work that takes most of the segment"
        );
        scene.below(super::notes::lines(&[note], "", width));
    }
    scene
}

/// Height of a lane, and with the space below it.
fn heights(lane: &ScheduleRow) -> (f64, f64) {
    if lane.is_of_copies { (THIN_LANE, THIN_ROW) } else { (LANE, ROW) }
}

fn tint(kind: Kind, chunk: i32) -> Tint {
    match kind {
        Kind::Forward if chunk > 0 => Tint::ForwardLater,
        Kind::Backward if chunk > 0 => Tint::BackwardLater,
        Kind::Forward => Tint::Forward,
        Kind::Backward => Tint::Backward,
        Kind::Again => Tint::ForwardLater,
        Kind::Step => Tint::Step,
        Kind::Exchange => Tint::Exchange,
        Kind::Wait => Tint::Wait,
        Kind::Out => Tint::Out,
        Kind::Back => Tint::Back,
    }
}

fn one(scene: &mut Scene, pass: &Pass, (left, y): (f64, f64), height: f64, scale: f64) {
    let (from, mut wide) = (pass.start * scale, (pass.end - pass.start) * scale);
    if matches!(pass.kind, Kind::Out | Kind::Back) {
        // However short: that something is copied there matters most.
        wide = wide.max(1.0);
    }
    // A hair of space keeps passes that follow each other apart.
    let drawn = if wide > 3.0 { wide - 0.6 } else { wide };
    scene.rect((left + from, y), (drawn, height), Style::Tint(tint(pass.kind, pass.chunk)), &pass.title());
    let number = pass.micro_batch.to_string();
    if matches!(pass.kind, Kind::Forward | Kind::Backward) && !pass.goes_on && width_of(&number) < wide {
        scene.text((left + from + wide / 2.0, y + 15.0), Anchor::Middle, Style::OnColourSmall, &number);
    }
}

/// Of each of so many pieces of time what takes most of it, or ever copies: all of a kind are one shape.
fn pieces(
    scene: &mut Scene,
    lane: &ScheduleRow,
    (end, count): (f64, usize),
    (left, y): (f64, f64),
    room: f64,
) {
    let share = if lane.is_of_copies { EVER } else { MOSTLY };
    let kinds = columns(&lane.passes, end, count, share);
    let piece = room / count as f64;
    let mut shapes: Vec<(Kind, Vec<Rectangle>)> = Vec::new();
    let mut at = 0;
    for run in kinds.chunk_by(|a, b| a == b) {
        if let Some(&Some(kind)) = run.first() {
            let (x, width) = (left + at as f64 * piece, run.len() as f64 * piece);
            let bar = Rectangle { x, y, width, height: heights(lane).0 };
            match shapes.iter_mut().find(|(of, _)| *of == kind) {
                Some((_, bars)) => bars.push(bar),
                None => shapes.push((kind, vec![bar])),
            }
        }
        at += run.len();
    }
    shapes.into_iter().for_each(|(kind, bars)| scene.bars(bars, Style::Tint(tint(kind, 0))));
}
