//! Where a model comes from, as a message.

use super::{HuggingFaceConfig, LayerList, ModelSource};
use crate::error::{Invalid, required};
use crate::wire::v1::model_source::Source;
use crate::wire::{ToWire, field, v1};

impl TryFrom<v1::ModelSource> for ModelSource {
    type Error = Invalid;

    fn try_from(wire: v1::ModelSource) -> Result<Self, Invalid> {
        match required("source", wire.source)? {
            Source::Zoo(zoo) => field("zoo", zoo).map(Self::Zoo),
            Source::LayerList(v1::LayerList { document }) => Ok(Self::LayerList(LayerList { document })),
            Source::HuggingFace(v1::HuggingFaceConfig { config, sequence_length, ignore_unknown_keys }) => {
                let sequence_length = i64::from(sequence_length);
                if sequence_length < 0 {
                    return Err(Invalid::field(
                        "hugging_face.sequence_length",
                        format!("is {sequence_length}, must be 1 or more"),
                    ));
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
