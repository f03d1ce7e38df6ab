//! What lists are filtered and ordered by, list by list: a table of the fields that callers name, with the columns where they
//! are. The protocol documents the names; a test holds both to each other.

mod exporters;
mod pairs;
mod plans;
mod profiles;
mod runs;
mod short_lists;
#[cfg(test)]
mod tests;

use loadmaster_filter::{Field, Kind};
use loadmaster_proto::choice::Choice;
use serde::Serialize;
use serde_json::Value;

pub use exporters::EXPORTERS;
pub use pairs::PAIRS;
pub use plans::PLANS;
pub use profiles::PROFILES;
pub use runs::RUNS;
pub use short_lists::{
    BINDINGS, CLUSTERS, LINK_MEASUREMENTS, MEASUREMENTS, MODELS, OBSERVATIONS, OPERATIONS, WORKERS,
};

/// A field that every row has.
const fn always(name: &'static str, kind: Kind, column: &'static str) -> Field {
    Field { name, kind, column, is_always_set: true }
}

/// A field that rows may lack.
const fn perhaps(name: &'static str, kind: Kind, column: &'static str) -> Field {
    Field { name, kind, column, is_always_set: false }
}

/// What people call the variants of an enum, and what documents write.
fn words<T: Choice + Serialize>() -> Vec<(&'static str, String)> {
    let stored = |choice: T| match serde_json::to_value(choice) {
        Ok(Value::String(word)) => word,
        _ => choice.word().to_owned(),
    };
    T::all().iter().map(|&choice| (choice.word(), stored(choice))).collect()
}

/// The words of an enum of the tables' own, which are what tables write.
fn states<T: Choice>() -> Vec<(&'static str, String)> {
    T::words().map(|word| (word, word.to_owned())).collect()
}

/// Update rules, by the word in their documents.
fn optimizers() -> Vec<(&'static str, String)> {
    ["sgd", "adam", "adamw"].map(|word| (word, word.to_owned())).to_vec()
}
