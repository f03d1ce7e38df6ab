//! What each launcher can run, as a table.
//!
//! Launchers build one grid of ranks and cut their models where they can, so most of what a search may find is
//! of no use to them. The restrictions are part of the search, not a filter behind it, and the answer says
//! which of them were binding. What the executed model does not have (context and expert parallelism, sharded
//! optimizers) is 1 or off.

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::LayerKind;
use loadmaster_proto::plan::objective::{Launcher, PlanShape};
use loadmaster_proto::plan::request::PlanRequest;
use loadmaster_proto::training::actions::{Action, Allowed, Block, Deed, Destination, Way};
use loadmaster_proto::training::{Precision, RecomputePolicy, Schedule};

use super::recomputing::{Counted, Recomputing};
use crate::search::Cuts;

/// Between which layers a launcher can cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutUnit {
    /// Anywhere between two layers.
    Layer,
    /// Only between transformer blocks; what comes before the first one is on its own or with it, and likewise
    /// what comes after the last one.
    Block,
    /// Only between two transformer blocks, of which every stage has one or more: what comes before the first one is with it, and
    /// what comes after the last one.
    BetweenBlocks,
    /// Nowhere: it trains the whole model on every device.
    Nowhere,
}

/// What a launcher has of parameters and optimizer state that leave the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InChunks {
    /// Nothing.
    Never,
    /// What ZeRO-Offload and PatrickStar published: one micro-batch after the other, the host keeps what layers compute with, and
    /// updates it behind the backward pass.
    AsPublished,
    /// Whatever a plan says.
    Anything,
}

/// What one launcher can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Who.
    pub launcher: Launcher,
    /// The most general shape that it runs; it is the default, and every shape within it is accepted.
    pub shape: PlanShape,
    /// Where it cuts.
    pub cut: CutUnit,
    /// Recompute policies that it has words for.
    pub policies: &'static [RecomputePolicy],
    /// Whether each stage may have a recompute policy of its own.
    pub recompute_per_stage: bool,
    /// Orders of the passes, the default first.
    pub schedules: &'static [Schedule],
    /// torchrun starts equally many processes on every node.
    pub even_nodes: bool,
    /// What it computes again where that is chosen layer by layer.
    pub recomputing: Recomputing,
    /// Blocks that it has away in the host's memory, exactly as a plan says.
    pub offloads: &'static [Block],
    /// Whether two stages may share a weight (a head that is tied to the embedding).
    pub shared_weights: bool,
    /// Whether it keeps parameters and optimizer state in chunks, or partitions of its own, that leave the device.
    pub chunks: InChunks,
    /// Whether devices may have several stages in turn (Megatron-LM's virtual pipeline stages).
    pub takes_turns: bool,
    /// Whether its stages pass fp32 on to each other; otherwise a model in fp32 is one stage.
    pub passes_fp32: bool,
    /// What to know before running the plan with it, for people; empty where there is nothing.
    pub note: &'static str,
}

const BOTH: &[Schedule] = &[Schedule::OneFOneB, Schedule::Gpipe];
const FLUSHED: &[Schedule] = &[Schedule::OneFOneB];

const ANY: &[RecomputePolicy] = &[RecomputePolicy::None, RecomputePolicy::Layer, RecomputePolicy::Stage];
const LAYERS: &[RecomputePolicy] = &[RecomputePolicy::None, RecomputePolicy::Layer];
const STAGES: &[RecomputePolicy] = &[RecomputePolicy::None, RecomputePolicy::Stage];

/// Megatron's rules, which several launchers share.
const MEGATRON: Rules = Rules {
    launcher: Launcher::Megatron,
    shape: PlanShape::UniformGrid,
    cut: CutUnit::Block,
    policies: ANY,
    recompute_per_stage: false,
    schedules: FLUSHED,
    even_nodes: true,
    recomputing: Recomputing::Alike(&[Counted::FirstBlocks, Counted::BlocksAtOnce]),
    offloads: &[],
    shared_weights: true,
    chunks: InChunks::Never,
    takes_turns: true,
    passes_fp32: true,
    note: "Megatron pads the vocabulary to a multiple of 128 times the tensor degree: the ends of the model \
           need up to that many rows more than predicted",
};

/// The table, a row per launcher.
const TABLE: [Rules; 11] = [
    MEGATRON,
    Rules { launcher: Launcher::MegatronBridge, passes_fp32: false, ..MEGATRON },
    Rules {
        launcher: Launcher::Accelerate,
        takes_turns: false,
        note: "accelerate takes uneven stages only as \
               `MegatronLMPlugin(other_megatron_args={\"pipeline_model_parallel_layout\": …})`, and turns \
               context parallelism and recomputation on unless they are written down",
        ..MEGATRON
    },
    Rules {
        launcher: Launcher::Torchtitan,
        takes_turns: false,
        recomputing: Recomputing::Alike(&[Counted::AllBlocks]),
        policies: LAYERS,
        cut: CutUnit::Layer,
        schedules: BOTH,
        note: "",
        ..MEGATRON
    },
    Rules {
        launcher: Launcher::TorchPipelining,
        takes_turns: false,
        recomputing: Recomputing::Alike(&[Counted::EveryLayer, Counted::WholeStages]),
        cut: CutUnit::Layer,
        schedules: BOTH,
        recompute_per_stage: true,
        note: "torch.distributed.pipelining keeps each stage's output until its backward pass: in flight × \
               output bytes more than predicted on every stage but the last",
        ..MEGATRON
    },
    Rules {
        launcher: Launcher::Deepspeed,
        takes_turns: false,
        recomputing: Recomputing::Alike(&[Counted::TrainedAtOnce]),
        cut: CutUnit::Layer,
        chunks: InChunks::AsPublished,
        note: "DeepSpeed keeps each stage's output until its backward pass: in flight × output bytes more than \
               predicted on every stage but the last",
        ..MEGATRON
    },
    Rules {
        launcher: Launcher::ColossalAi,
        takes_turns: false,
        recomputing: Recomputing::FirstBlocksOfEach,
        policies: LAYERS,
        recompute_per_stage: true,
        chunks: InChunks::AsPublished,
        note: "Colossal-AI pads the vocabulary to a multiple of 64 times the tensor degree; its default rank \
               order is not the plan's, set dp_outside=False",
        ..MEGATRON
    },
    Rules {
        launcher: Launcher::Galvatron,
        takes_turns: false,
        recomputing: Recomputing::AnyBlocks,
        policies: LAYERS,
        shape: PlanShape::EqualDevices,
        cut: CutUnit::BetweenBlocks,
        schedules: BOTH,
        recompute_per_stage: true,
        note: "",
        ..MEGATRON
    },
    Rules {
        launcher: Launcher::Torchgpipe,
        takes_turns: false,
        recomputing: Recomputing::Alike(&[Counted::WholeStages]),
        policies: STAGES,
        shape: PlanShape::SinglePipeline,
        cut: CutUnit::Layer,
        schedules: &[Schedule::Gpipe],
        even_nodes: false,
        shared_weights: false,
        note: "",
        ..MEGATRON
    },
    Rules {
        launcher: Launcher::Trainer,
        takes_turns: false,
        recomputing: Recomputing::Alike(&[Counted::AllBlocks]),
        policies: LAYERS,
        shape: PlanShape::PerStageReplicas,
        cut: CutUnit::Nowhere,
        note: "Trainer keeps weights and gradients in fp32 where it computes in bf16: up to 4 bytes of each parameter more \
               than predicted",
        ..MEGATRON
    },
    Rules {
        launcher: Launcher::Other,
        recomputing: Recomputing::Anything,
        shape: PlanShape::PerStageMesh,
        cut: CutUnit::Layer,
        recompute_per_stage: true,
        schedules: &[Schedule::OneFOneB, Schedule::Gpipe, Schedule::PipeDream],
        even_nodes: false,
        offloads: &[
            Block::Activations,
            Block::Inputs,
            Block::Versions,
            Block::Weights,
            Block::Gradients,
            Block::Optimizer,
        ],
        chunks: InChunks::Anything,
        note: "",
        ..MEGATRON
    },
];

impl Rules {
    /// Those of a launcher.
    pub fn of(launcher: Launcher) -> Self {
        TABLE.into_iter().find(|rules| rules.launcher == launcher).unwrap_or(MEGATRON)
    }

    /// The same for a model in this precision.
    #[must_use]
    pub fn in_precision(self, precision: Precision) -> Self {
        if self.passes_fp32 || precision != Precision::Fp32 {
            return self;
        }
        Self {
            cut: CutUnit::Nowhere,
            note: "Megatron-Bridge passes bf16 between stages, so a model in fp32 is one; it pads the vocabulary to a multiple of 128 times the \
                   tensor degree: up to that many rows more than predicted",
            ..self
        }
    }

    /// Checks that no several stages are asked for, where a model in this precision is one.
    ///
    /// # Errors
    /// They are; names the field that says so.
    pub(in crate::recommend) fn check_is_one_stage(&self, request: &PlanRequest) -> Result<(), Invalid> {
        if self.passes_fp32 || self.cut != CutUnit::Nowhere {
            return Ok(());
        }
        let constraints = &request.goal.constraints;
        let asks = [
            ("partitioning", request.partitioning.as_ref().is_some_and(|given| given.stages().len() > 1)),
            ("constraints.cut_after", !constraints.cut_after.is_empty()),
            ("constraints.min_stages", constraints.min_stages.is_some_and(|least| least > 1)),
            ("virtual_stages", request.virtual_stages > 1),
        ];
        let Some((field, _)) = asks.into_iter().find(|(_, asks)| *asks) else { return Ok(()) };
        let why = format!(
            "asks for several stages, and {} passes bf16 between them, so a model in fp32 is one: profile with `--precision bf16`, or \
             leave it out",
            self.launcher
        );
        Err(Invalid::field(field, why))
    }

    /// Checks that it can do an action.
    ///
    /// # Errors
    /// It cannot; says what it can, and what to do.
    pub fn check_action(&self, action: &Action) -> Result<(), Invalid> {
        let Deed::Swap(swap) = &action.deed else { return Ok(()) };
        if swap.to == Destination::Host && self.offloads.contains(&swap.block) {
            return Ok(());
        }
        let can: Vec<String> =
            self.offloads.iter().map(|block| format!(" and have {block} at the host")).collect();
        let why = format!(
            "is {swap}, which {} cannot do: it can compute again {}{}; leave the action out, or the launcher",
            self.launcher,
            self.recomputing,
            can.concat()
        );
        Err(Invalid::field("swap", why))
    }

    /// Ways to hold less that it has.
    pub fn ways(&self) -> Vec<Way> {
        let away = (!self.offloads.is_empty()).then_some(Way::Host);
        std::iter::once(Way::Recompute).chain(away).collect()
    }

    /// What may be chosen for it of what a request allows.
    ///
    /// # Errors
    /// It can do nothing of that; says what to do.
    pub(in crate::recommend) fn allowed(&self, asked: &Allowed) -> Result<Allowed, Invalid> {
        let own = self.ways();
        let ways: Vec<Way> = asked.ways.iter().copied().filter(|way| own.contains(way)).collect();
        if ways.is_empty() {
            let why = format!(
                "are to be chosen from, and {} can do none of them: leave the choice of memory actions out, or the launcher",
                self.launcher
            );
            return Err(Invalid::field("memory_ways", why));
        }
        let blocks = asked.blocks.iter().copied().filter(|block| self.offloads.contains(block)).collect();
        Ok(Allowed { ways, blocks, ..asked.clone() })
    }

    /// Restricts where a model is cut. Of a chain that is known by name alone nobody knows where its blocks
    /// are; every layer counts as one then.
    ///
    /// # Errors
    /// The launcher cannot run such a model; the text says why and what to do.
    pub fn restrict(&self, cuts: &mut Cuts, model: Option<&Model>) -> Result<(), String> {
        if self.cut == CutUnit::Nowhere {
            cuts.keep_all_together();
            return Ok(());
        }
        let Some(model) = model else { return Ok(()) };
        if !self.shared_weights && model.has_tied_head() {
            return Err(format!(
                "{} refuses models whose stages share a weight, and the head's is the embedding's: untie it, or \
                 name another launcher",
                self.launcher
            ));
        }
        if self.cut == CutUnit::Layer {
            return Ok(());
        }
        let is_block =
            |index: usize| matches!(model.layers().get(index), Some(layer) if is_block(&layer.kind));
        let count = model.layers().len();
        let (Some(first), Some(last)) =
            ((0..count).find(|&l| is_block(l)), (0..count).rfind(|&l| is_block(l)))
        else {
            return Err(format!(
                "{} cuts between transformer blocks, and the model has none: name another launcher",
                self.launcher
            ));
        };
        if self.cut == CutUnit::BetweenBlocks {
            cuts.keep_together(0..=first);
            cuts.keep_together(last..=count - 1);
            return Ok(());
        }
        // Blocks themselves are single layers; only what is around them could be cut.
        if let Some(before) = first.checked_sub(1) {
            cuts.keep_together(0..=before);
        }
        cuts.keep_together(last + 1..=count - 1);
        Ok(())
    }
}

fn is_block(kind: &LayerKind) -> bool {
    matches!(kind, LayerKind::TransformerBlock(_))
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::model::zoo::{Gpt2, Vgg, Zoo};

    use super::*;

    /// Every launcher has a row of its own, and accepts the shape that is its default.
    #[test]
    fn the_table_has_every_launcher_once() {
        for rules in TABLE {
            assert_eq!(Rules::of(rules.launcher), rules);
            assert!(!rules.schedules.is_empty() && rules.shape.includes(PlanShape::SinglePipeline));
        }
        let names: std::collections::BTreeSet<String> =
            TABLE.iter().map(|rules| rules.launcher.to_string()).collect();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn trainer_cuts_nowhere() {
        for model in [None, Some(Zoo::Gpt2(Gpt2 { blocks: 4, ..Gpt2::default() }).build().unwrap())] {
            let mut cuts = Cuts::anywhere(7);
            Rules::of(Launcher::Trainer).restrict(&mut cuts, model.as_ref()).unwrap();
            assert_eq!((0..7).filter(|&layer| cuts.may_end(layer)).collect::<Vec<_>>(), [6]);
        }
    }

    /// Megatron's layout has one `E` and one `L`: nothing is cut within what they stand for.
    #[test]
    fn megatron_cuts_between_blocks_alone() {
        let model = Zoo::Gpt2(Gpt2 { blocks: 4, ..Gpt2::default() }).build().unwrap();
        let names: Vec<&str> = model.layers().iter().map(|layer| layer.name.as_str()).collect();
        let mut cuts = Cuts::anywhere(names.len());
        Rules::of(Launcher::Megatron).restrict(&mut cuts, Some(&model)).unwrap();
        let after: Vec<&str> = (0..names.len() - 1).filter(|&l| cuts.may_end(l)).map(|l| names[l]).collect();
        assert_eq!(after, names[..names.len() - 2], "{names:?}");
        assert!(!cuts.may_end(names.len() - 2), "the last norm stays with the head");
    }

    /// Every stage of Galvatron's has a block, whose neighbours at the ends stay with it.
    #[test]
    fn galvatron_has_a_block_in_every_stage() {
        let model = Zoo::Gpt2(Gpt2 { blocks: 4, ..Gpt2::default() }).build().unwrap();
        let mut cuts = Cuts::anywhere(model.layers().len());
        Rules::of(Launcher::Galvatron).restrict(&mut cuts, Some(&model)).unwrap();
        let blocks = |range: std::ops::Range<usize>| {
            model.layers()[range].iter().filter(|layer| super::is_block(&layer.kind)).count()
        };
        let ends: Vec<usize> = (0..model.layers().len()).filter(|&layer| cuts.may_end(layer)).collect();
        let starts = std::iter::once(0).chain(ends.iter().map(|end| end + 1));
        let stages: Vec<usize> = starts.zip(&ends).map(|(start, &end)| blocks(start..end + 1)).collect();
        assert_eq!(stages, [1, 1, 1, 1], "cut wherever it may be: {ends:?}");
    }

    /// A launcher that cannot run the model at all says so, and what to do.
    #[test]
    fn models_that_a_launcher_cannot_run_are_refused() {
        let vgg = Zoo::Vgg11(Vgg::default()).build().unwrap();
        let refusal = Rules::of(Launcher::Megatron).restrict(&mut Cuts::anywhere(30), Some(&vgg));
        assert!(refusal.unwrap_err().contains("transformer blocks"));
        assert!(Rules::of(Launcher::Torchgpipe).restrict(&mut Cuts::anywhere(30), Some(&vgg)).is_ok());
        let tied = Zoo::Gpt2(Gpt2::default()).build().unwrap();
        let refusal = Rules::of(Launcher::Torchgpipe).restrict(&mut Cuts::anywhere(15), Some(&tied));
        assert!(refusal.unwrap_err().contains("share a weight"));
    }
}
