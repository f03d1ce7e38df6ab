//! Messages as text for people. Pure: a message in, a string out.
//!
//! Every byte count names its unit, and its cell, header or footnote names accounting and source: numbers
//! of different accountings must never look comparable.

mod actions;
pub mod chunked;
mod chunks;
pub mod cluster;
mod components;
pub mod environment;
pub mod export;
pub mod grid;
pub mod history;
mod hosts;
pub mod infeasible;
mod interference;
pub mod measurement;
pub mod model;
pub mod operation;
pub mod parts;
pub mod placement;
pub mod plan;
pub mod prediction;
pub mod prediction_errors;
pub mod profile;
pub mod report;
pub mod run;
mod savings;
pub mod server;
pub(crate) mod training;
pub mod worker;

use std::collections::{BTreeMap, HashMap};

use loadmaster_proto::wire::v1::{MemoryAccounting, MemoryFigure, Verdict};

use crate::text::{bytes, plain, word};

/// `text`, or nothing to see.
fn or_none(text: &str, look: crate::text::terminal_abilities::Look) -> String {
    if text.is_empty() { look.none().to_owned() } else { crate::text::plain(text) }
}

/// The id of a resource name.
fn id(name: &str) -> String {
    crate::text::plain(name.rsplit('/').next().unwrap_or(name))
}

/// `stage=release team=vision`; none without any.
fn labels(of: &HashMap<String, String>) -> Option<String> {
    let of: BTreeMap<&String, &String> = of.iter().collect();
    let texts: Vec<String> =
        of.into_iter().map(|(key, value)| crate::text::plain(&format!("{key}={value}"))).collect();
    (!texts.is_empty()).then(|| texts.join(" "))
}

/// A memory accounting in one word.
pub fn accounting(accounting: i32) -> String {
    match MemoryAccounting::try_from(accounting) {
        Ok(MemoryAccounting::Unspecified) | Err(_) => "unknown".to_owned(),
        Ok(known) => word(known.as_str_name(), "MEMORY_ACCOUNTING_"),
    }
}

/// Whether something fits, in a word or two.
fn fits(verdict: Verdict, look: crate::text::terminal_abilities::Look) -> String {
    match verdict {
        Verdict::Unspecified => look.none().to_owned(),
        Verdict::Fits => "yes".to_owned(),
        Verdict::FitsWithoutMargin => "no margin".to_owned(),
        Verdict::Uncertain => "uncertain".to_owned(),
        Verdict::DoesNotFit => "no".to_owned(),
    }
}

/// Whether a plan fits, under a framework where one is named: `fits under megatron`.
pub fn fit_under(verdict: Verdict, framework: &str) -> String {
    let under = if framework.is_empty() { String::new() } else { format!(" under {}", plain(framework)) };
    let fits = match verdict {
        Verdict::Unspecified => "has no capacity given",
        Verdict::Fits => "fits",
        Verdict::FitsWithoutMargin => "fits without the margin alone",
        Verdict::Uncertain => "is not certain to fit: its prediction interval is unknown",
        Verdict::DoesNotFit => "does not fit",
    };
    format!("{fits}{under}")
}

/// The accounting that all figures share, if there is one.
pub fn common_accounting<'a>(figures: impl IntoIterator<Item = &'a MemoryFigure>) -> Option<i32> {
    shared(figures.into_iter().map(|figure| figure.accounting))
}

/// The value that all have, if there is one.
fn shared<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut values = values.into_iter();
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

/// The bytes of a figure, with its accounting unless all around it is of `common`.
fn figure(figure: &MemoryFigure, common: Option<i32>) -> String {
    if common == Some(figure.accounting) {
        bytes(figure.bytes)
    } else {
        format!("{} {}", bytes(figure.bytes), accounting(figure.accounting))
    }
}
