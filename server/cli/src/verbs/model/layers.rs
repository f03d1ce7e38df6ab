//! A model as the list of layers that `loadmaster model import` reads.

use std::fmt::Write;

use anyhow::Context as _;
use loadmaster_proto::model::Model;
use loadmaster_proto::wire::v1;

use crate::failure::Failure;

/// JSON with one layer per line: the form in which models are stored, and in which documents name a known model.
///
/// # Errors
/// The planner's answer is no model that this program knows.
pub(super) fn list(model: v1::Model) -> Result<String, Failure> {
    let name = model.name.clone();
    let model = Model::try_from(model).map_err(|invalid| {
        anyhow::anyhow!(
            "{name} has a layer that this version of loadmaster does not support ({invalid}). Install the \
            planner's version."
        )
    })?;
    Ok(text(&model)?)
}

fn text(model: &Model) -> anyhow::Result<String> {
    let value = serde_json::to_value(model).context("a model cannot be written")?;
    let fields = value.as_object().context("a model is no map")?;
    let mut text = "{".to_owned();
    for (index, (key, value)) in fields.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}\n  {}: ", serde_json::to_string(key)?)?;
        match value.as_array().filter(|_| key == "layers") {
            Some(layers) => {
                let lines: Vec<String> =
                    layers.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
                write!(text, "[\n    {}\n  ]", lines.join(",\n    "))?;
            }
            None => write!(text, "{}", serde_json::to_string(value)?)?,
        }
    }
    text.push_str("\n}\n");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::model::import::{LayerList, ModelSource};
    use loadmaster_proto::model::zoo::{AmoebaNet, Bert, Gpt2, Llama, TransGan, Vgg, Zoo};

    use super::*;

    /// What is printed is what is read: every family comes back as the same model, with the same name.
    #[test]
    fn what_is_printed_can_be_imported() {
        for zoo in [
            Zoo::Vgg11(Vgg::default()),
            Zoo::Gpt2(Gpt2 { untied_head: true, ..Gpt2::default() }),
            Zoo::Gpt2(Gpt2::default()),
            Zoo::Bert(Bert::default()),
            Zoo::Llama(Llama { key_value_heads: 4, ..Llama::default() }),
            Zoo::AmoebaNetD(AmoebaNet::default()),
            Zoo::TransGan(TransGan::default()),
        ] {
            let model = zoo.build().unwrap();
            let document = list(v1::Model::from(&model)).unwrap();
            assert_eq!(
                document.lines().filter(|line| line.starts_with("    ")).count(),
                model.layers().len()
            );
            let again = ModelSource::LayerList(LayerList { document }).build().unwrap();
            assert_eq!(again, model);
            assert_eq!(again.id(), model.id());
        }
    }
}
