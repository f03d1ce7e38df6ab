//! `config.json` of Hugging Face Transformers.
//!
//! Such a file leaves out what equals its class's default, so the defaults belong to the `model_type`. It
//! also holds much that does not change what is computed, and may hold something that does and that
//! Loadmaster cannot compute. The first is ignored key by key (`keys`), the second refused by its key. Unknown keys are
//! refused unless the caller wants them to be ignored. Keys that change values and neither memory nor time (`rotary`),
//! and the quantization of a checkpoint, are left out, and the model's notes name them.
//!
//! The sequence length is the caller's; without one it is the longest that the configuration allows, but
//! at most [`DEFAULT_MAX_SEQUENCE_LENGTH`]: many models allow far more than they are trained with.
//!
//! A `bert` becomes embedding, blocks and pooler, trained with the mean square loss; all others end in
//! their language-model head.

mod architectures;
mod fields;
mod keys;
mod literals;
mod rotary;

#[cfg(test)]
mod tests;

use serde_json::Value;

use self::architectures::Architecture;
use self::fields::{Fields, Unread};
use super::HuggingFaceConfig;
use crate::error::{Invalid, in_range};
use crate::model::Model;
use crate::wire::reading::meter::Limits;
use crate::wire::reading::{self, Wanted, always};

/// Values of `model_type` that are understood.
pub const MODEL_TYPES: [&str; 6] = ["gpt2", "bert", "llama", "mistral", "qwen2", "qwen3"];

/// Tokens per sample where neither caller nor configuration asks for fewer.
pub const DEFAULT_MAX_SEQUENCE_LENGTH: i64 = 4096;

/// Returns whether a text is such a file: an object with a `model_type`.
pub(super) fn is_config(text: &str) -> bool {
    let value = serde_json::from_str::<Value>(&literals::quoted(text));
    value.is_ok_and(|value| value.get("model_type").is_some())
}

/// # Errors
/// Names the key, below `config`, or `sequence_length`.
pub(super) fn model(source: &HuggingFaceConfig, wanted: Wanted<'_>) -> Result<Model, Invalid> {
    let (model_type, architecture, _) = read(source, wanted)?;
    let longest = architecture.longest;
    let sequence_length = match source.sequence_length {
        Some(length) if length > longest => {
            return Err(Invalid::field(
                "sequence_length",
                format!(
                    "{length} is above the limit of the configuration, {longest} (max_position_embeddings). Use a shorter \
                     sequence length"
                ),
            ));
        }
        Some(length) => in_range("sequence_length", length, 1..=longest)?,
        None => longest.min(DEFAULT_MAX_SEQUENCE_LENGTH),
    };
    reading::check(wanted)?;
    architecture.model(&model_type, sequence_length)
}

/// Returns what a configuration contains and the model leaves out; nothing for one that is refused.
pub(super) fn notes(source: &HuggingFaceConfig) -> Vec<String> {
    read(source, &always).map(|(_, _, unread)| unread.notes()).unwrap_or_default()
}

fn read(source: &HuggingFaceConfig, wanted: Wanted<'_>) -> Result<(String, Architecture, Unread), Invalid> {
    let text = literals::quoted(&source.config);
    let config = reading::json(&text, &Limits::BUILT, wanted).map_err(|invalid| invalid.under("config"))?;
    let Value::Object(config) = config else {
        return Err(Invalid::field("config", "is not a JSON object"));
    };
    read_fields(Fields::new(config, source.ignore_unknown_keys)).map_err(|invalid| invalid.under("config"))
}

fn read_fields(mut fields: Fields) -> Result<(String, Architecture, Unread), Invalid> {
    let model_type = fields.text("model_type", "")?;
    let mut architecture = architectures::read(&model_type, &mut fields)?;
    architecture.numerics.initializer_range = fields.optional_number("initializer_range")?;
    architecture.numerics = architecture.numerics.checked()?;
    read_quantization(&mut fields)?;
    architectures::remark_on_head(&model_type, &mut fields);
    Ok((model_type, architecture, fields.finish()?))
}

/// Takes `quantization_config` and `compression_config`, and notes that the plan is for unquantized weights.
///
/// # Errors
/// The weights can be trained through adapters alone, which is not supported.
fn read_quantization(fields: &mut Fields) -> Result<(), Invalid> {
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
                "has {bits}: quantized weights are frozen, and LoRA training is not supported. To plan full training, \
                 import the config.json of the unquantized model, or remove {key}."
            );
            return Err(Invalid::field(key, why));
        }
        let method = if method.is_empty() { String::new() } else { format!(" ({method})") };
        fields.remark(format!(
            "{key}{method}: the checkpoint's weights are quantized. The plan is for training the unquantized model in the \
             precision of the profile"
        ));
    }
    Ok(())
}
