//! Visits that begin in the iteration before.
//!
//! A chunk is updated while backward passes of others still go on, and what these leave behind makes room. So parameters come for
//! the next iteration when the lane up has little else to do, instead of when all layers ask for theirs at once.

use loadmaster_proto::chunks::embedding::HostTable;
use loadmaster_proto::chunks::residency::visits::Visit;
use loadmaster_proto::chunks::stage::Chunks;

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
    fn of(self, mut firsts: Vec<First>) -> Vec<First> {
        firsts.truncate((firsts.len() * self.quarters).div_ceil(4));
        firsts
    }
}

/// The same visits, of which those that an iteration begins with begin in the one before, as early as there is room. `room` are bytes
/// of each step for all chunks.
pub(super) fn over_end(visits: &[Visit], chunks: &Chunks, room: &[u64], haste: Haste) -> Vec<Visit> {
    let steps = chunks.uses.steps();
    let ends = completed(chunks);
    let mut free = left(visits, chunks, room);
    let mut visits = visits.to_vec();
    for First { index, gone } in haste.of(firsts(&visits, chunks)) {
        let Visit { fetched: before, payload, .. } = visits[index];
        let behind = match completed_at(chunks, payload.chunk) {
            Some(end) => {
                ends.get(ends.partition_point(|&of| of < end) + haste.completions).copied().unwrap_or(steps)
            }
            None => 0,
        };
        let bytes = chunks.payload_bytes(payload.chunk);
        let earliest = gone.max(behind).min(steps);
        let has_room = |step: &usize| free[*step] >= bytes;
        let Some(fetched) = (earliest..steps).rev().take_while(has_room).last() else { continue };
        if (0..before).all(|step| has_room(&step)) {
            (0..before).chain(fetched..steps).for_each(|step| free[step] -= bytes);
            visits[index].fetched = fetched;
        }
    }
    visits
}

/// Visits of chunks whose parameters are on the device from the first step to the last, as ZeRO-Offload has them, but for the
/// moment at which what the optimizer made of them takes the place of their gradients, which have left by then. Those that are
/// complete last wait for the next iteration.
pub(super) fn renewed(visits: &[Visit], chunks: &Chunks, haste: Haste) -> Vec<Visit> {
    let ends = completed(chunks);
    let mut visits = visits.to_vec();
    for First { index, .. } in haste.of(firsts(&visits, chunks)) {
        let Some(end) = completed_at(chunks, visits[index].payload.chunk) else { continue };
        if let Some(&at) = ends.get(ends.partition_point(|&of| of < end) + haste.completions) {
            (visits[index].freed, visits[index].fetched) = (at, at);
        }
    }
    visits
}

/// Bytes of each step that these visits, and what is always there, leave of the room.
fn left(visits: &[Visit], chunks: &Chunks, room: &[u64]) -> Vec<u64> {
    let steps = chunks.uses.steps();
    let mut changes = vec![0_i128; steps + 1];
    for visit in visits {
        let bytes = i128::from(chunks.payload_bytes(visit.payload.chunk));
        changes[visit.fetched] += bytes;
        changes[visit.freed] -= bytes;
    }
    let mut held = i128::from(chunks.on_device_bytes());
    let of = |(step, change): (usize, i128)| {
        held += change;
        let room = room.get(step).copied().unwrap_or(0);
        u64::try_from(i128::from(room) - held).unwrap_or(0)
    };
    changes.into_iter().take(steps).enumerate().map(of).collect()
}

/// The first visit of a chunk's parameters, and when the last one is gone.
#[derive(Debug, Clone, Copy)]
struct First {
    index: usize,
    gone: usize,
}

/// That of each chunk that may come in the iteration before, in the order in which they are needed.
fn firsts(visits: &[Visit], chunks: &Chunks) -> Vec<First> {
    let mut of_chunks: Vec<Option<First>> = vec![None; chunks.layout.chunks().len()];
    for (index, visit) in visits.iter().enumerate() {
        let chunk = visit.payload.chunk;
        let is_table = chunks.table.is_some() && chunk == HostTable::CHUNK;
        if is_table || visit.payload.is_gradients || chunks.uses.is_on_device(chunk) {
            continue;
        }
        let Some(of) = of_chunks.get_mut(chunk) else { continue };
        let First { index: first, gone } = *of.get_or_insert(First { index, gone: visit.freed });
        let first = if visit.needed < visits[first].needed { index } else { first };
        *of = Some(First { index: first, gone: gone.max(visit.freed) });
    }
    let mut firsts: Vec<First> = of_chunks.into_iter().flatten().collect();
    firsts.sort_by_key(|of| visits[of.index].needed);
    firsts
}

/// The boundary at which all gradients of a chunk are there; none where it has none.
fn completed_at(chunks: &Chunks, chunk: usize) -> Option<usize> {
    let gradients = chunks.uses.payloads().get(chunks.uses.gradients_of(chunk))?;
    gradients.changed.map(|(_, last)| last + 1)
}

/// The same of all chunks whose state is on the host, ascending.
fn completed(chunks: &Chunks) -> Vec<usize> {
    let here = (0..chunks.layout.chunks().len()).filter(|&chunk| !chunks.uses.is_on_device(chunk));
    let mut ends: Vec<usize> = here.filter_map(|chunk| completed_at(chunks, chunk)).collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}
