//! Chunks of one size and what steps do with them: what choices have in common that differ in what is beside chunks.

use std::cmp::Reverse;

use loadmaster_proto::chunks::embedding::HostTable;
use loadmaster_proto::chunks::groups::Sharing;
use loadmaster_proto::chunks::host::{HostDemand, HostParameters, may_leave_unfinished};
use loadmaster_proto::chunks::layout::{Chunk, Layout, List, Lists};
use loadmaster_proto::chunks::packing::ChunkLayout;
use loadmaster_proto::chunks::residency::intervals::resident;
use loadmaster_proto::chunks::residency::uses::{PayloadUses, Uses};
use loadmaster_proto::error::Invalid;

use super::baseline::static_intervals;
use super::layout_evaluation::SecondsMemo;
use super::pass_costs::PassCosts;
use super::question::ChunkQuestion;

/// Chunks of one size in the steps of grounds that are [like](PassCosts::is_like) each other.
#[derive(Debug, Clone)]
pub(super) struct ChunkUsage<'a> {
    pub(super) question: &'a ChunkQuestion,
    /// The embedding table, where that is on the host.
    pub(super) table: Option<HostTable>,
    pub(super) layout: ChunkLayout,
    pub(super) lists: Lists,
    pub(super) places: &'a Layout,
    /// Who owns which part of each chunk.
    pub(super) sharing: Sharing,
    /// As if all state were on the host.
    pub(super) uses: Uses,
    /// Chunks in the order in which their state is better on the device: whose gradients arrive last and that are needed
    /// first, since these are waited for where one iteration ends and the next begins. Not a table on the host.
    pub(super) ranked: Vec<usize>,
    /// The least seconds of chunks and passes alone, by the number of chunks on the device.
    pub(super) least_seconds: SecondsMemo,
}

impl<'a> ChunkUsage<'a> {
    /// # Errors
    /// No or too many ranks.
    pub(super) fn new(
        question: &'a ChunkQuestion,
        ground: &PassCosts,
        (layout, lists): (ChunkLayout, Lists),
        places: &'a Layout,
    ) -> Result<Self, Invalid> {
        let sharing = Sharing::new(question.ranks, lists.alignment_elements())?;
        let (table, uses) = (ground.course.table, ground.course.tensors.in_chunks(places));
        let first = if table.is_some() { HostTable::CHUNK + 1 } else { 0 };
        let mut ranked: Vec<usize> = (first..places.chunks().len()).collect();
        ranked.sort_by_key(|&chunk| {
            (Reverse(uses.completed(chunk)), uses.payloads()[chunk].steps.first().copied())
        });
        let least_seconds = SecondsMemo::default();
        Ok(Self { question, table, layout, lists, places, sharing, uses, ranked, least_seconds })
    }

    pub(super) fn count(&self) -> usize {
        self.places.chunks().len()
    }

    fn elements_of(&self, chunk: usize, of: impl Fn(&Chunk) -> u64) -> u64 {
        self.places.chunks().get(chunk).map_or(0, of)
    }

    /// Bytes of a chunk's payload.
    pub(super) fn payload_bytes(&self, chunk: usize) -> u64 {
        let elements = self.elements_of(chunk, |of| self.sharing.payload(of));
        elements.saturating_mul(self.lists.scalar_bytes(List::Parameters))
    }

    /// Bytes that a copy of a chunk's payload moves, of which nothing is unfinished.
    pub(super) fn copied_bytes(&self, chunk: usize) -> u64 {
        let is_alone = self.sharing.ranks() == 1;
        let elements = self.elements_of(chunk, |of| if is_alone { of.extent } else { self.sharing.part(of) });
        elements.saturating_mul(self.lists.scalar_bytes(List::Parameters))
    }

    /// Elements that an update of a chunk goes over.
    pub(super) fn elements(&self, chunk: usize) -> u64 {
        self.elements_of(chunk, |of| most_updated(&self.sharing, of))
    }

    /// Seconds of an all-gather or a reduce-scatter of a chunk.
    pub(super) fn exchange_seconds(&self, chunk: usize) -> f64 {
        let others = u64::from(self.sharing.ranks().saturating_sub(1));
        self.question.rates.exchange_seconds(self.copied_bytes(chunk).saturating_mul(others))
    }

    /// Whether the device needs no room for a payload between its uses before its gradients are complete, where the host has all
    /// places that it may have. With fewer of them that is as it is of every payload for which it matters. The host always has a
    /// place for one that has to leave, and another has no step between its uses.
    pub(super) fn may_leave_unfinished(&self, is_on_device: bool, of: &PayloadUses) -> bool {
        may_leave_unfinished(HostParameters::Stored, &self.sharing, is_on_device, of)
    }

    /// Whether the state of each chunk is on the device where that of the `count` first ranked is.
    pub(super) fn are_on_device(&self, count: usize) -> Vec<bool> {
        let mut are = vec![false; self.count()];
        self.ranked.iter().take(count).for_each(|&chunk| are[chunk] = true);
        are
    }

    /// The first ranked chunks, ascending.
    pub(super) fn on_device(&self, count: usize) -> Vec<usize> {
        let mut chunks: Vec<usize> = self.ranked.iter().copied().take(count).collect();
        chunks.sort_unstable();
        chunks
    }

    /// Bytes of a rank's device that each chunk takes always where its state is there, in the order of their ranks.
    pub(super) fn always_bytes(&self) -> impl Iterator<Item = u64> {
        self.ranked.iter().map(|&chunk| {
            let always = |of| self.sharing.always_bytes(of, &self.lists, self.uses.are_apart(chunk));
            self.places.chunks().get(chunk).map_or(0, always)
        })
    }

    /// Bytes that the optimizer keeps of each chunk, in the order of their ranks.
    pub(super) fn state_bytes(&self) -> impl Iterator<Item = u64> {
        let each = self.lists.parameter_bytes() - self.lists.scalar_bytes(List::Parameters);
        let state =
            move |&chunk: &usize| self.elements_of(chunk, |of| self.sharing.part(of)).saturating_mul(each);
        self.ranked.iter().map(state)
    }

    /// The least bytes of the device in each step that are not `N(t)`, whatever the host holds of the parameters.
    pub(super) fn least_chunk_bytes(&self, on_device: usize) -> Vec<u64> {
        let are = self.are_on_device(on_device);
        let is_on_device = |of: &PayloadUses| are.get(of.payload.chunk).copied().unwrap_or(false);
        let is_shared = self.sharing.ranks() > 1;
        let mut bare = self.uses.bare_bytes(
            |chunk| self.payload_bytes(chunk),
            |of| !is_shared && is_on_device(of),
            |of| self.may_leave_unfinished(is_on_device(of), of),
        );
        let always = self.always_of(on_device);
        bare.iter_mut().for_each(|bytes| *bytes = bytes.saturating_add(always));
        bare
    }

    /// The bytes of the device in each step that are not `N(t)` where all parameters are there all the time.
    pub(super) fn static_chunk_bytes(&self, on_device: usize) -> Vec<u64> {
        let uses = self.uses.clone().with_on_device(&self.on_device(on_device), &self.sharing);
        let always = self.always_of(on_device);
        let held = resident(&static_intervals(&uses), uses.steps(), |chunk| self.payload_bytes(chunk));
        held.into_iter().map(|bytes| bytes.saturating_add(always)).collect()
    }

    /// Bytes of a rank's device that so many chunks, the first ranked, take always.
    fn always_of(&self, on_device: usize) -> u64 {
        self.always_bytes().take(on_device).fold(0, u64::saturating_add)
    }

    /// What takes memory of the host where chunks are used so.
    pub(super) fn on_host<'b>(&'b self, uses: &'b Uses, copy: HostParameters) -> HostDemand<'b> {
        HostDemand {
            layout: self.places,
            lists: &self.lists,
            uses,
            sharing: &self.sharing,
            copy,
            staging: self.question.choices.staging,
            table: self.table.as_ref(),
        }
    }

    /// Bytes that chunks take of the host.
    ///
    /// # Errors
    /// More than can be counted.
    pub(super) fn host_bytes(&self, host_copy: HostParameters, on_device: usize) -> Result<u64, Invalid> {
        let are = self.are_on_device(on_device);
        self.on_host(&self.uses, host_copy).bytes_with(|chunk| are.get(chunk).copied().unwrap_or(false))
    }

    /// The most chunks whose state may be on the device, whatever room there is.
    pub(super) fn most_choosable(&self) -> usize {
        self.ranked.len()
    }
}

/// The most elements of a chunk that a rank updates: those that it owns.
pub(super) fn most_updated(sharing: &Sharing, chunk: &Chunk) -> u64 {
    sharing.part(chunk).min(chunk.extent)
}
