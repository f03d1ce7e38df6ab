//! Models.

use crate::convert::{to_i32, to_i64};
use crate::error::{Invalid, required};
use crate::model::layer::Layer;
use crate::model::{Loss, Model, ModelInput};
use crate::wire::v1;

impl From<&Model> for v1::Model {
    /// Everything but name, source and time, which the store knows.
    fn from(model: &Model) -> Self {
        Self {
            family: model.family().to_owned(),
            input: Some(model.input().into()),
            layers: model.layers().iter().map(Into::into).collect(),
            layer_count: to_i32(model.layers().len()),
            parameter_count: to_i64(model.parameter_count()),
            loss: v1::Loss::from(model.loss()).into(),
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
        let loss = v1::Loss::try_from(wire.loss)
            .map_err(|_| Invalid::field("loss", format!("{} is unknown", wire.loss)))?;
        Ok(Self::new(wire.family, input, layers)?.with_loss(loss.into()))
    }
}

impl From<Loss> for v1::Loss {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::CrossEntropy => Self::CrossEntropy,
            Loss::MeanSquare => Self::MeanSquare,
        }
    }
}

impl From<v1::Loss> for Loss {
    fn from(wire: v1::Loss) -> Self {
        match wire {
            v1::Loss::Unspecified | v1::Loss::CrossEntropy => Self::CrossEntropy,
            v1::Loss::MeanSquare => Self::MeanSquare,
        }
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
            ModelInput::Vector { size } => Input::Vector(v1::VectorInput { size }),
        };
        Self { input: Some(input) }
    }
}

impl TryFrom<v1::ModelInput> for ModelInput {
    type Error = Invalid;

    fn try_from(wire: v1::ModelInput) -> Result<Self, Invalid> {
        use v1::model_input::Input;
        let (field, input) = match required("input", wire.input)? {
            Input::Image(v1::ImageInput { channels, height, width }) => {
                ("image", Self::Image { channels, height, width })
            }
            Input::Tokens(v1::TokenInput { sequence_length, vocabulary_size }) => {
                ("tokens", Self::Tokens { sequence_length, vocabulary_size })
            }
            Input::Vector(v1::VectorInput { size }) => ("vector", Self::Vector { size }),
        };
        input.checked().map_err(|invalid| invalid.under(field))
    }
}
