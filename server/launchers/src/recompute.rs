//! Recomputation that is chosen layer by layer, as frameworks count it.
//!
//! Frameworks count layers from the first of each stage, most of them alike in all stages, so few choices are left: a search tries
//! them one by one, and an export writes the same [`Form`]. No framework's file expresses other memory
//! optimizations, or actions that differ between micro-batches.

use std::fmt;
use std::ops::RangeInclusive;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::LayerKind;
use loadmaster_proto::plan::PlanStage;
use loadmaster_proto::plan::compatibility::{Setting, Settings};
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::{Action, Form, Optimization, StageActions, blocks};

use crate::StageRefusal;
use crate::question::{ExportQuestion, Refused, all_or};
use crate::rules::Rules;

/// The layers that a framework recomputes, where stages do not all have the same policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recomputing {
    /// Any runs of layers, for micro-batches in any slots.
    Anything,
    /// Any blocks of each stage, one by one.
    AnyBlocks,
    /// The first blocks of each stage, one by one, as many as each stage likes. Colossal-AI reads these numbers for models like
    /// Llama; for others they are all blocks or none.
    FirstBlocksOfEach,
    /// One form of all stages.
    Alike(&'static [Counted]),
}

/// Forms that a number says for all stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// The first blocks of every stage, one by one.
    FirstBlocks,
    /// All blocks, one by one.
    AllBlocks,
    /// All blocks, so many at once, where every stage has a multiple of them.
    BlocksAtOnce,
    /// All layers, one by one.
    EveryLayer,
    /// All layers that have parameters of their own, so many at once.
    TrainedAtOnce,
    /// All of every stage at once.
    WholeStages,
}

/// Runs of layers of a stage that are recomputed, in order.
pub type Runs = Vec<RangeInclusive<usize>>;

/// The runs that stages may recompute. Choices that come later take no less time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choices {
    /// Those of each stage, whatever the others do.
    Each(Vec<Vec<Runs>>),
    /// Those of all stages at once.
    Alike(Vec<Vec<Runs>>),
}

/// Recomputation that a framework cannot express.
struct Unsaid {
    stage: usize,
    /// The index of the action among the stage's; none where it is all that the stage recomputes.
    action: Option<usize>,
}

impl Recomputing {
    /// Returns the runs that the stages of these layers may recompute; none where anything goes. Of a model that is not known
    /// nothing is counted.
    pub fn choices(self, model: Option<&Model>, stages: &[RangeInclusive<usize>]) -> Option<Choices> {
        let nothing = vec![Runs::new(); stages.len()];
        let Some(model) = model else {
            return (self != Self::Anything).then(|| Choices::Alike(vec![nothing]));
        };
        let has_numbers = |stage: &RangeInclusive<usize>| {
            let most = blocks(model, stage.clone()).count();
            (0..=most).map(|first| Form::FirstBlocks(first).runs(model, stage.clone())).collect()
        };
        match self.on(model, stages) {
            Self::Anything => None,
            // Blocks of a model are alike: of each number of them the first stand for all.
            Self::AnyBlocks | Self::FirstBlocksOfEach => {
                Some(Choices::Each(stages.iter().map(has_numbers).collect()))
            }
            Self::Alike(counted) => {
                let mut all = vec![nothing];
                for form in counted.iter().flat_map(|counted| counted.forms(model, stages)) {
                    let runs = stages.iter().map(|stage| form.runs(model, stage.clone())).collect();
                    if !all.contains(&runs) {
                        all.push(runs);
                    }
                }
                Some(Choices::Alike(all))
            }
        }
    }

    /// Returns the choice that is left for a model: Colossal-AI's code reads numbers where models are cut, and of models like Llama.
    fn on(self, model: &Model, stages: &[RangeInclusive<usize>]) -> Self {
        match self {
            Self::FirstBlocksOfEach if stages.len() == 1 || !is_like_llama(model) => {
                Self::Alike(&[Counted::AllBlocks])
            }
            other => other,
        }
    }

    /// Returns the form of these runs; none where each stage has runs of its own.
    ///
    /// # Errors
    /// The stages whose runs cannot be expressed; of forms the stages that miss the one that fewest of them miss.
    fn form(
        self,
        model: &Model,
        stages: &[RangeInclusive<usize>],
        runs: &[Runs],
    ) -> Result<Option<Form>, Vec<usize>> {
        let others = |is_said: &dyn Fn(&RangeInclusive<usize>, &Runs) -> bool| -> Vec<usize> {
            let each = stages.iter().zip(runs).enumerate();
            each.filter(|(_, (stage, runs))| !is_said(stage, runs)).map(|(index, _)| index).collect()
        };
        let is_block =
            |run: &RangeInclusive<usize>| run.start() == run.end() && blocks(model, run.clone()).count() == 1;
        let unsaid = match self.on(model, stages) {
            Self::Anything => Vec::new(),
            Self::AnyBlocks => others(&|_, runs| runs.iter().all(is_block)),
            Self::FirstBlocksOfEach => {
                others(&|stage, runs| Form::FirstBlocks(runs.len()).runs(model, stage.clone()) == *runs)
            }
            Self::Alike(counted) => {
                let mut fewest: Option<Vec<usize>> = None;
                for form in counted.iter().flat_map(|counted| counted.forms(model, stages)) {
                    let others = others(&|stage, runs| form.runs(model, stage.clone()) == *runs);
                    if others.is_empty() {
                        return Ok(Some(form));
                    }
                    if fewest.as_ref().is_none_or(|fewest| others.len() < fewest.len()) {
                        fewest = Some(others);
                    }
                }
                fewest.unwrap_or_else(|| others(&|_, runs| runs.is_empty()))
            }
        };
        if unsaid.is_empty() { Ok(None) } else { Err(unsaid) }
    }

    /// Returns the first stage that does something else than can be expressed.
    fn unsaid(
        self,
        model: Option<&Model>,
        stages: &[RangeInclusive<usize>],
        actions: &[StageActions],
    ) -> Option<Unsaid> {
        if self == Self::Anything {
            return None;
        }
        let mut own: Vec<Runs> = Vec::with_capacity(stages.len());
        for stage in 0..stages.len() {
            let all = actions.get(stage).map_or(&[][..], |stage| &stage.actions);
            let is_some_slots =
                |action: &Action| action.optimization == Optimization::Recompute && !action.slots.is_empty();
            if let Some(action) = all.iter().position(is_some_slots) {
                return Some(Unsaid { stage, action: Some(action) });
            }
            let again = all.iter().filter(|action| action.optimization == Optimization::Recompute);
            let mut runs: Runs = again.map(Action::layers).collect();
            runs.sort_by_key(|run| *run.start());
            own.push(runs);
        }
        let acting: Vec<usize> = (0..own.len()).filter(|&stage| !own[stage].is_empty()).collect();
        let others = match model {
            Some(model) if !acting.is_empty() => self.form(model, stages, &own).err()?,
            _ => acting.clone(),
        };
        // Where all stages count alike, to recompute nothing is a form, too.
        let is_alike = model.is_some_and(|model| matches!(self.on(model, stages), Self::Alike(_)));
        let others = if is_alike && acting.len() <= others.len() { acting } else { others };
        others.first().map(|&stage| Unsaid { stage, action: None })
    }
}

impl Counted {
    /// Returns the forms of every number that makes a difference to these stages.
    fn forms(self, model: &Model, stages: &[RangeInclusive<usize>]) -> Vec<Form> {
        let counts: Vec<usize> = stages.iter().map(|stage| blocks(model, stage.clone()).count()).collect();
        let most = counts.iter().copied().max().unwrap_or(0);
        let longest = stages.iter().map(|stage| stage.clone().count()).max().unwrap_or(0);
        match self {
            Self::FirstBlocks => (1..=most).map(Form::FirstBlocks).collect(),
            Self::AllBlocks => vec![Form::FirstBlocks(most)],
            Self::BlocksAtOnce => {
                let divides = |length: &usize| counts.iter().all(|count| count.is_multiple_of(*length));
                (2..=most).filter(divides).map(Form::BlocksAtOnce).collect()
            }
            Self::EveryLayer => vec![Form::LayersAtOnce(1)],
            Self::TrainedAtOnce => (1..=longest).map(Form::TrainedAtOnce).collect(),
            Self::WholeStages => vec![Form::LayersAtOnce(longest)],
        }
    }
}

/// Returns whether Colossal-AI trains a model with its Llama's forward pass, or one that is made like it.
fn is_like_llama(model: &Model) -> bool {
    let is_rotary = |kind: &LayerKind| match kind {
        LayerKind::TransformerBlock(block) => block.rotary_base.is_some(),
        _ => false,
    };
    model.layers().iter().any(|layer| is_rotary(&layer.kind))
}

impl Rules {
    /// Returns whether each stage of a model may have a recompute policy of its own.
    pub fn has_policies_of_stages(&self, model: Option<&Model>) -> bool {
        let reads_numbers =
            || self.recomputing != Recomputing::FirstBlocksOfEach || model.is_none_or(is_like_llama);
        self.recompute_per_stage && reads_numbers()
    }

    /// Checks that the framework has words for policies to choose from. `stages` are the layers of each where they are given, or
    /// there can be but one. Of a chain that is known by name alone it is not known where its blocks are.
    ///
    /// # Errors
    /// It has none for one of them, or one word for whole stages that are to have the same number of blocks and have not, or need
    /// not have; `field` says what they are.
    pub fn check_policies(
        &self,
        (field, policies): (&str, &[RecomputePolicy]),
        model: Option<&Model>,
        stages: Option<&[RangeInclusive<usize>]>,
    ) -> Result<(), Invalid> {
        let counts = matches!(self.recomputing, Recomputing::Alike(counted) if counted.contains(&Counted::BlocksAtOnce));
        let is_uneven = |model| {
            let count = |stage: &RangeInclusive<usize>| blocks(model, stage.clone()).count();
            stages.is_none_or(|stages| stages.windows(2).any(|two| count(&two[0]) != count(&two[1])))
        };
        let can: Vec<&str> = self.policies.iter().map(|policy| policy.as_str()).collect();
        let mut settings = Settings::default().says(Setting::Framework, self.framework);
        if let Some(other) = policies.iter().find(|policy| !self.policies.contains(policy)) {
            settings = settings.says_instead(Setting::ForeignPolicy, other, can.join(" or "));
        }
        if counts && policies.contains(&RecomputePolicy::Stage) && model.is_some_and(is_uneven) {
            settings = settings.says(Setting::UnequalRecompute, RecomputePolicy::Stage);
        }
        let settings = settings.in_field(Setting::ForeignPolicy, field);
        settings.in_field(Setting::UnequalRecompute, field).check()
    }

    /// Checks that the framework can express the layers that stages recompute.
    ///
    /// # Errors
    /// It cannot; names the stage or the action, says what it can, and what to do.
    pub fn check_recomputed(
        &self,
        model: Option<&Model>,
        stages: &[RangeInclusive<usize>],
        actions: &[StageActions],
    ) -> Result<(), Invalid> {
        let Some(Unsaid { stage, action }) = self.recomputing.unsaid(model, stages, actions) else {
            return Ok(());
        };
        let (field, what) = match action {
            Some(action) => (
                format!(
                    "memory.stage_memory_optimizations[{stage}].optimizations[{action}].micro_batch_slots"
                ),
                "are named".to_owned(),
            ),
            None => (format!("memory.stage_memory_optimizations[{stage}]"), again(actions.get(stage))),
        };
        Settings::default()
            .says(Setting::Framework, self.framework)
            .says_instead(Setting::ForeignRecompute, what, self.recomputing)
            .in_field(Setting::ForeignRecompute, field)
            .check()
    }

    /// Returns the memory optimizations of stages that the framework cannot do, human-readable.
    pub fn broken_by(
        &self,
        model: Option<&Model>,
        stages: &[RangeInclusive<usize>],
        actions: &[StageActions],
    ) -> Vec<String> {
        let framework = self.framework;
        let each = actions.iter().enumerate();
        let mut all = each.flat_map(|(stage, own)| own.actions.iter().map(move |action| (stage, action)));
        let swapped = all.find(|(_, action)| self.foreign_swap(action).is_some());
        let swapped = swapped.map(|(stage, action)| {
            format!("{framework}: stage {stage} cannot offload or swap blocks ({action})")
        });
        let recomputed = self.recomputing.unsaid(model, stages, actions).map(|Unsaid { stage, .. }| {
            let (again, can) = (again(actions.get(stage)), self.recomputing);
            format!("{framework}: stage {stage} {again}, but the framework can only recompute {can}")
        });
        swapped.into_iter().chain(recomputed).collect()
    }
}

/// Returns the recomputation of a stage in words.
fn again(actions: Option<&StageActions>) -> String {
    /// Most of its actions that are named.
    const NAMED: usize = 4;
    let all = actions.map_or(&[][..], |stage| stage.actions.as_slice());
    let runs: Vec<String> = all
        .iter()
        .filter(|action| action.optimization == Optimization::Recompute)
        .map(ToString::to_string)
        .collect();
    match runs.len() {
        0 => "recomputes nothing".to_owned(),
        1..=NAMED => format!("does {}", runs.join(", ")),
        more => format!("does {} and {} more", runs[..NAMED].join(", "), more - NAMED),
    }
}

impl fmt::Display for Recomputing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anything => f.write_str("any layers"),
            Self::AnyBlocks => f.write_str("any blocks one by one"),
            Self::FirstBlocksOfEach => {
                f.write_str("the first blocks of each stage one by one (in models unlike Llama, all blocks)")
            }
            Self::Alike(counted) => {
                let words: Vec<&str> = counted.iter().map(|counted| counted.words()).collect();
                f.write_str(&words.join(", or "))
            }
        }
    }
}

impl Counted {
    const fn words(self) -> &'static str {
        match self {
            Self::FirstBlocks => "the first blocks of every stage one by one, the same number in each stage",
            Self::AllBlocks => "all blocks one by one",
            Self::BlocksAtOnce => "all blocks in groups of a size that divides every stage",
            Self::EveryLayer => "all layers one by one",
            Self::TrainedAtOnce => "all layers in groups of equal size in every stage",
            Self::WholeStages => "whole stages",
        }
    }
}

/// The recomputation that memory optimizations of a plan make, as a framework can express it.
pub(crate) struct StageRuns {
    /// The runs of every stage.
    pub(crate) runs: Vec<Runs>,
    /// Their form; none where each stage has runs of its own.
    pub(crate) form: Option<Form>,
}

impl ExportQuestion<'_> {
    /// Returns the recomputation of a plan's memory optimizations; none in a plan without them, whose stages have policies.
    ///
    /// # Errors
    /// Each stage that does something else; `can` is the framework's recomputation in words.
    pub(crate) fn recomputed(
        &self,
        recomputing: Recomputing,
        can: &str,
    ) -> Result<Option<StageRuns>, Refused> {
        let stages = &self.plan.stages;
        let acts = stages.iter().any(|stage| !stage.actions.is_empty());
        let (mut all, mut refused) = (Vec::with_capacity(stages.len()), Vec::new());
        for (index, stage) in stages.iter().enumerate() {
            match runs(stage, acts) {
                Ok(runs) => all.push(runs),
                Err(why) => refused.push(StageRefusal::of_stage(index, why)),
            }
        }
        all_or(refused)?;
        if !acts {
            return Ok(None);
        }
        let layers: Vec<_> = stages.iter().map(|stage| stage.config.layers()).collect();
        match recomputing.form(self.model()?, &layers, &all) {
            Ok(form) => Ok(Some(StageRuns { runs: all, form })),
            Err(others) => {
                Err(others.into_iter().map(|stage| not_counted(stage, &all[stage], can)).collect())
            }
        }
    }

    /// Returns whether all blocks of every stage are recomputed one by one.
    ///
    /// # Errors
    /// Stages that do otherwise; those that recompute themselves as a whole with `whole`.
    pub(crate) fn recomputes_blocks(&self, whole: impl FnOnce() -> StageRefusal) -> Result<bool, Refused> {
        let all = Recomputing::Alike(&[Counted::AllBlocks]);
        if self.recomputed(all, "recomputes all blocks one by one")?.is_some() {
            return Ok(true);
        }
        match self.recompute()? {
            RecomputePolicy::None => Ok(false),
            RecomputePolicy::Layer => Ok(true),
            RecomputePolicy::Stage => Err(vec![whole()]),
        }
    }
}

/// Returns the refusal of a stage whose runs a framework does not count so.
pub(crate) fn not_counted(stage: usize, runs: &[RangeInclusive<usize>], can: &str) -> StageRefusal {
    let words = runs.iter().map(|run| match (run.start(), run.end()) {
        (first, last) if first == last => format!("layer {first}"),
        (first, last) => format!("layers {first} to {last} at once"),
    });
    let words: Vec<String> = words.collect();
    let what = if words.is_empty() { "nothing".to_owned() } else { words.join(", ") };
    StageRefusal::of_stage(stage, format!("recomputes {what}, but this framework {can}"))
}

/// Returns the runs of a stage of a plan, some of whose stages act or none.
fn runs(stage: &PlanStage, acts: bool) -> Result<Runs, String> {
    if stage.chunks.is_some() {
        return Err(
            "uses chunked training, which this export does not support. Request a plan without it".to_owned()
        );
    }
    if acts && stage.recompute != RecomputePolicy::None {
        let policy = stage.recompute;
        return Err(format!(
            "has the recompute policy {policy}, but other stages recompute by memory optimizations. This export \
             supports only one of the two. Request a plan with only policies, or with only memory optimizations"
        ));
    }
    let actions = &stage.actions;
    let runs = actions.recomputed_alike().map_err(|index| {
        let action = actions.actions.get(index).map(ToString::to_string).unwrap_or_default();
        format!(
            "has the memory optimization {action}, but this export supports only recompute that is equal for all \
             micro-batches. Request a plan without this optimization"
        )
    })?;
    if actions.host_pool.0 > 0 || !actions.peer_pools.is_empty() {
        let why = "reserves memory for offloaded or swapped blocks, which this export does not support. Recommend a \
            plan without CPU offload and peer swap";
        return Err(why.to_owned());
    }
    Ok(runs)
}
