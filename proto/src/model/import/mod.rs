//! Where models come from: the zoo, lists of layers, configurations of Hugging Face Transformers.

mod huggingface;
mod layers;

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, required};
use crate::model::Model;
use crate::model::zoo::Zoo;
use crate::wire::reading::{self, Wanted, always};
use crate::wire::v1::model_source::Source;
use crate::wire::{ToWire, field, v1};

pub use huggingface::{DEFAULT_MAX_SEQUENCE_LENGTH, MODEL_TYPES};

/// Longest document that is read, bytes. A layer takes about 100, so the largest models have room.
pub const MAX_DOCUMENT_BYTES: usize = 4 << 20;

/// How a note begins that says that rotary positions are not scaled.
pub const ROTARY_NOTE: &str = "the scaling of rotary positions is not applied";

/// Where a model comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ModelSource {
    /// A model that Loadmaster knows by name.
    Zoo(Zoo),
    /// A list of layers.
    LayerList(LayerList),
    /// A configuration of Hugging Face Transformers.
    HuggingFace(HuggingFaceConfig),
}

/// A model as a list of layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerList {
    /// JSON or YAML: the serialised form of [`Model`].
    pub document: String,
}

/// A model as Hugging Face Transformers describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HuggingFaceConfig {
    /// The text of a `config.json`.
    pub config: String,
    /// Tokens per sample; the configuration's longest, but at most [`DEFAULT_MAX_SEQUENCE_LENGTH`],
    /// unless set.
    pub sequence_length: Option<i64>,
    /// Whether keys of unknown meaning are ignored, and named by a note, instead of refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_unknown_keys: bool,
}

impl HuggingFaceConfig {
    /// Returns whether a text is a `config.json`: a JSON object with a `model_type`.
    pub fn describes(text: &str) -> bool {
        huggingface::is_config(text)
    }
}

impl ModelSource {
    /// Builds the model.
    ///
    /// # Errors
    /// Names what is wrong by its path in the source's message: `zoo.gpt2.heads`,
    /// `layer_list.document.layers[3]…`, `hugging_face.config.rope_scaling`.
    pub fn build(&self) -> Result<Model, Invalid> {
        self.build_while(&always)
    }

    /// [`Self::build`] as long as the model is wanted.
    ///
    /// # Errors
    /// As there, or that it is not wanted any more.
    pub fn build_while(&self, wanted: Wanted<'_>) -> Result<Model, Invalid> {
        reading::check(wanted)?;
        match self {
            Self::Zoo(zoo) => zoo.build().map_err(|invalid| invalid.under(zoo.options_field()).under("zoo")),
            Self::LayerList(LayerList { document }) => text("document", document)
                .and_then(|text| layers::model(text, wanted).map_err(|invalid| invalid.under("document")))
                .map_err(|invalid| invalid.under("layer_list")),
            Self::HuggingFace(source) => text("config", &source.config)
                .and_then(|_| huggingface::model(source, wanted))
                .map_err(|invalid| invalid.under("hugging_face")),
        }
    }
}

impl ModelSource {
    /// What the source says and the model leaves out, because it changes neither memory nor time; human-readable.
    pub fn notes(&self) -> Vec<String> {
        match self {
            Self::Zoo(_) | Self::LayerList(_) => Vec::new(),
            Self::HuggingFace(source) => huggingface::notes(source),
        }
    }
}

impl From<Zoo> for ModelSource {
    fn from(zoo: Zoo) -> Self {
        Self::Zoo(zoo)
    }
}

/// A text that is neither empty nor too long.
fn text<'a>(field: &str, text: &'a str) -> Result<&'a str, Invalid> {
    if text.len() > MAX_DOCUMENT_BYTES {
        return Err(invalid!(field, "has {} bytes. Use at most {MAX_DOCUMENT_BYTES}", text.len()));
    }
    if text.trim().is_empty() {
        return Err(Invalid::field(field, "is empty"));
    }
    Ok(text)
}

impl TryFrom<v1::ModelSource> for ModelSource {
    type Error = Invalid;

    fn try_from(wire: v1::ModelSource) -> Result<Self, Invalid> {
        match required("source", wire.source)? {
            Source::Zoo(zoo) => field("zoo", zoo).map(Self::Zoo),
            Source::LayerList(v1::LayerList { document }) => Ok(Self::LayerList(LayerList { document })),
            Source::HuggingFace(v1::HuggingFaceConfig { config, sequence_length, ignore_unknown_keys }) => {
                let sequence_length = i64::from(sequence_length);
                if sequence_length < 0 {
                    return Err(invalid!("hugging_face.sequence_length", "{sequence_length} is less than 1"));
                }
                let sequence_length = (sequence_length > 0).then_some(sequence_length);
                Ok(Self::HuggingFace(HuggingFaceConfig { config, sequence_length, ignore_unknown_keys }))
            }
        }
    }
}

impl From<&ModelSource> for v1::ModelSource {
    fn from(source: &ModelSource) -> Self {
        let source = match source {
            ModelSource::Zoo(zoo) => Source::Zoo(zoo.into()),
            ModelSource::LayerList(list) => {
                Source::LayerList(v1::LayerList { document: list.document.clone() })
            }
            ModelSource::HuggingFace(HuggingFaceConfig { config, sequence_length, ignore_unknown_keys }) => {
                Source::HuggingFace(v1::HuggingFaceConfig {
                    config: config.clone(),
                    sequence_length: sequence_length.to_wire(),
                    ignore_unknown_keys: *ignore_unknown_keys,
                })
            }
        };
        Self { source: Some(source) }
    }
}
