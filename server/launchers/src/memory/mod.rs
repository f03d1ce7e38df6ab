//! What a framework holds beyond what a plan counts, and whether the plan still fits.
//!
//! A plan's bytes are those of our ranks, which free an output once it is sent, give a gradient away to the backward pass that it is
//! for, and have the vocabulary's own rows.
//!
//! Frameworks differ, each in its own ways ([`Held`]): what they add is counted here from the
//! shapes of the model, stage by stage. Of stages that take turns device by device, as the plan counts them. It is the most that can
//! come on top: at the moment of the plan's peak some of it may not be there, or be held by autograd anyway.
//!
//! | file | question |
//! |---|---|
//! | here | what does each stage, or device, hold under the framework, and does it fit? |
//! | `overhead` | what does a framework hold besides, and how many bytes cross the edges of a stage? |
//! | `parameters` | how many bytes does a framework hold of every parameter? |
//! | `vocabulary` | how many rows does a padded vocabulary have, and what do they take? |

mod overhead;
mod parameters;
mod vocabulary;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::choice;
use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::plan::prediction::{Interval, Verdict};
use loadmaster_proto::plan::{Plan, PlanStage};
use loadmaster_proto::warning::{Warning, WarningCode};
use loadmaster_proto::wire::v1;

use crate::cut::listed;
use crate::question::ExportQuestion;
use overhead::Edges;
pub(crate) use overhead::{EdgeTensors, Held, MicroBatches, MoreParameters};
pub(crate) use parameters::{MAIN_WEIGHTS, TrainingWay};
pub use parameters::{PredictedStage, parameter_notes};
pub(crate) use vocabulary::{PaddedVocabulary, padding};

/// What the device with the highest peak of a stage holds under a framework, with the other stages that are
/// interleaved on its devices.
#[derive(Debug, Clone, PartialEq)]
pub struct StageMemory {
    /// Its predicted peak, as the plan has it.
    pub predicted: Bytes,
    /// Where that is expected; none where the plan does not say.
    pub interval: Option<Interval>,
    /// What the framework adds at most.
    pub added: Vec<Added>,
    /// What each device of the stage allows; none where no one said.
    pub capacity: Option<Bytes>,
}

/// Bytes that a framework adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// Why.
    pub cause: AddedCause,
    /// How many at most.
    pub bytes: Bytes,
    /// How they are counted, human-readable.
    pub counted: String,
}

/// Why a framework holds more than a plan counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddedCause {
    /// Outputs that were sent, or were the model's.
    HeldOutputs,
    /// Gradients of outputs.
    HeldGradients,
    /// Copies of inputs, or buffers that they are received into.
    HeldInputs,
    /// Rows of the vocabulary.
    PaddedVocabulary,
    /// Parameters that it has on more devices.
    MoreParameters,
    /// Gradients in a wider format.
    WiderGradients,
    /// Copies of all gradients in a wider format while the optimizer steps.
    StepGradients,
}

choice! {
    AddedCause = v1::AddedMemoryCause {
        HeldOutputs = "outputs",
        HeldGradients = "gradients",
        HeldInputs = "inputs",
        PaddedVocabulary = "vocabulary",
        MoreParameters = "parameters",
        WiderGradients = "wider gradients",
        StepGradients = "gradients of the step",
    }
}

impl StageMemory {
    /// What is added by all causes.
    pub fn added_bytes(&self) -> Bytes {
        Bytes(self.added.iter().fold(0, |sum: u64, added| sum.saturating_add(added.bytes.0)))
    }

    /// The predicted peak with all that is added.
    pub fn total(&self) -> Bytes {
        Bytes(self.predicted.0.saturating_add(self.added_bytes().0))
    }

    /// The upper end of the plan's interval with all that is added; none where it has no interval.
    pub fn most(&self) -> Option<Bytes> {
        self.interval.map(|interval| Bytes(interval.high.0.saturating_add(self.added_bytes().0)))
    }

    /// Whether it fits.
    pub fn verdict(&self) -> Verdict {
        let high = self.interval.zip(self.most()).map(|(interval, high)| Interval { high, ..interval });
        Verdict::judge(self.total(), high, self.capacity)
    }
}

/// Returns what a device of a stage needs for so many parameters besides the plan's, with their gradients and its part of their states.
fn parameter_bytes(plan: &Plan, stage: usize, scalars: u64) -> Bytes {
    let parts = plan.stages.get(stage).map_or(1, |stage| stage.config.optimizer_parts());
    Bytes(plan.training.divided_bytes(scalars, parts).total())
}

/// What each stage of a plan, or each device with all of its stages, holds where the framework holds this besides.
/// None where no one knows: neither what the framework holds, nor, of a model whose shapes are not known, how many
/// bytes that is.
pub(crate) fn of_stages(question: &ExportQuestion<'_>, held: Option<&Held>) -> Option<Vec<StageMemory>> {
    let held = held?;
    let firsts = question.plan.first_stages();
    let added: Vec<Vec<Added>> = if held.is_nothing() {
        vec![Vec::new(); firsts.len()]
    } else {
        let edges = Edges::of(question.plan, question.model?);
        (0..firsts.len())
            .map(|first| held.added(question.plan, &edges, &in_turn(question.plan, first)))
            .collect()
    };
    Some(firsts.iter().zip(added).map(|(stage, added)| of_stage(stage, added)).collect())
}

/// The stages that the devices of a stage have interleaved, which is the first of them.
fn in_turn(plan: &Plan, first: usize) -> Vec<usize> {
    (first..plan.stages.len()).step_by(plan.positions().max(1)).collect()
}

fn of_stage(stage: &PlanStage, added: Vec<Added>) -> StageMemory {
    StageMemory {
        predicted: Bytes(stage.predicted_peak),
        interval: stage.interval,
        added: added.into_iter().filter(|added| added.bytes.0 > 0).collect(),
        capacity: Some(Bytes(stage.capacity)).filter(|capacity| capacity.0 > 0),
    }
}

/// Returns the warnings that go with the verdict under a framework: which stages do not fit or are not certain to, or that the
/// framework's memory is not known.
pub(crate) fn warnings(plan: &Plan, stages: Option<&[StageMemory]>, framework: Framework) -> Vec<Warning> {
    let Some(stages) = stages else {
        let why = format!("the memory that {framework} adds is not known, so the plan may not fit");
        return vec![WarningCode::FrameworkMemoryUnknown.says(why)];
    };
    let of_stage = |(index, stage): (usize, &StageMemory)| {
        let capacity = stage.capacity?;
        let beside = match in_turn(plan, index).get(1..) {
            None | Some([]) => String::new(),
            Some(others) => format!(", interleaved with {},", listed(others)),
        };
        let lack = |needed: Bytes| Bytes(needed.0.saturating_sub(capacity.0));
        let (code, why) = match stage.verdict() {
            Verdict::NotAsked | Verdict::Fits => return None,
            Verdict::FitsWithoutMargin => (
                WarningCode::StageFitUncertain,
                format!(
                    "stage {index}{beside} may not fit with {framework}: it fits only without the safety margin. The \
                     prediction is {}, the framework adds {}, and the device has {capacity}. With the margin, the \
                     stage needs {} more than the device has",
                    stage.predicted,
                    stage.added_bytes(),
                    lack(stage.most().unwrap_or_else(|| stage.total())),
                ),
            ),
            Verdict::Uncertain => (
                WarningCode::StageFitUncertain,
                format!(
                    "stage {index}{beside} may not fit with {framework}: the predicted {} are within the capacity, but \
                     this prediction has no interval, so its error is not known",
                    stage.predicted,
                ),
            ),
            Verdict::DoesNotFit => (
                WarningCode::StageDoesNotFit,
                format!(
                    "stage {index}{beside} does not fit with {framework}: {} predicted and {} of the framework are {} more \
                     than the {capacity} of its device. Request a plan for a lower device capacity, or export to another \
                     framework",
                    stage.predicted,
                    stage.added_bytes(),
                    lack(stage.total()),
                ),
            ),
        };
        Some(code.says(why).of_stage(index))
    };
    stages.iter().enumerate().filter_map(of_stage).collect()
}
