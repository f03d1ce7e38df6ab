//! Models, layers and their sources.

use super::{or_default, to_i32, to_i64};
use crate::error::{Invalid, required};
use crate::layer::{Layer, LayerKind};
use crate::model::{Model, ModelInput};
use crate::wire::v1;
use crate::zoo::{FAMILIES, Gpt2, Vgg, Zoo};

impl TryFrom<v1::ModelSource> for Zoo {
    type Error = Invalid;

    fn try_from(wire: v1::ModelSource) -> Result<Self, Invalid> {
        let v1::model_source::Source::Zoo(zoo) = required("source", wire.source)?;
        Self::try_from(zoo).map_err(|invalid| invalid.under("zoo"))
    }
}

impl TryFrom<v1::ZooModel> for Zoo {
    type Error = Invalid;

    fn try_from(wire: v1::ZooModel) -> Result<Self, Invalid> {
        use v1::zoo_model::Options;
        let foreign = |field: &str| {
            Err(Invalid::field(field, format!("does not belong to the family {:?}", wire.family)))
        };
        match (wire.family.as_str(), &wire.options) {
            ("vgg11", None) => Ok(Self::Vgg11(Vgg::default())),
            ("vgg11", Some(Options::Vgg(options))) => Ok(Self::Vgg11(options.into())),
            ("vgg11", Some(Options::Gpt2(_))) => foreign("gpt2"),
            ("gpt2", None) => Ok(Self::Gpt2(Gpt2::default())),
            ("gpt2", Some(Options::Gpt2(options))) => Ok(Self::Gpt2(options.into())),
            ("gpt2", Some(Options::Vgg(_))) => foreign("vgg"),
            (family, _) => Err(Invalid::field(
                "family",
                format!("{family:?} is not a model that Loadmaster knows: use {}", FAMILIES.join(" or ")),
            )),
        }
    }
}

impl From<&v1::VggOptions> for Vgg {
    fn from(wire: &v1::VggOptions) -> Self {
        let default = Self::default();
        Self {
            image_size: or_default(wire.image_size.into(), default.image_size),
            classes: or_default(wire.classes.into(), default.classes),
            classifier_width: or_default(wire.classifier_width.into(), default.classifier_width),
        }
    }
}

impl From<&v1::Gpt2Options> for Gpt2 {
    fn from(wire: &v1::Gpt2Options) -> Self {
        let default = Self::default();
        let sequence_length = or_default(wire.sequence_length.into(), default.sequence_length);
        Self {
            blocks: or_default(wire.blocks.into(), default.blocks),
            hidden_size: or_default(wire.hidden_size.into(), default.hidden_size),
            heads: or_default(wire.heads.into(), default.heads),
            sequence_length,
            positions: or_default(wire.positions.into(), default.positions.max(sequence_length)),
            vocabulary_size: or_default(wire.vocabulary_size.into(), default.vocabulary_size),
            untied_head: wire.untied_head,
            dropout: wire.dropout.unwrap_or(default.dropout),
        }
    }
}

impl From<&Zoo> for v1::ModelSource {
    fn from(zoo: &Zoo) -> Self {
        use v1::zoo_model::Options;
        let options = match zoo {
            Zoo::Vgg11(vgg) => Options::Vgg(v1::VggOptions {
                image_size: to_i32(vgg.image_size),
                classes: to_i32(vgg.classes),
                classifier_width: to_i32(vgg.classifier_width),
            }),
            Zoo::Gpt2(gpt2) => Options::Gpt2(v1::Gpt2Options {
                blocks: to_i32(gpt2.blocks),
                hidden_size: to_i32(gpt2.hidden_size),
                heads: to_i32(gpt2.heads),
                sequence_length: to_i32(gpt2.sequence_length),
                positions: to_i32(gpt2.positions),
                vocabulary_size: to_i32(gpt2.vocabulary_size),
                untied_head: gpt2.untied_head,
                dropout: Some(gpt2.dropout),
            }),
        };
        let zoo = v1::ZooModel { family: zoo.family().to_owned(), options: Some(options) };
        Self { source: Some(v1::model_source::Source::Zoo(zoo)) }
    }
}

impl From<&Model> for v1::Model {
    /// Everything but name, source and time, which the store knows.
    fn from(model: &Model) -> Self {
        Self {
            family: model.family().to_owned(),
            input: Some(model.input().into()),
            layers: model.layers().iter().map(Into::into).collect(),
            layer_count: to_i32(model.layers().len()),
            parameter_count: to_i64(model.parameter_count()),
            ..Self::default()
        }
    }
}

impl TryFrom<v1::Model> for Model {
    type Error = Invalid;

    fn try_from(wire: v1::Model) -> Result<Self, Invalid> {
        let input =
            required("input", wire.input)?.try_into().map_err(|invalid: Invalid| invalid.under("input"))?;
        let layers = wire
            .layers
            .into_iter()
            .enumerate()
            .map(|(index, layer)| {
                layer.try_into().map_err(|invalid: Invalid| invalid.under(&format!("layers[{index}]")))
            })
            .collect::<Result<Vec<Layer>, _>>()?;
        Self::new(wire.family, input, layers)
    }
}

impl From<ModelInput> for v1::ModelInput {
    fn from(input: ModelInput) -> Self {
        use v1::model_input::Input;
        let input = match input {
            ModelInput::Image { channels, height, width } => {
                Input::Image(v1::ImageInput { channels, height, width })
            }
            ModelInput::Tokens { sequence_length, vocabulary_size } => {
                Input::Tokens(v1::TokenInput { sequence_length, vocabulary_size })
            }
        };
        Self { input: Some(input) }
    }
}

impl TryFrom<v1::ModelInput> for ModelInput {
    type Error = Invalid;

    fn try_from(wire: v1::ModelInput) -> Result<Self, Invalid> {
        use v1::model_input::Input;
        let extent =
            |field: &str, value: i64| crate::error::in_range(field, value, 1..=crate::layer::MAX_EXTENT);
        Ok(match required("input", wire.input)? {
            Input::Image(image) => Self::Image {
                channels: extent("image.channels", image.channels)?,
                height: extent("image.height", image.height)?,
                width: extent("image.width", image.width)?,
            },
            Input::Tokens(tokens) => Self::Tokens {
                sequence_length: extent("tokens.sequence_length", tokens.sequence_length)?,
                vocabulary_size: extent("tokens.vocabulary_size", tokens.vocabulary_size)?,
            },
        })
    }
}

impl From<&Layer> for v1::Layer {
    fn from(layer: &Layer) -> Self {
        use v1::layer::Kind;
        let kind = match layer.kind {
            LayerKind::Conv2d { in_channels, out_channels, kernel, stride, padding } => {
                Kind::Conv2d(v1::Conv2d { in_channels, out_channels, kernel, stride, padding })
            }
            LayerKind::Relu => Kind::Relu(v1::Relu {}),
            LayerKind::MaxPool2d { kernel, stride } => Kind::MaxPool2d(v1::MaxPool2d { kernel, stride }),
            LayerKind::AdaptiveAvgPool2d { output } => {
                Kind::AdaptiveAvgPool2d(v1::AdaptiveAvgPool2d { output })
            }
            LayerKind::Flatten => Kind::Flatten(v1::Flatten {}),
            LayerKind::Linear { in_features, out_features } => {
                Kind::Linear(v1::Linear { in_features, out_features })
            }
            LayerKind::Dropout { probability } => Kind::Dropout(v1::Dropout { probability }),
            LayerKind::TokenEmbedding { vocabulary_size, positions, hidden_size, dropout } => {
                Kind::TokenEmbedding(v1::TokenEmbedding { vocabulary_size, positions, hidden_size, dropout })
            }
            LayerKind::TransformerBlock { hidden_size, heads, feed_forward_size, dropout } => {
                Kind::TransformerBlock(v1::TransformerBlock {
                    hidden_size,
                    heads,
                    feed_forward_size,
                    dropout,
                })
            }
            LayerKind::LayerNorm { hidden_size } => Kind::LayerNorm(v1::LayerNorm { hidden_size }),
            LayerKind::LanguageModelHead { hidden_size, vocabulary_size, tied } => {
                Kind::LanguageModelHead(v1::LanguageModelHead { hidden_size, vocabulary_size, tied })
            }
        };
        Self {
            name: layer.name.clone(),
            kind: Some(kind),
            parameter_count: to_i64(layer.kind.parameter_count()),
        }
    }
}

impl TryFrom<v1::Layer> for Layer {
    type Error = Invalid;

    fn try_from(wire: v1::Layer) -> Result<Self, Invalid> {
        use v1::layer::Kind;
        let kind = match required("kind", wire.kind)? {
            Kind::Conv2d(v1::Conv2d { in_channels, out_channels, kernel, stride, padding }) => {
                LayerKind::Conv2d { in_channels, out_channels, kernel, stride, padding }
            }
            Kind::Relu(v1::Relu {}) => LayerKind::Relu,
            Kind::MaxPool2d(v1::MaxPool2d { kernel, stride }) => LayerKind::MaxPool2d { kernel, stride },
            Kind::AdaptiveAvgPool2d(v1::AdaptiveAvgPool2d { output }) => {
                LayerKind::AdaptiveAvgPool2d { output }
            }
            Kind::Flatten(v1::Flatten {}) => LayerKind::Flatten,
            Kind::Linear(v1::Linear { in_features, out_features }) => {
                LayerKind::Linear { in_features, out_features }
            }
            Kind::Dropout(v1::Dropout { probability }) => LayerKind::Dropout { probability },
            Kind::TokenEmbedding(v1::TokenEmbedding { vocabulary_size, positions, hidden_size, dropout }) => {
                LayerKind::TokenEmbedding { vocabulary_size, positions, hidden_size, dropout }
            }
            Kind::TransformerBlock(v1::TransformerBlock {
                hidden_size,
                heads,
                feed_forward_size,
                dropout,
            }) => LayerKind::TransformerBlock { hidden_size, heads, feed_forward_size, dropout },
            Kind::LayerNorm(v1::LayerNorm { hidden_size }) => LayerKind::LayerNorm { hidden_size },
            Kind::LanguageModelHead(v1::LanguageModelHead { hidden_size, vocabulary_size, tied }) => {
                LayerKind::LanguageModelHead { hidden_size, vocabulary_size, tied }
            }
        };
        Ok(Self { name: wire.name, kind })
    }
}
