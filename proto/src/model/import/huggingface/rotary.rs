//! Rotary positions: their base, which has been written in three ways, and their scaling.
//!
//! Scaling changes the angles by which queries and keys are turned, and in some types the length of the turned
//! vectors. All types that are accepted here do so in the tables of sines and cosines, of one row for each position
//! and as many columns as without: the same tensors are held and the same operations done on them, whatever the
//! sequence length. `dynamic` and `longrope` compute their frequencies again when a sequence is longer than all
//! before, which in training it never is after the first. So neither memory nor time changes, and what is trained
//! has other values than the real model.

use super::fields::Fields;
use crate::error::Invalid;

/// Types of scaling that change angles alone, with the keys that they have besides `rope_type` and `rope_theta`.
const SCALINGS: [(&str, &[&str]); 7] = [
    ("linear", &["factor"]),
    ("dynamic", &["factor", "original_max_position_embeddings"]),
    (
        "yarn",
        &[
            "factor",
            "original_max_position_embeddings",
            "attention_factor",
            "beta_fast",
            "beta_slow",
            "mscale",
            "mscale_all_dim",
            "truncate",
        ],
    ),
    ("longrope", &LONGROPE),
    // How the first Phi-3 files spell longrope.
    ("su", &LONGROPE),
    // A text has the same position on all of its axes.
    ("mrope", &["mrope_section"]),
    ("llama3", &["factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"]),
];

const LONGROPE: [&str; 5] =
    ["factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor"];

/// Keys that change at most angles, and that Transformers does not read or reads for vision models alone. It warns of a key
/// that the type of scaling does not have, and goes on.
const UNREAD: [&str; 4] = ["alpha", "attn_factor", "mrope_interleaved", "mrope_section"];

/// Where rotary positions are described: version 4 of Transformers, and version 5.
const KEYS: [&str; 2] = ["rope_scaling", "rope_parameters"];
/// What the type of scaling has been called.
const TYPES: [&str; 2] = ["rope_type", "type"];

/// Reads `rope_theta` and `rope_scaling` (version 4 of Transformers) or `rope_parameters` (version 5).
pub(super) fn base(fields: &mut Fields, default: f64) -> Result<f64, Invalid> {
    let mut base = fields.optional_number("rope_theta")?;
    let mut scaling = None;
    for key in KEYS {
        let Some(mut parameters) = fields.object(key)? else { continue };
        let read = Parameters::read(&mut parameters).and_then(|read| {
            fields.finish_inner(key, parameters, &read.known.join(", "))?;
            Ok(read)
        });
        let Parameters { base: inner, scaling: kind, .. } = read.map_err(|invalid| invalid.under(key))?;
        if let (Some(outer), Some(inner)) = (base, inner)
            && outer != inner
        {
            return Err(Invalid::field(key, format!("has rope_theta {inner}, but rope_theta is {outer}")));
        }
        base = base.or(inner);
        scaling = scaling.or(kind);
    }
    if let Some(kind) = scaling {
        fields.remark(format!(
            "rotary positions are not scaled ({kind:?} in the configuration): that changes angles, and so losses, \
             but neither memory nor time"
        ));
    }
    Ok(base.unwrap_or(default))
}

/// What `rope_scaling` or `rope_parameters` contains.
struct Parameters {
    base: Option<f64>,
    /// The type of scaling, unless it is the default.
    scaling: Option<String>,
    /// Keys of this type of scaling, for errors.
    known: Vec<&'static str>,
}

impl Parameters {
    fn read(parameters: &mut Fields) -> Result<Self, Invalid> {
        let mut known: Vec<&str> = vec!["rope_type", "rope_theta", "partial_rotary_factor"];
        let mut scaling = None;
        for key in TYPES {
            let kind = parameters.text(key, "default")?;
            if kind == "default" {
                continue;
            }
            let Some((_, keys)) = SCALINGS.iter().find(|(scaling, _)| *scaling == kind) else {
                let names: Vec<&str> = SCALINGS.iter().map(|(scaling, _)| *scaling).collect();
                return Err(Invalid::field(
                    key,
                    format!(
                        "is {kind:?}, which is not supported: default is, and {}, which change angles but neither \
                     memory nor time",
                        names.join(", ")
                    ),
                ));
            };
            for &own in *keys {
                scaling_value(parameters, own)?;
            }
            known.extend(*keys);
            scaling = scaling.or(Some(kind));
        }
        let base = parameters.optional_number("rope_theta")?;
        let share = parameters.number("partial_rotary_factor", 1.0)?;
        if share != 1.0 {
            return Err(Invalid::field("partial_rotary_factor", format!("is {share}, only 1 is supported")));
        }
        let others = SCALINGS.iter().flat_map(|(_, keys)| keys.iter()).chain(&UNREAD);
        others.for_each(|key| parameters.neutral(key));
        Ok(Self { base, scaling, known })
    }
}

/// Reads a number, a switch or a list of numbers that nothing here is computed with.
fn scaling_value(parameters: &mut Fields, key: &str) -> Result<(), Invalid> {
    match key {
        "short_factor" | "long_factor" | "mrope_section" => parameters.numbers(key).map(drop),
        "truncate" => parameters.flag(key, true).map(drop),
        _ => parameters.optional_number(key).map(drop),
    }
}
