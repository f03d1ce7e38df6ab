//! What answers in JSON say.

use serde_json::Value;

/// Bytes, which are text in JSON: a number there has 53 bits.
///
/// # Panics
/// When it is something else.
pub fn bytes(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{value} are no bytes"))
}

/// The messages of the warnings of an answer; where it has none the key is left out.
pub fn warnings(answer: &Value) -> Vec<&str> {
    answer["warnings"].as_array().into_iter().flatten().filter_map(|of| of["message"].as_str()).collect()
}

/// A whole number, which is text where it has 64 bits; 0 where it is left out.
pub fn whole(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

/// The same of numbers that may be below 0.
pub fn number(value: &Value) -> i64 {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

/// The stages of an answer.
///
/// # Panics
/// It has none.
pub fn stages(answer: &Value) -> &[Value] {
    answer["stages"].as_array().unwrap_or_else(|| panic!("{answer} has no stages"))
}

/// The highest peak that is predicted for a stage of a plan, bytes.
///
/// # Panics
/// It has no stages.
pub fn peak(plan: &Value) -> i64 {
    stages(plan).iter().map(|stage| number(&stage["predictedPeak"]["bytes"])).max().unwrap_or(0)
}

/// How long an iteration of a plan is predicted to take.
///
/// # Panics
/// Nobody predicted that.
pub fn seconds(plan: &Value) -> f64 {
    plan["iteration"]["iterationSeconds"].as_f64().unwrap_or_else(|| panic!("{plan} has no seconds"))
}
