//! Residency intervals that begin in the iteration before.
//!
//! A chunk is updated while backward passes of others still go on, and what these leave behind makes room. So parameters come for
//! the next iteration when the lane up has little else to do, instead of when all layers ask for theirs at once.

use loadmaster_proto::chunks::residency::intervals::{ResidencyInterval, resident};
use loadmaster_proto::chunks::stage::{Chunks, UpdateTime};
use loadmaster_proto::training::boundaries::BoundaryInterval;

/// How much of what an iteration begins with comes in the one before, and how soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Haste {
    /// So many quarters of all chunks, those that are needed first: the others come while these compute.
    pub(super) quarters: usize,
    /// So many other chunks have all their gradients first, since the lane up waits for the update of whatever it is asked for.
    pub(super) completions: usize,
}

impl Haste {
    /// All that there is room for, behind one.
    pub(super) const USUAL: Self = Self { quarters: 4, completions: 1 };

    /// The first of these.
    fn of(self, mut firsts: Vec<FirstInterval>) -> Vec<FirstInterval> {
        firsts.truncate((firsts.len() * self.quarters).div_ceil(4));
        firsts
    }
}

/// What intervals of these chunks become that begin early.
#[derive(Debug)]
pub(super) struct Early<'a> {
    chunks: &'a Chunks,
    completions: Completions,
    /// What is updated behind the backward pass is not there before.
    is_possible: bool,
}

impl<'a> Early<'a> {
    pub(super) fn new(chunks: &'a Chunks, update: UpdateTime) -> Self {
        let is_possible = update == UpdateTime::OnArrival;
        Self { chunks, completions: Completions::of(chunks), is_possible }
    }

    /// The same intervals, of which those that an iteration begins with begin in the one before, as early as there
    /// is room. `room` are bytes of each step for all chunks.
    pub(super) fn over_end(
        &self,
        intervals: &[ResidencyInterval],
        room: &[u64],
        haste: Haste,
    ) -> Vec<ResidencyInterval> {
        let Self { chunks, completions, is_possible } = self;
        if !is_possible {
            return intervals.to_vec();
        }
        let steps = chunks.uses.steps();
        let mut free = left(intervals, chunks, room);
        let mut intervals = intervals.to_vec();
        let firsts = haste.of(firsts(&intervals, chunks));
        let bytes = |index: usize| chunks.payload_bytes(intervals[index].payload.chunk);
        let least = firsts.iter().map(|of| bytes(of.index)).min().unwrap_or(0);
        // A step without room for any of them.
        let mut full = None;
        for FirstInterval { index, gone } in firsts {
            let ResidencyInterval { at: BoundaryInterval { fetched: before, .. }, payload } =
                intervals[index];
            if full.is_some_and(|step| step < before) {
                continue;
            }
            let behind = match chunks.uses.completed(payload.chunk) {
                Some(last) => completions.behind(last, haste.completions).unwrap_or(steps),
                None => 0,
            };
            let bytes = chunks.payload_bytes(payload.chunk);
            let earliest = gone.max(behind).min(steps);
            let has_room = |step: &usize| free[*step] >= bytes;
            let Some(fetched) = (earliest..steps).rev().take_while(has_room).last() else { continue };
            if let Some(lacks) = (0..before).find(|step| !has_room(step)) {
                // It comes before the one that was known.
                if free[lacks] < least {
                    full = Some(lacks);
                }
                continue;
            }
            (0..before).chain(fetched..steps).for_each(|step| free[step] -= bytes);
            intervals[index].at.fetched = fetched;
        }
        intervals
    }

    /// Residency intervals of chunks whose parameters are on the device from the first step to the last, as with
    /// ZeRO-Offload. The interval ends for the moment at which the updated parameters take the place of the gradients,
    /// which have left by then. Chunks that are complete last wait for the next iteration.
    pub(super) fn renewed(&self, intervals: &[ResidencyInterval], haste: Haste) -> Vec<ResidencyInterval> {
        let Self { chunks, completions, is_possible } = self;
        let mut intervals = intervals.to_vec();
        if !is_possible {
            return intervals;
        }
        for FirstInterval { index, .. } in haste.of(firsts(&intervals, chunks)) {
            let completed = chunks.uses.completed(intervals[index].payload.chunk);
            if let Some(at) = completed.and_then(|last| completions.behind(last, haste.completions)) {
                (intervals[index].at.freed, intervals[index].at.fetched) = (at, at);
            }
        }
        intervals
    }
}

/// Bytes of each step that these intervals, and what is always there, leave of the room.
fn left(intervals: &[ResidencyInterval], chunks: &Chunks, room: &[u64]) -> Vec<u64> {
    let always = chunks.on_device_bytes();
    let held = resident(intervals, chunks.uses.steps(), |chunk| chunks.payload_bytes(chunk));
    room.iter().zip(held).map(|(room, held)| room.saturating_sub(held.saturating_add(always))).collect()
}

/// The first interval of a chunk's parameters, and when the last one is gone.
#[derive(Debug, Clone, Copy)]
struct FirstInterval {
    index: usize,
    gone: usize,
}

/// That of each chunk that may come in the iteration before, in the order in which they are needed.
fn firsts(intervals: &[ResidencyInterval], chunks: &Chunks) -> Vec<FirstInterval> {
    let mut of_chunks: Vec<Option<FirstInterval>> = vec![None; chunks.layout.chunks().len()];
    for (index, interval) in intervals.iter().enumerate() {
        let chunk = interval.payload.chunk;
        if chunks.is_host_table(chunk) || interval.payload.is_gradients || chunks.uses.is_on_device(chunk) {
            continue;
        }
        let Some(of) = of_chunks.get_mut(chunk) else { continue };
        let FirstInterval { index: first, gone } =
            *of.get_or_insert(FirstInterval { index, gone: interval.at.freed });
        let first = if interval.at.needed < intervals[first].at.needed { index } else { first };
        *of = Some(FirstInterval { index: first, gone: gone.max(interval.at.freed) });
    }
    let mut firsts: Vec<FirstInterval> = of_chunks.into_iter().flatten().collect();
    firsts.sort_by_key(|of| intervals[of.index].at.needed);
    firsts
}

/// The steps behind which all gradients of some chunk are there whose state is on the host, ascending.
#[derive(Debug)]
struct Completions(Vec<usize>);

impl Completions {
    fn of(chunks: &Chunks) -> Self {
        let uses = &chunks.uses;
        let here = (0..chunks.layout.chunks().len()).filter(|&chunk| !uses.is_on_device(chunk));
        let mut all: Vec<usize> = here.filter_map(|chunk| uses.completed(chunk)).collect();
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    /// The boundary behind so many of them after one; none where there are fewer.
    fn behind(&self, one: usize, others: usize) -> Option<usize> {
        let position = self.0.partition_point(|&step| step < one) + others;
        self.0.get(position).map(|step| step + 1)
    }
}
