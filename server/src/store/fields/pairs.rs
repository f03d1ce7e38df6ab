//! Of figures that were predicted and measured, which are judged where they are at hand: no statement reads these columns.

use loadmaster_filter::{Field, Kind};

use super::{always, perhaps};

/// Of pairs.
pub static PAIRS: &[Field] = &[
    always("plan", Kind::Id("plans/"), ""),
    always("profile", Kind::Id("profiles/"), ""),
    always("model", Kind::Id("models/"), ""),
    always("device_kind", Kind::Text, ""),
    always("predictor", Kind::Text, ""),
    always("quantity", Kind::Word(quantities), ""),
    perhaps("link", Kind::Word(links), ""),
    always("source", Kind::Text, ""),
    always("predicted", Kind::Number, ""),
    always("measured", Kind::Number, ""),
    perhaps("error", Kind::Number, ""),
    perhaps("difference", Kind::Number, ""),
    always("create_time", Kind::Time, ""),
];

fn quantities() -> Vec<(&'static str, String)> {
    written(&["peak-bytes", "iteration-seconds", "waited-seconds", "copied-bytes"])
}

fn links() -> Vec<(&'static str, String)> {
    written(&["host", "peers"])
}

fn written(words: &[&'static str]) -> Vec<(&'static str, String)> {
    words.iter().map(|&word| (word, word.to_owned())).collect()
}
