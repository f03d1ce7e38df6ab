//! Pictures as SVG: shapes laid out on a plane, then written down.

pub mod errors;
mod front;
mod memory;
mod notes;
mod placement;
mod residency;
mod scene;
mod schedule;
mod step_bytes;
mod table;
mod timeline;
mod write;

use super::figure::Figure;
use super::sheet::{Block, Sheet};
use super::tint::Tint;
use super::xml::Xml;
use scene::{Anchor, Scene, Style};

pub(super) use write::rules;

/// Width of a picture.
const WIDTH: f64 = 960.0;
/// Width of each of several pictures side by side.
const COLUMN: f64 = 640.0;
/// Width of a picture on a phone.
const NARROW: f64 = 360.0;
/// Space between pictures.
const GAP: f64 = 28.0;

/// All pictures of a sheet, one below the other; those of several plans side by side. Tables about single
/// plans are left to pages.
pub fn render(sheet: &Sheet) -> String {
    let mut page = Scene::new(WIDTH);
    page.text((0.0, 16.0), Anchor::Start, Style::Heading, &sheet.title);
    page.height = 24.0;
    page.below(notes::lines(&sheet.headline, "", page.width));
    page.below(notes::lines(&sheet.contradictions, "", page.width));
    for block in sheet.blocks.iter().filter(|block| !block.file_only) {
        page.height += GAP;
        page.below(self::block(block));
    }
    if !sheet.warnings.is_empty() {
        page.height += GAP;
        let width = page.width;
        page.below(notes::lines(&sheet.warnings, "", width));
    }
    write::standalone(page, &sheet.title)
}

/// Writes one picture into a page, for screens and for phones; narrower where there are several beside it.
pub(super) fn inline(xml: &mut Xml, figure: &Figure, title: &str, has_neighbours: bool) {
    let width = if has_neighbours { COLUMN } else { WIDTH };
    write::inline(xml, &draw(figure, width), title, "drawn wide");
    write::inline(xml, &draw(figure, NARROW), title, "drawn narrow");
}

fn block(block: &Block) -> Scene {
    let several = block.figures.len() > 1;
    let width = if several { COLUMN } else { WIDTH };
    let mut scene = Scene::new(0.0);
    scene.text((0.0, 14.0), Anchor::Start, Style::Heading, block.title);
    scene.height = 22.0;
    let top = scene.height;
    for (column, (plan, figure)) in block.figures.iter().enumerate() {
        let mut one = Scene::new(width);
        for caption in [plan.as_str(), figure.summary()].into_iter().filter(|caption| !caption.is_empty()) {
            let text = notes::within(caption, width);
            one.text((0.0, one.height + 14.0), Anchor::Start, Style::Tint(Tint::Strong), &text);
            one.height += 22.0;
        }
        one.below(draw(figure, width));
        one.height += 4.0;
        one.below(notes::lines(figure.notes(), "", width));
        scene.beside(one, column as f64 * (width + GAP), top);
    }
    scene
}

fn draw(figure: &Figure, width: f64) -> Scene {
    match figure {
        Figure::Placement(placement) => placement::draw(placement, width),
        Figure::Memory(memory) => memory::draw(memory, width),
        Figure::Schedule(schedule) => schedule::draw(schedule, width),
        Figure::MemoryTimeline(over_time) => timeline::draw(over_time, width),
        Figure::Residency(residency) => residency::draw(residency, width),
        Figure::StepBytes(step_bytes) => step_bytes::draw(step_bytes, width),
        Figure::Front(front) => front::draw(front, width),
        Figure::Table(table) => table::draw(table, width),
    }
}
