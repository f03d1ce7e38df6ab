//! What each rank of a plan needs of a device, and whether the devices given have it.

use std::collections::BTreeMap;
use std::fmt;

use loadmaster_proto::amounts::plural;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::plan::{Plan, PlanStage};

use super::part_assignment::Machine;
use loadmaster_search::Fleet;

/// What a rank needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RankNeed<'a> {
    /// Its stage.
    pub(super) stage: usize,
    /// Kind of its device.
    pub(super) kind: &'a str,
    /// Bytes that its device must allow.
    pub(super) bytes: u64,
    /// Bytes that the device allows which the plan has it on.
    pub(super) planned: u64,
    /// The first rank of the shards that split the same tensors as this one, counted over the whole plan.
    pub(super) group: usize,
}

/// Why a plan cannot be bound to the devices given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementError {
    /// What each stage lacks; never empty.
    pub stages: Vec<StageLack>,
}

/// What a stage lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageLack {
    /// Which one; none of the plan as a whole.
    pub stage: Option<usize>,
    /// What, human-readable.
    pub why: String,
}

impl fmt::Display for StageLack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stage {
            Some(stage) => write!(f, "stage {stage} {}", self.why),
            None => write!(f, "the plan {}", self.why),
        }
    }
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lacks: Vec<String> = self.stages.iter().map(ToString::to_string).collect();
        write!(f, "the given nodes cannot run the plan: {}", lacks.join("; "))
    }
}

impl std::error::Error for PlacementError {}

/// What every rank needs, in the plan's order: where devices have several interleaved stages, of the first of them,
/// which needs as much as all of them together.
pub(super) fn of_ranks(plan: &Plan) -> Vec<RankNeed<'_>> {
    let mut needs = Vec::new();
    for (index, stage) in plan.first_stages().iter().enumerate() {
        let begin = needs.len();
        let shards = stage.config.tensor_degree.max(1) as usize;
        for rank in 0..stage.config.devices() as usize {
            let device = stage.devices.get(rank);
            let kind = device.map(|device| device.kind.as_str()).filter(|kind| !kind.is_empty());
            needs.push(RankNeed {
                stage: index,
                kind: kind.unwrap_or(&plan.device_kind),
                bytes: needed(stage),
                planned: device.map_or(stage.capacity, |device| device.capacity),
                group: begin + rank / shards * shards,
            });
        }
    }
    needs
}

/// Bytes that a device of a stage must allow: the upper end of what is predicted. What a plan was allowed to take without a
/// margin is enough once more.
fn needed(stage: &PlanStage) -> u64 {
    let high = stage.interval.map_or(stage.predicted_peak, |interval| interval.high.0);
    high.min(stage.capacity.max(stage.predicted_peak))
}

/// Checks that there are as many devices of each kind as the ranks need, and as large.
///
/// # Errors
/// The stages for which none are left when those before them have theirs.
pub(super) fn check(needs: &[RankNeed<'_>], fleet: &Fleet) -> Result<(), PlacementError> {
    // By kind and capacity, ascending, so that a stage takes the smallest that are large enough.
    let mut left: BTreeMap<(&str, u64), u32> = BTreeMap::new();
    for node in &fleet.nodes {
        let Some(kind) = fleet.kinds.get(node.kind) else { continue };
        *left.entry((kind.name.as_str(), kind.capacity.0)).or_default() += node.devices;
    }
    let given = left.clone();
    let mut lacks: Vec<StageLack> = Vec::new();
    // Stages that need most choose first: otherwise a small one could take what only suits a large one.
    let mut stages: Vec<&[RankNeed<'_>]> =
        needs.chunk_by(|one, other| (one.stage, one.kind) == (other.stage, other.kind)).collect();
    stages.sort_by_key(|ranks| std::cmp::Reverse(ranks.first().map_or(0, |rank| rank.bytes)));
    for ranks in stages {
        let (Some(&RankNeed { stage, kind, bytes, .. }), mut open) = (ranks.first(), ranks.len() as u32)
        else {
            continue;
        };
        for ((_, _), free) in left.range_mut((kind, bytes)..=(kind, u64::MAX)) {
            let taken = open.min(*free);
            *free -= taken;
            open -= taken;
        }
        if open > 0 {
            let of_kind = || given.range((kind, 0)..=(kind, u64::MAX));
            let (all, enough): (u32, u32) = (
                of_kind().map(|(_, count)| count).sum(),
                of_kind().filter(|((_, capacity), _)| *capacity >= bytes).map(|(_, count)| count).sum(),
            );
            let largest = of_kind().map(|((_, capacity), _)| *capacity).max();
            let there = match largest {
                None => "no device of this kind was given".to_owned(),
                Some(largest) if enough == 0 => {
                    format!("the given devices of this kind allow at most {}", Bytes(largest))
                }
                Some(_) if enough < all => {
                    format!(
                        "only {enough} of {all} of this kind are large enough, and other stages also need them"
                    )
                }
                Some(_) => format!("only {all} of this kind were given for all stages"),
            };
            let why = format!(
                "needs {} of kind {kind:?} with at least {} of memory, {open} more than the given nodes \
                 provide: {there}",
                plural(ranks.len(), "device"),
                Bytes(bytes)
            );
            lacks.push(StageLack { stage: Some(stage), why });
        }
    }
    lacks.sort_by_key(|lack| lack.stage);
    if lacks.is_empty() { Ok(()) } else { Err(PlacementError { stages: lacks }) }
}

/// What to say where devices are enough, and no way was found to give each rank one of them.
pub(super) fn torn(needs: &[RankNeed<'_>], machines: &[Machine<'_>]) -> PlacementError {
    let mut stages: Vec<StageLack> = Vec::new();
    let mut has_shards = false;
    for group in needs.chunk_by(|one, other| one.group == other.group) {
        let Some(first) = group.first().filter(|_| group.len() > 1) else { continue };
        has_shards = true;
        let is_told = stages.last().is_some_and(|of| of.stage == Some(first.stage));
        let ranks: Vec<usize> = (first.group..first.group + group.len()).collect();
        if is_told || machines.iter().any(|machine| machine.holds(needs, &ranks)) {
            continue;
        }
        let mut kinds: Vec<&str> = group.iter().map(|need| need.kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let suiting = |machine: &Machine<'_>| -> usize {
            let parts = machine.parts.iter().filter(|part| group.iter().any(|need| part.suits(need)));
            parts.map(|part| part.devices).sum()
        };
        let there = match kinds.as_slice() {
            [kind] => {
                let most = machines.iter().map(suiting).max().unwrap_or(0);
                format!("the largest given node has {most} of {kind:?}")
            }
            kinds => format!("no given node has enough devices of the kinds {kinds:?}"),
        };
        let why = format!("has tensor-parallel size {}, which must be on one node, but {there}", group.len());
        stages.push(StageLack { stage: Some(first.stage), why });
    }
    if stages.is_empty() {
        let why = if has_shards {
            "would have tensor shards of one replica on several nodes, in every tried order of the given nodes. Give \
             nodes with as many devices as the nodes of the plan"
        } else {
            "has a rank without a large enough device, in every tried order of the given nodes. Give nodes like the \
             nodes of the plan"
        };
        stages.push(StageLack { stage: None, why: why.to_owned() });
    }
    PlacementError { stages }
}
