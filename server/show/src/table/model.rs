//! Models and their layers.

use loadmaster_proto::wire::v1::layer::Kind;
use loadmaster_proto::wire::v1::{Layer, Loss, Model, TransformerBlock, model_input};

use super::grid::Side::{Left, Right};
use super::grid::{Facts, Grid};
use super::{id, or_none};
use crate::show;
use crate::text::terminal_abilities::Look;
use crate::text::{count, plain, time};

show!(Model as one);
show!(ListModelsResponse of models as list);

fn one(model: &Model, look: Look) -> String {
    let mut facts = Facts::default();
    facts.add("model", or_none(&model.name, look));
    facts.add("family", &model.family);
    facts.add("input", input(model, look));
    if model.loss() == Loss::MeanSquare {
        facts.add("loss", "mean square");
    }
    facts.add("layers", model.layer_count.to_string());
    facts.add("parameters", count(model.parameter_count));
    facts.add("created", time(model.create_time.as_ref(), look));
    for note in &model.notes {
        facts.add("note", plain(note));
    }
    if model.layers.is_empty() {
        return facts.render();
    }
    let mut grid =
        Grid::new(&[("layer", Right), ("name", Left), ("kind", Left), ("parameters", Right)], look);
    for (index, layer) in model.layers.iter().enumerate() {
        grid.row([index.to_string(), plain(&layer.name), kind(layer, look), count(layer.parameter_count)]);
    }
    facts.render() + "\n" + &grid.render()
}

fn list(models: &[Model], look: Look) -> String {
    if models.is_empty() {
        return "no models\n".to_owned();
    }
    let mut grid = Grid::new(
        &[
            ("model", Left),
            ("family", Left),
            ("input", Left),
            ("layers", Right),
            ("parameters", Right),
            ("created", Left),
        ],
        look,
    );
    for model in models {
        grid.row([
            id(&model.name),
            plain(&model.family),
            input(model, look),
            model.layer_count.to_string(),
            count(model.parameter_count),
            time(model.create_time.as_ref(), look),
        ]);
    }
    grid.render()
}

fn input(model: &Model, look: Look) -> String {
    let times = look.times();
    match model.input.as_ref().and_then(|input| input.input.as_ref()) {
        Some(model_input::Input::Image(image)) => {
            format!("image {}{times}{}{times}{}", image.channels, image.height, image.width)
        }
        Some(model_input::Input::Tokens(tokens)) => {
            format!("{} tokens of {}", tokens.sequence_length, count(tokens.vocabulary_size))
        }
        Some(model_input::Input::Vector(vector)) => format!("vector of {}", vector.size),
        None => look.none().to_owned(),
    }
}

fn transformer_block(block: &TransformerBlock) -> String {
    let mut text = format!("transformer block {}, {} heads", block.hidden_size, block.heads);
    if block.key_value_heads != 0 {
        text += &format!(" ({} of keys and values)", block.key_value_heads);
    }
    let gated = if block.gated { "gated " } else { "" };
    text + &format!(", {gated}feed-forward {}", block.feed_forward_size)
}

fn kind(layer: &Layer, look: Look) -> String {
    let to = if look.unicode { "→" } else { "->" };
    let times = look.times();
    match &layer.kind {
        None => look.none().to_owned(),
        Some(Kind::Conv2d(conv)) => format!(
            "convolution {}{to}{}, kernel {}{times}{}, stride {}, padding {}",
            conv.in_channels, conv.out_channels, conv.kernel, conv.kernel, conv.stride, conv.padding
        ),
        Some(Kind::Relu(_)) => "relu".to_owned(),
        Some(Kind::MaxPool2d(pool)) => {
            format!("max pool {}{times}{}, stride {}", pool.kernel, pool.kernel, pool.stride)
        }
        Some(Kind::AdaptiveAvgPool2d(pool)) => {
            format!("average pool to {}{times}{}", pool.output, pool.output)
        }
        Some(Kind::Flatten(_)) => "flatten".to_owned(),
        Some(Kind::Linear(linear)) => format!("linear {}{to}{}", linear.in_features, linear.out_features),
        Some(Kind::Dropout(dropout)) => format!("dropout {}", dropout.probability),
        Some(Kind::TokenEmbedding(embedding)) => {
            let positions = match embedding.positions {
                0 => String::new(),
                positions => format!(" and {positions} positions"),
            };
            let size = embedding.hidden_size;
            format!("embedding of {} tokens{positions} in {size}", count(embedding.vocabulary_size))
        }
        Some(Kind::TransformerBlock(block)) => transformer_block(block),
        Some(Kind::LayerNorm(norm)) => format!("layer norm {}", norm.hidden_size),
        Some(Kind::RmsNorm(norm)) => format!("rms norm {}", norm.hidden_size),
        Some(Kind::Pooler(pooler)) => format!("first token, linear {0}{to}{0}, tanh", pooler.hidden_size),
        Some(Kind::ReluConvBatchNorm(conv)) => format!(
            "relu, convolution {}{to}{}, kernel {}{times}{}, stride {}, batch norm",
            conv.in_channels, conv.out_channels, conv.kernel, conv.kernel, conv.stride
        ),
        Some(Kind::AmoebaCell(cell)) => format!(
            "{} cell of {} channels",
            if cell.reduction { "reduction" } else { "normal" },
            cell.channels
        ),
        Some(Kind::ImageClassifier(classifier)) => {
            format!("image average, linear {}{to}{}", classifier.channels, classifier.classes)
        }
        Some(Kind::LatentTokens(latent)) => {
            format!("latent {}{to}{} tokens of {}", latent.latent_size, latent.tokens, latent.hidden_size)
        }
        Some(Kind::PixelShuffle(shuffle)) => format!(
            "pixel shuffle {}{times}{}{to}{}{times}{}",
            shuffle.height,
            shuffle.width,
            shuffle.height.saturating_mul(2),
            shuffle.width.saturating_mul(2)
        ),
        Some(Kind::TokensToImage(image)) => format!(
            "tokens of {}{to}image {}{times}{}{times}{}",
            image.hidden_size, image.channels, image.height, image.width
        ),
        Some(Kind::LanguageModelHead(head)) => format!(
            "head {}{to}{}{}",
            head.hidden_size,
            head.vocabulary_size,
            if head.tied { ", tied to the embedding" } else { "" }
        ),
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::wire::v1;

    use super::*;

    #[test]
    fn a_model_shows_its_layers() {
        let relu =
            Layer { name: "relu1".to_owned(), kind: Some(Kind::Relu(v1::Relu {})), parameter_count: 0 };
        let linear = v1::Linear { in_features: 512, out_features: 10 };
        let fc = Layer { name: "fc1".to_owned(), kind: Some(Kind::Linear(linear)), parameter_count: 5130 };
        let image = v1::ImageInput { channels: 3, height: 32, width: 32 };
        let model = Model {
            name: "models/vgg11-1f".to_owned(),
            family: "vgg11".to_owned(),
            input: Some(v1::ModelInput { input: Some(model_input::Input::Image(image)) }),
            layers: vec![relu, fc],
            layer_count: 2,
            parameter_count: 5130,
            ..Model::default()
        };
        assert_eq!(
            one(&model, Look::PLAIN),
            "model       models/vgg11-1f\n\
             family      vgg11\n\
             input       image 3x32x32\n\
             layers      2\n\
             parameters  5,130\n\
             created     -\n\
             \n\
             layer  name   kind            parameters\n\
             \x20   0  relu1  relu                     0\n\
             \x20   1  fc1    linear 512->10       5,130\n"
        );
        assert_eq!(list(&[], Look::PLAIN), "no models\n");
    }
}
