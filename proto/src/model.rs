//! Models: chains of layers whose shapes fit together.

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, in_range};
use crate::layer::{Layer, LayerKind, Parameter, Shape, fingerprint};

/// Most layers of a model.
pub const MAX_LAYERS: usize = 10_000;

/// What one sample of a model's input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ModelInput {
    /// An image; the target is a class.
    Image {
        /// Channels.
        channels: i64,
        /// Rows.
        height: i64,
        /// Columns.
        width: i64,
    },
    /// A sequence of token ids; the target is the next token of each.
    Tokens {
        /// Tokens per sample.
        sequence_length: i64,
        /// Ids run from 0 to this minus 1.
        vocabulary_size: i64,
    },
}

impl ModelInput {
    /// Shape of one sample.
    pub fn shape(&self) -> Shape {
        match *self {
            Self::Image { channels, height, width } => vec![channels, height, width],
            Self::Tokens { sequence_length, .. } => vec![sequence_length],
        }
    }
}

/// A valid chain of layers, trained with cross-entropy over the last axis of its output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedModel", into = "UncheckedModel")]
pub struct Model {
    family: String,
    input: ModelInput,
    layers: Vec<Layer>,
    /// Shapes of the tensors at the layers' edges: `edges[k]` enter layer k, the last ones leave the
    /// model.
    edges: Vec<Vec<Shape>>,
}

#[derive(Serialize, Deserialize)]
struct UncheckedModel {
    family: String,
    input: ModelInput,
    layers: Vec<Layer>,
}

impl TryFrom<UncheckedModel> for Model {
    type Error = Invalid;

    fn try_from(model: UncheckedModel) -> Result<Self, Invalid> {
        Self::new(model.family, model.input, model.layers)
    }
}

impl From<Model> for UncheckedModel {
    fn from(model: Model) -> Self {
        Self { family: model.family, input: model.input, layers: model.layers }
    }
}

impl Model {
    /// Checks that each layer takes what the one before yields.
    ///
    /// # Errors
    /// No or too many layers, a layer that does not fit (`layers[3].conv2d…`), or a tied head
    /// without a token embedding of the same size as first layer.
    pub fn new(family: String, input: ModelInput, layers: Vec<Layer>) -> Result<Self, Invalid> {
        in_range("layers", layers.len(), 1..=MAX_LAYERS)?;
        let mut edges = vec![vec![input.shape()]];
        for (index, layer) in layers.iter().enumerate() {
            let output = edges
                .last()
                .map_or_else(|| Ok(Vec::new()), |inputs| layer.kind.output_shapes(inputs))
                .map_err(|invalid| invalid.under(&format!("layers[{index}] ({})", layer.name)))?;
            edges.push(output);
        }
        let model = Self { family, input, layers, edges };
        model.check_tied_heads()?;
        Ok(model)
    }

    fn check_tied_heads(&self) -> Result<(), Invalid> {
        for (index, layer) in self.layers.iter().enumerate() {
            let Some(shared) = layer.kind.shared_parameter() else { continue };
            let embedding = self.layers.first().map(|first| first.kind.parameters());
            let found = embedding.is_some_and(|parameters| {
                matches!(self.layers[0].kind, LayerKind::TokenEmbedding { .. })
                    && parameters.iter().any(|parameter| parameter.shape == shared.shape)
            });
            if !found || index + 1 != self.layers.len() {
                return Err(Invalid::field(
                    format!("layers[{index}] ({})", layer.name),
                    format!(
                        "a tied head must be the last layer and the first a token embedding of shape {:?}",
                        shared.shape
                    ),
                ));
            }
        }
        Ok(())
    }

    /// The family that built it.
    pub fn family(&self) -> &str {
        &self.family
    }

    /// What one sample is.
    pub fn input(&self) -> ModelInput {
        self.input
    }

    /// The layers in order.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Shapes of one sample's tensors at an edge: 0 enters the first layer, `layers().len()` leaves the
    /// last.
    pub fn edge(&self, edge: usize) -> &[Shape] {
        self.edges.get(edge).map_or(&[], Vec::as_slice)
    }

    /// Whether first and last layer share the token embedding's weight.
    pub fn has_tied_head(&self) -> bool {
        self.layers.last().is_some_and(|layer| layer.kind.shared_parameter().is_some())
    }

    /// Trained scalars; a shared weight counts once.
    pub fn parameter_count(&self) -> u64 {
        self.layers.iter().map(|layer| layer.kind.parameter_count()).sum()
    }

    /// The tensors that a stage of layers `first..=last` must hold. The copy of a tied weight counts
    /// only where the embedding is not in the stage.
    pub fn stage_parameters(&self, first: usize, last: usize) -> Vec<Parameter> {
        let mut parameters: Vec<Parameter> = self
            .layers
            .get(first..=last)
            .unwrap_or_default()
            .iter()
            .flat_map(|layer| layer.kind.parameters())
            .collect();
        if first > 0 && last + 1 == self.layers.len() {
            parameters.extend(self.layers.last().and_then(|layer| layer.kind.shared_parameter()));
        }
        parameters
    }

    /// Content id: family, a dash and 8 hexadecimal digits of the fingerprint of the whole model.
    pub fn id(&self) -> String {
        let family: String = self
            .family
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .take(48)
            .collect();
        format!("{}-{}", family.trim_matches('-'), &fingerprint(self)[..8])
    }
}
