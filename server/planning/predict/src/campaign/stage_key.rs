//! What decides how much memory a stage needs, besides its training settings.

use loadmaster_proto::model::layer::{LayerKind, Shape, fingerprint};
use loadmaster_proto::model::{Loss, Model, ModelInput};
use serde::Serialize;

/// A content id of a stage: its layers, the shapes that enter it, whether it is the model's first stage
/// (which reads the data) or last (which computes the loss), and whether any layer before it has
/// parameters, without which its input carries no gradient inside a longer stage. A tied head is a layer
/// of its own kind, and whether it holds its own copy of the embedding follows from the stage being first
/// as well.
///
/// Names of layers do not count: `block.3` and `block.4` are equal.
///
/// ```
/// use loadmaster_predict::campaign::stage_key;
/// use loadmaster_proto::model::zoo::{Gpt2, Zoo};
///
/// let model = Zoo::Gpt2(Gpt2 { blocks: 8, ..Gpt2::default() }).build()?;
/// assert_eq!(stage_key(&model, 3, 4), stage_key(&model, 4, 5));
/// assert_ne!(stage_key(&model, 3, 4), stage_key(&model, 3, 5));
/// # Ok::<(), loadmaster_proto::error::Invalid>(())
/// ```
pub fn stage_key(model: &Model, first_layer: usize, last_layer: usize) -> String {
    #[derive(Serialize)]
    struct Content<'a> {
        layers: Vec<&'a LayerKind>,
        inputs: &'a [Shape],
        data: Option<(ModelInput, Loss)>,
        /// Whether a weight's other end is in another stage, with which gradients are exchanged.
        exchanges: bool,
        follows_parameters: bool,
        is_last: bool,
    }
    let layers = model.layers().get(first_layer..=last_layer).unwrap_or_default();
    let (is_first, is_last) = (first_layer == 0, last_layer + 1 == model.layers().len());
    fingerprint(&Content {
        layers: layers.iter().map(|layer| &layer.kind).collect(),
        inputs: model.edge(first_layer),
        data: (is_first || is_last).then(|| (model.input(), model.loss())),
        exchanges: model.has_tied_head() && is_first != is_last,
        follows_parameters: model
            .layers()
            .iter()
            .take(first_layer)
            .any(|layer| layer.kind.parameter_count() > 0),
        is_last,
    })
}

/// The first layer of each content, in order: what has to be measured of a model whose layers repeat.
pub fn distinct_layers(model: &Model) -> Vec<usize> {
    let mut seen = std::collections::HashSet::new();
    (0..model.layers().len()).filter(|&layer| seen.insert(stage_key(model, layer, layer))).collect()
}
