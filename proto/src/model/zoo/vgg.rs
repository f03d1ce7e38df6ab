//! VGG11.

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, in_range};
use crate::model::layer::{Layer, LayerKind};
use crate::model::{Model, ModelInput};

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

pub(super) fn build(options: &Vgg) -> Result<Model, Invalid> {
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
