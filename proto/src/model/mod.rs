//! Models: chains of layers whose shapes fit together.

mod flops;
pub mod import;
pub mod layer;
pub mod numerics;
mod wire;
pub mod zoo;

use serde::{Deserialize, Serialize};

use crate::choice;
use crate::error::{Invalid, in_range};
use crate::model::layer::{
    Buffer, Layer, LayerKind, MAX_ELEMENTS, MAX_EXTENT, Parameter, Shape, elements, fingerprint,
};
use crate::model::numerics::Numerics;
use crate::wire::v1;

/// Most layers of a model.
pub const MAX_LAYERS: usize = 10_000;

/// What one sample of a model's input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ModelInput {
    /// An image of random values.
    Image {
        /// Channels.
        channels: i64,
        /// Rows.
        height: i64,
        /// Columns.
        width: i64,
    },
    /// A sequence of token ids; where the output has classes for each, the target is the next token.
    Tokens {
        /// Tokens per sample.
        sequence_length: i64,
        /// Ids run from 0 to this minus 1.
        vocabulary_size: i64,
    },
    /// A vector of normally distributed values: a generator's latent variable.
    Vector {
        /// Values per sample.
        size: i64,
    },
}

/// What training makes small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Cross-entropy over the last axis of the output, against a class for each of its other positions.
    #[default]
    CrossEntropy,
    /// Mean square of the difference to normally distributed targets: for models without classes.
    MeanSquare,
}

choice! { Loss = v1::Loss { CrossEntropy, MeanSquare } }

impl ModelInput {
    /// Checks the extents.
    ///
    /// # Errors
    /// Names the first that is out of range.
    pub fn checked(self) -> Result<Self, Invalid> {
        let extent = |field: &str, value: i64| in_range(field, value, 1..=MAX_EXTENT).map(drop);
        match self {
            Self::Image { channels, height, width } => {
                extent("channels", channels)?;
                extent("height", height)?;
                extent("width", width)?;
            }
            Self::Tokens { sequence_length, vocabulary_size } => {
                extent("sequence_length", sequence_length)?;
                extent("vocabulary_size", vocabulary_size)?;
            }
            Self::Vector { size } => extent("size", size)?,
        }
        if elements(&self.shape()) > MAX_ELEMENTS {
            return Err(invalid!("", "has more than {MAX_ELEMENTS} values per sample. Use a smaller input"));
        }
        Ok(self)
    }

    /// Shape of one sample.
    pub fn shape(&self) -> Shape {
        match *self {
            Self::Image { channels, height, width } => vec![channels, height, width],
            Self::Tokens { sequence_length, .. } => vec![sequence_length],
            Self::Vector { size } => vec![size],
        }
    }
}

/// A valid chain of layers, with its input and its loss.
///
/// ```
/// use loadmaster_proto::model::layer::{Layer, LayerKind};
/// use loadmaster_proto::model::{Model, ModelInput};
///
/// let linear = |name: &str, in_features, out_features| Layer {
///     name: name.to_owned(),
///     kind: LayerKind::Linear { in_features, out_features },
/// };
/// let input = ModelInput::Vector { size: 8 };
/// let model = Model::new("toy".to_owned(), input, vec![linear("wide", 8, 32), linear("narrow", 32, 4)])?;
/// assert_eq!(model.parameter_count(), 8 * 32 + 32 + 32 * 4 + 4);
///
/// let broken = Model::new("toy".to_owned(), input, vec![linear("wide", 8, 32), linear("narrow", 16, 4)]);
/// assert!(broken.unwrap_err().violations()[0].field.starts_with("layers[1]"));
/// # Ok::<(), loadmaster_proto::error::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedModel", into = "UncheckedModel")]
pub struct Model {
    family: String,
    input: ModelInput,
    layers: Vec<Layer>,
    loss: Loss,
    numerics: Numerics,
    /// Shapes of the tensors at the layers' edges: `edges[k]` enter layer k, the last ones leave the
    /// model.
    edges: Vec<Vec<Shape>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct UncheckedModel {
    family: String,
    input: ModelInput,
    layers: Vec<Layer>,
    #[serde(default, skip_serializing_if = "is_cross_entropy")]
    loss: Loss,
    #[serde(default, skip_serializing_if = "Numerics::is_usual")]
    numerics: Numerics,
}

fn is_cross_entropy(loss: &Loss) -> bool {
    *loss == Loss::CrossEntropy
}

impl TryFrom<UncheckedModel> for Model {
    type Error = Invalid;

    fn try_from(model: UncheckedModel) -> Result<Self, Invalid> {
        let numerics = model.numerics.checked().map_err(|invalid| invalid.under("numerics"))?;
        let built = Self::new(model.family, model.input, model.layers)?.with_loss(model.loss);
        Ok(built.with_numerics(numerics))
    }
}

impl From<Model> for UncheckedModel {
    fn from(model: Model) -> Self {
        let Model { family, input, layers, loss, numerics, edges: _ } = model;
        Self { family, input, layers, loss, numerics }
    }
}

impl Model {
    /// Checks that each layer takes what the one before yields. The loss is cross-entropy.
    ///
    /// # Errors
    /// An input out of range, no or too many layers, a layer that does not fit (`layers[3] (conv2)…`). More
    /// than one tensor at the end, or a tied head without a token embedding of the same size as
    /// first layer.
    pub fn new(family: String, input: ModelInput, layers: Vec<Layer>) -> Result<Self, Invalid> {
        input.checked().map_err(|invalid| invalid.under("input"))?;
        in_range("layers", layers.len(), 1..=MAX_LAYERS)?;
        let layers: Vec<Layer> =
            layers.into_iter().map(|Layer { name, kind }| Layer { name, kind: kind.normalised() }).collect();
        let mut edges = vec![vec![input.shape()]];
        for (index, layer) in layers.iter().enumerate() {
            let output = edges
                .last()
                .map_or_else(|| Ok(Vec::new()), |inputs| layer.kind.output_shapes(inputs))
                .map_err(|invalid| invalid.under(&place(index, layer)))?;
            edges.push(output);
        }
        let model =
            Self { family, input, layers, loss: Loss::CrossEntropy, numerics: Numerics::default(), edges };
        model.check_ends()?;
        model.check_tied_heads()?;
        Ok(model)
    }

    /// The same layers, trained with another loss.
    #[must_use]
    pub fn with_loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// The same layers with settings that change values alone, which are checked.
    #[must_use]
    pub fn with_numerics(self, numerics: Numerics) -> Self {
        Self { numerics, ..self }
    }

    /// Tokens and nothing else enter an embedding, which is the first layer then; and one tensor leaves the
    /// model.
    fn check_ends(&self) -> Result<(), Invalid> {
        let rows = |layer: &Layer| match layer.kind {
            LayerKind::TokenEmbedding(embedding) => Some(embedding.vocabulary_size),
            _ => None,
        };
        for (index, layer) in self.layers.iter().enumerate() {
            let reason = match (self.input, rows(layer)) {
                (ModelInput::Tokens { vocabulary_size, .. }, Some(rows)) if index == 0 => {
                    if vocabulary_size <= rows {
                        continue;
                    }
                    format!(
                        "has {rows} rows, but the input has a vocabulary of {vocabulary_size} tokens. Use at least as \
                         many rows"
                    )
                }
                (ModelInput::Tokens { .. }, None) if index == 0 => {
                    "is not a token embedding, although the input is tokens. Use a token embedding as the first \
                     layer"
                        .to_owned()
                }
                (_, Some(_)) => {
                    "is valid only as the first layer of a model whose input is tokens".to_owned()
                }
                (_, None) => continue,
            };
            return Err(Invalid::field(place(index, layer), reason));
        }
        match (self.edges.last().map(Vec::len), self.layers.last()) {
            (Some(1), _) | (_, None) => Ok(()),
            (_, Some(last)) => Err(Invalid::field(
                place(self.layers.len() - 1, last),
                "is the model's last layer, but has several output tensors. End the model with a layer that has one \
                 output tensor",
            )),
        }
    }

    fn check_tied_heads(&self) -> Result<(), Invalid> {
        for (index, layer) in self.layers.iter().enumerate() {
            let Some(shared) = layer.kind.shared_parameter() else { continue };
            let embedding = match self.layers.first() {
                Some(Layer { kind: kind @ LayerKind::TokenEmbedding(_), .. }) => kind.parameters(),
                _ => Vec::new(),
            };
            let found = embedding.first().is_some_and(|token| token.shape == shared.shape);
            if !found || index + 1 != self.layers.len() {
                return Err(Invalid::field(
                    place(index, layer),
                    format!(
                        "is a tied head. A tied head must be the last layer, and the first layer must be a token \
                         embedding of shape {:?}",
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

    /// What training makes small.
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// Settings that change values, and neither memory nor time.
    pub fn numerics(&self) -> &Numerics {
        &self.numerics
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

    /// Whether a layer, by its index, shares the token embedding's weight with the other end of the model.
    pub fn is_tied(&self, layer: usize) -> bool {
        self.has_tied_head() && (layer == 0 || layer + 1 == self.layers.len())
    }

    /// Trained scalars; a shared weight counts once.
    pub fn parameter_count(&self) -> u64 {
        self.layers.iter().map(|layer| layer.kind.parameter_count()).fold(0, u64::saturating_add)
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

    /// The tensors that layer `index` holds without training them.
    pub fn buffers(&self, index: usize) -> Vec<Buffer> {
        self.layers.get(index).map(|layer| layer.kind.buffers(self.edge(index))).unwrap_or_default()
    }

    /// The tensors that a stage of layers `first..=last` holds without training them.
    pub fn stage_buffers(&self, first: usize, last: usize) -> Vec<Buffer> {
        (first..=last.min(self.layers.len().saturating_sub(1)))
            .flat_map(|index| self.buffers(index))
            .collect()
    }

    /// Content id: the family's [`Self::slug`], a dash and 8 hexadecimal digits of the fingerprint of the
    /// whole model.
    pub fn id(&self) -> String {
        format!("{}-{}", self.slug(), &fingerprint(self)[..8])
    }

    /// The family as the beginning of an id: a-z, 0-9 and dashes, at most 48 of them.
    pub fn slug(&self) -> String {
        let family: String = self
            .family
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
            .take(48)
            .collect();
        match family.trim_matches('-') {
            "" => "model".to_owned(),
            slug => slug.to_owned(),
        }
    }
}

/// Where a layer is, for violations.
fn place(index: usize, layer: &Layer) -> String {
    format!("layers[{index}] ({})", layer.name)
}

#[cfg(test)]
mod tests;
