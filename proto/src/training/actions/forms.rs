//! What can be said in a number of the layers that stages recompute.
//!
//! Frameworks have no lists of layers: they take a number, and count from the first layer of each stage. A form is one
//! such way to count. The search that chooses for a framework and the export that writes its files thus mean the same
//! layers.

use std::ops::RangeInclusive;

use super::{Action, Optimization, StageActions};
use crate::model::Model;
use crate::model::layer::LayerKind;

/// Which layers of each stage are recomputed, for all micro-batches alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The first transformer blocks one by one: at most so many.
    FirstBlocks(usize),
    /// All transformer blocks, so many at once; fewer at the end.
    BlocksAtOnce(usize),
    /// All layers, so many at once; fewer at the end.
    LayersAtOnce(usize),
    /// The same, but for what has no parameters of its own at all, which is kept.
    TrainedAtOnce(usize),
}

impl Form {
    /// The runs of the stage of these layers that are recomputed, in order.
    pub fn runs(self, model: &Model, layers: RangeInclusive<usize>) -> Vec<RangeInclusive<usize>> {
        let has_parameters = |run: &RangeInclusive<usize>| {
            let own = model.layers().get(run.clone()).unwrap_or_default();
            own.iter().any(|layer| layer.kind.parameter_count() > 0)
        };
        match self {
            Self::FirstBlocks(most) => at_once(blocks(model, layers).take(most), 1),
            Self::BlocksAtOnce(length) => at_once(blocks(model, layers), length),
            Self::LayersAtOnce(length) => at_once(layers, length),
            Self::TrainedAtOnce(length) => {
                at_once(layers, length).into_iter().filter(has_parameters).collect()
            }
        }
    }
}

/// The transformer blocks among some layers.
pub fn blocks(model: &Model, layers: RangeInclusive<usize>) -> impl Iterator<Item = usize> {
    layers.filter(|&layer| {
        model.layers().get(layer).is_some_and(|of| matches!(of.kind, LayerKind::TransformerBlock(_)))
    })
}

/// Layers that follow each other, so many at once; a run ends where the next layer is left out.
fn at_once(layers: impl Iterator<Item = usize>, length: usize) -> Vec<RangeInclusive<usize>> {
    let mut runs: Vec<RangeInclusive<usize>> = Vec::new();
    for layer in layers {
        match runs.last_mut() {
            Some(run) if run.end() + 1 == layer && layer - run.start() < length => {
                *run = *run.start()..=layer;
            }
            _ => runs.push(layer..=layer),
        }
    }
    runs
}

impl StageActions {
    /// Those that compute these runs once more, for all micro-batches, and nothing else.
    pub fn recomputing(runs: &[RangeInclusive<usize>]) -> Self {
        let action = |run: &RangeInclusive<usize>| Action {
            first_layer: *run.start(),
            last_layer: *run.end(),
            slots: Vec::new(),
            optimization: Optimization::Recompute,
        };
        Self { actions: runs.iter().map(action).collect(), ..Self::default() }
    }

    /// The runs that are recomputed for all micro-batches, in order.
    ///
    /// # Errors
    /// The index of the first action that does something else, or so for some micro-batches alone.
    pub fn recomputed_alike(&self) -> Result<Vec<RangeInclusive<usize>>, usize> {
        let is_other =
            |action: &Action| action.optimization != Optimization::Recompute || !action.slots.is_empty();
        if let Some(other) = self.actions.iter().position(is_other) {
            return Err(other);
        }
        let mut runs: Vec<RangeInclusive<usize>> = self.actions.iter().map(Action::layers).collect();
        runs.sort_by_key(|run| *run.start());
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::zoo::{Gpt2, Vgg, Zoo};

    /// Embedding, four blocks, norm and a head that is the embedding's.
    fn gpt() -> Model {
        Zoo::Gpt2(Gpt2 { blocks: 4, ..Gpt2::default() }).build().unwrap()
    }

    #[test]
    fn numbers_count_from_the_first_layer_of_each_stage() {
        let model = gpt();
        let runs = |form: Form, layers| form.runs(&model, layers);
        assert_eq!(runs(Form::FirstBlocks(1), 0..=2), [1..=1], "the embedding is no block");
        assert_eq!(runs(Form::FirstBlocks(9), 3..=6), [3..=3, 4..=4]);
        assert_eq!(runs(Form::FirstBlocks(0), 0..=6), []);
        assert_eq!(runs(Form::BlocksAtOnce(3), 0..=6), [1..=3, 4..=4]);
        assert_eq!(runs(Form::LayersAtOnce(3), 0..=6), [0..=2, 3..=5, 6..=6]);
        assert_eq!(runs(Form::TrainedAtOnce(3), 0..=6), [0..=2, 3..=5], "a tied head has nothing of its own");
        assert_eq!(runs(Form::TrainedAtOnce(2), 4..=6), [4..=5]);
        assert_eq!(runs(Form::TrainedAtOnce(2), 5..=6), [5..=6]);
    }

    /// Where nothing is a block there is none to count.
    #[test]
    fn networks_without_blocks_have_layers_alone() {
        let model = Zoo::Vgg11(Vgg::default()).build().unwrap();
        assert_eq!(Form::BlocksAtOnce(2).runs(&model, 0..=5), []);
        assert_eq!(Form::LayersAtOnce(4).runs(&model, 0..=5), [0..=3, 4..=5]);
    }

    #[test]
    fn runs_are_actions_and_back() {
        let runs = [1..=1, 2..=4];
        let mut actions = StageActions::recomputing(&runs);
        assert_eq!(actions.recomputed_alike().as_deref(), Ok(&runs[..]));
        actions.actions.reverse();
        assert_eq!(actions.recomputed_alike().as_deref(), Ok(&runs[..]), "in the order of layers");
        actions.actions[1].slots = vec![0];
        assert_eq!(actions.recomputed_alike(), Err(1));
        assert_eq!(StageActions::default().recomputed_alike(), Ok(Vec::new()));
    }
}
