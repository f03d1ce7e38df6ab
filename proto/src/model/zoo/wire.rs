//! Models of the zoo and other sources of models.

use crate::convert::{or_default, to_i32};
use crate::error::{Invalid, required};
use crate::model::import::{HuggingFaceConfig, LayerList, ModelSource};
use crate::model::zoo::{AmoebaNet, Bert, FAMILIES, Gpt2, Llama, TransGan, Vgg, Zoo};
use crate::wire::v1;
use crate::wire::v1::model_source::Source;
use crate::wire::v1::zoo_model::Options;

impl TryFrom<v1::ModelSource> for ModelSource {
    type Error = Invalid;

    fn try_from(wire: v1::ModelSource) -> Result<Self, Invalid> {
        match required("source", wire.source)? {
            Source::Zoo(zoo) => {
                zoo.try_into().map(Self::Zoo).map_err(|invalid: Invalid| invalid.under("zoo"))
            }
            Source::LayerList(v1::LayerList { document }) => Ok(Self::LayerList(LayerList { document })),
            Source::HuggingFace(v1::HuggingFaceConfig { config, sequence_length }) => {
                let sequence_length = i64::from(sequence_length);
                if sequence_length < 0 {
                    return Err(Invalid::field(
                        "hugging_face.sequence_length",
                        format!("is {sequence_length}, must be 1 or more"),
                    ));
                }
                let sequence_length = (sequence_length > 0).then_some(sequence_length);
                Ok(Self::HuggingFace(HuggingFaceConfig { config, sequence_length }))
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
            ModelSource::HuggingFace(HuggingFaceConfig { config, sequence_length }) => {
                Source::HuggingFace(v1::HuggingFaceConfig {
                    config: config.clone(),
                    sequence_length: to_i32(sequence_length.unwrap_or_default()),
                })
            }
        };
        Self { source: Some(source) }
    }
}

impl TryFrom<v1::ZooModel> for Zoo {
    type Error = Invalid;

    fn try_from(wire: v1::ZooModel) -> Result<Self, Invalid> {
        let zoo = match (wire.family.as_str(), wire.options) {
            ("vgg11", None) => Self::Vgg11(Vgg::default()),
            ("vgg11", Some(Options::Vgg(options))) => Self::Vgg11((&options).into()),
            ("gpt2", None) => Self::Gpt2(Gpt2::default()),
            ("gpt2", Some(Options::Gpt2(options))) => Self::Gpt2((&options).into()),
            ("bert", None) => Self::Bert(Bert::default()),
            ("bert", Some(Options::Bert(options))) => Self::Bert((&options).into()),
            ("llama", None) => Self::Llama(Llama::default()),
            ("llama", Some(Options::Llama(options))) => Self::Llama((&options).into()),
            ("amoebanet_d", None) => Self::AmoebaNetD(AmoebaNet::default()),
            ("amoebanet_d", Some(Options::AmoebanetD(options))) => Self::AmoebaNetD((&options).into()),
            ("transgan", None) => Self::TransGan(TransGan::default()),
            ("transgan", Some(Options::Transgan(options))) => Self::TransGan((&options).try_into()?),
            (family, Some(options)) if FAMILIES.contains(&family) => {
                return Err(Invalid::field(
                    options_field(&options),
                    format!("does not belong to the family {family:?}"),
                ));
            }
            (family, _) => {
                return Err(Invalid::field(
                    "family",
                    format!("{family:?} is not a model that Loadmaster knows: use {}", FAMILIES.join(", ")),
                ));
            }
        };
        Ok(zoo)
    }
}

fn options_field(options: &Options) -> &'static str {
    match options {
        Options::Vgg(_) => "vgg",
        Options::Gpt2(_) => "gpt2",
        Options::Bert(_) => "bert",
        Options::Llama(_) => "llama",
        Options::AmoebanetD(_) => "amoebanet_d",
        Options::Transgan(_) => "transgan",
    }
}

impl Zoo {
    /// The field of a `ZooModel` message that its hyper-parameters are in.
    pub fn options_field(&self) -> &'static str {
        options_field(&Options::from(self))
    }
}

impl From<&Zoo> for v1::ZooModel {
    fn from(zoo: &Zoo) -> Self {
        Self { family: zoo.family().to_owned(), options: Some(zoo.into()) }
    }
}

impl From<&Zoo> for Options {
    fn from(zoo: &Zoo) -> Self {
        match zoo {
            Zoo::Vgg11(vgg) => Self::Vgg(v1::VggOptions {
                image_size: to_i32(vgg.image_size),
                classes: to_i32(vgg.classes),
                classifier_width: to_i32(vgg.classifier_width),
            }),
            Zoo::Gpt2(gpt2) => Self::Gpt2(v1::Gpt2Options {
                blocks: to_i32(gpt2.blocks),
                hidden_size: to_i32(gpt2.hidden_size),
                heads: to_i32(gpt2.heads),
                sequence_length: to_i32(gpt2.sequence_length),
                positions: to_i32(gpt2.positions),
                vocabulary_size: to_i32(gpt2.vocabulary_size),
                untied_head: gpt2.untied_head,
                dropout: Some(gpt2.dropout),
            }),
            Zoo::Bert(bert) => Self::Bert(v1::BertOptions {
                blocks: to_i32(bert.blocks),
                hidden_size: to_i32(bert.hidden_size),
                heads: to_i32(bert.heads),
                sequence_length: to_i32(bert.sequence_length),
                positions: to_i32(bert.positions),
                vocabulary_size: to_i32(bert.vocabulary_size),
                classes: to_i32(bert.classes),
                dropout: Some(bert.dropout),
            }),
            Zoo::Llama(llama) => Self::Llama(v1::LlamaOptions {
                blocks: to_i32(llama.blocks),
                hidden_size: to_i32(llama.hidden_size),
                heads: to_i32(llama.heads),
                key_value_heads: to_i32(llama.key_value_heads),
                feed_forward_size: to_i32(llama.feed_forward_size),
                sequence_length: to_i32(llama.sequence_length),
                vocabulary_size: to_i32(llama.vocabulary_size),
                rotary_base: Some(llama.rotary_base),
                tied_head: llama.tied_head,
            }),
            Zoo::AmoebaNetD(amoebanet) => Self::AmoebanetD(v1::AmoebaNetOptions {
                cells: to_i32(amoebanet.cells),
                filters: to_i32(amoebanet.filters),
                image_size: to_i32(amoebanet.image_size),
                classes: to_i32(amoebanet.classes),
            }),
            Zoo::TransGan(transgan) => Self::Transgan(v1::TransGanOptions {
                latent_size: to_i32(transgan.latent_size),
                hidden_size: to_i32(transgan.hidden_size),
                heads: to_i32(transgan.heads),
                bottom_size: to_i32(transgan.bottom_size),
                blocks: transgan.blocks.iter().map(|&blocks| to_i32(blocks)).collect(),
            }),
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

impl From<&v1::BertOptions> for Bert {
    fn from(wire: &v1::BertOptions) -> Self {
        let default = Self::default();
        let hidden_size = or_default(wire.hidden_size.into(), default.hidden_size);
        let sequence_length = or_default(wire.sequence_length.into(), default.sequence_length);
        Self {
            blocks: or_default(wire.blocks.into(), default.blocks),
            hidden_size,
            heads: or_default(wire.heads.into(), (hidden_size / 64).max(1)),
            sequence_length,
            positions: or_default(wire.positions.into(), default.positions.max(sequence_length)),
            vocabulary_size: or_default(wire.vocabulary_size.into(), default.vocabulary_size),
            classes: or_default(wire.classes.into(), default.classes),
            dropout: wire.dropout.unwrap_or(default.dropout),
        }
    }
}

impl From<&v1::LlamaOptions> for Llama {
    fn from(wire: &v1::LlamaOptions) -> Self {
        let default = Self::default();
        let hidden_size = or_default(wire.hidden_size.into(), default.hidden_size);
        let heads = or_default(wire.heads.into(), (hidden_size / 128).max(1));
        Self {
            blocks: or_default(wire.blocks.into(), default.blocks),
            hidden_size,
            heads,
            key_value_heads: or_default(wire.key_value_heads.into(), heads),
            feed_forward_size: or_default(
                wire.feed_forward_size.into(),
                Self::feed_forward_size_for(hidden_size),
            ),
            sequence_length: or_default(wire.sequence_length.into(), default.sequence_length),
            vocabulary_size: or_default(wire.vocabulary_size.into(), default.vocabulary_size),
            rotary_base: wire.rotary_base.unwrap_or(default.rotary_base),
            tied_head: wire.tied_head,
        }
    }
}

impl From<&v1::AmoebaNetOptions> for AmoebaNet {
    fn from(wire: &v1::AmoebaNetOptions) -> Self {
        let default = Self::default();
        Self {
            cells: or_default(wire.cells.into(), default.cells),
            filters: or_default(wire.filters.into(), default.filters),
            image_size: or_default(wire.image_size.into(), default.image_size),
            classes: or_default(wire.classes.into(), default.classes),
        }
    }
}

impl TryFrom<&v1::TransGanOptions> for TransGan {
    type Error = Invalid;

    fn try_from(wire: &v1::TransGanOptions) -> Result<Self, Invalid> {
        let default = Self::default();
        let blocks = match *wire.blocks.as_slice() {
            [] => default.blocks,
            [first, second, third] => [first.into(), second.into(), third.into()],
            _ => {
                return Err(Invalid::field(
                    "transgan.blocks",
                    format!("has {} numbers, must have one for each of the 3 groups", wire.blocks.len()),
                ));
            }
        };
        Ok(Self {
            latent_size: or_default(wire.latent_size.into(), default.latent_size),
            hidden_size: or_default(wire.hidden_size.into(), default.hidden_size),
            heads: or_default(wire.heads.into(), default.heads),
            bottom_size: or_default(wire.bottom_size.into(), default.bottom_size),
            blocks,
        })
    }
}
