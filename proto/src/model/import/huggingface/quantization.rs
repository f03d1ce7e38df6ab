//! The quantization of a checkpoint: the unquantized model is planned.

use serde_json::Value;

use super::fields::Fields;
use crate::error::Invalid;

/// Takes `quantization_config` and `compression_config`, and notes that the plan is for unquantized weights.
///
/// # Errors
/// The weights can be trained through adapters alone, which is not supported.
pub(super) fn read(fields: &mut Fields) -> Result<(), Invalid> {
    for key in ["quantization_config", "compression_config"] {
        let Some(mut quantization) = fields.object(key)? else { continue };
        if quantization.is_empty() {
            continue;
        }
        let method = quantization.text("quant_method", "").map_err(|invalid| invalid.under(key))?;
        let loads = |bits: &str| quantization.peek(bits).and_then(Value::as_bool) == Some(true);
        let bits = ["load_in_4bit", "load_in_8bit"].into_iter().find(|bits| loads(bits));
        if let Some(bits) = bits {
            let why = format!(
                "has {bits}: such weights are frozen, and training of LoRA adapters over them is not supported. \
                 Import the config.json of the unquantized model, or remove {key}, to plan full training."
            );
            return Err(Invalid::field(key, why));
        }
        let method = if method.is_empty() { String::new() } else { format!(" ({method})") };
        fields.remark(format!(
            "{key}{method}: the checkpoint's weights are quantized; the plan is for training of the unquantized model \
             in the precision of the profile"
        ));
    }
    Ok(())
}
