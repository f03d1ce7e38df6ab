//! Blocks of the device for chunks: how they come, leave, and are updated when they have left.

mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use loadmaster_proto::chunks::embedding::HostTable;
use loadmaster_proto::chunks::host::{HostParameters, HostPart};
use loadmaster_proto::chunks::residency::intervals::CopyCause;
use loadmaster_proto::chunks::residency::intervals::PayloadInterval;
use loadmaster_proto::chunks::stage::{ChunkedStage, Chunks, StepKernel, UpdateTime};
use loadmaster_proto::measure::rank::RankSpec;
use tch::{Kind, Tensor};

use super::device::DeviceState;
use super::embedding_rows::{EmbeddingRows, TablePlace};
use super::host::{HostChunks, Passage, Rounding, Update, Updating};
use super::lists::Bf16;
use super::tensors::{ChunkBlock, Tensors};
use super::trace::Counts;
use crate::collective::Group;
use crate::completion::Completion;
use crate::error::RankError;
use crate::ffi::{Direction, StepKernels, Transfer};
use crate::memory::Memory;
use crate::movement::lane::{First, Ticket, Ways, behind};
use crate::tape::defect;
use crate::tensor::kind;

/// Where a payload is.
#[derive(Debug)]
enum Whereabouts {
    Away,
    /// It has memory; its copy is on its way, if there is one.
    Coming(Option<Ticket>),
    Here,
    /// Its copy to the host is on its way.
    Leaving(Ticket),
}

/// A chunk's block, and where it is.
#[derive(Debug)]
struct Payload {
    block: ChunkBlock,
    at: Whereabouts,
    /// The host has it as it was when it left unfinished in this iteration.
    is_spilled: bool,
}

/// The blocks of all chunks.
#[derive(Debug)]
pub(super) struct Payloads {
    chunks: Arc<Chunks>,
    host_copy: HostParameters,
    update: UpdateTime,
    kind: Kind,
    updating: Updating,
    all: Vec<Payload>,
    /// What is always on the device of chunks whose state is there.
    on_device: BTreeMap<usize, DeviceState>,
    /// What updates those of a GPU in one pass.
    kernels: Option<StepKernels>,
    /// Who shares the chunks, and which of them this rank is.
    group: Option<Group>,
    rank: u32,
    pub(super) host: HostChunks,
    /// The table of tokens, where that is on the host.
    rows: Option<EmbeddingRows>,
    /// To the host and back, which others may use, too.
    pub(super) ways: Ways,
    /// Updates that wait for the end of the backward pass.
    later: Vec<Update>,
    /// Which update of the training comes next, from 1.
    steps: i32,
    pub(super) counts: Counts,
}

impl Payloads {
    /// All of them away. Takes the host's memory.
    ///
    /// # Errors
    /// When the host has not so much.
    pub(super) fn new(
        spec: &RankSpec,
        stage: &ChunkedStage,
        chunks: &Arc<Chunks>,
        group: Option<Group>,
        memory: &Memory,
    ) -> Result<Self, RankError> {
        let precision = spec.training.precision;
        let updating = Updating {
            rule: spec.training.optimizer,
            precision,
            kernel: stage.kernel,
            threads: beside_passes(spec.threads, memory),
        };
        let mapping = memory.host_pool(loadmaster_proto::bytes::Bytes(chunks.host.bytes))?;
        let kind = kind(precision);
        let mut on_device = BTreeMap::new();
        let rank = group.as_ref().map_or(0, |group| group.own().index);
        let mut all = Vec::with_capacity(chunks.uses.payloads().len());
        for of in chunks.uses.payloads() {
            let chunk = chunks.layout.chunks().get(of.payload.chunk);
            let elements = chunk.map_or(0, |chunk| chunks.sharing.payload(chunk));
            let block = ChunkBlock::away(elements, (kind, memory.device()))?;
            let mut at = Whereabouts::Away;
            if chunks.uses.stays_whole(of.payload.chunk) {
                block.stay()?;
                at = Whereabouts::Here;
            }
            let has_state = chunks.uses.is_on_device(of.payload.chunk) && !of.payload.is_gradients;
            if let Some(chunk) = chunk.filter(|_| has_state) {
                let owned = chunks.sharing.owned(chunk, rank);
                let like = (kind, memory.device());
                let state = DeviceState::new(owned, group.is_some(), &chunks.lists, like)?;
                on_device.insert(of.payload.chunk, state);
            }
            all.push(Payload { block, at, is_spilled: false });
        }
        let is_in_one_pass = stage.kernel == StepKernel::OnePass && !on_device.is_empty();
        let kernels = memory.gpu().filter(|_| is_in_one_pass).map(StepKernels::new).transpose()?;
        let host = HostChunks::new(mapping, chunks.host.clone(), updating)?;
        let weights = host.memory.chunks.get(HostTable::CHUNK).and_then(|chunk| chunk.state.first());
        let rows = match (chunks.table.zip(host.memory.table), weights, chunks.layout.chunks().first()) {
            (Some((table, parts)), Some(&weights), Some(chunk)) => {
                let owned = match &group {
                    Some(_) => chunks.sharing.owned(chunk, rank),
                    None => 0..table.rows.saturating_mul(table.width),
                };
                let place = TablePlace { memory: host.mapping.clone(), table, parts, weights, owned };
                Some(EmbeddingRows::start(place, precision, updating.threads)?)
            }
            _ => None,
        };
        Ok(Self {
            host_copy: stage.host_copy,
            update: stage.update,
            kind,
            updating,
            all,
            on_device,
            kernels,
            rank,
            group,
            host,
            rows,
            ways: Ways::start("host", spec.pace.host, memory.gpu())?,
            later: Vec::new(),
            steps: 1,
            counts: Counts::default(),
            chunks: chunks.clone(),
        })
    }

    /// Its memory, whether it is there or not.
    pub(super) fn block(&self, payload: usize) -> &ChunkBlock {
        &self.all[payload].block
    }

    /// Whether it is there, with all that belongs into it.
    pub(super) fn is_here(&self, payload: usize) -> bool {
        matches!(self.all[payload].at, Whereabouts::Here)
    }

    /// What is always on the device of a chunk whose state is there; none of those on the host.
    pub(super) fn state_on_device(&self, chunk: usize) -> Option<&DeviceState> {
        self.on_device.get(&chunk)
    }

    /// Updates a chunk on the device, all of whose gradients are there, added up.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(super) fn update_on_device(&self, chunk: usize, tensors: &Tensors) -> Result<(), RankError> {
        let gradients = self.chunks.uses.gradients_of(chunk);
        let Some(state) = self.on_device.get(&chunk) else { return Ok(()) };
        let blocks = (self.block(gradients), self.block(chunk));
        let layout = &self.chunks.layout.chunks()[chunk];
        let spans = tensors.with_gradients(&layout.tensors, state.owned());
        state.update(blocks, &spans, self.updating, self.kernels.as_ref(), self.steps)
    }

    /// Ranks that share a payload's chunk add up their gradients, each those of its part.
    ///
    /// # Errors
    /// A rank is gone, for one.
    pub(super) fn reduce(&mut self, payload: usize) -> Result<(), RankError> {
        if let Some(group) = &self.group {
            group.reduce_scatter(&self.parts(payload)?)?;
            self.counts.scattered(self.chunks.others_bytes(self.chunk_of(payload)));
        }
        Ok(())
    }

    /// Gives each of these ranks what the others have added up.
    ///
    /// # Errors
    /// A rank is gone, for one.
    pub(super) fn gather_gradients(&self, payload: usize) -> Result<(), RankError> {
        match &self.group {
            Some(group) => group.all_gather(&self.parts(payload)?),
            None => Ok(()),
        }
    }

    fn chunk_of(&self, payload: usize) -> usize {
        self.chunks.uses.payloads()[payload].payload.chunk
    }

    /// Begins to leave, if it was changed. What is complete, and added up, is updated when it is on the host.
    ///
    /// # Errors
    /// When a GPU refuses.
    pub(super) fn leave(&mut self, told: PayloadInterval, tensors: &Tensors) -> Result<(), RankError> {
        let PayloadInterval { payload, copies, .. } = told;
        let Some(cause) = copies.leaves_for() else { return Ok(()) };
        let own = self.own_place(payload);
        let ticket = if cause == CopyCause::Complete {
            self.complete(payload, own, tensors)?
        } else {
            let place =
                own.ok_or_else(|| defect("no CPU memory is allocated for a chunk that must be evicted"))?;
            let place = if cause.is_unfinished() { place } else { self.own_part(payload, place) };
            self.all[payload].is_spilled = true;
            self.copy(payload, place, cause, None)?
        };
        self.all[payload].at = Whereabouts::Leaving(ticket);
        Ok(())
    }

    /// A payload with all its gradients leaves, and its chunk is updated when they are there.
    fn complete(
        &mut self,
        payload: usize,
        own: Option<HostPart>,
        tensors: &Tensors,
    ) -> Result<Ticket, RankError> {
        let chunk = self.chunk_of(payload);
        let (updated, end) = Completion::begun();
        let (gradients, before) = match own {
            Some(place) => (self.own_part(payload, place), None),
            None => {
                let Passage { index, part, before } = self.host.pass_through()?;
                self.host.is_used_until(index, updated.clone());
                (part, before)
            }
        };
        let ticket = self.copy(payload, gradients, CopyCause::Complete, behind(before))?;
        if let Some(rows) = self.rows.as_mut().filter(|_| chunk == HostTable::CHUNK) {
            // It is updated when its rows have their gradients, too.
            rows.add_all(gradients, ticket.completion()?, end);
            return Ok(ticket);
        }
        let places = &self.host.memory.chunks[chunk];
        let is_apart = self.chunks.uses.payloads()[payload].payload.is_gradients;
        let layout = &self.chunks.layout.chunks()[chunk];
        let owned = self.chunks.sharing.owned(layout, self.rank);
        let update = Update {
            after: ticket.completion()?,
            gradients,
            // Of parameters whose gradients are apart nothing leaves unfinished.
            copies: places.parameters.filter(|_| is_apart).into_iter().collect(),
            state: places.state.clone(),
            clears: false,
            tensors: tensors.with_gradients(&layout.tensors, owned),
            steps: self.steps,
            end,
        };
        self.ask_for(chunk, update, updated);
        Ok(ticket)
    }

    /// Asks for an update, in its time.
    fn ask_for(&mut self, chunk: usize, update: Update, updated: Completion) {
        self.host.updated[chunk] = Some(updated);
        match self.update {
            UpdateTime::OnArrival => self.host.updater.ask(update),
            UpdateTime::AfterBackward => self.later.push(update),
        }
    }

    /// The place of a payload on the host.
    fn own_place(&self, payload: usize) -> Option<HostPart> {
        let of = self.chunks.uses.payloads().get(payload)?.payload;
        let chunk = self.host.memory.chunks.get(of.chunk)?;
        if of.is_gradients { chunk.gradients } else { chunk.parameters }
    }

    /// Where what this rank owns of a payload is in the payload's place on the host, which is for all of it where it may leave
    /// unfinished.
    fn own_part(&self, payload: usize, place: HostPart) -> HostPart {
        let of = &self.chunks.uses.payloads()[payload];
        let is_whole = of.payload.is_gradients || of.is_interrupted();
        if is_whole { self.owned_of(of.payload.chunk, place) } else { place }
    }

    /// What this rank owns of a list of all of a chunk: all, where no one shares it.
    fn owned_of(&self, chunk: usize, list: HostPart) -> HostPart {
        if self.group.is_none() {
            return list;
        }
        let bytes = self.chunks.copied_bytes(chunk, false);
        HostPart { start: list.start + u64::from(self.rank) * bytes, bytes }
    }

    /// Begins to copy a payload one way, to or from a place on the host: unfinished as a whole, else what this rank owns, which
    /// is all of it where no one shares it.
    fn copy(
        &mut self,
        payload: usize,
        place: HostPart,
        cause: CopyCause,
        first: Option<First>,
    ) -> Result<Ticket, RankError> {
        let chunk = self.chunk_of(payload);
        let bytes = self.chunks.copied_bytes(chunk, cause.is_unfinished());
        let from = if cause.is_unfinished() { 0 } else { u64::from(self.rank) * bytes };
        let storage = &self.all[payload].block.storage;
        let transfer = Transfer::new(storage, (from, bytes), &self.host.mapping, place.start, way(cause));
        self.begin(transfer, bytes, cause, first)
    }

    /// The parts of a payload, one of each rank.
    fn parts(&self, payload: usize) -> Result<Vec<Tensor>, RankError> {
        let chunk = &self.chunks.layout.chunks()[self.chunk_of(payload)];
        let (part, ranks) = (self.chunks.sharing.part(chunk), self.chunks.sharing.ranks());
        let block = &self.all[payload].block;
        let parts = (0..u64::from(ranks)).map(|rank| block.part((rank * part, part)));
        Ok(parts.collect::<Result<_, _>>()?)
    }

    fn begin(
        &mut self,
        transfer: Option<Transfer>,
        bytes: u64,
        cause: CopyCause,
        first: Option<First>,
    ) -> Result<Ticket, RankError> {
        let transfer = transfer.ok_or_else(|| defect("a chunk to copy has no memory on the device"))?;
        self.counts.copied(cause, bytes);
        self.ways.ask(way(cause), first, vec![transfer])
    }

    /// Waits until a payload has left, and gives its memory back.
    ///
    /// # Errors
    /// When its copy failed.
    pub(super) fn free(&mut self, told: PayloadInterval) -> Result<(), RankError> {
        let payload = &mut self.all[told.payload];
        if let Whereabouts::Leaving(ticket) = std::mem::replace(&mut payload.at, Whereabouts::Away) {
            self.counts.left.add(ticket.wait()?);
        }
        match payload.block.storage.hold() {
            Some(mut held) => Ok(held.give_back()?),
            None => Ok(()),
        }
    }

    /// Gives a payload memory, and begins to copy what belongs there: what left unfinished, the parameters that the host
    /// keeps, or those that are made of the fp32 copy. Behind the update of its chunk, if that is still on its way.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn fetch(&mut self, told: PayloadInterval) -> Result<(), RankError> {
        let PayloadInterval { payload, interval, copies } = told;
        if let Some(mut held) = self.all[payload].block.storage.hold() {
            held.renew()?;
        }
        let mut ticket = None;
        if let Some(cause) = copies.comes_for(self.chunks.is_forward(interval.at.needed)) {
            let chunk = self.chunk_of(payload);
            let after = self.host.updated.get(chunk).cloned().flatten();
            let is_kept = self.host_copy == HostParameters::Stored || self.all[payload].is_spilled;
            let weights = self.host.memory.chunks[chunk].state.first().copied();
            ticket = Some(match (self.own_place(payload).filter(|_| is_kept), weights) {
                (Some(place), _) => {
                    let place = if cause.is_unfinished() { place } else { self.own_part(payload, place) };
                    self.copy(payload, place, cause, behind(after))?
                }
                (None, Some(weights)) if self.kind == Kind::Float => {
                    self.copy(payload, weights, cause, behind(after))?
                }
                (None, Some(weights)) => self.make(payload, weights, cause, after)?,
                (None, None) => return Err(defect("a chunk has no fp32 master weights")),
            });
        }
        self.all[payload].at = Whereabouts::Coming(ticket);
        Ok(())
    }

    /// Begins to make a payload's parameters of their fp32 copy, rounded on their way: by the thread that copies them, or into a
    /// buffer from where a GPU does.
    fn make(
        &mut self,
        payload: usize,
        weights: HostPart,
        cause: CopyCause,
        after: Option<Completion>,
    ) -> Result<Ticket, RankError> {
        let bytes = self.chunks.copied_bytes(self.chunk_of(payload), false);
        let block = &self.all[payload].block;
        if !block.device().is_cuda() {
            let of = (u64::from(self.rank) * bytes, bytes);
            let transfer = Transfer::rounding(&block.storage, of, &self.host.mapping, weights.start);
            return self.begin(transfer, bytes, cause, behind(after));
        }
        let Passage { index, part, before } = self.host.pass_through()?;
        let after = after.into_iter().chain(before).collect();
        let elements = bytes / size_of::<Bf16>() as u64;
        let rounding = Rounding { weights, to: part, elements, threads: self.updating.threads };
        let first = rounding.behind(after, self.host.mapping.clone());
        let ticket = self.copy(payload, part, cause, Some(first))?;
        self.host.is_used_until(index, ticket.completion()?);
        Ok(ticket)
    }

    /// Waits until a payload is there, with the parts of all ranks.
    ///
    /// # Errors
    /// When its copy failed, or a rank is gone.
    pub(super) fn settle(&mut self, told: PayloadInterval) -> Result<(), RankError> {
        let PayloadInterval { payload, copies, .. } = told;
        let at = &mut self.all[payload].at;
        if let Whereabouts::Coming(Some(ticket)) = std::mem::replace(at, Whereabouts::Here) {
            self.counts.came.add(ticket.wait()?);
        }
        if let Some(group) = self.group.as_ref().filter(|_| copies.is_gathered) {
            let (chunk, parts) = (self.chunk_of(payload), self.parts(payload)?);
            let own = usize::try_from(self.rank).ok().and_then(|rank| parts.get(rank));
            if let Some((state, own)) = self.on_device.get(&chunk).zip(own) {
                state.give(own)?;
            }
            group.all_gather(&parts)?;
            self.counts.gathered(self.chunks.others_bytes(chunk));
        }
        Ok(())
    }

    /// Gives back the memory of a payload that is on its way and that no one needs, once nothing is copied there.
    ///
    /// # Errors
    /// When its copy failed.
    pub(super) fn abandon(&mut self, told: PayloadInterval) -> Result<(), RankError> {
        let at = &mut self.all[told.payload].at;
        if let Whereabouts::Coming(Some(ticket)) = std::mem::replace(at, Whereabouts::Away) {
            ticket.wait()?;
        }
        self.free(told)
    }

    /// An iteration is over: what waited for its end is updated.
    ///
    /// # Errors
    /// When the device failed.
    pub(super) fn end_iteration(&mut self) -> Result<(), RankError> {
        self.later.drain(..).for_each(|update| self.host.updater.ask(update));
        self.steps = self.steps.saturating_add(1);
        self.all.iter_mut().for_each(|payload| payload.is_spilled = false);
        self.counts.end_iteration(self.host.updater.take_seconds())
    }
}

/// Which way a copy goes.
fn way(cause: CopyCause) -> Direction {
    if cause.is_up() { Direction::Back } else { Direction::Out }
}

/// How many of a rank's threads update chunks: on a CPU slot all, as passes leave them none otherwise, and beside a GPU all but that
/// which gives it its work.
fn beside_passes(threads: u32, memory: &Memory) -> usize {
    let threads = usize::try_from(threads).unwrap_or(1);
    if memory.gpu().is_some() { threads.saturating_sub(1).max(1) } else { threads }
}
