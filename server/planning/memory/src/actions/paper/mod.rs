//! MPress's own planner (III-D): host swap and recomputation first, then peers where that is faster.
//!
//! | module | contents | MPress |
//! |---|---|---|
//! | here | the planner and its result | |
//! | `decision` | the action of each block, and the memory of every device | III-B |
//! | `prices` | the time for which a block is away at least, and the cost of each choice | III-D, Table III |
//! | `start` | a first plan that fits | III-D, initial assignment |
//! | `replace` | blocks that go to peers instead | III-D, iterations |
//! | `mapping` | the device of each stage | III-C |
//!
//! The text leaves open how much of a link's time is taken when a block is weighed; [`Costs`](super::rule::Costs) sees
//! none of it, and the simulation does. When a block is gone and when it is fetched are named points here: as many steps
//! from its uses as its copy takes. Layers are recomputed one by one, each from its input; the runs that keep their first one's
//! alone are those of [`optimizer`](super::optimizer). A plan that comes out is no slower than the one that the loop began with.

mod decision;
mod mapping;
mod prices;
mod replace;
mod start;
#[cfg(test)]
mod tests;

use loadmaster_proto::plan::prediction::SavedBytes;
use loadmaster_proto::training::actions::StageActions;

use super::{PlanError, Question, saved_bytes};
use decision::Decision;

/// What the planner says.
#[derive(Debug, Clone, PartialEq)]
pub struct PaperPlan {
    /// By stage, with its pools.
    pub actions: Vec<StageActions>,
    /// By stage, its device.
    pub mapping: Vec<usize>,
    /// Seconds of an iteration, simulated.
    pub seconds: f64,
    /// The same of the first plan that fits, before any block went to a peer for speed.
    pub start_seconds: f64,
    /// Without any action, as if everything fitted.
    pub untouched_seconds: f64,
    /// By stage: bytes of its device, pools for others included.
    pub peaks: Vec<u64>,
    /// Bytes in the host's memory.
    pub host_bytes: u64,
    /// Bytes that are saved, by what saves them, of one device of each stage.
    pub saved: SavedBytes,
    /// Times that blocks went to peers and the iteration became shorter.
    pub rounds: u32,
    /// How many mappings the node's links tell apart, if they can be listed and were looked at.
    pub classes: Option<usize>,
    /// Whether no mapping is faster with these actions.
    pub is_mapping_exact: bool,
}

/// The paper's plan. Where blocks may be split, that of whole blocks is made, too, unless nothing could be faster. One link
/// is a way to split a block, and a loop that only looks ahead by one round may go further with it.
///
/// # Errors
/// Nothing fits, it was stopped before anything did, or the question makes no sense; the text says why.
pub fn plan(question: &Question<'_>) -> Result<PaperPlan, PlanError> {
    let split = plan_as_asked(question);
    // Stages on other devices may be faster than the untouched plan, which knows one mapping alone.
    let is_fastest = |plan: &PaperPlan| {
        let untouched = plan.actions.iter().all(|of_stage| of_stage.actions.is_empty());
        untouched || question.mappings == 0 && plan.seconds <= plan.untouched_seconds
    };
    if !question.stripes || !question.allowed.peers || split.as_ref().is_ok_and(is_fastest) {
        return split;
    }
    match (split, plan_as_asked(&Question { stripes: false, ..*question })) {
        (Ok(split), Ok(whole)) if whole.seconds < split.seconds => Ok(whole),
        (Err(_), Ok(whole)) => Ok(whole),
        (Err(_), Err(PlanError::Stopped)) => Err(PlanError::Stopped),
        (split, _) => split,
    }
}

fn plan_as_asked(question: &Question<'_>) -> Result<PaperPlan, PlanError> {
    question.check()?;
    let in_order: Vec<usize> = (0..question.stages.len()).collect();
    let untouched = Decision::nothing(question, &in_order);
    let untouched_seconds = untouched.seconds(question)?;
    let (first, start_seconds) = start::first(question, &untouched)?;
    let (mut decided, mut rounds) = replace::by_peers(question, first, start_seconds)?;
    let mut is_mapping_exact = decided.mapping.len() <= 1;
    let mut classes = None;
    if question.mappings > 0
        && let Some(found) = mapping::best(question, &decided)?
    {
        (classes, is_mapping_exact) = (found.classes, found.is_exact);
        if found.decided.mapping != decided.mapping && found.seconds < decided.seconds(question)? {
            // Peers that are near now may take what they were too far away for.
            let (again, more) = replace::by_peers(question, found.decided, found.seconds)?;
            (decided, rounds) = (again, rounds + more);
        }
    }
    Ok(PaperPlan {
        seconds: decided.seconds(question)?,
        start_seconds,
        untouched_seconds,
        peaks: decided.peaks(question.node),
        host_bytes: decided.host(),
        saved: saved_by(question, &decided),
        actions: decided.actions(),
        mapping: decided.mapping,
        rounds,
        classes,
        is_mapping_exact,
    })
}

fn saved_by(question: &Question<'_>, decided: &Decision) -> SavedBytes {
    let of_stage =
        |(stage, blocks)| saved_bytes(blocks, question.in_flight(stage), &decided.actions_of(stage));
    question.stages.iter().enumerate().map(of_stage).fold(SavedBytes::default(), SavedBytes::with)
}
