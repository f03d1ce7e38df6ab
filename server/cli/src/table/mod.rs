//! Messages as text for people. Pure: a message in, a string out.
//!
//! Every byte count names its unit, and its cell, header or footnote names ledger and source: numbers
//! of different ledgers must never look comparable.

mod bar;
pub(super) mod cluster;
mod components;
pub(super) mod contradiction;
mod disturbed;
pub(super) mod grid;
pub(super) mod measurement;
pub(super) mod model;
pub(super) mod observation;
pub(super) mod operation;
pub(super) mod parts;
pub(super) mod plan;
pub(super) mod plans;
pub(super) mod prediction;
pub(super) mod prediction_errors;
pub(super) mod profile;
pub(super) mod recommendation;
pub(super) mod run;
mod stack;
mod training;
pub(super) mod trial;
pub(super) mod worker;

use loadmaster_proto::wire::v1::{Ledger, MemoryFigure};

use super::text::{bytes, word};

/// `text`, or nothing to see.
fn or_none(text: &str, look: super::look::Look) -> String {
    if text.is_empty() { look.none().to_owned() } else { super::text::plain(text) }
}

/// The id of a resource name.
fn id(name: &str) -> String {
    super::text::plain(name.rsplit('/').next().unwrap_or(name))
}

/// A ledger in one word.
pub(super) fn ledger(ledger: i32) -> String {
    match Ledger::try_from(ledger) {
        Ok(Ledger::Unspecified) | Err(_) => "unknown".to_owned(),
        Ok(known) => word(known.as_str_name(), "LEDGER_"),
    }
}

/// The ledger that all figures share, if there is one.
pub(super) fn common_ledger<'a>(figures: impl IntoIterator<Item = &'a MemoryFigure>) -> Option<i32> {
    let mut ledgers = figures.into_iter().map(|figure| figure.ledger);
    let first = ledgers.next()?;
    ledgers.all(|ledger| ledger == first).then_some(first)
}

/// The bytes of a figure, with its ledger unless all around it is of `common`.
fn figure(figure: &MemoryFigure, common: Option<i32>) -> String {
    if common == Some(figure.ledger) {
        bytes(figure.bytes)
    } else {
        format!("{} {}", bytes(figure.bytes), ledger(figure.ledger))
    }
}
