//! Documents in which one value is another than it should be.

use serde_json::Value;

/// Numbers that no one measured, and what is no number.
const NUMBERS: [&str; 14] = [
    "0",
    "-1",
    "-0.0",
    "1.5",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "1e308",
    "1e-308",
    "null",
    "\"NaN\"",
    "[]",
];

/// Texts that no one should write.
const TEXTS: [&str; 9] = [
    "\"\"",
    "\" \"",
    "\"a\\u0000b\"",
    "\"a\\u001b[2Jb\"",
    "\"a\\nb\"",
    "\"a/b\"",
    "\"../../etc/passwd\"",
    "0",
    "{}",
];

/// A text that takes the place of a value until another text takes its place.
const PLACE: &str = "the place of a value";

/// A document with another value at a place, and that place as errors name it.
#[derive(Debug)]
pub struct Bent {
    /// The document.
    pub text: String,
    /// Where it was bent.
    pub path: String,
    /// What is there now, cut after some characters.
    pub value: String,
}

/// Every document that differs from `whole` in one number or text.
pub fn bent(whole: &Value) -> impl Iterator<Item = Bent> + '_ {
    let mut places = Vec::new();
    collect(whole, "", "", &mut places);
    places.into_iter().flat_map(move |(pointer, path, is_number)| {
        let mut document = whole.clone();
        if let Some(place) = document.pointer_mut(&pointer) {
            *place = Value::String(PLACE.to_owned());
        }
        let text = document.to_string();
        let long = format!("\"{}\"", "x".repeat(1 << 20));
        let values: Vec<String> = if is_number {
            NUMBERS.map(str::to_owned).to_vec()
        } else {
            TEXTS.map(str::to_owned).into_iter().chain([long]).collect()
        };
        values.into_iter().map(move |value| Bent {
            text: text.replace(&format!("\"{PLACE}\""), &value),
            path: path.clone(),
            value: value.chars().take(40).collect(),
        })
    })
}

/// Numbers and texts: pointer, path, and whether it is a number. Of long lists the first and the last element.
fn collect(value: &Value, pointer: &str, path: &str, places: &mut Vec<(String, String, bool)>) {
    match value {
        Value::Number(_) => places.push((pointer.to_owned(), path.to_owned(), true)),
        Value::String(_) => places.push((pointer.to_owned(), path.to_owned(), false)),
        Value::Array(items) => {
            let ends = items.iter().enumerate().filter(|(index, _)| *index < 2 || index + 1 == items.len());
            for (index, item) in ends {
                collect(item, &format!("{pointer}/{index}"), &format!("{path}[{index}]"), places);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect(field, &format!("{pointer}/{key}"), &below, places);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}
