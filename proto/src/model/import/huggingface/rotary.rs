//! Rotary positions: their base, which has been written in three ways, and their scaling.
//!
//! Scaling changes the angles by which queries and keys are turned, and in some types the length of the turned
//! vectors. All types that are accepted here do so in the tables of sines and cosines, of one row for each position
//! and as many columns as without: the same tensors are held and the same operations done on them, whatever the
//! sequence length. `dynamic` and `longrope` compute their frequencies again when a sequence is longer than all
//! before, which in training it never is after the first. So neither memory nor time changes, and what is trained
//! has other values than the real model.

use serde_json::Value;

use super::fields::Fields;
use crate::error::Invalid;

/// Types of scaling that change angles alone, with the keys that they have besides `rope_type` and `rope_theta`.
const SCALINGS: [(&str, &[&str]); 5] = [
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
    (
        "longrope",
        &["factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor"],
    ),
    ("llama3", &["factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"]),
];

/// Where rotary positions are described: version 4 of Transformers, and version 5.
const KEYS: [&str; 2] = ["rope_scaling", "rope_parameters"];
/// What the type of scaling has been called.
const TYPES: [&str; 2] = ["rope_type", "type"];

/// Reads `rope_theta` and `rope_scaling` (version 4 of Transformers) or `rope_parameters` (version 5).
pub(super) fn base(fields: &mut Fields, default: f64) -> Result<f64, Invalid> {
    let mut base = fields.optional_number("rope_theta")?;
    for key in KEYS {
        let Some(parameters) = fields.object(key)? else { continue };
        let inner = of_parameters(parameters).map_err(|invalid| invalid.under(key))?;
        if let (Some(outer), Some(inner)) = (base, inner)
            && outer != inner
        {
            return Err(Invalid::field(key, format!("has rope_theta {inner}, but rope_theta is {outer}")));
        }
        base = base.or(inner);
    }
    Ok(base.unwrap_or(default))
}

fn of_parameters(mut parameters: Fields) -> Result<Option<f64>, Invalid> {
    let mut known: Vec<&str> = vec!["rope_type", "rope_theta", "partial_rotary_factor"];
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
            scaling_value(&mut parameters, own)?;
        }
        known.extend(*keys);
    }
    let base = parameters.optional_number("rope_theta")?;
    let share = parameters.number("partial_rotary_factor", 1.0)?;
    if share != 1.0 {
        return Err(Invalid::field("partial_rotary_factor", format!("is {share}, only 1 is supported")));
    }
    parameters.finish_strictly(&known.join(", "))?;
    Ok(base)
}

/// Reads a number, a switch or a list of numbers that nothing here is computed with.
fn scaling_value(parameters: &mut Fields, key: &str) -> Result<(), Invalid> {
    match key {
        "short_factor" | "long_factor" => parameters.numbers(key).map(drop),
        "truncate" => parameters.flag(key, true).map(drop),
        _ => parameters.optional_number(key).map(drop),
    }
}

/// That angles are not scaled as the configuration says, where it says so.
pub(super) fn notes(config: &Value) -> Vec<String> {
    let kinds = KEYS.iter().filter_map(|key| {
        let parameters = config.get(key)?;
        TYPES.iter().filter_map(|of| parameters.get(of)?.as_str()).find(|kind| *kind != "default")
    });
    let notes = kinds.take(1).map(|kind| {
        format!(
            "rotary positions are not scaled ({kind:?} in the configuration): that changes angles, and so losses, \
             but neither memory nor time"
        )
    });
    notes.collect()
}
