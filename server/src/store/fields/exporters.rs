//! Of what plans are exported for, which is a part of this program: no statement reads these columns.

use loadmaster_filter::{Field, Kind};
use loadmaster_proto::plan::objective::Launcher;

use super::{always, perhaps, states};

/// Of exporters.
pub static EXPORTERS: &[Field] = &[
    always("launcher", Kind::Word(states::<Launcher>), ""),
    always("launcher_version", Kind::Text, ""),
    always("writes", Kind::Text, ""),
    always("verified", Kind::Word(proofs), ""),
    perhaps("variants", Kind::Text, ""),
    perhaps("envelopes", Kind::Texts, ""),
];

fn proofs() -> Vec<(&'static str, String)> {
    ["none", "parsed", "built", "trained"].map(|word| (word, word.to_owned())).to_vec()
}
