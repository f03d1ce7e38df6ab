//! Models in files.

use std::path::Path;

use clap::ValueEnum;
use loadmaster_proto::model::import::{HuggingFaceConfig, MAX_DOCUMENT_BYTES};
use loadmaster_proto::wire::v1;
use loadmaster_proto::wire::v1::model_source::Source;

use crate::failure::Failure;
use crate::input::read_file;

/// Format of a model's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelFormat {
    /// A `config.json` of Hugging Face Transformers.
    Hf,
    /// A list of layers in JSON or YAML.
    Layers,
}

/// Reads a file; the planner checks it.
pub(crate) fn read(
    path: &Path,
    format: Option<ModelFormat>,
    sequence_length: Option<i32>,
    ignore_unknown_keys: bool,
) -> Result<v1::ModelSource, Failure> {
    let text = read_file("model file", path, MAX_DOCUMENT_BYTES)?;
    source(text, format, sequence_length, ignore_unknown_keys)
}

fn source(
    text: String,
    format: Option<ModelFormat>,
    sequence_length: Option<i32>,
    ignore_unknown_keys: bool,
) -> Result<v1::ModelSource, Failure> {
    let source = match format.unwrap_or_else(|| format_of(&text)) {
        ModelFormat::Hf => {
            let sequence_length = sequence_length.unwrap_or_default();
            Source::HuggingFace(v1::HuggingFaceConfig { config: text, sequence_length, ignore_unknown_keys })
        }
        ModelFormat::Layers if sequence_length.is_some() => {
            return Failure::usage(
                "--sequence-length is valid only with a Hugging Face configuration. A list of layers contains its own \
                 input size. Leave --sequence-length out.",
            );
        }
        ModelFormat::Layers if ignore_unknown_keys => {
            return Failure::usage(
                "--ignore-unknown-keys is valid only with a Hugging Face configuration, not with a \
                list of layers. Leave --ignore-unknown-keys out.",
            );
        }
        ModelFormat::Layers => Source::LayerList(v1::LayerList { document: text }),
    };
    Ok(v1::ModelSource { source: Some(source) })
}

/// Configurations say their `model_type`, lists of layers have none.
fn format_of(text: &str) -> ModelFormat {
    if HuggingFaceConfig::describes(text) { ModelFormat::Hf } else { ModelFormat::Layers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_recognised_unless_it_is_given() {
        let format = |text: &str, format| match source(text.to_owned(), format, None, false).unwrap().source {
            Some(Source::HuggingFace(_)) => "hf",
            Some(Source::LayerList(_)) => "layers",
            _ => "",
        };
        assert_eq!(format(r#"{"model_type": "gpt2"}"#, None), "hf");
        assert_eq!(format(r#"{"family": "mine", "layers": []}"#, None), "layers");
        assert_eq!(format("family: mine\nlayers: []\n", None), "layers");
        assert_eq!(format(r#"{"model_type": "gpt2", "limit": [0.0, Infinity]}"#, None), "hf");
        assert_eq!(format(r#"{"n_embd": 768}"#, Some(ModelFormat::Hf)), "hf");
    }

    #[test]
    fn a_list_of_layers_has_its_own_sequence_length() {
        let refused = source("layers: []".to_owned(), None, Some(8), false);
        assert!(matches!(refused, Err(Failure::Usage(why)) if why.contains("--sequence-length")));
        let refused = source("layers: []".to_owned(), None, None, true);
        assert!(matches!(refused, Err(Failure::Usage(why)) if why.contains("--ignore-unknown-keys")));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let missing = read(Path::new("/does/not/exist.json"), None, None, false);
        assert!(matches!(missing, Err(Failure::Usage(why)) if why.contains("/does/not/exist.json")));
    }
}
