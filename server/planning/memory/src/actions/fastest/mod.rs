//! The fastest actions that make a pipeline fit, with how far from the optimum they can be.
//!
//! | module | question |
//! |---|---|
//! | here | what is the answer? |
//! | `slot` | what may a micro-batch keep, and what is computed again? |
//! | `slots` | which micro-batches in flight keep what, within a stage's bytes? |
//! | `in_turn` | the same where the last of them goes backward first? |
//! | `priced` | the same for many layers, and which seconds does no choice of slots get below? |
//! | `limited` | what does a micro-batch need at most above what it keeps? |
//! | `cheap` | which choices cost little more than the cheapest where bytes have a price? |
//! | `floor` | what does a slot cost at least where bytes have a price? |
//! | `recipe` | what does a stage do of which so much leaves? |
//! | `remembered` | what is known of a stage from before? |
//! | `leaving` | which of its blocks are that, and where do they go? |
//! | `draft` | what do all stages do, and how long does an iteration take? |
//! | `improve` | how much leaves which stage? |
//! | `chain` | which way through an iteration is the longest? |
//! | `pressure` | what must each stage do at least? |
//! | `transit` | which seconds does what must travel take? |
//! | `ends` | when does an iteration end at the soonest, by one of its stages? |
//! | `bound` | which seconds does nothing get below? |
//!
//! Computing again is decided exactly, stage by stage: what layers keep, slot by slot, is a program. How much leaves, to
//! where, and when it is gone and fetched is searched by simulation; the plan of MPress's planner ([`super::paper`]) is
//! tried, too, so that none is slower than that. The bound knows when what leaves must be back, but not in which order copies
//! go, nor that blocks are whole, and that is what it may be too low by.

mod bound;
mod chain;
mod cheap;
mod draft;
mod ends;
mod floor;
mod improve;
mod in_turn;
mod leaving;
mod limited;
mod pressure;
mod priced;
mod recipe;
mod remembered;
mod slot;
mod slots;
#[cfg(test)]
mod tests;
mod transit;

use loadmaster_proto::training::actions::StageActions;

use super::paper::{self, PaperPlan};
use super::{NodeDevices, PlanError, Question, ran};
use bound::Bound;
use loadmaster_simulate::{Edge, Order};
use recipe::{Recipe, Stage};

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct FastestPlan {
    /// By stage, with its pools.
    pub actions: Vec<StageActions>,
    /// Seconds of an iteration, simulated.
    pub seconds: f64,
    /// Seconds that no allowed actions get below, whichever blocks, slots and points they name.
    pub bound: f64,
    /// Without any action, as if everything fitted. Where cores are shared, something may be faster.
    pub untouched_seconds: f64,
    /// What MPress's planner says; none where it finds nothing that fits, or was not asked.
    pub paper_seconds: Option<f64>,
    /// How many plans were simulated.
    pub simulated: u32,
    /// What its stages do, to begin with where nearly the same is asked.
    pub recipes: Recipes,
    /// Whether it was stopped before it had tried all that it tries.
    pub is_stopped: bool,
}

/// What the stages of a plan do, in short; empty where nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recipes(Vec<Recipe>);

/// How long is looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// For a plan that fits: the best of those that stages begin with, without MPress's.
    Few,
    /// For the fastest.
    All,
}

/// Share of the bound above which is looked further.
const ENOUGH: f64 = 5e-4;

/// Share of the seconds within which the bound is as good.
const PROVEN: f64 = 1e-9;

/// The search's own bound is one of plans that take up to so many times as long as untouched.
const MOST_TIMES_UNTOUCHED: f64 = 2.0;

/// How far the slots of a stage are told apart by how often longest ways go through them.
const SHARES_OF_VISITS: [f64; 2] = [0.1, 0.5];

/// What somebody knows besides the question's blocks and links. The bound rests on it, but for the recipes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// By stage: bytes that must be absent while all of its micro-batches in flight are there, as a replay found; below 0
    /// what is free then.
    pub needs: Option<&'a [i128]>,
    /// Between each stage and the next one.
    pub edges: Option<&'a [Edge]>,
    /// Those of a plan for nearly the same question, which is where the search begins.
    pub recipes: Option<&'a Recipes>,
}

/// The fastest plan that was found, on devices in the order of the stages.
///
/// # Errors
/// Nothing fits, it was stopped before anything did, or the question makes no sense; the text says why.
pub fn plan(question: &Question<'_>, known: Known<'_>, effort: Effort) -> Result<FastestPlan, PlanError> {
    let found = unproven(question, known, effort)?;
    if found.bound >= found.seconds * (1.0 - PROVEN) {
        return Ok(found);
    }
    let least = bound(question, known, found.seconds)?.unwrap_or(0.0);
    Ok(FastestPlan { bound: least.max(found.bound).min(found.seconds), ..found })
}

/// The same with no better bound than the search itself needs.
///
/// # Errors
/// As there.
pub fn unproven(question: &Question<'_>, known: Known<'_>, effort: Effort) -> Result<FastestPlan, PlanError> {
    question.check()?;
    if !matches!(question.order, Order::Gpipe | Order::OneFOneB) {
        return Err(PlanError::Unfit(
            "the fastest actions are searched for GPipe and 1F1B: ask for MPress's",
        ));
    }
    let mapping: Vec<usize> = (0..question.stages.len()).collect();
    let none = vec![StageActions::default(); question.stages.len()];
    let untouched_seconds = ran::seconds(question, &mapping, &none)?;
    let least_seconds = least_untouched(question, untouched_seconds)?;
    let period = untouched_seconds / f64::from(question.micro_batches);
    let all_alike = stages(question, period)?;
    let Bound { seconds: at_least, weights: visits } =
        pressure::bound(question, &all_alike, known, untouched_seconds * MOST_TIMES_UNTOUCHED)
            .unwrap_or_default();
    let at_least = at_least.max(least_seconds);
    let enough = untouched_seconds.max(at_least * (1.0 + ENOUGH));
    let weighted = |share: f64| -> Vec<Stage<'_>> {
        all_alike.iter().zip(&visits).map(|(stage, visits)| stage.weighted(visits, share)).collect()
    };
    let mut kinds: Vec<Vec<Stage<'_>>> = SHARES_OF_VISITS.into_iter().map(weighted).collect();
    kinds.retain(|stages| stages.len() == mapping.len());
    kinds.insert(0, all_alike);
    let before = known.recipes.map_or(&[][..], |recipes| &recipes.0);
    let own = improve::improved(question, &kinds, (enough, at_least), effort, before);
    let simulated = own.as_ref().map_or(0, |own| own.simulated);
    let recipes = Recipes(own.as_ref().map_or_else(|_| Vec::new(), |own| own.recipes()));
    let own = own.map(|own| (own.pooled(), own.seconds));
    // Short of a bound, MPress's may be faster.
    let is_proven = |seconds: f64| {
        seconds <= least_seconds
            || seconds <= (at_least * (1.0 + PROVEN)).min(untouched_seconds * MOST_TIMES_UNTOUCHED)
    };
    let is_fastest = own.as_ref().is_ok_and(|own| is_proven(own.1));
    let paper = if effort == Effort::Few || is_fastest {
        None
    } else {
        Some(paper::plan(&Question { mappings: 0, ..*question }))
    };
    let paper_seconds = paper.as_ref().and_then(|paper| paper.as_ref().ok()).map(|paper| paper.seconds);
    let (actions, seconds) = match (own, paper) {
        (Ok(own), Some(Ok(PaperPlan { actions, seconds, .. }))) if seconds < own.1 => (actions, seconds),
        (Ok(own), _) => own,
        (Err(_), Some(Ok(PaperPlan { actions, seconds, .. }))) => (actions, seconds),
        (Err(error), Some(Err(of_paper))) => {
            return Err(if matches!(error, PlanError::NoRoom { .. }) { of_paper } else { error });
        }
        (Err(error), None) => return Err(error),
    };
    // Of plans that take up to so long, which this one may not.
    let is_of_it = seconds <= untouched_seconds * MOST_TIMES_UNTOUCHED;
    let bound = if is_of_it { at_least } else { least_seconds }.min(seconds);
    let is_stopped = question.stop.is_requested();
    Ok(FastestPlan {
        actions,
        seconds,
        bound,
        untouched_seconds,
        paper_seconds,
        simulated,
        recipes,
        is_stopped,
    })
}

/// Seconds that nothing gets below, whatever is done: untouched, with the cores that stages share as if each had its own, and with
/// all work as if it were spread over them evenly. What is over earlier may meet what it would have missed, so that shared cores
/// make some actions faster than none.
fn least_untouched(question: &Question<'_>, untouched_seconds: f64) -> Result<f64, PlanError> {
    let Some(cores) = question.node.cores else { return Ok(untouched_seconds) };
    let alone = NodeDevices { cores: None, ..question.node.clone() };
    let mapping: Vec<usize> = (0..question.stages.len()).collect();
    let none = vec![StageActions::default(); question.stages.len()];
    let of_one = ran::seconds(&Question { node: &alone, ..*question }, &mapping, &none)?;
    let layers = question.stages.iter().flat_map(|stage| &stage.layers).map(|layer| layer.seconds);
    let work = layers.map(|of| f64::from(question.micro_batches) * (of.forward + of.backward) + of.update);
    Ok(of_one.max(work.sum::<f64>() / cores.slots).min(untouched_seconds))
}

/// Seconds that no allowed actions get below which take at most `most`; none where there are no such actions.
///
/// # Errors
/// The question makes no sense.
pub fn bound(question: &Question<'_>, known: Known<'_>, most: f64) -> Result<Option<f64>, PlanError> {
    question.check()?;
    // No recipe is made of them, so the pace does not matter.
    Ok(pressure::bound(question, &stages(question, 0.0)?, known, most).map(|bound| bound.seconds))
}

/// The stages, each on the device of its number, where a micro-batch passes both ways in `period` seconds.
fn stages<'a>(question: &'a Question<'a>, period: f64) -> Result<Vec<Stage<'a>>, PlanError> {
    let capacity = |stage: usize| question.node.capacity.get(stage).copied().unwrap_or(0);
    (0..question.stages.len()).map(|stage| Stage::new(question, stage, capacity(stage), period)).collect()
}
