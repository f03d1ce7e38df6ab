//! `config.json` of Hugging Face Transformers.
//!
//! Such a file leaves out what equals its class's default, so the defaults belong to the `model_type`. It
//! also holds much that does not change what is computed, and may hold something that does and that
//! Loadmaster cannot compute: the first is ignored key by key (`keys`), the second refused by its key, and
//! so is what nobody knows. In between are keys that change values and neither memory nor time (`rotary`): they are
//! left out, and the model says so.
//!
//! The sequence length is the caller's; without one it is the longest that the configuration allows, but
//! at most [`DEFAULT_MAX_SEQUENCE_LENGTH`]: many models allow far more than they are trained with.
//!
//! A `bert` becomes embedding, blocks and pooler, trained with the mean square loss; all others end in
//! their language-model head.

mod architectures;
mod fields;
mod keys;
mod rotary;

#[cfg(test)]
mod tests;

use serde_json::Value;

use self::architectures::Architecture;
use self::fields::Fields;
use crate::error::{Invalid, in_range};
use crate::model::Model;
use crate::wire::reading::{self, Wanted, always, meter::Limits};

/// Values of `model_type` that are understood.
pub const MODEL_TYPES: [&str; 6] = ["gpt2", "bert", "llama", "mistral", "qwen2", "qwen3"];

/// Tokens per sample where neither caller nor configuration asks for fewer.
pub const DEFAULT_MAX_SEQUENCE_LENGTH: i64 = 4096;

/// # Errors
/// Names the key, below `config`, or `sequence_length`.
pub(super) fn model(
    config: &str,
    sequence_length: Option<i64>,
    wanted: Wanted<'_>,
) -> Result<Model, Invalid> {
    let config = reading::json(config, &Limits::BUILT, wanted).map_err(|invalid| invalid.under("config"))?;
    let Value::Object(config) = config else {
        return Err(Invalid::field("config", "must be a JSON object"));
    };
    let fields = Fields::new(config);
    let (model_type, architecture) = read(fields).map_err(|invalid| invalid.under("config"))?;

    let longest = architecture.longest;
    let sequence_length = match sequence_length {
        Some(length) if length > longest => {
            return Err(Invalid::field(
                "sequence_length",
                format!("is {length}, the configuration allows at most {longest} (max_position_embeddings)"),
            ));
        }
        Some(length) => in_range("sequence_length", length, 1..=longest)?,
        None => longest.min(DEFAULT_MAX_SEQUENCE_LENGTH),
    };
    reading::check(wanted)?;
    architecture.model(&model_type, sequence_length)
}

/// What a configuration says and the model leaves out, because it changes neither memory nor time.
pub(super) fn notes(config: &str) -> Vec<String> {
    let config = reading::json(config, &Limits::BUILT, &always).unwrap_or_default();
    rotary::notes(&config)
}

fn read(mut fields: Fields) -> Result<(String, Architecture), Invalid> {
    let model_type = fields.text("model_type", "")?;
    let architecture = architectures::read(&model_type, &mut fields)?;
    fields.finish()?;
    Ok((model_type, architecture))
}
