//! Chunks that are larger than others, or smaller: whether they are there between their uses.
//!
//! In the layout `aligned` a tensor that is larger than a chunk is a chunk of its own, and so is a table by itself. Farthest next
//! use needs the fewest fetches of equal chunks, also while the room changes from step to step. Of unlike ones it may keep a large
//! one where several others would stay, or the other way round, as it asks for no bytes.
//!
//! So where oversized chunks have few gaps between uses, every way is tried of being there in some of them and away in the
//! others. The rule decides of the rest, which are equal, in the room that this leaves.
//!
//! Bytes count as payloads take them, so each equal chunk counts alike, however full it is. Without fetching ahead and time to
//! leave in, both of which make room smaller as they find it, that is the least of all intervals.

use std::collections::BTreeMap;

use loadmaster_proto::chunks::host::may_leave_unfinished;
use loadmaster_proto::chunks::residency::intervals::ResidencyInterval;
use loadmaster_proto::chunks::residency::paging_intervals::{Decided, Gap, Paging, gaps};
use loadmaster_proto::chunks::residency::uses::PayloadUses;
use loadmaster_proto::chunks::stage::{ChunkResidency, ChunkedStage, Chunks};

use super::plan::ChunkPlan;
use super::question::ChunkQuestion;

/// Most gaps of oversized chunks of which every way is tried: sixteen. With more of them the rule alone decides, and
/// nothing is proven.
const MOST_GAPS: usize = 4;

/// The intervals of a rule that fetch fewest bytes, of all ways of oversized chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FewestFetches {
    pub(super) intervals: Vec<ResidencyInterval>,
    /// Bytes of payloads that come.
    pub(super) bytes: u64,
    /// Whether no intervals of these chunks within the room fetch fewer, by whatever rule.
    pub(super) is_proven: bool,
}

/// Whether it is known of a plan that no intervals of its chunks in its room fetch fewer bytes.
pub(super) fn fetches_fewest(question: &ChunkQuestion, plan: &ChunkPlan) -> bool {
    let ChunkPlan { stage, recompute, needed, .. } = plan;
    let ChunkResidency::Planned(intervals) = &stage.residency else { return false };
    let training = question.training(*recompute);
    let Ok(chunks) = stage.lay_out_split(&question.model, &training, &question.stage()) else { return false };
    let room: Vec<u64> = needed.iter().map(|needed| question.capacity.0.saturating_sub(*needed)).collect();
    let outliers = IrregularChunks::of(stage, &chunks, &room);
    let fewest = || outliers.fewest(Paging::AT_NEED);
    outliers.comes_once(intervals)
        || fewest().is_some_and(|fewest| fewest.is_proven && outliers.bytes(intervals) <= fewest.bytes)
}

/// A stage's chunks, the room for them in each step, and which of their gaps are oversized chunks'.
#[derive(Debug)]
pub(super) struct IrregularChunks<'a> {
    stage: &'a ChunkedStage,
    chunks: &'a Chunks,
    /// Without what is always there.
    room: Vec<u64>,
    gaps: Vec<Gap>,
}

impl<'a> IrregularChunks<'a> {
    pub(super) fn of(stage: &'a ChunkedStage, chunks: &'a Chunks, room: &[u64]) -> Self {
        let always = chunks.on_device_bytes();
        let room = room.iter().map(|room| room.saturating_sub(always)).collect();
        let mut all = Self { stage, chunks, room, gaps: Vec::new() };
        let found = gaps(&chunks.uses, |of| all.spills(of));
        let sizes: Vec<u64> = found.iter().map(|gap| all.payload_bytes(gap)).collect();
        // As many as can be are like each other.
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        sizes.iter().for_each(|&size| *counts.entry(size).or_default() += 1);
        let common = counts.into_iter().max_by_key(|&(size, count)| (count, size)).map(|(size, _)| size);
        let unlike = found.into_iter().zip(&sizes).filter(|(_, size)| Some(**size) != common);
        all.gaps = unlike.map(|(gap, _)| gap).collect();
        all
    }

    /// The fewest bytes of this rule, of every way of oversized chunks to be there; what the rule makes of them
    /// itself, where they are too many. None without room.
    pub(super) fn fewest(&self, paging: Paging) -> Option<FewestFetches> {
        let are_few = self.gaps.len() <= MOST_GAPS;
        let intervals = self.intervals(paging, &Decided::default())?;
        let comes_once = self.comes_once(&intervals);
        // Both make room smaller as they find it.
        let is_at_need = paging.ahead == 0 && paging.behind == 0;
        let is_proven = comes_once || are_few && is_at_need;
        let mut least = FewestFetches { bytes: self.bytes(&intervals), intervals, is_proven };
        if self.gaps.is_empty() || !are_few || comes_once {
            return Some(least);
        }
        for way in 0..1_usize << self.gaps.len() {
            let Some(intervals) = self.intervals(paging, &self.decided(way)) else { continue };
            let bytes = self.bytes(&intervals);
            if bytes < least.bytes {
                least = FewestFetches { intervals, bytes, is_proven };
            }
        }
        Some(least)
    }

    /// The same, where that is fewer than these intervals fetch, of the same rule.
    pub(super) fn fewer(
        &self,
        paging: Paging,
        intervals: &[ResidencyInterval],
    ) -> Option<Vec<ResidencyInterval>> {
        if self.gaps.is_empty() {
            return None;
        }
        let least = self.fewest(paging)?;
        (least.bytes < self.bytes(intervals)).then_some(least.intervals)
    }

    /// Which gaps stay by the bits of a number, and all others leave.
    fn decided(&self, way: usize) -> Decided {
        let mut decided = Decided::default();
        for (at, gap) in self.gaps.iter().enumerate() {
            let of = if way >> at & 1 == 1 { &mut decided.stays } else { &mut decided.leaves };
            of.push(gap.clone());
        }
        decided
    }

    fn intervals(&self, paging: Paging, decided: &Decided) -> Option<Vec<ResidencyInterval>> {
        let Self { chunks, room, .. } = self;
        let bytes = |chunk| chunks.payload_bytes(chunk);
        paging.intervals_with(&chunks.uses, bytes, room, |of| self.spills(of), decided).ok()
    }

    fn bytes(&self, intervals: &[ResidencyInterval]) -> u64 {
        let all = intervals.iter().map(|interval| self.chunks.payload_bytes(interval.payload.chunk));
        all.fold(0, u64::saturating_add)
    }

    /// Whether no payload comes twice: then nothing fetches less.
    fn comes_once(&self, intervals: &[ResidencyInterval]) -> bool {
        intervals.len() <= self.chunks.uses.payloads().iter().filter(|of| !of.steps.is_empty()).count()
    }

    fn payload_bytes(&self, gap: &Gap) -> u64 {
        let of = self.chunks.uses.payloads().get(gap.payload);
        of.map_or(0, |of| self.chunks.payload_bytes(of.payload.chunk))
    }

    fn spills(&self, of: &PayloadUses) -> bool {
        let is_on_device = self.chunks.uses.is_on_device(of.payload.chunk);
        may_leave_unfinished(self.stage.host_copy, &self.chunks.sharing, is_on_device, of)
    }
}
