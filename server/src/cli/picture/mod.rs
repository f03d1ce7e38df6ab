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

use loadmaster_proto::wire::v1::ComparePlansResponse;

use super::look::Look;
use sheet::{Sheet, Which};

/// What files are drawn with: they can show all characters.
pub(super) const FILE_LOOK: Look = svg::LOOK;

/// The table of a comparison, without pictures, as wide as a table may be.
pub(super) fn of_comparison(answer: &ComparePlansResponse, look: Look) -> String {
    terminal::render(&Sheet::of_comparison(answer, Which::NONE, look), terminal::WIDEST, look)
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;
