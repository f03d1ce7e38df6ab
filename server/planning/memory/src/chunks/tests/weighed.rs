//! Every choice that there is, simulated: what chosen plans are held against.

use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::host::may_leave_unfinished;
use loadmaster_proto::chunks::residency::intervals::ResidencyInterval;
use loadmaster_proto::chunks::residency::paging_intervals::{Decided, Gap, Paging, gaps};
use loadmaster_proto::chunks::residency::uses::PayloadUses;
use loadmaster_proto::chunks::stage::{ChunkResidency, ChunkedStage, Chunks, UpdateTime};
use loadmaster_proto::plan::chunked::ChunkPolicy;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::boundaries::BoundaryInterval;
use proptest::prelude::*;

use super::draw::{Case, all_there, simulate, stages};
use crate::chunks::step_memory::resident;
use crate::chunks::{ChunkChoices, Lanes, StepCosts};

/// Whether a residency interval has memory in a step.
pub(super) fn is_held(interval: &ResidencyInterval, step: usize) -> bool {
    let (comes, stays) = (step >= interval.at.fetched, step < interval.at.freed);
    if interval.at.fetched > interval.at.needed { comes || stays } else { comes && stays }
}

/// Residency intervals of which those that an iteration begins with begin in the one before, as early as memory is
/// free. This is done one by one, in the order of need, for so many quarters of them. It requires that so many other
/// chunks have all their gradients behind their own. None begin so where chunks are updated behind the backward pass.
pub(super) fn begun_before(
    case: &Case,
    (stage, chunks, costs): (&ChunkedStage, &Chunks, &StepCosts),
    intervals: &[ResidencyInterval],
    haste: Option<(usize, usize)>,
) -> Vec<ResidencyInterval> {
    let mut intervals = intervals.to_vec();
    let Some((quarters, completions)) = haste.filter(|_| stage.update == UpdateTime::OnArrival) else {
        return intervals;
    };
    let steps = costs.needed.len();
    let is_away = |chunk: usize| !stage.on_device.contains(&chunk);
    let fits = |intervals: &[ResidencyInterval]| {
        (0..steps).all(|step| {
            let there = intervals.iter().filter(|of| is_held(of, step));
            let there = there.map(|of| chunks.payload_bytes(of.payload.chunk));
            let all = there.sum::<u64>() + chunks.on_device_bytes() + costs.needed[step];
            all <= case.question.capacity.0
        })
    };
    let mut order: Vec<usize> = (0..intervals.len())
        .filter(|&index| {
            let ResidencyInterval { payload, at: BoundaryInterval { needed, .. } } = intervals[index];
            let is_first = intervals.iter().all(|of| of.payload != payload || of.at.needed >= needed);
            let is_table = stage.embedding == EmbeddingPlace::Host && payload.chunk == 0;
            is_first && is_away(payload.chunk) && !payload.is_gradients && !is_table
        })
        .collect();
    order.sort_by_key(|&index| (intervals[index].at.needed, intervals[index].payload));
    for &index in &order[..(order.len() * quarters).div_ceil(4)] {
        let ResidencyInterval { payload, .. } = intervals[index];
        let own = completion(chunks, payload.chunk);
        let later = later_completions(stage, chunks, payload.chunk);
        let may_be = |fetched: usize| {
            let is_gone = intervals.iter().all(|of| of.payload != payload || of.at.freed <= fetched);
            let others = later.iter().filter(|&&of| of <= fetched).count();
            is_gone && fetched >= own && others >= completions
        };
        let with = |fetched: usize| {
            let mut intervals = intervals.clone();
            intervals[index].at.fetched = fetched;
            intervals
        };
        if let Some(earliest) = (0..steps).find(|&fetched| may_be(fetched) && fits(&with(fetched))) {
            intervals = with(earliest);
        }
    }
    intervals
}

/// The boundary at which all gradients of a chunk are there.
fn completion(chunks: &Chunks, chunk: usize) -> usize {
    let own = chunks.uses.payloads().iter().filter(|of| of.payload.chunk == chunk);
    own.flat_map(|of| &of.gradients).max().map_or(0, |last| last + 1)
}

/// The boundaries behind that of a chunk at which all gradients of others are there whose state is on the host.
fn later_completions(stage: &ChunkedStage, chunks: &Chunks, chunk: usize) -> Vec<usize> {
    let others = (0..chunks.layout.chunks().len()).filter(|of| !stage.on_device.contains(of));
    let mut later: Vec<usize> = others.map(|of| completion(chunks, of)).collect();
    later.retain(|&of| of > completion(chunks, chunk));
    later.sort_unstable();
    later.dedup();
    later
}

pub(super) fn hastes() -> impl Strategy<Value = Option<(usize, usize)>> {
    proptest::option::of((1_usize..5, 0_usize..4))
}

/// How intervals of choices begin before their iteration, and how they may where that is faster.
const HASTE: Option<(usize, usize)> = Some((4, 1));
const OTHER_HASTE: [Option<(usize, usize)>; 5] =
    [None, Some((4, 0)), Some((4, 3)), Some((2, 1)), Some((1, 1))];
const RENEWED: [(usize, usize); 8] = [(0, 0), (4, 1), (4, 2), (4, 6), (2, 1), (2, 3), (1, 1), (1, 2)];

/// Every choice that there is room for, with as few chunks on the device as the host needs, as many as there is room for, or a
/// power of two between.
pub(super) fn weighed(case: &Case) -> Vec<(EmbeddingPlace, Lanes)> {
    weighed_with(case, &[HASTE], |stage, chunks, intervals| match intervals {
        Some((paging, room)) => vec![stage.paged(paging, chunks, room).unwrap()],
        None => vec![all_there(chunks)],
    })
}

/// The same choices, whose intervals begin earlier, later, or in their iteration alone.
pub(super) fn weighed_otherwise(case: &Case) -> Vec<(EmbeddingPlace, Lanes)> {
    weighed_with(case, &OTHER_HASTE, |stage, chunks, intervals| {
        intervals.map(|(paging, room)| stage.paged(paging, chunks, room).unwrap()).into_iter().collect()
    })
}

/// The same choices, where payloads of unlike bytes are there in any of the gaps between their uses, if those are four at most.
pub(super) fn weighed_outliers(case: &Case) -> Vec<(EmbeddingPlace, Lanes)> {
    let hastes: Vec<_> = [HASTE].into_iter().chain(OTHER_HASTE).collect();
    weighed_with(case, &hastes, |stage, chunks, intervals| {
        let Some((paging, room)) = intervals else { return Vec::new() };
        let spills = |of: &PayloadUses| {
            let is_on_device = stage.on_device.contains(&of.payload.chunk);
            may_leave_unfinished(stage.host_copy, &chunks.sharing, is_on_device, of)
        };
        let bytes = |gap: &Gap| chunks.payload_bytes(chunks.uses.payloads()[gap.payload].payload.chunk);
        let mut gaps = gaps(&chunks.uses, spills);
        let count = |size: u64| gaps.iter().filter(|gap| bytes(gap) == size).count();
        let common = gaps.iter().map(bytes).max_by_key(|&size| (count(size), size));
        gaps.retain(|gap| Some(bytes(gap)) != common);
        let room: Vec<u64> = room.iter().map(|room| room - chunks.on_device_bytes()).collect();
        let mut found = Vec::new();
        for way in 0..if (1..=4).contains(&gaps.len()) { 1 << gaps.len() } else { 0 } {
            let stays = |at: &usize| way >> at & 1 == 1;
            let of =
                |is: bool| (0..gaps.len()).filter(|at| stays(at) == is).map(|at| gaps[at].clone()).collect();
            let decided = Decided { stays: of(true), leaves: of(false) };
            let bytes = |chunk| chunks.payload_bytes(chunk);
            found.extend(paging.intervals_with(&chunks.uses, bytes, &room, spills, &decided).ok());
        }
        found.sort_unstable();
        found.dedup();
        found
    })
}

/// Each number of steps ahead and behind; none where all parameters stay.
fn pagings(choices: &ChunkChoices) -> Vec<Paging> {
    let mut all = Vec::new();
    if choices.policy == ChunkPolicy::Loadmaster {
        for ahead in choices.ahead.clone() {
            all.extend(choices.behind.clone().map(|behind| Paging { ahead, behind }));
        }
    }
    all
}

fn weighed_with(
    case: &Case,
    hastes: &[Option<(usize, usize)>],
    intervals: impl Fn(&ChunkedStage, &Chunks, Option<(Paging, &[u64])>) -> Vec<Vec<ResidencyInterval>>,
) -> Vec<(EmbeddingPlace, Lanes)> {
    let mut all = Vec::new();
    let mut fit: Vec<(ChunkedStage, RecomputePolicy, Chunks, StepCosts)> = Vec::new();
    stages(case, |stage, recompute, chunks, costs, has_room| {
        if has_room {
            fit.push((stage.clone(), recompute, chunks.clone(), costs.clone()));
        }
    });
    for (stage, recompute, chunks, costs) in &fit {
        let is_like = |other: &&(ChunkedStage, RecomputePolicy, Chunks, StepCosts)| {
            let bare = |stage: &ChunkedStage| ChunkedStage { on_device: Vec::new(), ..stage.clone() };
            other.1 == *recompute && other.3 == *costs && bare(&other.0) == bare(stage)
        };
        let counts: Vec<usize> = fit.iter().filter(is_like).map(|of| of.0.on_device.len()).collect();
        let count = stage.on_device.len();
        let is_end = counts.iter().min() == Some(&count) || counts.iter().max() == Some(&count);
        if !(is_end || count.is_power_of_two()) {
            continue;
        }
        let room: Vec<u64> = costs.needed.iter().map(|needed| case.question.capacity.0 - needed).collect();
        let mut add = |paged: Vec<ResidencyInterval>, haste: Option<(usize, usize)>| {
            let intervals = begun_before(case, (stage, chunks, costs), &paged, haste);
            let stage = ChunkedStage { residency: ChunkResidency::Planned(intervals), ..stage.clone() };
            all.push((stage.embedding, simulate(&case.question, &stage, chunks, costs)));
        };
        let rules = pagings(&case.question.choices);
        if rules.is_empty() {
            intervals(stage, chunks, None).into_iter().for_each(|there| add(there, None));
        }
        for paging in rules {
            for paged in intervals(stage, chunks, Some((paging, &room))) {
                hastes.iter().for_each(|&haste| add(paged.clone(), haste));
            }
        }
    }
    all
}

/// The same choices where all parameters are on the device from the first step to the last, if there is room.
pub(super) fn weighed_all_there(case: &Case) -> Vec<Lanes> {
    let mut all = Vec::new();
    stages(case, |stage, _, chunks, costs, has_room| {
        if !has_room {
            return;
        }
        let intervals = all_there(chunks);
        let Ok(told) = stage.told(chunks, &intervals) else { return };
        let held = resident(chunks, &told);
        if !held.iter().zip(&costs.needed).all(|(held, needed)| held + needed <= case.question.capacity.0) {
            return;
        }
        // What the optimizer made of a chunk comes when the gradients of so many others are complete; or in the next iteration.
        let may_be = |of: &ResidencyInterval| {
            let is_table = stage.embedding == EmbeddingPlace::Host && of.payload.chunk == 0;
            !(is_table || of.payload.is_gradients || stage.on_device.contains(&of.payload.chunk))
        };
        let mut order: Vec<&ResidencyInterval> = intervals.iter().filter(|of| may_be(of)).collect();
        order.sort_by_key(|of| (of.at.needed, of.payload));
        for (quarters, completions) in RENEWED {
            let early = &order[..(order.len() * quarters).div_ceil(4)];
            let renewed = |of: &ResidencyInterval| {
                let later = later_completions(stage, chunks, of.payload.chunk);
                match later.get(completions.wrapping_sub(1)) {
                    Some(&at) if early.contains(&of) && stage.update == UpdateTime::OnArrival => {
                        ResidencyInterval { at: BoundaryInterval { fetched: at, freed: at, ..of.at }, ..*of }
                    }
                    _ => *of,
                }
            };
            let intervals = intervals.iter().map(renewed).collect();
            let stage = ChunkedStage { residency: ChunkResidency::Planned(intervals), ..stage.clone() };
            all.push(simulate(&case.question, &stage, chunks, costs));
        }
    });
    all
}
