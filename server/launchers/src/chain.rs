//! A model as launchers take it that cut the user's own: layers in a row, of which each stage has some.

use crate::cut::Cut;
use crate::question::ExportQuestion;
use crate::transformer::Transformer;
use crate::word::listed;

/// Layers in a row, and where a plan cuts them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chain {
    /// Stage i has the layers from the i-th bound up to the next.
    pub bounds: Vec<usize>,
    /// The layers in words: `embedding, 12 blocks, norm, head`.
    pub layers: String,
    /// What the stages have of them in words: `Blocks of the stages: 5, 7`.
    pub stages: String,
}

impl Chain {
    pub(crate) fn of(question: &ExportQuestion<'_>) -> Self {
        let stages = &question.plan.stages;
        let ends = stages.iter().map(|stage| stage.config.last_layer + 1);
        let bounds: Vec<usize> = std::iter::once(0).chain(ends).collect();
        if let Some(transformer) = question.model.and_then(|model| Transformer::of(model).ok()) {
            let cut = Cut::of(question.plan, &transformer);
            return Self {
                bounds,
                layers: format!("embedding, {} blocks, norm, head", transformer.block_count()),
                stages: format!("Blocks of the stages: {}", cut.listed_blocks()),
            };
        }
        let counts: Vec<usize> = stages.iter().map(|stage| stage.config.layer_count()).collect();
        Self {
            bounds,
            layers: format!("{} of them", counts.iter().sum::<usize>()),
            stages: format!("Layers of the stages: {}", listed(&counts)),
        }
    }
}
