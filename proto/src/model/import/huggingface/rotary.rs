//! Rotary positions: their base, which has been written in three ways, and their scaling.
//!
//! Scaling changes the angles by which queries and keys are turned, and in some types the length of the turned
//! vectors. All types that are accepted here do so in the tables of sines and cosines, of one row for each position
//! and as many columns as without.
//!
//! The same tensors are held and the same operations done on them, whatever the
//! sequence length. `dynamic` and `longrope` compute their frequencies once more when a sequence is longer than all
//! before, which in training it never is after the first. So neither memory nor time changes, and what is trained
//! has other values than the real model.

use super::fields::Fields;
use crate::error::Invalid;
use crate::model::import::ROTARY_NOTE;
use crate::model::numerics::{ROTARY_SCALINGS, RotaryScaling};

/// Lists of factors, which `longrope` has besides its parameters.
const FACTORS: [&str; 2] = ["short_factor", "long_factor"];

/// How the first Phi-3 files spell `longrope`.
const FIRST_LONGROPE: &str = "su";

/// Positions on several axes. A text has the same position on all of them, so nothing is scaled.
const SEVERAL_AXES: (&str, &str) = ("mrope", "mrope_section");

/// Keys that change at most angles, and that Transformers does not read or reads for vision models alone. It warns of a key
/// that the type of scaling does not have, and goes on.
const UNREAD: [&str; 4] = ["alpha", "attn_factor", "mrope_interleaved", "mrope_section"];

/// Where rotary positions are described: version 4 of Transformers, and version 5.
const KEYS: [&str; 2] = ["rope_scaling", "rope_parameters"];
/// What the type of scaling has been called.
const TYPES: [&str; 2] = ["rope_type", "type"];

/// Reads `rope_theta` and `rope_scaling` (version 4 of Transformers) or `rope_parameters` (version 5): the base, and the scaling.
pub(super) fn positions(fields: &mut Fields, default: f64) -> Result<(f64, Option<RotaryScaling>), Invalid> {
    let mut base = fields.optional_number("rope_theta")?;
    let (mut kind, mut scaling) = (None, None);
    for key in KEYS {
        let Some(mut parameters) = fields.object(key)? else { continue };
        let read = Parameters::read(&mut parameters).and_then(|read| {
            fields.finish_inner(key, parameters, &read.known.join(", "))?;
            Ok(read)
        });
        let read = read.map_err(|invalid| invalid.under(key))?;
        if let (Some(outer), Some(inner)) = (base, read.base)
            && outer != inner
        {
            return Err(invalid!(key, "has rope_theta {inner}, but rope_theta is {outer}. Use equal values"));
        }
        base = base.or(read.base);
        kind = kind.or(read.kind);
        scaling = scaling.or(read.scaling);
    }
    if let Some(kind) = kind {
        fields.remark(format!(
            "{ROTARY_NOTE} ({kind:?} in the configuration). When Loadmaster trains the plan, losses differ from \
             training with scaling, but memory and time do not. Exported files set the scaling if the framework \
             supports it. Otherwise, the export returns a warning"
        ));
    }
    Ok((base.unwrap_or(default), scaling))
}

/// What `rope_scaling` or `rope_parameters` contains.
struct Parameters {
    base: Option<f64>,
    /// The type of scaling as the file spells it, unless it is the default.
    kind: Option<String>,
    scaling: Option<RotaryScaling>,
    /// Keys of this type of scaling, for errors.
    known: Vec<&'static str>,
}

impl Parameters {
    fn read(parameters: &mut Fields) -> Result<Self, Invalid> {
        let mut known: Vec<&str> = vec!["rope_type", "rope_theta", "partial_rotary_factor"];
        let (mut kind, mut scaling) = (None, None);
        for key in TYPES {
            let spelled = parameters.text(key, "default")?;
            let own = match spelled.as_str() {
                "default" => continue,
                FIRST_LONGROPE => "longrope",
                own => own,
            };
            if own == SEVERAL_AXES.0 {
                parameters.numbers(SEVERAL_AXES.1)?;
                kind = kind.or(Some(spelled));
                continue;
            }
            let Some((name, keys)) = ROTARY_SCALINGS.iter().find(|(name, _)| *name == own) else {
                let names =
                    ROTARY_SCALINGS.iter().map(|(name, _)| *name).chain([FIRST_LONGROPE, SEVERAL_AXES.0]);
                return Err(Invalid::field(
                    key,
                    format!(
                        "{spelled:?} is not supported. Use default or {}, which change neither memory nor time",
                        names.collect::<Vec<_>>().join(", ")
                    ),
                ));
            };
            let mut of_kind = RotaryScaling { kind: (*name).to_owned(), ..RotaryScaling::default() };
            for &key in *keys {
                of_kind
                    .parameters
                    .extend(scaling_value(parameters, key)?.map(|value| (key.to_owned(), value)));
            }
            known.extend(*keys);
            if *name == "longrope" {
                of_kind.short_factor = parameters.numbers(FACTORS[0])?;
                of_kind.long_factor = parameters.numbers(FACTORS[1])?;
                known.extend(FACTORS);
            }
            kind = kind.or(Some(spelled));
            scaling = scaling.or(Some(of_kind));
        }
        let base = parameters.optional_number("rope_theta")?;
        let share = parameters.number("partial_rotary_factor", 1.0)?;
        if share != 1.0 {
            return Err(invalid!("partial_rotary_factor", "{share} is not supported. Use 1"));
        }
        let others = ROTARY_SCALINGS.iter().flat_map(|(_, keys)| keys.iter()).chain(&UNREAD).chain(&FACTORS);
        others.for_each(|key| parameters.neutral(key));
        Ok(Self { base, kind, scaling, known })
    }
}

/// Reads a number, or a switch that is not at its default as 0.
fn scaling_value(parameters: &mut Fields, key: &str) -> Result<Option<f64>, Invalid> {
    match key {
        "truncate" => Ok((!parameters.flag(key, true)?).then_some(0.0)),
        _ => parameters.optional_number(key),
    }
}
