//! The places where a plan cuts a model: a transformer, or the layers of the user that frameworks take in a row.

use std::ops::Range;

use loadmaster_proto::plan::Plan;

use crate::StageRefusal;
use crate::question::ExportQuestion;
use crate::transformer::Transformer;

/// What each stage has of a transformer, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The stages.
    pub stages: Vec<StagePart>,
}

/// What a stage has of a transformer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagePart {
    /// It begins with the embedding.
    pub has_embedding: bool,
    /// Which blocks it has, from 0.
    pub blocks: Range<usize>,
    /// It ends with the final norm.
    pub has_norm: bool,
    /// And with the head.
    pub has_head: bool,
}

impl Cut {
    /// That of a plan.
    pub fn of(plan: &Plan, transformer: &Transformer) -> Self {
        let (first, last) = (*transformer.blocks().start(), *transformer.blocks().end());
        let of = |layers: std::ops::RangeInclusive<usize>| {
            let begin = (*layers.start()).clamp(first, last + 1) - first;
            let end = (*layers.end() + 1).clamp(first, last + 1) - first;
            StagePart {
                has_embedding: layers.contains(&0),
                blocks: begin..end.max(begin),
                has_norm: layers.contains(&(last + 1)),
                has_head: layers.contains(&(last + 2)),
            }
        };
        Self { stages: plan.stages.iter().map(|stage| of(stage.config.layers())).collect() }
    }

    /// Blocks of each stage.
    pub fn block_counts(&self) -> Vec<usize> {
        self.stages.iter().map(|part| part.blocks.len()).collect()
    }

    /// The same human-readable: `5, 7`.
    pub(crate) fn listed_blocks(&self) -> String {
        listed(&self.block_counts())
    }

    /// Whether all stages have as many blocks.
    pub fn is_even(&self) -> bool {
        self.block_counts().windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Whether an end of the model is in another stage than the first or the last block.
    pub fn has_ends_elsewhere(&self) -> bool {
        let bare = |part: &StagePart| part.blocks.is_empty() && self.stages.len() > 1;
        self.stages.iter().any(bare)
    }

    /// Stages that end between the final norm and the head, which frameworks keep together.
    pub(crate) fn parted_heads(&self) -> Vec<StageRefusal> {
        let parted = self.stages.iter().enumerate().filter(|(_, part)| part.has_norm != part.has_head);
        let why = |part: &StagePart| {
            let (has, lacks) = if part.has_norm { ("final norm", "head") } else { ("head", "final norm") };
            format!(
                "has the {has}, but the {lacks} is in another stage. This framework requires both in the same stage"
            )
        };
        parted.map(|(index, part)| StageRefusal::of_stage(index, why(part))).collect()
    }
}

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

/// Returns numbers with commas between them.
pub(crate) fn listed(numbers: &[usize]) -> String {
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    words.join(", ")
}
