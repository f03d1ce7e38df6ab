//! How a document is written. Keys on lines of their own, and each element of a list on one line. So
//! a trace of ten thousand events takes one line and a change of one row is a change of one line.

use std::fmt::Write;

use serde_json::{Result, Value, to_string, to_value};

use super::ProfileDocument;

/// The document as text. Keys that say nothing are left out.
pub(super) fn write(document: &ProfileDocument) -> Result<String> {
    let ProfileDocument { format, provenance, model, training, settings, stages, layer_table, measurements } =
        document;
    let keys = [
        ("format", to_value(format)?),
        ("provenance", to_value(provenance)?),
        ("model", to_value(model)?),
        ("training", to_value(training)?),
        ("settings", to_value(settings)?),
        ("stages", to_value(stages)?),
        ("layer_table", to_value(layer_table)?),
        ("measurements", to_value(measurements)?),
    ];
    let mut text = "{".to_owned();
    let said = keys.iter().filter(|(_, value)| !says_nothing(value));
    lines(&mut text, said.map(|(key, value)| (Some(*key), value)), 1)?;
    text.push_str("}\n");
    Ok(text)
}

fn says_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// Values with their keys, one below the other.
fn lines<'a>(
    text: &mut String,
    entries: impl Iterator<Item = (Option<&'a str>, &'a Value)>,
    depth: usize,
) -> Result<()> {
    for (index, (key, value)) in entries.enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}\n{:width$}", "", width = 2 * depth);
        if let Some(key) = key {
            let _ = write!(text, "{}: ", to_string(key)?);
        }
        entry(text, value, key.is_some(), depth)?;
    }
    let _ = write!(text, "\n{:width$}", "", width = 2 * (depth - 1));
    Ok(())
}

/// A value that has a key is written over several lines, an element of a list on one.
fn entry(text: &mut String, value: &Value, has_key: bool, depth: usize) -> Result<()> {
    match value {
        Value::Object(fields) if has_key && !fields.is_empty() => {
            text.push('{');
            lines(text, fields.iter().map(|(key, value)| (Some(key.as_str()), value)), depth + 1)?;
            text.push('}');
        }
        Value::Array(items) if has_key && items.iter().any(Value::is_object) => {
            text.push('[');
            lines(text, items.iter().map(|value| (None, value)), depth + 1)?;
            text.push(']');
        }
        other => text.push_str(&to_string(other)?),
    }
    Ok(())
}
