//! One iteration: a lane per stage over a common axis of seconds.

use super::notes::{legend, width_of, width_of_cells, within};
use super::scene::{Anchor, Scene, Style};
use crate::output::picture::axis;
use crate::output::picture::figure::schedule::{Kind, Pass, Row, Schedule, columns};
use crate::output::picture::tint::Tint;

const LANE: f64 = 22.0;
/// Height of a lane with the space below it.
const ROW: f64 = 28.0;
/// Passes that are drawn one by one, over all lanes; of more, each piece of time shows what takes most of it.
const ONE_BY_ONE: usize = 3_000;
/// Pixels of a piece of time.
const PIECE: f64 = 2.0;

pub(super) fn draw(schedule: &Schedule, width: f64) -> Scene {
    let mut scene = Scene::new(width);
    let (names, busy) = schedule.columns;
    let (names, busy) = (width_of_cells(names).min(width * 0.2), width_of_cells(busy).min(width * 0.2));
    let left = names + 10.0;
    let room = width - left - busy - 12.0;
    let scale = room / schedule.end_seconds;
    let bottom = schedule.lanes.len() as f64 * ROW;
    for mark in axis::seconds(0.0, schedule.end_seconds, (room / 80.0) as usize) {
        let x = left + mark.at * scale;
        scene.line((x, 0.0), (x, bottom), Style::Tint(Tint::Faint));
        scene.text((x, bottom + 13.0), Anchor::Middle, Style::Tint(Tint::Faint), &mark.text);
    }
    let passes: usize = schedule.lanes.iter().map(|lane| lane.passes.len()).sum();
    for (row, lane) in schedule.lanes.iter().enumerate() {
        let y = row as f64 * ROW + 3.0;
        scene.text((names, y + 15.0), Anchor::End, Style::Plain, &within(&lane.label, names));
        if lane.title.is_empty() {
            continue;
        }
        scene.rect((left, y), (schedule.iteration_seconds * scale, LANE), Style::Frame, &lane.title);
        if passes <= ONE_BY_ONE {
            lane.passes.iter().for_each(|pass| one(&mut scene, pass, (left, y), scale));
        } else {
            pieces(&mut scene, lane, schedule.end_seconds, (left, y), room);
        }
        scene.text((left + room + 12.0, y + 15.0), Anchor::Start, Style::Plain, &lane.busy);
    }
    scene.height = bottom + 20.0;
    let mut entries: Vec<(Tint, &str)> = Kind::ALL.map(|kind| (tint(kind, 0), kind.name())).into();
    if passes <= ONE_BY_ONE && schedule.lanes.iter().flat_map(|lane| &lane.passes).any(|pass| pass.chunk > 0)
    {
        entries.push((Tint::ForwardLater, "forward, later chunk of layers"));
        entries.push((Tint::BackwardLater, "backward, later chunk of layers"));
    }
    scene.below(legend(&entries, width));
    if passes > ONE_BY_ONE {
        let note = format!("{passes} passes: each piece of the axis shows what takes most of its time");
        scene.below(super::notes::lines(&[note], "", width));
    }
    scene
}

fn tint(kind: Kind, chunk: i32) -> Tint {
    match kind {
        Kind::Forward if chunk > 0 => Tint::ForwardLater,
        Kind::Backward if chunk > 0 => Tint::BackwardLater,
        Kind::Forward => Tint::Forward,
        Kind::Backward => Tint::Backward,
        Kind::Step => Tint::Step,
    }
}

fn one(scene: &mut Scene, pass: &Pass, (left, y): (f64, f64), scale: f64) {
    let (from, wide) = (pass.start * scale, (pass.end - pass.start) * scale);
    // A hair of space keeps passes that follow each other apart.
    let drawn = if wide > 3.0 { wide - 0.6 } else { wide };
    scene.rect((left + from, y), (drawn, LANE), Style::Tint(tint(pass.kind, pass.chunk)), &pass.title());
    let number = pass.micro_batch.to_string();
    if pass.kind != Kind::Step && width_of(&number) < wide {
        scene.text((left + from + wide / 2.0, y + 15.0), Anchor::Middle, Style::OnColourSmall, &number);
    }
}

fn pieces(scene: &mut Scene, lane: &Row, end: f64, (left, y): (f64, f64), room: f64) {
    let kinds = columns(&lane.passes, end, (room / PIECE) as usize);
    let mut at = 0;
    for run in kinds.chunk_by(|a, b| a == b) {
        if let Some(Some(kind)) = run.first() {
            let (x, wide) = (left + at as f64 * PIECE, run.len() as f64 * PIECE);
            scene.rect((x, y), (wide, LANE), Style::Tint(tint(*kind, 0)), "");
        }
        at += run.len();
    }
}
