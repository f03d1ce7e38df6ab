//! The chain of layers that a document is about.

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, in_range};
use crate::model::layer::fingerprint;
use crate::model::{MAX_LAYERS, Model};
use crate::name::{MAX_NAME_BYTES, checked_name};

/// Most trained scalars of a layer whose tensors it is not known: their bytes still have room in every sum.
const MAX_PARAMETERS: u64 = 1 << 44;

/// A model, as far as it is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// One that Loadmaster can build and train itself.
    Known(Model),
    /// A chain of which only names and parameter counts are known: it can be planned, not trained.
    Opaque(OpaqueModel),
}

/// A chain of named layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpaqueModel {
    /// Human-readable.
    pub name: String,
    /// The layers in order.
    pub layers: Vec<OpaqueLayer>,
}

/// A layer that is known by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpaqueLayer {
    /// Human-readable.
    pub name: String,
    /// Trained scalars; none where it is not known.
    #[serde(default)]
    pub parameter_count: Option<u64>,
}

impl Subject {
    /// Layers of the chain.
    pub fn layer_count(&self) -> usize {
        match self {
            Self::Known(model) => model.layers().len(),
            Self::Opaque(model) => model.layers.len(),
        }
    }

    /// Names of the layers in order.
    pub fn layer_names(&self) -> Vec<String> {
        match self {
            Self::Known(model) => model.layers().iter().map(|layer| layer.name.clone()).collect(),
            Self::Opaque(model) => model.layers.iter().map(|layer| layer.name.clone()).collect(),
        }
    }

    /// Name of a layer; empty where the chain has no such layer.
    fn layer_name(&self, layer: usize) -> &str {
        match self {
            Self::Known(model) => model.layers().get(layer).map_or("", |layer| layer.name.as_str()),
            Self::Opaque(model) => model.layers.get(layer).map_or("", |layer| layer.name.as_str()),
        }
    }

    /// Trained scalars of the whole chain; none where those of a layer are not known.
    pub fn total_parameters(&self) -> Option<u64> {
        let mut counts = (0..self.layer_count()).map(|layer| self.parameter_count(layer));
        match self {
            // A weight that two layers share counts once.
            Self::Known(model) => Some(model.parameter_count()),
            Self::Opaque(_) => counts.try_fold(0_u64, |sum, count| Some(sum.saturating_add(count?))),
        }
    }

    /// Trained scalars of a layer, where they are known.
    pub fn parameter_count(&self, layer: usize) -> Option<u64> {
        match self {
            Self::Known(model) => model.layers().get(layer).map(|layer| layer.kind.parameter_count()),
            Self::Opaque(model) => model.layers.get(layer)?.parameter_count,
        }
    }

    /// The model that ranks can train.
    ///
    /// # Errors
    /// An opaque chain has none.
    pub fn model(&self) -> Result<&Model, Invalid> {
        match self {
            Self::Known(model) => Ok(model),
            Self::Opaque(opaque) => Err(Invalid::field(
                "model",
                format!(
                    "{:?} has layer names, but no layer definitions. The planner can plan this model, but workers \
                     cannot train it. Import the profile with a full model definition",
                    opaque.name
                ),
            )),
        }
    }

    /// Content id of the model: its name, a dash and 8 hexadecimal digits of its fingerprint.
    pub fn id(&self) -> String {
        match self {
            Self::Known(model) => model.id(),
            Self::Opaque(opaque) => {
                let name: String = opaque
                    .name
                    .chars()
                    .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
                    .take(48)
                    .collect();
                let name = name.trim_matches('-');
                let name = if name.is_empty() { "opaque" } else { name };
                format!("{name}-{}", &fingerprint(opaque)[..8])
            }
        }
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        let (form, name, layers) = match self {
            Self::Known(model) => ("known", ("family", model.family()), model.layers().len()),
            Self::Opaque(opaque) => ("opaque", ("name", opaque.name.as_str()), opaque.layers.len()),
        };
        checked_name(&format!("{form}.{}", name.0), name.1, MAX_NAME_BYTES)?;
        in_range(&format!("{form}.layers"), layers, 1..=MAX_LAYERS)?;
        for layer in 0..layers {
            let field = |name: &str| format!("{form}.layers[{layer}].{name}");
            checked_name(&field("name"), self.layer_name(layer), MAX_NAME_BYTES)?;
            if let (Self::Opaque(_), Some(count)) = (self, self.parameter_count(layer)) {
                in_range(&field("parameter_count"), count, 0..=MAX_PARAMETERS)?;
            }
        }
        Ok(())
    }
}
