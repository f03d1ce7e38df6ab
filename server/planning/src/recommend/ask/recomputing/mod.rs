//! What each launcher can say of recomputation that is chosen layer by layer.
//!
//! Launchers count layers from the first of each stage, most of them alike in all stages, so few choices are left: they are listed
//! here, and a search tries them one by one. What an exporter then writes is the same [`Form`].

use std::fmt;
use std::ops::RangeInclusive;

use loadmaster_proto::error::Invalid;
use loadmaster_proto::model::Model;
use loadmaster_proto::model::layer::LayerKind;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::{Action, Deed, Form, StageActions, blocks};

use super::launcher::Rules;

/// Which layers a launcher computes again, where stages do not all have the same policy.
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

/// Runs of a stage that are computed again.
pub(in crate::recommend) type Runs = Vec<RangeInclusive<usize>>;

/// What stages may compute again. Choices that come later take no less time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::recommend) enum Choices {
    /// Those of each stage, whatever the others do.
    Each(Vec<Vec<Runs>>),
    /// Those of all stages at once.
    Alike(Vec<Vec<Runs>>),
}

/// What a launcher cannot say.
struct Unsaid {
    stage: usize,
    /// Which of its actions; none where it is all that the stage computes again.
    action: Option<usize>,
}

impl Recomputing {
    /// What the stages of these layers may compute again; none where anything goes. Of a model that nobody knows nothing is
    /// counted.
    pub(in crate::recommend) fn choices(
        self,
        model: Option<&Model>,
        stages: &[RangeInclusive<usize>],
    ) -> Option<Choices> {
        let nothing = || Choices::Alike(vec![vec![Runs::new(); stages.len()]]);
        let Some(model) = model else { return (self != Self::Anything).then(nothing) };
        let has_numbers = |stage: &RangeInclusive<usize>| {
            let most = blocks(model, stage.clone()).count();
            (0..=most).map(|first| Form::FirstBlocks(first).runs(model, stage.clone())).collect()
        };
        match self {
            Self::Anything => None,
            // Its code reads numbers where models are cut, and of models like Llama.
            Self::FirstBlocksOfEach if !is_like_llama(model) || stages.len() == 1 => {
                Self::Alike(&[Counted::AllBlocks]).choices(Some(model), stages)
            }
            // Blocks of a model are alike: of each number of them the first stand for all.
            Self::AnyBlocks | Self::FirstBlocksOfEach => {
                Some(Choices::Each(stages.iter().map(has_numbers).collect()))
            }
            Self::Alike(counted) => {
                let mut all = vec![vec![Runs::new(); stages.len()]];
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

    /// The first stage that does something else than can be said.
    fn unsaid(
        self,
        model: Option<&Model>,
        stages: &[RangeInclusive<usize>],
        actions: &[StageActions],
    ) -> Option<Unsaid> {
        let choices = self.choices(model, stages)?;
        let mut own: Vec<Runs> = Vec::with_capacity(stages.len());
        for stage in 0..stages.len() {
            let again = actions.get(stage).into_iter().flat_map(|of| of.actions.iter().enumerate());
            let again: Vec<(usize, &Action)> =
                again.filter(|(_, action)| action.deed == Deed::Recompute).collect();
            if let Some((index, _)) = again.iter().find(|(_, action)| !action.slots.is_empty()) {
                return Some(Unsaid { stage, action: Some(*index) });
            }
            let mut runs: Runs = again.into_iter().map(|(_, action)| action.layers()).collect();
            runs.sort_by_key(|run| *run.start());
            own.push(runs);
        }
        let others = |wanted: &[Runs]| -> Vec<usize> {
            (0..stages.len()).filter(|&stage| wanted.get(stage) != own.get(stage)).collect()
        };
        let stage = match (self, choices) {
            (Self::AnyBlocks, _) => {
                let is_block = |run: &RangeInclusive<usize>| {
                    run.start() == run.end()
                        && model.is_some_and(|model| blocks(model, run.clone()).count() == 1)
                };
                own.iter().position(|runs| !runs.iter().all(is_block))
            }
            (_, Choices::Each(choices)) => {
                choices.iter().zip(&own).position(|(choices, own)| !choices.contains(own))
            }
            // The choice that fewest stages miss says which of them are at fault.
            (_, Choices::Alike(choices)) => {
                let fewest = choices.iter().map(|wanted| others(wanted)).min_by_key(Vec::len);
                fewest.and_then(|others| others.first().copied())
            }
        };
        stage.map(|stage| Unsaid { stage, action: None })
    }
}

impl Counted {
    /// The forms of every number that makes a difference to these stages.
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

/// Whether Colossal-AI trains a model with its Llama's forward pass, or one that is made like it.
fn is_like_llama(model: &Model) -> bool {
    let is_rotary = |kind: &LayerKind| match kind {
        LayerKind::TransformerBlock(block) => block.rotary_base.is_some(),
        _ => false,
    };
    model.layers().iter().any(|layer| is_rotary(&layer.kind))
}

impl Rules {
    /// Whether each stage of a model may have a recompute policy of its own.
    pub(in crate::recommend) fn has_policies_of_stages(&self, model: Option<&Model>) -> bool {
        let reads_numbers =
            || self.recomputing != Recomputing::FirstBlocksOfEach || model.is_none_or(is_like_llama);
        self.recompute_per_stage && reads_numbers()
    }

    /// Checks that the launcher has words for policies to choose from. `stages` are the layers of each where they are given, or
    /// there can be but one. Of a chain that is known by name alone nobody knows where its blocks are.
    ///
    /// # Errors
    /// It has none for one of them, or one word for whole stages that are to have the same number of blocks and have not, or need
    /// not have; `field` says what they are.
    pub(in crate::recommend) fn check_policies(
        &self,
        (field, policies): (&str, &[RecomputePolicy]),
        model: Option<&Model>,
        stages: Option<&[RangeInclusive<usize>]>,
    ) -> Result<(), Invalid> {
        let launcher = self.launcher;
        let refused = |why: String| Err(Invalid::field(field, why));
        if let Some(other) = policies.iter().find(|policy| !self.policies.contains(policy)) {
            let can: Vec<&str> = self.policies.iter().map(|policy| policy.as_str()).collect();
            return refused(format!(
                "is {other}, and {launcher} can do {}: choose from these",
                can.join(" or ")
            ));
        }
        let has_one_length = matches!(self.recomputing, Recomputing::Alike(counted) if counted.contains(&Counted::BlocksAtOnce));
        if !has_one_length || !policies.contains(&RecomputePolicy::Stage) {
            return Ok(());
        }
        let Some(model) = model else { return Ok(()) };
        let is_even = stages.is_some_and(|stages| {
            let mut counts = stages.iter().map(|stage| blocks(model, stage.clone()).count());
            let first = counts.next();
            counts.all(|count| Some(count) == first)
        });
        if is_even {
            return Ok(());
        }
        refused(format!(
            "is stage, which {launcher} can say of stages with equally many blocks alone: give such stages (`--partition`), choose layer, \
             or let blocks be chosen (`--actions recompute`)"
        ))
    }

    /// Checks that the launcher can say what stages compute again.
    ///
    /// # Errors
    /// It cannot; names the stage or the action, says what it can, and what to do.
    pub(in crate::recommend) fn check_recomputed(
        &self,
        model: Option<&Model>,
        stages: &[RangeInclusive<usize>],
        actions: &[StageActions],
    ) -> Result<(), Invalid> {
        let Some(Unsaid { stage, action }) = self.recomputing.unsaid(model, stages, actions) else {
            return Ok(());
        };
        let Self { launcher, recomputing, .. } = self;
        let can = format!("{launcher} can compute again, for all micro-batches, {recomputing}");
        let (field, what) = match action {
            Some(action) => {
                (format!("stage_actions[{stage}].actions[{action}].slots"), "are named".to_owned())
            }
            None => (format!("stage_actions[{stage}]"), again(actions.get(stage))),
        };
        Err(Invalid::field(
            field,
            format!("{what}, and {can}: change what stages compute again, or leave the launcher out"),
        ))
    }

    /// What a launcher cannot do of what stages do, for people.
    pub(in crate::recommend) fn broken_by(
        &self,
        model: Option<&Model>,
        stages: &[RangeInclusive<usize>],
        actions: &[StageActions],
    ) -> Vec<String> {
        let launcher = self.launcher;
        let each = actions.iter().enumerate();
        let all = each.flat_map(|(stage, of)| of.actions.iter().map(move |action| (stage, action)));
        let swapped = all.into_iter().find(|(_, action)| self.check_action(action).is_err());
        let swapped = swapped
            .map(|(stage, action)| format!("{launcher}: no block is away as in stage {stage} ({action})"));
        let recomputed = self.recomputing.unsaid(model, stages, actions).map(|Unsaid { stage, .. }| {
            let (again, can) = (again(actions.get(stage)), self.recomputing);
            format!("{launcher}: stage {stage} {again}, and what it can compute again is {can}")
        });
        swapped.into_iter().chain(recomputed).collect()
    }
}

/// What a stage computes again, in words.
fn again(actions: Option<&StageActions>) -> String {
    /// Most of its actions that are named.
    const NAMED: usize = 4;
    let all = actions.map_or(&[][..], |of| of.actions.as_slice());
    let runs: Vec<String> =
        all.iter().filter(|action| action.deed == Deed::Recompute).map(ToString::to_string).collect();
    match runs.len() {
        0 => "computes nothing again".to_owned(),
        1..=NAMED => format!("does {}", runs.join(", ")),
        more => format!("does {} and {} more", runs[..NAMED].join(", "), more - NAMED),
    }
}

impl fmt::Display for Recomputing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anything => f.write_str("any layers"),
            Self::AnyBlocks => f.write_str("any blocks one by one"),
            Self::FirstBlocksOfEach => f.write_str(
                "the first blocks of each stage one by one (of models that are not like Llama all blocks)",
            ),
            Self::Alike([]) => f.write_str("no layers of its own choice"),
            Self::Alike(counted) => {
                for (index, counted) in counted.iter().enumerate() {
                    write!(f, "{}{counted}", if index == 0 { "" } else { ", or " })?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstBlocks => "the first blocks of every stage one by one, as many in each",
            Self::AllBlocks => "all blocks one by one",
            Self::BlocksAtOnce => "all blocks so many at once, of which every stage has a multiple",
            Self::EveryLayer => "all layers one by one",
            Self::TrainedAtOnce => "all layers so many at once, as many in every stage",
            Self::WholeStages => "whole stages",
        })
    }
}

#[cfg(test)]
mod tests;
