//! The fastest actions that make a pipeline fit, with how far from the optimum they can be.
//!
//! | module | contents |
//! |---|---|
//! | here | the search and its result |
//! | `keep_sets` | the sets of layers whose activations one micro-batch may keep |
//! | `in_flight_assignment` | a set for each micro-batch in flight, within the bytes of a stage |
//! | `gpipe_slots` | the assignment where the last micro-batch goes backward first |
//! | `lagrangian` | the assignment for stages of many layers, by a price of bytes, with a proof |
//! | `core_set` | sets that cost little more than the cheapest at that price |
//! | `dual_bound` | the least cost of a micro-batch at that price |
//! | `stage_policy` | a policy for one stage: how much leaves, to where and when |
//! | `stage_memo` | results of earlier calls for a stage |
//! | `offload_order` | the blocks that leave under a policy, in order |
//! | `incumbent` | a policy for each stage, and the seconds of an iteration with them |
//! | `local_search` | changes of the policies, stage by stage |
//! | `chain` | the longest path through an iteration |
//! | `memory_bound` | the bytes that each stage must free, and the bound that follows |
//! | `copy_bound` | the seconds that copies take at least |
//! | `bound` | seconds that no actions get below |
//!
//! Recomputing is decided exactly, stage by stage: what layers keep, slot by slot, is a program. How much leaves, to
//! where, and when it is gone and fetched is searched by simulation; the plan of MPress's planner ([`super::paper`]) is
//! tried, too, so that none is slower than that. The bound knows when what leaves must be back, but not in which order copies
//! go, nor that blocks are whole, and that is what it may be too low by.

mod bound;
mod chain;
mod copy_bound;
mod core_set;
mod dual_bound;
mod gpipe_slots;
mod in_flight_assignment;
mod incumbent;
mod keep_sets;
mod lagrangian;
mod local_search;
mod memory_bound;
mod offload_order;
mod stage_memo;
mod stage_policy;
#[cfg(test)]
mod tests;

use loadmaster_proto::training::actions::StageActions;

use super::paper::{self, PaperPlan};
use super::{NodeDevices, PlanError, Question, simulation};
use bound::Bound;
use loadmaster_simulate::{Edge, Order};
use stage_policy::{Stage, StagePolicy};

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
    pub policies: StagePolicies,
    /// Whether it was stopped before it had tried all that it tries.
    pub is_stopped: bool,
}

/// What the stages of a plan do, in short; empty where it is not known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StagePolicies(Vec<StagePolicy>);

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

/// How far the slots of a stage are distinguished by how often longest ways go through them.
const SHARES_OF_VISITS: [f64; 2] = [0.1, 0.5];

/// What a caller adds to the question's blocks and links. The bound depends on it, but for the policies.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// By stage: bytes that must be absent while all of its micro-batches in flight are there, as a replay found; below 0
    /// what is free then.
    pub needs: Option<&'a [i128]>,
    /// Between each stage and the next one.
    pub edges: Option<&'a [Edge]>,
    /// Those of a plan for nearly the same question, which is where the search begins.
    pub policies: Option<&'a StagePolicies>,
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
            "the exact search of memory optimizations supports only the schedules GPipe and 1F1B. Use one of these \
             schedules, or the search mode mpress",
        ));
    }
    let mapping: Vec<usize> = (0..question.stages.len()).collect();
    let none = vec![StageActions::default(); question.stages.len()];
    let untouched_seconds = simulation::seconds(question, &mapping, &none)?;
    let least_seconds = least_untouched(question, untouched_seconds)?;
    let period = untouched_seconds / f64::from(question.micro_batches);
    let all_alike = stages(question, period)?;
    let Bound { seconds: at_least, weights: visits } =
        memory_bound::bound(question, &all_alike, known, untouched_seconds * MOST_TIMES_UNTOUCHED)
            .unwrap_or_default();
    let at_least = at_least.max(least_seconds);
    let enough = untouched_seconds.max(at_least * (1.0 + ENOUGH));
    let weighted = |share: f64| -> Vec<Stage<'_>> {
        all_alike.iter().zip(&visits).map(|(stage, visits)| stage.weighted(visits, share)).collect()
    };
    let mut kinds: Vec<Vec<Stage<'_>>> = SHARES_OF_VISITS.into_iter().map(weighted).collect();
    kinds.retain(|stages| stages.len() == mapping.len());
    kinds.insert(0, all_alike);
    let before = known.policies.map_or(&[][..], |policies| &policies.0);
    let own = local_search::improved(question, &kinds, (enough, at_least), effort, before);
    let simulated = own.as_ref().map_or(0, |own| own.simulated);
    let policies = StagePolicies(own.as_ref().map_or_else(|_| Vec::new(), |own| own.policies()));
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
        policies,
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
    let of_one = simulation::seconds(&Question { node: &alone, ..*question }, &mapping, &none)?;
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
    // No policy is made of them, so the pace does not matter.
    Ok(memory_bound::bound(question, &stages(question, 0.0)?, known, most).map(|bound| bound.seconds))
}

/// The stages, each on the device of its number, where a micro-batch passes both ways in `period` seconds.
fn stages<'a>(question: &'a Question<'a>, period: f64) -> Result<Vec<Stage<'a>>, PlanError> {
    let capacity = |stage: usize| question.node.capacity.get(stage).copied().unwrap_or(0);
    (0..question.stages.len()).map(|stage| Stage::new(question, stage, capacity(stage), period)).collect()
}
