//! Of figures that were predicted and measured, which are judged where they are at hand: no statement reads these columns.

use loadmaster_filter::{Field, Kind};

use super::always;

/// Of pairs.
pub static PAIRS: &[Field] = &[
    always("plan", Kind::Id("plans/"), ""),
    always("profile", Kind::Id("profiles/"), ""),
    always("model", Kind::Id("models/"), ""),
    always("device_kind", Kind::Text, ""),
    always("predictor", Kind::Text, ""),
    always("quantity", Kind::Word(quantities), ""),
    always("source", Kind::Text, ""),
    always("predicted", Kind::Number, ""),
    always("measured", Kind::Number, ""),
    always("error", Kind::Number, ""),
    always("create_time", Kind::Time, ""),
];

fn quantities() -> Vec<(&'static str, String)> {
    ["peak-bytes", "iteration-seconds"].map(|word| (word, word.to_owned())).to_vec()
}
