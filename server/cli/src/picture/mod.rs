//! Pictures of plans: the stages on the devices, the memory of the devices, an iteration as a timeline, the
//! front between memory and time; of one plan, or of several side by side.
//!
//! * [`figure`]: what a picture shows, made from messages: values with every text, grouping and omission
//!   decided. Names come from users and workers and are made safe here.
//! * [`sheet`]: the pictures of one page.
//! * [`terminal`], [`svg`], [`html`]: three ways to draw a sheet. All of them pure.
//! * [`mod@file`]: the only part that touches the disk.
//!
//! However large a plan is, a picture stays small: what is equal is drawn as one, what does not fit is left out,
//! and a note says so.

mod axis;
mod figure;
pub(super) mod file;
mod html;
mod label;
pub(super) mod sheet;
mod svg;
pub(super) mod terminal;
mod tint;
mod xml;

use loadmaster_proto::wire::v1::{ComparePlansResponse, Plan};

pub(super) use label::fit;

use super::look::Look;
use sheet::{Sheet, Which};

/// The devices of each stage in few words, `node0/0–3`; nothing where the plan is for devices without a cluster.
pub(super) fn devices_of_stages(plan: &Plan, look: Look) -> Option<Vec<String>> {
    let (all, _) = figure::devices::of(plan);
    if all.iter().all(|device| device.node.is_empty()) {
        return None;
    }
    let mut texts = vec![String::new(); plan.stages.len()];
    for run in all.chunk_by(|a, b| a.stage == b.stage) {
        if let Some(text) = run.first().and_then(|first| texts.get_mut(first.stage)) {
            *text = figure::devices::names(run, look);
        }
    }
    Some(texts)
}

/// What files are drawn with: they can show all characters.
pub(super) const FILE_LOOK: Look = svg::LOOK;

/// The table of a comparison, without pictures, as wide as a table may be.
pub(super) fn of_comparison(answer: &ComparePlansResponse, look: Look) -> String {
    let width = look.width.unwrap_or(terminal::WIDEST);
    terminal::render(&Sheet::of_comparison(answer, Which::NONE, look), width, look)
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;
