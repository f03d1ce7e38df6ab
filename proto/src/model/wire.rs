//! Models.

use crate::error::{Invalid, required};
use crate::message;
use crate::model::numerics::Numerics;
use crate::model::{Loss, Model, ModelInput};
use crate::wire::{ToWire, field, v1};

message! { Model <=> v1::Model }

impl From<&Model> for v1::Model {
    /// Everything but name, source and time, which the store knows.
    fn from(model: &Model) -> Self {
        Self {
            family: model.family().to_owned(),
            input: Some(model.input().into()),
            layers: model.layers().iter().map(Into::into).collect(),
            layer_count: model.layers().len().to_wire(),
            parameter_count: model.parameter_count().to_wire(),
            loss: model.loss().to_wire(),
            numerics: Some(model.numerics()).filter(|numerics| !numerics.is_usual()).map(Into::into),
            ..Self::default()
        }
    }
}

impl TryFrom<v1::Model> for Model {
    type Error = Invalid;

    fn try_from(wire: v1::Model) -> Result<Self, Invalid> {
        let input = field("input", required("input", wire.input)?)?;
        let layers = field("layers", wire.layers)?;
        let loss: Option<Loss> = field("loss", wire.loss)?;
        let numerics: Option<Numerics> = field("numerics", wire.numerics)?;
        let model = Self::new(wire.family, input, layers)?.with_loss(loss.unwrap_or_default());
        Ok(model.with_numerics(numerics.unwrap_or_default()))
    }
}

message! { ModelInput <=> v1::ModelInput }

impl From<&ModelInput> for v1::ModelInput {
    fn from(input: &ModelInput) -> Self {
        use v1::model_input::Input;
        let input = match *input {
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
