//! The rules of a framework: which plans it can run.
//!
//! Frameworks build one grid of ranks and cut models where they can, so most plans that a search may find are of no use to them.
//! A search takes the rules as restrictions, and its answer reports which of them cost something. Settings that the executed model
//! does not have (context and expert parallelism) are 1 or off.

use std::ops::RangeInclusive;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::plan::objective::{Framework, PlanShape};
use loadmaster_proto::plan::request::PlanRequest;
use loadmaster_proto::training::actions::{
    Action, Allowed, Block, Destination, Optimization, StageActions, Swap, Way, blocks,
};
use loadmaster_proto::training::overlap::Overlap;
use loadmaster_proto::training::sharding::StateSharding;
use loadmaster_proto::training::stage::StageConfig;
use loadmaster_proto::training::{Optimizer, Precision, RecomputePolicy, Schedule};

use crate::memory::TrainingWay;
use crate::recompute::Recomputing;

/// The places at which a framework can cut a model into stages.
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

/// The parameters and optimizer state that a framework can move off the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InChunks {
    /// Nothing.
    Never,
    /// The schemes that ZeRO-Offload and PatrickStar published: one micro-batch after the other, the host keeps what layers compute
    /// with, and updates it behind the backward pass.
    AsPublished,
    /// Whatever a plan says.
    Anything,
}

/// A pipeline engine: whether its transfers overlap computing, under the schedules that plans have here.
#[derive(Debug, Clone, Copy)]
pub struct Engine {
    /// The name that frameworks which run it give themselves, in lower case.
    pub(crate) framework: &'static str,
    overlap: Overlap,
    why: &'static str,
    /// The reason why it computes meanwhile where devices have several interleaved stages; none where that changes nothing.
    interleaved: Option<&'static str>,
}

impl Engine {
    pub(crate) const fn blocking(framework: &'static str, why: &'static str) -> Self {
        Self { framework, overlap: Overlap::Nothing, why, interleaved: None }
    }

    pub(crate) const fn overlapping(framework: &'static str, why: &'static str) -> Self {
        Self { overlap: Overlap::Computing, ..Self::blocking(framework, why) }
    }

    pub(crate) const fn with_interleaved(self, why: &'static str) -> Self {
        Self { interleaved: Some(why), ..self }
    }

    /// Returns whether transfers overlap computing where devices have so many stages each, and the reason.
    pub fn overlap(&self, virtual_stages: u32) -> (Overlap, &'static str) {
        match self.interleaved.filter(|_| virtual_stages > 1) {
            Some(why) => (Overlap::Computing, why),
            None => (self.overlap, self.why),
        }
    }
}

/// The rules of one framework.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The framework.
    pub framework: Framework,
    /// The most general shape that it runs; it is the default, and every shape within it is accepted.
    pub shape: PlanShape,
    /// The places at which it cuts.
    pub cut: CutUnit,
    /// Recompute policies that it has words for.
    pub policies: &'static [RecomputePolicy],
    /// Returns the state shardings that it has with an optimizer.
    pub(crate) shardings: fn(&Optimizer) -> &'static [StateSharding],
    /// Stages with several replicas may have different state shardings.
    pub(crate) sharding_per_stage: bool,
    /// Its tensor-parallel shards may divide activations along the sequence.
    pub sequence_parallel: bool,
    /// Each stage may have a recompute policy of its own.
    pub recompute_per_stage: bool,
    /// Orders of the passes, the default first.
    pub schedules: &'static [Schedule],
    /// It starts equally many processes on every node, as torchrun does.
    pub even_nodes: bool,
    /// The layers that it recomputes where these are chosen layer by layer.
    pub recomputing: Recomputing,
    /// Blocks that it has away in the host's memory, exactly as a plan says.
    pub offloads: &'static [Block],
    /// Two stages may share a weight (a head that is tied to the embedding).
    pub shared_weights: bool,
    /// The parameters and optimizer state that it keeps in chunks, or partitions of its own, that leave the device.
    pub chunks: InChunks,
    /// Devices may have several virtual pipeline stages each.
    pub takes_turns: bool,
    /// The engine of its pipelines; none where it is not known.
    pub engine: Option<Engine>,
    /// Returns the note human-readable who run a plan with it; empty where there is none.
    pub(crate) note: fn() -> String,
    /// The note that a model in fp32 is one stage, as its stages exchange bf16 alone; none where stages exchange fp32, too.
    pub(crate) one_stage_in_fp32: Option<fn() -> String>,
    /// Returns its ways to train in a precision, the one that exports start first; none where their bytes are not known.
    pub(crate) ways: fn(Precision) -> &'static [TrainingWay],
}

pub(crate) const BOTH: &[Schedule] = &[Schedule::OneFOneB, Schedule::Gpipe];
const WHOLE: &[StateSharding] = &[StateSharding::None];

/// Returns the state shardings of frameworks that shard the states of every optimizer.
pub(crate) fn with_any(_: &Optimizer) -> &'static [StateSharding] {
    &[StateSharding::None, StateSharding::Optimizer]
}

/// Returns the state shardings of frameworks that shard the states of Adam alone.
pub(crate) fn with_adam(optimizer: &Optimizer) -> &'static [StateSharding] {
    match optimizer {
        Optimizer::Sgd { .. } => WHOLE,
        Optimizer::Adam { .. } | Optimizer::AdamW { .. } => with_any(optimizer),
    }
}

pub(crate) const LAYERS: &[RecomputePolicy] = &[RecomputePolicy::None, RecomputePolicy::Layer];

impl Rules {
    /// The rules of most frameworks.
    pub(crate) const USUAL: Self = Self {
        framework: Framework::Other,
        shape: PlanShape::UniformGrid,
        cut: CutUnit::Block,
        policies: &[RecomputePolicy::None, RecomputePolicy::Layer, RecomputePolicy::Stage],
        shardings: |_| WHOLE,
        sharding_per_stage: false,
        sequence_parallel: false,
        recompute_per_stage: false,
        schedules: &[Schedule::OneFOneB],
        even_nodes: true,
        recomputing: Recomputing::Anything,
        offloads: &[],
        shared_weights: true,
        chunks: InChunks::Never,
        takes_turns: false,
        engine: None,
        note: String::new,
        one_stage_in_fp32: None,
        ways: |_| &[],
    };

    /// Returns the note human-readable who run a plan with the framework; empty where there is none.
    pub fn note(&self) -> String {
        (self.note)()
    }

    /// Returns the state shardings that it has with an optimizer.
    pub fn shardings(&self, optimizer: &Optimizer) -> &'static [StateSharding] {
        (self.shardings)(optimizer)
    }

    /// Returns whether its replicas and shards share a stage so with an optimizer.
    pub fn shares(&self, stage: &StageConfig, optimizer: &Optimizer) -> bool {
        self.shardings(optimizer).contains(&stage.sharding)
            && (self.sequence_parallel || !stage.sequence_parallel)
    }

    /// Checks that it has the state shardings that a request lists, or gives to stages.
    ///
    /// # Errors
    /// Names the first that it does not have.
    pub fn check_shardings(&self, request: &PlanRequest, optimizer: &Optimizer) -> Result<(), Invalid> {
        let can = self.shardings(optimizer);
        let listed =
            request.goal.constraints.shardings.iter().map(|of| (Setting::ForeignSharding.field(), *of));
        let stages = request.partitioning.iter().flat_map(|given| given.stages());
        let given = stages.map(|stage| ("constraints.pipeline_layout", stage.sharding));
        let Some((field, foreign)) = listed.chain(given).find(|(_, of)| !can.contains(of)) else {
            return Ok(());
        };
        let can: Vec<&str> = can.iter().map(|of| of.as_str()).collect();
        Settings::default()
            .says(Setting::Framework, self.framework)
            .says_instead(Setting::ForeignSharding, foreign, can.join(" or "))
            .in_field(Setting::ForeignSharding, field)
            .check()
    }

    /// Returns the rules for a model in this precision.
    #[must_use]
    pub fn in_precision(self, precision: Precision) -> Self {
        match self.one_stage_in_fp32 {
            Some(note) if precision == Precision::Fp32 => Self { cut: CutUnit::Nowhere, note, ..self },
            _ => self,
        }
    }

    /// Checks that a request does not ask for several stages where a model in its precision is one.
    ///
    /// # Errors
    /// It does; names the field.
    pub fn check_is_one_stage(&self, request: &PlanRequest) -> Result<(), Invalid> {
        let is_one = self.one_stage_in_fp32.is_some() && self.cut == CutUnit::Nowhere;
        let constraints = &request.goal.constraints;
        Settings::default()
            .says_some(Setting::OneStageFramework, is_one.then_some(self.framework))
            .when(
                request.partitioning.as_ref().is_some_and(|given| given.stages().len() > 1),
                Setting::Pipeline,
            )
            .when(!constraints.cut_after.is_empty(), Setting::CutAfter)
            .when(constraints.min_stages.is_some_and(|least| least > 1), Setting::SeveralStages)
            .when(request.virtual_stages > 1, Setting::VirtualStages)
            .check()
    }

    /// Adds the first memory optimization of stages that it cannot do, with those that it can.
    pub fn says_foreign_action(&self, settings: Settings, stages: &[StageActions]) -> Settings {
        let all = stages.iter().enumerate().flat_map(|(stage, actions)| {
            actions.actions.iter().enumerate().map(move |(index, action)| (stage, index, action))
        });
        let mut swaps =
            all.filter_map(|(stage, index, action)| Some((stage, index, self.foreign_swap(action)?)));
        let Some((stage, index, swap)) = swaps.next() else { return settings };
        let away = self.offloads.iter().map(|block| format!(" and keep {block} in CPU memory"));
        let can = self.recomputing.to_string() + &away.collect::<String>();
        settings.says_instead(Setting::ForeignAction, swap, can).in_field(
            Setting::ForeignAction,
            format!("memory.stage_memory_optimizations[{stage}].optimizations[{index}].swap"),
        )
    }

    /// Returns the swap of an action that it cannot do.
    pub(crate) fn foreign_swap<'a>(&self, action: &'a Action) -> Option<&'a Swap> {
        match &action.optimization {
            Optimization::Swap(swap)
                if swap.to != Destination::Host || !self.offloads.contains(&swap.block) =>
            {
                Some(swap)
            }
            _ => None,
        }
    }

    /// Returns the ways to hold less that it has.
    pub fn memory_ways(&self) -> Vec<Way> {
        let away = (!self.offloads.is_empty()).then_some(Way::CpuOffload);
        std::iter::once(Way::Recompute).chain(away).collect()
    }

    /// Returns the part of what a request allows that may be chosen for it.
    ///
    /// # Errors
    /// It can do nothing of that; says what to do.
    pub fn allowed(&self, asked: &Allowed) -> Result<Allowed, Invalid> {
        let own = self.memory_ways();
        let ways: Vec<Way> = asked.ways.iter().copied().filter(|way| own.contains(way)).collect();
        Settings::default()
            .when(ways.is_empty(), Setting::ForeignWays)
            .says(Setting::Framework, self.framework)
            .check()?;
        let blocks = asked.blocks.iter().copied().filter(|block| self.offloads.contains(block)).collect();
        Ok(Allowed { ways, blocks, ..asked.clone() })
    }

    /// Returns the ranges of a model's layers within which it does not cut. Of a chain that is known by name alone, with
    /// so many layers, it is not known where its blocks are; every layer counts as one then.
    ///
    /// # Errors
    /// The framework cannot run such a model; the text says why and what to do.
    pub fn kept_together(
        &self,
        model: Option<&Model>,
        layers: usize,
    ) -> Result<Vec<RangeInclusive<usize>>, String> {
        if self.cut == CutUnit::Nowhere {
            return Ok(vec![0..=layers.saturating_sub(1)]);
        }
        let Some(model) = model else { return Ok(Vec::new()) };
        if !self.shared_weights && model.has_tied_head() {
            return Err(format!(
                "{} does not support weights that are shared between stages, but the head is tied to the embedding. Untie \
                 the head, or use another framework",
                self.framework
            ));
        }
        if self.cut == CutUnit::Layer {
            return Ok(Vec::new());
        }
        let end = model.layers().len().saturating_sub(1);
        let own: Vec<usize> = blocks(model, 0..=end).collect();
        let (Some(&first), Some(&last)) = (own.first(), own.last()) else {
            return Err(format!(
                "{} splits the model only between transformer blocks, but the model has none. Use another framework",
                self.framework
            ));
        };
        if self.cut == CutUnit::BetweenBlocks {
            return Ok(vec![0..=first, last..=end]);
        }
        // Blocks themselves are single layers; only what is around them could be cut.
        Ok(first.checked_sub(1).map(|before| 0..=before).into_iter().chain([last + 1..=end]).collect())
    }
}

#[cfg(test)]
mod tests {
    use loadmaster_proto::model::zoo::{Gpt2, Vgg, Zoo};

    use super::*;
    use crate::{framework_named, rules};

    /// Every framework has rules of its own, and profiles that name its engine are found to be its.
    #[test]
    fn every_framework_has_rules_of_its_own() {
        for framework in Framework::ALL {
            let own = rules(framework);
            assert_eq!(own.framework, framework);
            assert!(!own.schedules.is_empty() && own.shape.includes(PlanShape::SinglePipeline));
            let named = own.engine.map(|engine| framework_named(engine.framework));
            assert_eq!(named, own.engine.map(|_| Some(framework)), "{framework}");
        }
    }

    fn gpt() -> Model {
        Zoo::Gpt2(Gpt2 { blocks: 4, ..Gpt2::default() }).build().unwrap()
    }

    /// Layers behind which a framework cuts a GPT-2 of four blocks.
    fn ends(framework: Framework, model: Option<&Model>) -> Vec<usize> {
        let kept = rules(framework).kept_together(model, 7).unwrap();
        (0..7)
            .filter(|end| !kept.iter().any(|range| range.contains(end) && range.contains(&(end + 1))))
            .collect()
    }

    #[test]
    fn trainer_cuts_nowhere() {
        for model in [None, Some(&gpt())] {
            assert_eq!(ends(Framework::Trainer, model), [6]);
        }
    }

    /// Megatron's layout has one `E` and one `L`: nothing is cut within what they stand for.
    #[test]
    fn megatron_cuts_between_blocks_alone() {
        let model = gpt();
        let names: Vec<&str> = model.layers().iter().map(|layer| layer.name.as_str()).collect();
        assert_eq!(
            ends(Framework::Megatron, Some(&model)),
            [0, 1, 2, 3, 4, 6],
            "{names:?}: the last norm stays with the head"
        );
    }

    /// Every stage of Galvatron's has a block, whose neighbours at the ends stay with it.
    #[test]
    fn galvatron_has_a_block_in_every_stage() {
        assert_eq!(ends(Framework::Galvatron, Some(&gpt())), [1, 2, 3, 6]);
    }

    /// A framework that cannot run the model at all says so, and what to do.
    #[test]
    fn models_that_a_framework_cannot_run_are_refused() {
        let vgg = Zoo::Vgg11(Vgg::default()).build().unwrap();
        let refusal = rules(Framework::Megatron).kept_together(Some(&vgg), 30);
        assert!(refusal.unwrap_err().contains("transformer blocks"));
        assert!(rules(Framework::Torchgpipe).kept_together(Some(&vgg), 30).is_ok());
        let refusal = rules(Framework::Torchgpipe).kept_together(Some(&gpt()), 7);
        assert!(refusal.unwrap_err().contains("shared between stages"));
    }
}
