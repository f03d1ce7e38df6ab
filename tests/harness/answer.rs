//! What answers in JSON say.

use serde_json::Value;

/// Bytes, which are text in JSON: a number there has 53 bits.
///
/// # Panics
/// When it is something else.
pub fn bytes(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{value} are no bytes"))
}

/// The warnings of an answer; where it has none the key is left out.
pub fn warnings(answer: &Value) -> Vec<&str> {
    answer["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// A whole number, which is text where it has 64 bits; 0 where it is left out.
pub fn whole(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}
