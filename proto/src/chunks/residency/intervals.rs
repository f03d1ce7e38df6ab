//! From when to when payloads are on the device.

use serde::{Deserialize, Serialize};

use super::Payload;
use super::uses::{PayloadUses, Uses};
use crate::error::Invalid;
use crate::training::boundaries::{BoundaryAct, BoundaryInterval, BoundaryTable, CycleBytes, GroupIndex};

/// A payload on the device, from one boundary of an iteration to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ResidencyInterval {
    /// When. Fetched behind the boundary where it must be there, it comes in the iteration before, whose end the
    /// interval goes over.
    #[serde(flatten)]
    pub at: BoundaryInterval,
    /// Which.
    #[serde(flatten)]
    pub payload: Payload,
}

/// Bytes that intervals of an iteration move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Parameters, and what else was away and is needed once more, to the device.
    pub up: u64,
    /// Gradients to the host, complete or not.
    pub down: u64,
    /// Of those to the device, rows that the host gathered of a table.
    pub rows_up: u64,
    /// Of those to the host, gradients of such rows.
    pub rows_down: u64,
    /// Of those to the device, parameters whose first use there is in a backward pass, or in a forward pass that is recomputed.
    pub backward_up: u64,
    /// Of those to the device, gradients that are not complete, with the parameters beside which they are added up.
    pub unfinished_up: u64,
    /// Of those to the host, the same.
    pub unfinished_down: u64,
    /// Of those to the host, parameters that are there as they came from it.
    pub unchanged_down: u64,
    /// Residency intervals that begin with a copy.
    pub fetches: u64,
    /// Parameters that other ranks own and give: none where one rank has all.
    pub gathered: u64,
    /// Gradients to the ranks that own their parameters.
    pub scattered: u64,
}

/// What a copy is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyCause {
    /// Parameters come for a forward pass.
    Forward,
    /// They come for a backward pass, or for a forward pass that is recomputed.
    Backward,
    /// What left unfinished comes back.
    Continued,
    /// Rows of a table come, which the host gathered.
    Rows,
    /// Gradients leave complete.
    Complete,
    /// They leave unfinished.
    Unfinished,
    /// Parameters leave as they came, since moves are exclusive.
    Unchanged,
    /// Gradients of rows leave.
    RowGradients,
}

impl CopyCause {
    /// Whether what is copied comes to the device.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Forward | Self::Backward | Self::Continued | Self::Rows)
    }

    /// Whether gradients are in it that are not complete: each rank's own, all of them.
    pub fn is_unfinished(self) -> bool {
        matches!(self, Self::Continued | Self::Unfinished)
    }
}

impl Moved {
    /// Counts a copy of so many bytes.
    pub fn copied(&mut self, cause: CopyCause, bytes: u64) {
        let Self { up, down, .. } = self;
        let all = if cause.is_up() { up } else { down };
        *all = all.saturating_add(bytes);
        let part = match cause {
            // The rest.
            CopyCause::Forward | CopyCause::Complete => return,
            CopyCause::Backward => &mut self.backward_up,
            CopyCause::Continued => &mut self.unfinished_up,
            CopyCause::Rows => &mut self.rows_up,
            CopyCause::Unfinished => &mut self.unfinished_down,
            CopyCause::Unchanged => &mut self.unchanged_down,
            CopyCause::RowGradients => &mut self.rows_down,
        };
        *part = part.saturating_add(bytes);
    }
}

/// What a residency interval moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntervalCopies {
    /// It begins with a copy from the host: what it is for is neither made on the device nor there in parts.
    pub comes: bool,
    /// What comes left unfinished before, with gradients that are not complete.
    pub comes_unfinished: bool,
    /// Ranks that share the chunk give each other their parts when it has come: of what is unfinished each has all of its own.
    pub is_gathered: bool,
    /// It ends with a copy to the host: a gradient was put into it, or moves are exclusive.
    pub leaves_changed: bool,
    /// All gradients of the chunk are in it then.
    pub is_complete: bool,
    /// Some of them are in it then.
    pub leaves_unfinished: bool,
}

impl IntervalCopies {
    /// What it begins with a copy for, if it does, told whether its first use is in a forward pass.
    pub fn comes_for(self, is_forward: bool) -> Option<CopyCause> {
        self.comes.then_some(match (self.comes_unfinished, is_forward) {
            (true, _) => CopyCause::Continued,
            (false, true) => CopyCause::Forward,
            (false, false) => CopyCause::Backward,
        })
    }

    /// What it ends with a copy for, if it does.
    pub fn leaves_for(self) -> Option<CopyCause> {
        self.leaves_changed.then_some(match (self.is_complete, self.leaves_unfinished) {
            (true, _) => CopyCause::Complete,
            (false, true) => CopyCause::Unfinished,
            (false, false) => CopyCause::Unchanged,
        })
    }

    /// The same of a chunk of which each rank has its part on the device, in all lists: it comes from there, and its gradients
    /// stay there.
    fn between_devices(self) -> Self {
        Self { comes: false, leaves_changed: false, ..self }
    }
}

impl ResidencyInterval {
    /// Most intervals of an iteration.
    pub const MAX: usize = 1 << 20;

    /// What is copied where the state is on the host, given the uses of its payload.
    pub fn copies(&self, uses: &PayloadUses) -> IntervalCopies {
        let Some((first, last)) = uses.changed else {
            return IntervalCopies {
                comes: true,
                comes_unfinished: false,
                is_gathered: true,
                leaves_changed: false,
                is_complete: false,
                leaves_unfinished: false,
            };
        };
        // Gradients that are apart begin where the first of them is found.
        let begins_here = uses.payload.is_gradients && self.at.needed <= first;
        let next = uses.gradients.partition_point(|&step| step < self.at.needed);
        let leaves_changed = uses.gradients.get(next).is_some_and(|&step| step < self.at.leaves);
        let comes_unfinished = !begins_here && self.at.needed > first;
        let is_complete = leaves_changed && self.at.leaves > last;
        IntervalCopies {
            comes: !begins_here,
            comes_unfinished,
            is_gathered: !begins_here && !comes_unfinished,
            leaves_changed,
            is_complete,
            leaves_unfinished: (leaves_changed || comes_unfinished) && !is_complete,
        }
    }
}

/// The intervals of an iteration, each payload's in order, and those that others may be told by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intervals<'a> {
    uses: &'a Uses,
    /// In the order of their payloads among the uses.
    intervals: Vec<ResidencyInterval>,
    /// Where those of each payload end.
    ends: Vec<usize>,
    /// Whether what leaves unchanged is copied, too.
    are_exclusive: bool,
}

impl<'a> Intervals<'a> {
    /// Residency intervals in any order, checked: every use is in one, no two of a payload meet, what is complete
    /// leaves, and what is always on the device has none.
    /// `spills` says of a chunk's gradients whether the host has a place for them before they are complete.
    ///
    /// # Errors
    /// Names the interval, or the step and the chunk that lacks one.
    pub fn new(
        uses: &'a Uses,
        intervals: &[ResidencyInterval],
        spills: impl Fn(&PayloadUses) -> bool,
    ) -> Result<Self, Invalid> {
        let mut positions = Vec::with_capacity(intervals.len());
        for (index, interval) in intervals.iter().enumerate() {
            let refuse = |why: String| Err(Invalid::field(format!("[{index}]"), why));
            let Payload { chunk, is_gradients } = interval.payload;
            let Some(position) = uses.position(interval.payload) else {
                let what = if is_gradients { "has no separate gradients" } else { "does not exist" };
                return refuse(format!("names chunk {chunk}, which {what}"));
            };
            if uses.stays_whole(chunk) {
                return refuse(format!(
                    "names chunk {chunk}, which is always on the device. Remove this interval"
                ));
            }
            let BoundaryInterval { fetched, needed, leaves, freed } = interval.at;
            let comes_in_time = fetched <= needed || (freed..=uses.steps()).contains(&fetched);
            if !(comes_in_time && needed < leaves && leaves <= freed && freed <= uses.steps()) {
                return refuse(format!(
                    "prefetch step {fetched}, first-use step {needed}, evict step {leaves} and free step {freed} are \
                     not in order. Use prefetch <= first use < evict <= free <= {}. To prefetch in the previous \
                     iteration, use a prefetch step that is at least the free step",
                    uses.steps()
                ));
            }
            positions.push(position);
        }
        let told = Self::of_payloads(uses, intervals, &positions);
        for (of, intervals) in told.by_payload() {
            let is_on_device = uses.is_on_device(of.payload.chunk);
            check_payload(of, intervals, spills(of), is_on_device)?;
            if let Some(first) = intervals.first().filter(|interval| interval.at.is_over_end()) {
                let gone = intervals.last().map_or(0, |interval| interval.at.freed);
                check_over_end(first, gone, uses.completed(of.payload.chunk), is_on_device)?;
            }
        }
        Ok(told)
    }

    /// Residency intervals of payloads at these positions.
    fn of_payloads(uses: &'a Uses, intervals: &[ResidencyInterval], positions: &[usize]) -> Self {
        let payloads = uses.payloads().len();
        let grouped = GroupIndex::of(intervals.len(), payloads, |index| positions.get(index).copied());
        let grouped =
            grouped.sorted_by_key(|index| (intervals[index].at.needed, intervals[index].at.fetched));
        let ends = (0..payloads).map(|position| grouped.range(position).end).collect();
        let intervals = grouped.all().iter().map(|&index| intervals[index]).collect();
        Self { uses, intervals, ends, are_exclusive: false }
    }

    /// Each payload's.
    fn by_payload(&self) -> impl Iterator<Item = (&'a PayloadUses, &[ResidencyInterval])> {
        let begins = std::iter::once(&0).chain(&self.ends);
        let ranges = begins.zip(&self.ends).map(|(&begin, &end)| &self.intervals[begin..end]);
        self.uses.payloads().iter().zip(ranges)
    }

    /// The same where a payload is on one side alone (PatrickStar): what leaves unchanged is copied like all else.
    #[must_use]
    pub fn exclusive(self) -> Self {
        Self { are_exclusive: true, ..self }
    }

    /// All of them with what they move, payload by payload.
    pub fn all(&self) -> impl Iterator<Item = (usize, &ResidencyInterval, IntervalCopies)> {
        let (uses, are_exclusive) = (self.uses, self.are_exclusive);
        let of = move |(position, (of, intervals)): (usize, (&'a PayloadUses, _))| {
            let intervals: &[ResidencyInterval] = intervals;
            let is_on_device = uses.is_on_device(of.payload.chunk);
            intervals.iter().map(move |interval| {
                let copies = interval.copies(of);
                let leaves_changed = copies.leaves_changed || are_exclusive;
                let copies = if is_on_device {
                    copies.between_devices()
                } else {
                    IntervalCopies { leaves_changed, ..copies }
                };
                (position, interval, copies)
            })
        };
        self.by_payload().enumerate().flat_map(of)
    }

    /// Returns the number of steps of an iteration.
    pub fn steps(&self) -> usize {
        self.uses.steps()
    }

    /// Bytes of payloads on the device in each step: `R(t)`, where a payload takes `bytes` of its chunk.
    pub fn resident(&self, bytes: impl Fn(usize) -> u64) -> Vec<u64> {
        resident(self.all().map(|(_, interval, _)| interval), self.uses.steps(), bytes)
    }

    /// What copies of an iteration move, where one of a chunk has so many bytes, told whether it is unfinished, which each rank
    /// copies whole. And told which steps are forward passes, but for those that are recomputed.
    pub fn moved(&self, bytes: impl Fn(usize, bool) -> u64, is_forward: impl Fn(usize) -> bool) -> Moved {
        let mut moved = Moved::default();
        for (_, interval, copies) in self.all() {
            let (comes, leaves) = (copies.comes_for(is_forward(interval.at.needed)), copies.leaves_for());
            for cause in comes.into_iter().chain(leaves) {
                moved.copied(cause, bytes(interval.payload.chunk, cause.is_unfinished()));
            }
            moved.fetches += u64::from(copies.comes);
        }
        moved
    }
}

/// A residency interval with what it moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadInterval {
    /// The position of its payload among the uses.
    pub payload: usize,
    /// When the payload is there.
    pub interval: ResidencyInterval,
    /// What it moves.
    pub copies: IntervalCopies,
}

/// The intervals of an iteration by what is due at each boundary: one more than there are steps.
#[derive(Debug, Clone, Default)]
pub struct BoundaryVisits {
    all: Vec<PayloadInterval>,
    due: BoundaryTable,
}

impl BoundaryVisits {
    /// Makes the table. `acts` returns for each act whether a residency interval that moves this has anything to do in it.
    pub fn new(intervals: &Intervals<'_>, acts: impl Fn(IntervalCopies) -> [bool; 4]) -> Self {
        let steps = intervals.steps();
        let all =
            intervals.all().map(|(payload, &interval, copies)| PayloadInterval { payload, interval, copies });
        let all: Vec<PayloadInterval> = all.collect();
        let at = |index: usize| {
            let PayloadInterval { interval, copies, .. } = all[index];
            let (boundaries, acts) = (interval.at.boundaries(), acts(copies));
            std::array::from_fn(|act| acts[act].then_some(boundaries[act]))
        };
        // Copies of one boundary in the order in which they are waited for.
        let due =
            BoundaryTable::new((all.len(), steps + 1), at, |index| all[index].interval.at.awaited(steps));
        Self { all, due }
    }

    /// Returns all of them, payload by payload.
    pub fn all(&self) -> &[PayloadInterval] {
        &self.all
    }

    /// Returns the intervals of which an act is due at a boundary.
    pub fn due(&self, boundary: usize, act: BoundaryAct) -> impl Iterator<Item = &PayloadInterval> {
        self.due.due(boundary, act).iter().map(|&index| &self.all[index])
    }
}

/// Bytes of payloads on the device in each of so many steps, by intervals that end there and where a payload takes
/// `bytes` of its chunk.
pub fn resident<'a>(
    intervals: impl IntoIterator<Item = &'a ResidencyInterval>,
    steps: usize,
    bytes: impl Fn(usize) -> u64,
) -> Vec<u64> {
    let mut resident = CycleBytes::new(steps);
    intervals
        .into_iter()
        .for_each(|interval| resident.add(interval.at.held(steps), bytes(interval.payload.chunk)));
    resident.sums()
}

/// A refusal of a payload's intervals.
fn refused(payload: Payload, why: String) -> Result<(), Invalid> {
    let what = if payload.is_gradients { "the gradient buffer of chunk" } else { "chunk" };
    Err(invalid!("", "{what} {} {why}", payload.chunk))
}

fn check_payload(
    of: &PayloadUses,
    intervals: &[ResidencyInterval],
    spills: bool,
    is_on_device: bool,
) -> Result<(), Invalid> {
    let refuse = |why: String| refused(of.payload, why);
    if let Some(interval) = intervals.iter().skip(1).find(|interval| interval.at.is_over_end()) {
        return refuse(format!(
            "is prefetched at step {} of the previous iteration for its use at step {}, but the chunk has an earlier \
             interval. Only its first interval may be prefetched in the previous iteration. Use a prefetch step of at \
             most the first-use step",
            interval.at.fetched, interval.at.needed
        ));
    }
    if let Some(pair) = intervals.windows(2).find(|pair| pair[0].at.freed > pair[1].at.fetched) {
        return refuse(format!(
            "is prefetched at step {}, before its previous interval is freed at step {}. Prefetch it at the free step \
             or later",
            pair[1].at.fetched, pair[0].at.freed
        ));
    }
    // They follow each other.
    let is_there = |step: usize| {
        let next = intervals.partition_point(|interval| interval.at.leaves <= step);
        intervals.get(next).is_some_and(|interval| interval.at.needed <= step)
    };
    if let Some(step) = of.steps.iter().find(|&&step| !is_there(step)) {
        return refuse(format!(
            "is not on the device in step {step}, which uses it. Extend an interval to this step"
        ));
    }
    check_gradients(of, intervals, spills, is_on_device)?;
    // What comes for no use is on its way beside what it must follow, and what stays behind its last use beside what
    // follows it.
    let is_use = |step: Option<usize>| step.is_some_and(|step| of.steps.binary_search(&step).is_ok());
    if let Some(interval) =
        intervals.iter().find(|of| !is_use(Some(of.at.needed)) || !is_use(of.at.leaves.checked_sub(1)))
    {
        return refuse(format!(
            "has an interval from first-use step {} to evict step {}. The chunk is not used at the first-use step, or \
             not at the step before the evict step. Begin the interval at the first use, and evict the chunk one step \
             after the last use",
            interval.at.needed, interval.at.leaves
        ));
    }
    Ok(())
}

/// Of a payload with gradients: where they leave, and what comes behind them.
fn check_gradients(
    of: &PayloadUses,
    intervals: &[ResidencyInterval],
    spills: bool,
    is_on_device: bool,
) -> Result<(), Invalid> {
    let refuse = |why: String| refused(of.payload, why);
    let Some((_, last)) = of.changed else { return Ok(()) };
    let complete = last + 1;
    for interval in intervals {
        let copies = interval.copies(of);
        if copies.leaves_changed && !copies.is_complete && !spills {
            let other = if is_on_device { "its optimizer state" } else { "the parameters" };
            return refuse(format!(
                "is evicted at step {}, before its gradients are complete at step {complete}. CPU memory has no space \
                 for incomplete gradients. Use {complete} as the evict step, or keep {other} in CPU memory",
                interval.at.leaves
            ));
        }
        if copies.is_complete && interval.at.leaves != complete {
            return refuse(format!(
                "is evicted at step {}, but all its gradients are complete at step {complete}. A chunk is evicted as \
                 soon as its gradients are complete. Use {complete} as the evict step",
                interval.at.leaves
            ));
        }
        if !copies.leaves_changed && interval.at.needed > last {
            return refuse(format!(
                "is prefetched at step {}, after the gradients of the chunk were evicted. No later step of the \
                 iteration uses the chunk. Remove this interval",
                interval.at.fetched
            ));
        }
    }
    Ok(())
}

/// Of the first interval of a payload, which begins in the iteration before, when the last one is gone. What comes is what the
/// optimizer makes of gradients that are all in the chunk behind a step.
fn check_over_end(
    interval: &ResidencyInterval,
    gone: usize,
    completed: Option<usize>,
    is_on_device: bool,
) -> Result<(), Invalid> {
    let ResidencyInterval { at: BoundaryInterval { fetched, .. }, payload } = *interval;
    if gone > fetched {
        return refused(
            payload,
            format!(
                "is prefetched at step {fetched} of the previous iteration, before the chunk is freed at step {gone}. \
                 Use a prefetch step of at least {gone}"
            ),
        );
    }
    if payload.is_gradients || is_on_device {
        let why = if payload.is_gradients {
            "its gradients do not exist yet"
        } else {
            "its parts stay on the devices"
        };
        let says = format!(
            "is prefetched at step {fetched} of the previous iteration, but {why}. Use a prefetch step that is at most \
             the first-use step"
        );
        return refused(payload, says);
    }
    match completed {
        Some(last) if fetched <= last => {
            let there = last + 1;
            let says = format!(
                "is prefetched at step {fetched} for the next iteration, before its gradients are complete at step \
                 {there}. Use a prefetch step of at least {there}"
            );
            refused(payload, says)
        }
        _ => Ok(()),
    }
}
