//! Megatron-LM with Megatron-Core, and Megatron-Bridge, which `NeMo` trains with: the plans that they can run.
//!
//! The cut is the layout (`--pipeline-model-parallel-layout`), which says any of them: `E` the embedding, `t` a block, `L` the
//! final norm with the head and the loss, `|` between stages. The hybrid model has it in `--hybrid-layer-pattern`. Of stages that
//! devices have interleaved (its virtual pipeline stages) either one has all, in the order of the model. Stage k is
//! on the devices of place k modulo the places along the pipeline, as in the plan.
//!
//! | file | contents |
//! |---|---|
//! | here | the rules: cuts, turns, recomputation |
//! | `model` | the models and optimizers that it has words for |
//! | `write` | Megatron-LM's flags |
//! | `bridge` | Megatron-Bridge's file |
//! | `memory` | the bytes that it holds besides a plan's |

pub(super) mod bridge;
pub(super) mod memory;
pub(super) mod model;
pub(super) mod write;

use loadmaster_proto::plan::objective::Framework;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::Form;

use crate::StageRefusal;
use crate::cut::{Cut, StagePart};
use crate::grid::Grid;
use crate::question::{ExportQuestion, Refused};
use crate::recompute::{Counted, Recomputing};
use crate::rules::{Engine, Rules, with_adam};
use crate::target::Variant;

pub(super) const MEGATRON: Rules = Rules {
    framework: Framework::Megatron,
    recomputing: Recomputing::Alike(&[Counted::FirstBlocks, Counted::BlocksAtOnce]),
    // Its distributed optimizer is Adam.
    shardings: with_adam,
    sequence_parallel: true,
    takes_turns: true,
    engine: Some(Engine::blocking("megatron", WAITS).with_interleaved(INTERLEAVED)),
    note: memory::note,
    ways: memory::ways,
    ..Rules::USUAL
};

pub(super) const BRIDGE: Rules = Rules {
    framework: Framework::MegatronBridge,
    engine: Some(Engine::blocking("nemo", WAITS).with_interleaved(INTERLEAVED)),
    one_stage_in_fp32: Some(memory::bridge_note),
    ways: memory::bridge_ways,
    ..MEGATRON
};

/// The reason why Megatron's transfers do not overlap computing under plain 1F1B.
pub(super) const WAITS: &str = "Megatron's 1F1B waits for each batch of sends and receives, and synchronizes the device (its \
    P2P overlap is for interleaved schedules only)";
const INTERLEAVED: &str = "Megatron's interleaved 1F1B overlaps sends and receives with computation, except before the first \
    backward pass and after the last forward pass";

/// Checks that Megatron's interleaved schedule runs a plan: places along the pipeline are two or more, and micro-batches go in groups
/// of as many.
///
/// # Errors
/// The plan's stages take turns otherwise.
pub(super) fn check_turns(question: &ExportQuestion<'_>, grid: &Grid) -> Result<(), Refused> {
    if !grid.is_interleaved() {
        return Ok(());
    }
    let micro_batches = question.plan.training.micro_batches;
    let why = if grid.stages < 2 {
        "has all virtual pipeline stages on one pipeline rank, but Megatron interleaves stages over two or more. Recommend a \
         plan with one stage per device"
            .to_owned()
    } else if !micro_batches.is_multiple_of(grid.stages) {
        format!(
            "has {micro_batches} micro-batches for {} pipeline ranks, but Megatron's interleaved schedule needs a \
             multiple of the pipeline-parallel size. Request a plan with such a number of micro-batches",
            grid.stages
        )
    } else {
        return Ok(());
    };
    Err(vec![StageRefusal::of_plan(why)])
}

/// Returns whether the layout is written: without it each device has one stage, of as many blocks as the others.
pub(super) fn is_said(cut: &Cut, grid: &Grid) -> bool {
    grid.is_interleaved() || !cut.is_even() || cut.has_ends_elsewhere()
}

/// Returns the layout of a cut, one letter a block: `Ett|tttt|tL`.
pub(crate) fn layout(cut: &Cut) -> String {
    let stage = |part: &StagePart| {
        let end = |has: bool, letter: &'static str| if has { letter } else { "" };
        format!(
            "{}{}{}",
            end(part.has_embedding, "E"),
            "t".repeat(part.blocks.len()),
            end(part.has_head, "L")
        )
    };
    let stages: Vec<String> = cut.stages.iter().map(stage).collect();
    stages.join("|")
}

/// Recomputation as Megatron's family counts it: blocks from the first of each stage on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recomputation {
    /// `uniform`, where all blocks are, so many at once; `block`, where the first ones are, one by one.
    pub(super) method: &'static str,
    /// How many.
    pub(super) blocks: usize,
}

impl Recomputation {
    /// Returns the recomputation of all blocks, so many at once.
    pub(super) const fn uniform(blocks: usize) -> Self {
        Self { method: "uniform", blocks }
    }

    /// Returns the recomputation of a plan; none where nothing is recomputed.
    ///
    /// # Errors
    /// Stages that recompute other layers, or all of themselves where these are several numbers of blocks.
    pub(super) fn of(question: &ExportQuestion<'_>, cut: &Cut) -> Result<Option<Self>, Refused> {
        let counted = if question.variant == Variant::Hybrid {
            // Layers of the hybrid model are halves of blocks, and one by one each would have its input kept.
            let all = Recomputing::Alike(&[Counted::AllBlocks, Counted::BlocksAtOnce]);
            Self::counted(
                question,
                cut,
                all,
                "recomputes all blocks of every stage, in groups of equal size",
            )?
        } else {
            let can = "recomputes either the first n blocks of every stage one by one, or all blocks in groups of a \
                size that divides every stage";
            Self::counted(question, cut, MEGATRON.recomputing, can)?
        };
        if counted.is_some() {
            return Ok(counted);
        }
        match question.recompute()? {
            RecomputePolicy::None => Ok(None),
            RecomputePolicy::Layer => Ok(Some(Self::uniform(1))),
            RecomputePolicy::Stage if cut.is_even() => {
                Ok(Some(Self::uniform(cut.block_counts().first().copied().unwrap_or(1).max(1))))
            }
            RecomputePolicy::Stage => {
                let why = "recomputes whole stages with different numbers of blocks, but Megatron recomputes the same \
                    number of blocks on every stage. Request a plan with the recompute policy `layer`";
                Err(vec![StageRefusal::of_plan(why)])
            }
        }
    }

    fn counted(
        question: &ExportQuestion<'_>,
        cut: &Cut,
        recomputing: Recomputing,
        can: &str,
    ) -> Result<Option<Self>, Refused> {
        let most = cut.block_counts().into_iter().max().unwrap_or(0);
        Ok(question.recomputed(recomputing, can)?.map(|recomputed| match recomputed.form {
            Some(Form::FirstBlocks(blocks)) if blocks < most => Self { method: "block", blocks },
            Some(Form::BlocksAtOnce(blocks)) => Self::uniform(blocks),
            _ => Self::uniform(1),
        }))
    }
}
