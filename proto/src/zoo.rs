//! Models that Loadmaster knows by name.

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, in_range};
use crate::layer::{Layer, LayerKind};
use crate::model::{Model, ModelInput};

/// Names of all families, as users write them.
pub const FAMILIES: [&str; 2] = ["vgg11", "gpt2"];

/// A family with its hyper-parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "family", rename_all = "lowercase")]
pub enum Zoo {
    /// See [`Vgg`].
    Vgg11(Vgg),
    /// See [`Gpt2`].
    Gpt2(Gpt2),
}

/// VGG11 as torchgpipe flattens it: 30 layers; 132,863,336 parameters at the default sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vgg {
    /// Height and width of the input.
    pub image_size: i64,
    /// Classes.
    pub classes: i64,
    /// Width of the two hidden layers of the classifier.
    pub classifier_width: i64,
}

impl Default for Vgg {
    fn default() -> Self {
        Self { image_size: 224, classes: 1000, classifier_width: 4096 }
    }
}

/// GPT-2: embedding, pre-norm blocks, final norm, head; 124,439,808 parameters at the default sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gpt2 {
    /// Transformer blocks.
    pub blocks: i64,
    /// Hidden size.
    pub hidden_size: i64,
    /// Attention heads.
    pub heads: i64,
    /// Tokens per sample.
    pub sequence_length: i64,
    /// Learned positions.
    pub positions: i64,
    /// Vocabulary.
    pub vocabulary_size: i64,
    /// The head has a weight of its own.
    pub untied_head: bool,
    /// Dropout everywhere.
    pub dropout: f64,
}

impl Default for Gpt2 {
    fn default() -> Self {
        Self {
            blocks: 12,
            hidden_size: 768,
            heads: 12,
            sequence_length: 1024,
            positions: 1024,
            vocabulary_size: 50_257,
            untied_head: false,
            dropout: 0.1,
        }
    }
}

impl Zoo {
    /// The family's name.
    pub fn family(&self) -> &'static str {
        match self {
            Self::Vgg11(_) => "vgg11",
            Self::Gpt2(_) => "gpt2",
        }
    }

    /// Builds the model.
    ///
    /// # Errors
    /// When a hyper-parameter is out of range; the violation names it.
    pub fn build(&self) -> Result<Model, Invalid> {
        match self {
            Self::Vgg11(options) => vgg11(options),
            Self::Gpt2(options) => gpt2(options),
        }
    }
}

/// Numbers of output channels; `None` is a pooling layer.
const VGG11_FEATURES: [Option<i64>; 13] = [
    Some(64),
    None,
    Some(128),
    None,
    Some(256),
    Some(256),
    None,
    Some(512),
    Some(512),
    None,
    Some(512),
    Some(512),
    None,
];

fn vgg11(options: &Vgg) -> Result<Model, Invalid> {
    let size = in_range("image_size", options.image_size, 32..=4096)?;
    let classes = in_range("classes", options.classes, 1..=1_000_000)?;
    let width = in_range("classifier_width", options.classifier_width, 1..=65_536)?;

    let mut chain = Chain::default();
    let mut channels = 3;
    for feature in VGG11_FEATURES {
        match feature {
            Some(out_channels) => {
                let conv = LayerKind::Conv2d {
                    in_channels: channels,
                    out_channels,
                    kernel: 3,
                    stride: 1,
                    padding: 1,
                };
                chain.push("conv", conv);
                chain.push("relu", LayerKind::Relu);
                channels = out_channels;
            }
            None => chain.push("pool", LayerKind::MaxPool2d { kernel: 2, stride: 2 }),
        }
    }
    chain.push("avgpool", LayerKind::AdaptiveAvgPool2d { output: 7 });
    chain.push("flatten", LayerKind::Flatten);
    for in_features in [channels * 7 * 7, width] {
        chain.push("fc", LayerKind::Linear { in_features, out_features: width });
        chain.push("relu", LayerKind::Relu);
        chain.push("dropout", LayerKind::Dropout { probability: 0.5 });
    }
    chain.push("fc", LayerKind::Linear { in_features: width, out_features: classes });
    let input = ModelInput::Image { channels: 3, height: size, width: size };
    Model::new("vgg11".to_owned(), input, chain.layers)
}

fn gpt2(options: &Gpt2) -> Result<Model, Invalid> {
    let blocks = in_range("blocks", options.blocks, 1..=9_000)?;
    let hidden_size = in_range("hidden_size", options.hidden_size, 1..=65_536)?;
    let heads = in_range("heads", options.heads, 1..=1_024)?;
    let positions = in_range("positions", options.positions, 1..=1 << 20)?;
    let sequence_length = in_range("sequence_length", options.sequence_length, 1..=positions)?;
    let vocabulary_size = in_range("vocabulary_size", options.vocabulary_size, 2..=10_000_000)?;
    let dropout = options.dropout;
    if hidden_size % heads != 0 {
        return Err(Invalid::field("heads", format!("is {heads}, must divide hidden_size ({hidden_size})")));
    }
    if !(0.0..1.0).contains(&dropout) {
        return Err(Invalid::field("dropout", format!("is {dropout}, must be 0 to below 1")));
    }

    let mut layers = vec![Layer {
        name: "embedding".to_owned(),
        kind: LayerKind::TokenEmbedding { vocabulary_size, positions, hidden_size, dropout },
    }];
    layers.extend((0..blocks).map(|index| Layer {
        name: format!("block.{index}"),
        kind: LayerKind::TransformerBlock { hidden_size, heads, feed_forward_size: 4 * hidden_size, dropout },
    }));
    layers.push(Layer { name: "norm".to_owned(), kind: LayerKind::LayerNorm { hidden_size } });
    layers.push(Layer {
        name: "head".to_owned(),
        kind: LayerKind::LanguageModelHead { hidden_size, vocabulary_size, tied: !options.untied_head },
    });
    Model::new("gpt2".to_owned(), ModelInput::Tokens { sequence_length, vocabulary_size }, layers)
}

/// A chain whose layers are numbered per kind: `conv1`, `relu1`, `conv2`, …
#[derive(Default)]
struct Chain {
    layers: Vec<Layer>,
}

impl Chain {
    fn push(&mut self, stem: &str, kind: LayerKind) {
        let numbered =
            |layer: &&Layer| layer.name.strip_prefix(stem).is_some_and(|rest| rest.parse::<u32>().is_ok());
        let number = self.layers.iter().filter(numbered).count() + 1;
        self.layers.push(Layer { name: format!("{stem}{number}"), kind });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vgg11_is_torchgpipes_sequence() {
        let model = Zoo::Vgg11(Vgg::default()).build().unwrap();
        assert_eq!(model.layers().len(), 30);
        assert_eq!(model.parameter_count(), 132_863_336);
        let counts: Vec<u64> = model
            .layers()
            .iter()
            .map(|layer| layer.kind.parameter_count())
            .filter(|&count| count > 0)
            .collect();
        assert_eq!(
            counts,
            [
                1_792,
                73_856,
                295_168,
                590_080,
                1_180_160,
                2_359_808,
                2_359_808,
                2_359_808,
                102_764_544,
                16_781_312,
                4_097_000
            ]
        );
        assert_eq!(model.edge(30), [[1000]]);
    }

    #[test]
    fn gpt2_small_has_its_published_parameters_tied_and_untied() {
        let tied = Zoo::Gpt2(Gpt2::default()).build().unwrap();
        assert_eq!(tied.layers().len(), 15);
        assert_eq!(tied.parameter_count(), 124_439_808);
        let untied = Zoo::Gpt2(Gpt2 { untied_head: true, ..Gpt2::default() }).build().unwrap();
        assert_eq!(untied.parameter_count(), 124_439_808 + 50_257 * 768);
    }

    #[test]
    fn a_tied_weight_is_held_once_by_a_stage_with_both_ends_and_twice_by_two_stages() {
        let model = Zoo::Gpt2(Gpt2::default()).build().unwrap();
        let scalars = |first, last| -> u64 {
            model.stage_parameters(first, last).iter().map(Parameter::elements).sum()
        };
        assert_eq!(scalars(0, 14), 124_439_808);
        assert_eq!(scalars(0, 7) + scalars(8, 14), 124_439_808 + 50_257 * 768);
    }

    #[test]
    fn hyper_parameters_out_of_range_are_named() {
        let error = Zoo::Gpt2(Gpt2 { heads: 5, ..Gpt2::default() }).build().unwrap_err();
        assert_eq!(error.violations()[0].field, "heads");
        let error = Zoo::Gpt2(Gpt2 { blocks: 0, ..Gpt2::default() }).build().unwrap_err();
        assert_eq!(error.violations()[0].field, "blocks");
        let error = Zoo::Vgg11(Vgg { image_size: 8, ..Vgg::default() }).build().unwrap_err();
        assert_eq!(error.violations()[0].field, "image_size");
    }

    #[test]
    fn the_id_follows_the_content() {
        let small = Zoo::Vgg11(Vgg { image_size: 32, ..Vgg::default() });
        assert_eq!(small.build().unwrap().id(), small.build().unwrap().id());
        assert_ne!(small.build().unwrap().id(), Zoo::Vgg11(Vgg::default()).build().unwrap().id());
    }

    use crate::layer::Parameter;
}
