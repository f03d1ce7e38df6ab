//! The base of rotary positions, which has been written in three ways.

use super::fields::Fields;
use crate::error::Invalid;

/// Reads `rope_theta` and `rope_scaling` (version 4 of Transformers) or `rope_parameters` (version 5).
pub(super) fn base(fields: &mut Fields, default: f64) -> Result<f64, Invalid> {
    let mut base = fields.optional_number("rope_theta")?;
    for key in ["rope_scaling", "rope_parameters"] {
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
    for key in ["rope_type", "type"] {
        let kind = parameters.text(key, "default")?;
        if kind != "default" {
            return Err(Invalid::field(
                key,
                format!(
                    "is {kind:?}, which is not supported: it changes angles but neither memory nor time, so \
                     remove it and keep the sequences within the original length"
                ),
            ));
        }
    }
    let base = parameters.optional_number("rope_theta")?;
    let share = parameters.number("partial_rotary_factor", 1.0)?;
    if share != 1.0 {
        return Err(Invalid::field("partial_rotary_factor", format!("is {share}, only 1 is supported")));
    }
    parameters.finish_strictly("rope_type, rope_theta and partial_rotary_factor")?;
    Ok(base)
}
