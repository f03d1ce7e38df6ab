//! Remedies that make a plan with memory optimizations possible: each one is tried before it is reported.

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::change::FieldChange;
use loadmaster_proto::plan::objective::Objective;
use loadmaster_proto::training::Schedule;
use loadmaster_proto::training::actions::{Allowed, Block, Way};
use loadmaster_proto::wire::v1;

use super::{ActionsQuestion, LayerMinima};
use crate::memory_optimizations::Choice;
use crate::memory_optimizations::nodes::most_at_a_host;
use crate::objectives::{FamilySolution, Subproblem};
use crate::result::{RecommendError, Remedy, in_1f1b, of_batch, smaller};

/// Host memory that is as good as any.
const AMPLE: Bytes = Bytes(1 << 50);
/// The host memory that a remedy reports is a multiple of this.
const STEP: u64 = 1 << 20;

/// Most smaller micro-batches that are tried.
const MOST_BATCHES: usize = 3;

/// What was tried.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// Changes after which a plan was found.
    pub(super) helps: Vec<Remedy>,
    /// Those after which none was, human-readable.
    pub(super) in_vain: Vec<String>,
}

/// Tries changes of what is allowed, of the training, or of the limit on time.
pub(super) fn remedies(
    question: &ActionsQuestion<'_>,
    error: &RecommendError,
    subproblem: &Subproblem,
) -> Tried {
    let mut tried = Tried::default();
    if matches!(error, RecommendError::Limits { .. }) {
        tried.without_limit(question, subproblem);
    }
    let allowed = question.choice.allowed;
    let is_launched = question.family.criteria.rules.is_some();
    let lacks_ways = Way::ALL.iter().any(|way| !allowed.ways.contains(way));
    // No more than the cluster says that there is.
    let ample = question.family.context.fleet.host_memory().map_or(AMPLE, |there| there.min(AMPLE));
    if lacks_ways && !is_launched {
        let all = Allowed { ways: Way::ALL.to_vec(), ..allowed.clone() };
        match all.host_memory {
            // The host is no way where nothing of it may be taken.
            Bytes(0) => {
                let all = Allowed { host_memory: ample, ..all };
                tried.allowing(
                    "all memory optimizations, and HOST of CPU memory",
                    &[every_way(), host_memory()],
                    &all,
                    question,
                    subproblem,
                );
            }
            _ => {
                tried.allowing("all memory optimizations", &[every_way()], &all, question, subproblem);
            }
        }
    }
    if allowed.ways.contains(&Way::CpuOffload) && allowed.host_memory < ample {
        let more = Allowed { host_memory: ample, ..allowed.clone() };
        tried.allowing("HOST of CPU memory", &[host_memory()], &more, question, subproblem);
    }
    let blocks = blocks_of(&question.family.criteria.schedules);
    if blocks.iter().any(|block| !allowed.blocks.contains(block)) && !is_launched {
        let names: Vec<&str> =
            blocks.iter().map(|&block| v1::MemoryBlock::from(block).as_str_name()).collect();
        let change = FieldChange::new("memory.blocks", names);
        let all = Allowed { blocks: blocks.clone(), ..allowed.clone() };
        tried.allowing("all blocks", &[change], &all, question, subproblem);
    }
    // What a merger keeps together depends on the training: of another one it is not known here.
    if !question.family.criteria.is_merged {
        tried.other_training(question, subproblem);
    }
    tried
}

impl Tried {
    /// Asks with more that is allowed.
    fn allowing(
        &mut self,
        what: &str,
        changes: &[FieldChange],
        allowed: &Allowed,
        question: &ActionsQuestion<'_>,
        subproblem: &Subproblem,
    ) {
        let (choice, known) = (Choice { allowed, ..question.choice }, LayerMinima::default());
        let family = question.family.with(question.family.criteria, &known);
        let other = ActionsQuestion { family, choice };
        self.ask(what, changes, &other, subproblem);
    }

    /// Asks with another order of passes, and with smaller micro-batches until one helps.
    fn other_training(&mut self, question: &ActionsQuestion<'_>, subproblem: &Subproblem) {
        let criteria = question.family.criteria;
        if let Some(other) = criteria.in_1f1b() {
            let known = LayerMinima::default();
            let family = question.family.with(&other, &known);
            let other = ActionsQuestion { family, ..*question };
            self.ask("1F1B instead of GPipe", &[in_1f1b(&criteria.constraints)], &other, subproblem);
        }
        if criteria.objective == Objective::MaxBatch {
            return;
        }
        for batch in smaller(&subproblem.batches).into_iter().take(MOST_BATCHES) {
            let known = LayerMinima::default();
            let other = criteria.of_batch(batch);
            let family = question.family.with(&other, &known);
            let other = ActionsQuestion { family, ..*question };
            let subproblem = Subproblem { batches: vec![batch], ..subproblem.clone() };
            let (what, changes) = of_batch(batch, &criteria.constraints);
            if self.ask(&what, &changes, &other, &subproblem) {
                break;
            }
        }
    }

    /// Asks for the fastest plan whatever its seconds.
    fn without_limit(&mut self, question: &ActionsQuestion<'_>, subproblem: &Subproblem) {
        if question.family.criteria.constraints.max_iteration_seconds.is_none()
            || question.family.stop.is_requested()
        {
            return;
        }
        let mut criteria = question.family.criteria.clone();
        criteria.constraints.max_iteration_seconds = None;
        let family = question.family.with(&criteria, question.family.known);
        let other = ActionsQuestion { family, ..*question };
        if let Ok(FamilySolution { plan, candidate: Some(candidate), .. }) = other.ask(subproblem, false)
            && let Some(seconds) = plan.iteration_seconds()
        {
            let milliseconds = (seconds * 1_000.0).ceil();
            let what = format!("iterations of {milliseconds:.0} ms");
            let limit = format!("{}s", milliseconds / 1_000.0);
            let changes = vec![FieldChange::new("constraints.max_iteration_time", limit)];
            self.helps.push(Remedy::new(what, changes, candidate));
        }
    }

    /// Notes a change, and whether a plan is found then. `HOST` stands for what that plan takes of a host.
    fn ask(
        &mut self,
        what: &str,
        changes: &[FieldChange],
        other: &ActionsQuestion<'_>,
        subproblem: &Subproblem,
    ) -> bool {
        if other.family.stop.is_requested() {
            return false;
        }
        let found = other.ask(subproblem, false);
        let helps = found.is_ok();
        if let Ok(FamilySolution { plan, candidate: Some(candidate), .. }) = found {
            let host = Bytes(most_at_a_host(&plan).0.div_ceil(STEP).saturating_mul(STEP));
            let what = what.replace("HOST", &host.to_string());
            let mut changes = changes.to_vec();
            for change in changes.iter_mut().filter(|change| change.field == HOST_MEMORY) {
                change.value = host.0.into();
            }
            self.helps.push(Remedy::new(what, changes, candidate));
        } else if !other.family.stop.is_requested() {
            self.in_vain.push(what.replace("HOST of", "more"));
        }
        helps
    }
}

/// The blocks that may leave under any of these schedules.
fn blocks_of(schedules: &[Schedule]) -> Vec<Block> {
    let may_leave = |block: &Block| schedules.iter().any(|&schedule| block.may_leave(schedule));
    Block::ALL.into_iter().filter(may_leave).collect()
}

/// Field of the CPU memory that blocks may take.
const HOST_MEMORY: &str = "memory.host_memory_bytes";

/// The change to more CPU memory: how much, is known once a plan is found.
fn host_memory() -> FieldChange {
    FieldChange::new(HOST_MEMORY, 0)
}

/// The change to all memory optimizations.
fn every_way() -> FieldChange {
    let names: Vec<&str> =
        Way::ALL.iter().map(|&way| v1::MemoryOptimizationKind::from(way).as_str_name()).collect();
    FieldChange::new("memory.optimizations", names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A remedy names exactly the blocks that can leave the device under the schedules.
    #[test]
    fn blocks_are_those_of_the_schedule() {
        let told = |schedules: &[Schedule]| {
            blocks_of(schedules).iter().map(|block| block.as_str()).collect::<Vec<_>>().join(",")
        };
        assert_eq!(told(&[Schedule::OneFOneB]), "activations,inputs,weights,gradients,optimizer");
        assert_eq!(told(&[Schedule::PipeDream]), "activations,inputs,versions,optimizer");
        let both = [Schedule::Gpipe, Schedule::PipeDream];
        assert_eq!(told(&both), "activations,inputs,versions,weights,gradients,optimizer");
    }
}
