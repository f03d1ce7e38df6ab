//! Reading documents of bounded size.
//!
//! A text of a few megabytes may stand for gigabytes. A value takes two bytes in a text and a hundred in memory,
//! references to references unfold without end, and parsers compare each attribute of an element with all others.
//! So every document is measured before anything is built of it:
//!
//! | form | measured | by |
//! |---|---|---|
//! | JSON | values, maps, keys of a map, depth, bytes of texts, while it is read | [`meter`] |
//! | YAML | signs that begin values, before it is read; then as JSON | [`yaml`] |
//! | XML | elements, attributes of an element and of all, depth, before it is read | [`xml`] |
//!
//! What is refused is named by its path, and nothing in a document is a NUL: no database stores it.

pub mod meter;
mod sink;
pub mod xml;
pub mod yaml;

use serde::de::DeserializeSeed;
use serde_json::Value;

use crate::error::Invalid;
use meter::{Limits, Meter};
use sink::{Reader, Sink};

/// Whether the document that is being read is still wanted: asked every few thousand values, and for each thing that is
/// made of them.
pub type Wanted<'a> = &'a dyn Fn() -> bool;

/// What is said of a document that is not.
const UNWANTED: &str = "the call was cancelled while the document was read";

/// For documents that no one takes back.
pub fn always() -> bool {
    true
}

/// Ends what is made of a document that no one wants any more.
///
/// # Errors
/// When no one does.
pub(crate) fn check(wanted: Wanted<'_>) -> Result<(), Invalid> {
    if wanted() { Ok(()) } else { Err(Invalid::field("", UNWANTED)) }
}

/// JSON as a value.
///
/// # Errors
/// What is wrong with the text, or which limit it breaks where.
pub(crate) fn json(text: &str, limits: &Limits, wanted: Wanted<'_>) -> Result<Value, Invalid> {
    read_json(text, &Meter::new(limits, wanted))
}

/// Measures JSON without building anything of it.
///
/// # Errors
/// What is wrong with the text, or which limit it breaks where.
pub(crate) fn measure_json(text: &str, limits: &Limits, wanted: Wanted<'_>) -> Result<(), Invalid> {
    read_json(text, &Meter::new(limits, wanted))
}

/// JSON where the text begins as JSON does, else YAML.
///
/// # Errors
/// What is wrong with the text, or which limit it breaks where.
pub(crate) fn json_or_yaml(text: &str, limits: &Limits, wanted: Wanted<'_>) -> Result<Value, Invalid> {
    let is_json = text.trim_start().starts_with('{');
    if is_json { json(text, limits, wanted) } else { yaml::parse(text, limits, wanted) }
}

fn read_json<S: Sink>(text: &str, meter: &Meter<'_>) -> Result<S, Invalid> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = located(&mut deserializer, meter, "JSON")?;
    deserializer.end().map_err(|error| invalid!("", "is not valid JSON: {error}"))?;
    Ok(read)
}

/// Reads a value; an error names its place.
fn located<'de, S: Sink, D: serde::Deserializer<'de>>(
    deserializer: D,
    meter: &Meter<'_>,
    form: &str,
) -> Result<S, Invalid> {
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(deserializer, &mut track);
    Reader::<S>::new(meter).deserialize(deserializer).map_err(|error| match meter.refused() {
        Some(why) => Invalid::field(path(&track.path()), why),
        // The text itself: line and column say where.
        None => invalid!("", "is not valid {form}: {error}"),
    })
}

/// The path of a value; empty for the document itself.
fn path(path: &serde_path_to_error::Path) -> String {
    let path = path.to_string();
    if path == "." { String::new() } else { path }
}
