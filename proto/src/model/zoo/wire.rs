//! Models of the zoo as messages. A size of 0 is the family's own.

use crate::error::Invalid;
use crate::message;
use crate::model::zoo::{AmoebaNet, Bert, FAMILIES, Gpt2, Llama, TransGan, Vgg, Zoo};
use crate::wire::v1::zoo_model::Options;
use crate::wire::{ToWire, v1};

message! { Zoo <=> v1::ZooModel }

impl TryFrom<v1::ZooModel> for Zoo {
    type Error = Invalid;

    fn try_from(wire: v1::ZooModel) -> Result<Self, Invalid> {
        let zoo = match (wire.family.as_str(), wire.options) {
            ("vgg11", None) => Self::Vgg11(Vgg::default()),
            ("vgg11", Some(Options::Vgg(options))) => Self::Vgg11(options.try_into()?),
            ("gpt2", None) => Self::Gpt2(Gpt2::default()),
            ("gpt2", Some(Options::Gpt2(options))) => Self::Gpt2(options.into()),
            ("bert", None) => Self::Bert(Bert::default()),
            ("bert", Some(Options::Bert(options))) => Self::Bert(options.into()),
            ("llama", None) => Self::Llama(Llama::default()),
            ("llama", Some(Options::Llama(options))) => Self::Llama(options.into()),
            ("amoebanet_d", None) => Self::AmoebaNetD(AmoebaNet::default()),
            ("amoebanet_d", Some(Options::AmoebanetD(options))) => Self::AmoebaNetD(options.try_into()?),
            ("transgan", None) => Self::TransGan(TransGan::default()),
            ("transgan", Some(Options::Transgan(options))) => Self::TransGan(options.try_into()?),
            (family, Some(options)) if FAMILIES.contains(&family) => {
                return Err(invalid!(options_field(&options), "does not belong to {family:?}. Remove it"));
            }
            (family, _) => {
                return Err(invalid!("family", "{family:?} is no model family. Use {}", FAMILIES.join(", ")));
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
            Zoo::Vgg11(vgg) => Self::Vgg(vgg.into()),
            Zoo::Gpt2(gpt2) => Self::Gpt2(gpt2.into()),
            Zoo::Bert(bert) => Self::Bert(bert.into()),
            Zoo::Llama(llama) => Self::Llama(llama.into()),
            Zoo::AmoebaNetD(amoebanet) => Self::AmoebanetD(amoebanet.into()),
            Zoo::TransGan(transgan) => Self::Transgan(transgan.into()),
        }
    }
}

message! {
    Vgg <=> v1::VggOptions {
        image_size: or(Self::default().image_size),
        classes: or(Self::default().classes),
        classifier_width: or(Self::default().classifier_width),
    }
}

message! {
    AmoebaNet <=> v1::AmoebaNetOptions {
        cells: or(Self::default().cells),
        filters: or(Self::default().filters),
        image_size: or(Self::default().image_size),
        classes: or(Self::default().classes),
    }
}

message! {
    Gpt2 => v1::Gpt2Options {
        blocks,
        hidden_size,
        heads,
        sequence_length,
        positions,
        vocabulary_size,
        untied_head,
        dropout: required,
    }
}

message! {
    Bert => v1::BertOptions {
        blocks,
        hidden_size,
        heads,
        sequence_length,
        positions,
        vocabulary_size,
        classes,
        dropout: required,
    }
}

message! {
    Llama => v1::LlamaOptions {
        blocks,
        hidden_size,
        heads,
        key_value_heads,
        feed_forward_size,
        sequence_length,
        vocabulary_size,
        rotary_base: required,
        tied_head,
    }
}

impl From<&TransGan> for v1::TransGanOptions {
    fn from(transgan: &TransGan) -> Self {
        let TransGan { latent_size, hidden_size, heads, bottom_size, blocks } = transgan;
        Self {
            latent_size: latent_size.to_wire(),
            hidden_size: hidden_size.to_wire(),
            heads: heads.to_wire(),
            bottom_size: bottom_size.to_wire(),
            blocks: blocks.iter().map(ToWire::to_wire).collect(),
        }
    }
}

/// A size, or the family's own where there is none.
fn or_default(wire: i32, default: i64) -> i64 {
    if wire == 0 { default } else { wire.into() }
}

impl From<v1::Gpt2Options> for Gpt2 {
    fn from(wire: v1::Gpt2Options) -> Self {
        let default = Self::default();
        let sequence_length = or_default(wire.sequence_length, default.sequence_length);
        Self {
            blocks: or_default(wire.blocks, default.blocks),
            hidden_size: or_default(wire.hidden_size, default.hidden_size),
            heads: or_default(wire.heads, default.heads),
            sequence_length,
            positions: or_default(wire.positions, default.positions.max(sequence_length)),
            vocabulary_size: or_default(wire.vocabulary_size, default.vocabulary_size),
            untied_head: wire.untied_head,
            dropout: wire.dropout.unwrap_or(default.dropout),
        }
    }
}

impl From<v1::BertOptions> for Bert {
    fn from(wire: v1::BertOptions) -> Self {
        let default = Self::default();
        let hidden_size = or_default(wire.hidden_size, default.hidden_size);
        let sequence_length = or_default(wire.sequence_length, default.sequence_length);
        Self {
            blocks: or_default(wire.blocks, default.blocks),
            hidden_size,
            heads: or_default(wire.heads, (hidden_size / 64).max(1)),
            sequence_length,
            positions: or_default(wire.positions, default.positions.max(sequence_length)),
            vocabulary_size: or_default(wire.vocabulary_size, default.vocabulary_size),
            classes: or_default(wire.classes, default.classes),
            dropout: wire.dropout.unwrap_or(default.dropout),
        }
    }
}

impl From<v1::LlamaOptions> for Llama {
    fn from(wire: v1::LlamaOptions) -> Self {
        let default = Self::default();
        let hidden_size = or_default(wire.hidden_size, default.hidden_size);
        let heads = or_default(wire.heads, (hidden_size / 128).max(1));
        Self {
            blocks: or_default(wire.blocks, default.blocks),
            hidden_size,
            heads,
            key_value_heads: or_default(wire.key_value_heads, heads),
            feed_forward_size: or_default(wire.feed_forward_size, Self::feed_forward_size_for(hidden_size)),
            sequence_length: or_default(wire.sequence_length, default.sequence_length),
            vocabulary_size: or_default(wire.vocabulary_size, default.vocabulary_size),
            rotary_base: wire.rotary_base.unwrap_or(default.rotary_base),
            tied_head: wire.tied_head,
        }
    }
}

impl TryFrom<v1::TransGanOptions> for TransGan {
    type Error = Invalid;

    fn try_from(wire: v1::TransGanOptions) -> Result<Self, Invalid> {
        let default = Self::default();
        let blocks = match *wire.blocks.as_slice() {
            [] => default.blocks,
            [first, second, third] => [first.into(), second.into(), third.into()],
            _ => {
                return Err(invalid!("transgan.blocks", "has {} numbers. Use 3", wire.blocks.len()));
            }
        };
        Ok(Self {
            latent_size: or_default(wire.latent_size, default.latent_size),
            hidden_size: or_default(wire.hidden_size, default.hidden_size),
            heads: or_default(wire.heads, default.heads),
            bottom_size: or_default(wire.bottom_size, default.bottom_size),
            blocks,
        })
    }
}
