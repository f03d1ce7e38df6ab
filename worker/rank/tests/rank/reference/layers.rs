//! What each kind of layer computes, written down once more.

use std::collections::HashMap;

use loadmaster_proto::model::layer::LayerKind;
use tch::{Device, Kind, Tensor};

use super::{cells, transformer};

/// The tensors of a layer by name.
pub(super) type Named<'a> = HashMap<&'a str, Tensor>;

pub(super) fn forward(kind: LayerKind, w: &Named<'_>, inputs: &[Tensor]) -> Vec<Tensor> {
    match kind {
        LayerKind::AmoebaCell(cell) => cells::forward(cell, w, inputs),
        kind => vec![of_one(kind, w, &inputs[0])],
    }
}

pub(super) fn affine(w: &Named<'_>, name: &str, x: &Tensor) -> Tensor {
    let product = x.matmul(&w[format!("{name}weight").as_str()].transpose(0, 1));
    match w.get(format!("{name}bias").as_str()) {
        Some(bias) => product + bias,
        None => product,
    }
}

pub(super) fn layer_norm(w: &Named<'_>, name: &str, epsilon: f64, x: &Tensor) -> Tensor {
    let centred = x - x.mean_dim([-1_i64].as_slice(), true, None);
    let variance = centred.square().mean_dim([-1_i64].as_slice(), true, None);
    centred / (variance + epsilon).sqrt() * &w[format!("{name}weight").as_str()]
        + &w[format!("{name}bias").as_str()]
}

pub(super) fn rms_norm(weight: &Tensor, epsilon: f64, x: &Tensor) -> Tensor {
    let mean_square = x.square().mean_dim([-1_i64].as_slice(), true, None);
    x / (mean_square + epsilon).sqrt() * weight
}

fn of_one(kind: LayerKind, w: &Named<'_>, input: &Tensor) -> Tensor {
    match kind {
        LayerKind::Conv2d { stride, padding, .. } => {
            input.conv2d(&w["weight"], Some(&w["bias"]), stride, padding, 1, 1)
        }
        LayerKind::Relu => input.clamp_min(0.0),
        LayerKind::MaxPool2d { kernel, stride } => input.max_pool2d(kernel, stride, 0, 1, false),
        LayerKind::AdaptiveAvgPool2d { output } => input.adaptive_avg_pool2d([output, output]),
        LayerKind::Flatten => input.reshape([input.size()[0], -1]),
        LayerKind::Linear { .. } | LayerKind::LanguageModelHead { .. } => affine(w, "", input),
        LayerKind::Dropout { probability } => input.dropout(probability, true),
        LayerKind::TokenEmbedding(embedding) => {
            let [samples, tokens] = [input.size()[0], input.size()[1]];
            let mut sum = w["token"].index_select(0, &input.reshape([-1])).reshape([samples, tokens, -1]);
            if embedding.positions > 0 {
                let positions = Tensor::arange(tokens, (Kind::Int64, Device::Cpu));
                sum += w["position"].index_select(0, &positions);
            }
            if embedding.token_types > 0 {
                sum += w["token_type"].get(0);
            }
            if let Some(epsilon) = embedding.norm_epsilon {
                sum = layer_norm(w, "norm.", epsilon, &sum);
            }
            sum.dropout(embedding.dropout, true)
        }
        LayerKind::TransformerBlock(block) => transformer::forward(block, w, input),
        LayerKind::LayerNorm { epsilon, .. } => layer_norm(w, "", epsilon, input),
        LayerKind::RmsNorm { epsilon, .. } => rms_norm(&w["weight"], epsilon, input),
        LayerKind::Pooler { .. } => affine(w, "", &input.select(1, 0)).tanh(),
        LayerKind::ReluConvBatchNorm { stride, padding, .. } => {
            let convolved = input.clamp_min(0.0).conv2d(&w["weight"], None::<&Tensor>, stride, padding, 1, 1);
            cells::batch_norm(w, "norm", &convolved)
        }
        LayerKind::ImageClassifier { .. } => affine(w, "", &input.flatten(2, 3).mean_dim(2, false, None)),
        LayerKind::LatentTokens { tokens, hidden_size, .. } => {
            affine(w, "", input).reshape([-1, tokens, hidden_size]) + &w["position"]
        }
        LayerKind::PixelShuffle { hidden_size, height, width } => {
            let image = input.transpose(1, 2).reshape([-1, hidden_size, height, width]);
            image.pixel_shuffle(2).flatten(2, 3).transpose(1, 2) + &w["position"]
        }
        LayerKind::TokensToImage { hidden_size, height, width, channels } => {
            let image = input.transpose(1, 2).reshape([-1, hidden_size, height, width]);
            let weight = w["weight"].reshape([channels, hidden_size, 1, 1]);
            image.conv2d(&weight, Some(&w["bias"]), 1, 0, 1, 1)
        }
        LayerKind::AmoebaCell(_) => unreachable!("a cell takes two tensors"),
    }
}
