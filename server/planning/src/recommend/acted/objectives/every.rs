//! Every pipeline on the devices of a room, where they are few enough to be listed.

use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::stage::Partitioning;

use super::ActionsQuestion;
use super::room::{Room, named_by};
use crate::fleet::Subset;
use crate::recommend::ask::Wish;
use crate::recommend::find::{Candidate, Job};
use crate::recommend::named_stages::untouched;
use crate::search::Cuts;

/// Most pipelines that are listed.
const MOST_LISTED: usize = 300;

/// Pipelines as they are untouched.
pub(super) struct Every {
    pub(super) candidates: Vec<Candidate>,
    /// Whether every one is listed that a plan within the room may be.
    pub(super) is_complete: bool,
}

impl Every {
    const UNKNOWN: Self = Self { candidates: Vec::new(), is_complete: false };

    /// Every pipeline, whatever memory it takes.
    pub(super) fn of(question: &ActionsQuestion<'_>, room: &Room) -> Self {
        let ActionsQuestion { wish, job, .. } = question;
        if let Some(given) = question.given {
            let asked = Wish { batches: room.batches.clone(), ..(*wish).clone() };
            let one = untouched(question.writer.prices, job, &asked, given);
            return one.map_or(Self::UNKNOWN, |one| Self { candidates: vec![one], is_complete: true });
        }
        // Of devices that are all alike it does not matter which ones are taken in which order.
        let fleet = &room.subset.fleet;
        let Ok(cuts) = wish.cuts_for(job.model) else { return Self::UNKNOWN };
        let (layers, devices) = (job.names.len(), room.subset.devices() as usize);
        if fleet.nodes.len() != 1 {
            return Self::UNKNOWN;
        }
        let least = if room.may_idle { 1 } else { devices };
        let mut all = Vec::new();
        for stages in least..=devices.min(layers) {
            if wish.stage_counts(layers).contains(&stages) {
                list(&cuts, layers, stages, &mut Vec::new(), &mut all);
            }
        }
        let ways = room.batches.len().saturating_mul(wish.schedules.len());
        if all.len().saturating_mul(ways) > MOST_LISTED {
            return Self::UNKNOWN;
        }
        let mut every = Self { candidates: Vec::new(), is_complete: true };
        for sizes in &all {
            let taken = u32::try_from(sizes.len()).unwrap_or(u32::MAX);
            let subset = Subset::of(fleet, &[taken], &[]);
            for &batch in &room.batches {
                for &schedule in &wish.schedules {
                    let one = Wish {
                        batches: vec![batch],
                        schedules: vec![schedule],
                        recompute: vec![RecomputePolicy::None],
                        ..(*wish).clone()
                    };
                    let job = Job { fleet: &subset.fleet, ..**job };
                    let found = Partitioning::from_sizes(sizes)
                        .ok()
                        .and_then(|of| untouched(question.writer.prices, &job, &one, &of).ok());
                    let Some(mut candidate) = found else {
                        every.is_complete = false;
                        continue;
                    };
                    for stage in &mut candidate.stages {
                        let devices = named_by(&subset, &stage.devices);
                        stage.devices = named_by(&room.subset, &devices);
                    }
                    every.candidates.push(candidate);
                }
            }
        }
        every
    }
}

/// All ways to cut layers into so many stages, as far as they are few, after those that were cut off.
fn list(cuts: &Cuts, layers: usize, stages: usize, sizes: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
    if all.len() > MOST_LISTED {
        return;
    }
    let first: usize = sizes.iter().sum();
    let left = layers.saturating_sub(first);
    if stages == 1 {
        if cuts.may_be_stage(first, layers.saturating_sub(1)) {
            all.push([sizes.as_slice(), &[left]].concat());
        }
        return;
    }
    for size in 1..=left.saturating_sub(stages - 1) {
        if cuts.may_be_stage(first, first + size - 1) {
            sizes.push(size);
            list(cuts, layers, stages - 1, sizes, all);
            sizes.pop();
        }
    }
}
