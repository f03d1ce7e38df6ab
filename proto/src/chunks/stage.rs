//! How a rank trains in chunks.

use serde::{Deserialize, Serialize};

use super::embedding::{EmbeddingPlace, HostTable};
use super::groups::Sharing;
use super::host::{HostDemand, HostMemory, HostParameters, may_leave_unfinished};
use super::layout::{Chunk, Layout, List, Lists};
use super::packing::{ChunkLayout, Packing};
use super::paging::Shortage;
use super::residency::intervals::{CopyCause, Intervals, Moved, ResidencyInterval};
use super::residency::paging_intervals::Paging;
use super::residency::refit::refit;
use super::residency::uses::{PayloadUses, Uses};
use super::sequence::Sequence;
use crate::bytes::Bytes;
use crate::choice;
use crate::error::{Invalid, in_range};
use crate::model::Model;
use crate::training::actions::{Step, Steps};
use crate::training::chunk_order::ChunkOrder;
use crate::training::stage::StageConfig;
use crate::training::{RecomputePolicy, TrainingSpec};
use crate::wire::v1;

/// How a rank trains a whole model in chunks, or a shard of each of its layers, alone or with others that share them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChunkedStage {
    /// How tensors lie in chunks.
    pub layout: ChunkLayout,
    /// The chunk size, elements.
    pub chunk_elements: u64,
    /// In which order micro-batches pass.
    pub order: ChunkOrder,
    /// What the host holds of the parameters.
    pub host_copy: HostParameters,
    /// Buffers of the host that gradients pass through where they have no place there, and parameters that are rounded for a GPU.
    pub staging: usize,
    /// What becomes of parameters that leave unchanged.
    #[serde(default)]
    pub moves: ChunkEviction,
    /// When chunks are updated.
    pub update: UpdateTime,
    /// What updates them: plans always have the default.
    #[serde(default, skip_serializing_if = "StepKernel::is_one_pass")]
    pub kernel: StepKernel,
    /// Where the embedding table is when the embedding computes.
    #[serde(default, skip_serializing_if = "EmbeddingPlace::is_default")]
    pub embedding: EmbeddingPlace,
    /// Chunks whose state is on the device, ascending: they are always there, and are updated there. Where ranks share chunks
    /// each rank's device has always the rank's part of them, in all lists. The whole is there in intervals:
    /// gathered of all parts, and with its gradients, complete, reduced to the rank that owns them. The host has
    /// nothing of these chunks, so a residency interval with gradients ends when they are complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_device: Vec<usize>,
    /// When payloads of the others are on the device; of all where ranks share chunks.
    pub residency: ChunkResidency,
    /// Most that it may take of the host, each rank.
    pub host_memory: Bytes,
}

/// What becomes of parameters that leave the device unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkEviction {
    /// They are dropped: the host has them as they are.
    #[default]
    Discard,
    /// They are copied back, as PatrickStar does, which has them on one side alone.
    WriteBack,
}

choice! { ChunkEviction = v1::ChunkEviction { Discard, WriteBack } }

/// When chunks are updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpdateTime {
    /// As soon as their gradients are on the host, beside the backward pass.
    #[default]
    OnArrival,
    /// When the backward pass is over, as PatrickStar and ZeRO-Offload do.
    AfterBackward,
}

choice! { UpdateTime = v1::CpuOptimizerTiming { OnArrival, AfterBackward } }

/// What updates chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKernel {
    /// One pass over a chunk's lists.
    #[default]
    OnePass,
    /// Libtorch's operations, tensor by tensor, as in plain training: the same bits, several times as long. The rank's tests compare
    /// training in chunks with plain training by it.
    TensorWise,
}

impl StepKernel {
    fn is_one_pass(&self) -> bool {
        *self == Self::OnePass
    }
}

/// When payloads are on the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChunkResidency {
    /// In these intervals of every iteration.
    Planned(Vec<ResidencyInterval>),
    /// As steps need them, with the room that a first iteration has found ([`Paging::AT_NEED`]).
    Paged,
}

/// All that follows from how a rank is to train in chunks.
#[derive(Debug, Clone)]
pub struct Chunks {
    /// The lists.
    pub lists: Lists,
    /// Where tensors are in them.
    pub layout: Layout,
    /// What is done one after another.
    pub steps: Steps,
    /// What it needs of which payload.
    pub uses: Uses,
    /// How ranks share them.
    pub sharing: Sharing,
    /// The embedding table, where that is on the host.
    pub table: Option<HostTable>,
    /// Where they are on the host.
    pub host: HostMemory,
}

impl ChunkedStage {
    /// Most buffers that gradients pass through.
    pub const MAX_STAGING: usize = 64;

    /// Chunks of so many elements that come as steps need them: none stays on the device, and the CPU updates all.
    pub const fn on_demand(chunk_elements: u64, host_memory: Bytes) -> Self {
        Self {
            layout: ChunkLayout::Aligned,
            chunk_elements,
            order: ChunkOrder::Layer,
            host_copy: HostParameters::Cast,
            staging: 4,
            moves: ChunkEviction::Discard,
            update: UpdateTime::OnArrival,
            kernel: StepKernel::OnePass,
            embedding: EmbeddingPlace::Chunk,
            on_device: Vec::new(),
            residency: ChunkResidency::Paged,
            host_memory,
        }
    }

    /// Lays out a model that is trained whole on one device, and checks intervals that were planned.
    ///
    /// # Errors
    /// Names the field that is wrong, and what to do.
    pub fn lay_out(&self, model: &Model, training: &TrainingSpec) -> Result<Chunks, Invalid> {
        self.lay_out_shared(model, training, 1)
    }

    /// The same where so many ranks train the model, each with its share of the samples, and share its chunks.
    ///
    /// # Errors
    /// Names the field that is wrong, and what to do.
    pub fn lay_out_shared(
        &self,
        model: &Model,
        training: &TrainingSpec,
        ranks: u32,
    ) -> Result<Chunks, Invalid> {
        let whole = StageConfig::single(0, model.layers().len().saturating_sub(1));
        self.lay_out_split(model, training, &StageConfig { data_degree: ranks, ..whole })
    }

    /// The same for the devices of a stage that has all layers: replicas, which share chunks, of shards, each of which has chunks
    /// of its own tensors. All shards have the layout of the first, which is the longest of every tensor; of a shorter one the
    /// rest of a tensor's place stays empty.
    ///
    /// # Errors
    /// Names the field that is wrong, and what to do.
    pub fn lay_out_split(
        &self,
        model: &Model,
        training: &TrainingSpec,
        stage: &StageConfig,
    ) -> Result<Chunks, Invalid> {
        let ranks = stage.data_degree;
        in_range("staging_buffer_count", self.staging, 1..=Self::MAX_STAGING)?;
        Self::check_training(training)?;
        if self.update == UpdateTime::AfterBackward && self.host_copy == HostParameters::Cast {
            let why = format!(
                "with {}, gradients take the space of the parameters in CPU memory. Parameters that are cast from the \
                 master weights have no such space. Set `host_parameters` to {}, or use {}",
                UpdateTime::AfterBackward,
                HostParameters::Stored,
                UpdateTime::OnArrival
            );
            return Err(Invalid::field("cpu_optimizer_timing", why));
        }
        if self.moves == ChunkEviction::WriteBack && self.host_copy == HostParameters::Cast {
            let why = format!(
                "{} needs a copy of the parameters in CPU memory, but they are cast from the master weights. Set \
                 `host_parameters` to {}, or use {}",
                ChunkEviction::WriteBack,
                HostParameters::Stored,
                ChunkEviction::Discard
            );
            return Err(Invalid::field("eviction", why));
        }
        let lists = Lists::new(training.precision, &training.optimizer)?;
        let sequence = Sequence::of_stage(model, stage, 0);
        let steps = Steps::of_chunks(training, model.layers().len(), self.order);
        let table = HostTable::of(self.embedding, model, training, stage, &steps)?;
        let packing = Packing::new(&sequence, self.layout, lists)?;
        let packing = if table.is_some() { packing.with_table_apart() } else { packing };
        let layout = packing.lay_out(self.chunk_elements).map_err(|of| of.under("chunk_elements"))?;
        let exist = self.on_device.last().is_none_or(|&last| last < layout.chunks().len());
        if !exist || !self.on_device.is_sorted_by(|one, next| one < next) {
            let why = format!(
                "has a chunk that does not exist or is out of order. The model has {} chunks, numbered from 0. List \
                 each chunk once, in ascending order",
                layout.chunks().len()
            );
            return Err(Invalid::field("resident_chunks", why));
        }
        if table.is_some() && self.on_device.first() == Some(&HostTable::CHUNK) {
            let why = format!(
                "chunk {} is the embedding table, which is in CPU memory. Remove this chunk, or set `embedding_place` \
                 to {}",
                HostTable::CHUNK,
                EmbeddingPlace::Chunk
            );
            return Err(Invalid::field("resident_chunks", why));
        }
        let sharing = Sharing::new(ranks, lists.alignment_elements())?;
        let uses = Uses::of(model, &layout, &steps, self.embedding).with_on_device(&self.on_device, &sharing);
        let host = HostMemory::new(&HostDemand {
            layout: &layout,
            lists: &lists,
            uses: &uses,
            sharing: &sharing,
            copy: self.host_copy,
            staging: self.staging,
            table: table.as_ref(),
        })?;
        if host.bytes > self.host_memory.0 {
            let other = match self.host_copy {
                HostParameters::Stored => format!(", or set `host_parameters` to `{}`", HostParameters::Cast),
                HostParameters::Cast => String::new(),
            };
            let why = format!(
                "{} of CPU (host) memory is too little: the chunks need {}. Increase the limit{other}",
                self.host_memory,
                Bytes(host.bytes)
            );
            return Err(Invalid::field("host_memory_bytes", why));
        }
        let chunks = Chunks { lists, layout, steps, uses, sharing, table, host };
        if let ChunkResidency::Planned(intervals) = &self.residency {
            in_range("planned_residency.intervals", intervals.len(), 0..=ResidencyInterval::MAX)?;
            self.told(&chunks, intervals).map_err(|of| of.of_field("planned_residency.intervals"))?;
        }
        Ok(chunks)
    }

    /// Lays out a model for the devices of this stage, one of so many.
    ///
    /// # Errors
    /// Names the field that is wrong by its path from what has a stage, its training and its chunks, and what to do.
    pub fn lay_out_stage(
        &self,
        model: &Model,
        training: &TrainingSpec,
        (stage, count): (&StageConfig, u32),
    ) -> Result<Chunks, Invalid> {
        if count != 1 || stage.layer_count() != model.layers().len() {
            let why = format!(
                "chunked training needs one stage with all layers, but this is stage {stage} of {count}. Use one stage with \
                 data and tensor parallelism"
            );
            return Err(Invalid::field("chunks", why));
        }
        // Fields of the training have their own place.
        self.lay_out_split(model, training, stage).map_err(|invalid| {
            let of_training = ["precision", "recompute", "schedule"];
            let is_of_training =
                invalid.violations().iter().any(|violation| of_training.contains(&violation.field.as_str()));
            invalid.under(if is_of_training { "training" } else { "chunks" })
        })
    }

    /// Whether a model can be trained so in chunks, however they lie.
    ///
    /// # Errors
    /// Names the field that is wrong, and what to do.
    pub fn check_training(training: &TrainingSpec) -> Result<(), Invalid> {
        if training.recompute == RecomputePolicy::Stage {
            let why = format!(
                "{} is not possible: in chunked training every layer keeps its activations or its input. Use {} or {}",
                training.recompute,
                RecomputePolicy::None,
                RecomputePolicy::Layer
            );
            return Err(Invalid::field("recompute", why));
        }
        if training.schedule.updates_always() {
            let why = format!(
                "{} is not possible: chunked training needs a schedule that flushes the pipeline at the end of every \
                 iteration. Use gpipe or 1f1b",
                training.schedule
            );
            return Err(Invalid::field("schedule", why));
        }
        Ok(())
    }

    /// Its intervals with so much `room` for payloads in each step, in bytes: what of planned ones has room, or
    /// those of a rule.
    ///
    /// # Errors
    /// Names the step that lacks room.
    pub fn intervals(&self, chunks: &Chunks, room: &[u64]) -> Result<Vec<ResidencyInterval>, Invalid> {
        match &self.residency {
            ChunkResidency::Planned(intervals) => self.squeezed(intervals, chunks, room),
            ChunkResidency::Paged => self.paged(Paging::AT_NEED, chunks, room),
        }
    }

    fn may_leave_unfinished(&self, chunks: &Chunks, of: &PayloadUses) -> bool {
        let is_on_device = chunks.uses.is_on_device(of.payload.chunk);
        may_leave_unfinished(self.host_copy, &chunks.sharing, is_on_device, of)
    }

    /// These intervals with what they move.
    ///
    /// # Errors
    /// Names the interval, or the step and the chunk that lacks one.
    pub fn told<'a>(
        &self,
        chunks: &'a Chunks,
        intervals: &[ResidencyInterval],
    ) -> Result<Intervals<'a>, Invalid> {
        let is_updated_late = |interval: &ResidencyInterval| {
            chunks.is_host_table(interval.payload.chunk) || self.update == UpdateTime::AfterBackward
        };
        if let Some(index) = intervals.iter().position(|of| of.at.is_over_end() && is_updated_late(of)) {
            let why = "is prefetched in the previous iteration, but the chunk is updated after the end of that \
                iteration. Use a prefetch step that is at most the first-use step";
            return Err(Invalid::field(format!("[{index}]"), why));
        }
        let told = Intervals::new(&chunks.uses, intervals, |of| self.may_leave_unfinished(chunks, of))?;
        Ok(match self.moves {
            ChunkEviction::Discard => told,
            ChunkEviction::WriteBack => told.exclusive(),
        })
    }

    /// Residency intervals in which nothing is there but what a step needs, or may not leave.
    ///
    /// # Errors
    /// None: there is as much room as that takes.
    pub fn bare_intervals(&self, chunks: &Chunks) -> Result<Vec<ResidencyInterval>, Invalid> {
        let bare = chunks.uses.bare_bytes(
            |chunk| chunks.payload_bytes(chunk),
            |of| chunks.uses.stays_whole(of.payload.chunk),
            |of| self.may_leave_unfinished(chunks, of),
        );
        let taken = chunks.on_device_bytes();
        let room: Vec<u64> = bare.iter().map(|bytes| bytes.saturating_add(taken)).collect();
        self.paged(Paging::AT_NEED, chunks, &room)
    }

    /// The intervals of a rule.
    ///
    /// # Errors
    /// Names the step that lacks room.
    pub fn paged(
        &self,
        paging: Paging,
        chunks: &Chunks,
        room: &[u64],
    ) -> Result<Vec<ResidencyInterval>, Invalid> {
        let spills = |of: &_| self.may_leave_unfinished(chunks, of);
        let room = chunks.room_for_intervals(room)?;
        let intervals = paging.intervals(&chunks.uses, |chunk| chunks.payload_bytes(chunk), &room, spills);
        intervals.map_err(|lack| lacks_room("paged", lack))
    }

    fn squeezed(
        &self,
        intervals: &[ResidencyInterval],
        chunks: &Chunks,
        room: &[u64],
    ) -> Result<Vec<ResidencyInterval>, Invalid> {
        let spills = |of: &_| self.may_leave_unfinished(chunks, of);
        let room = chunks.room_for_intervals(room)?;
        let squeezed = refit(&chunks.uses, intervals, |chunk| chunks.payload_bytes(chunk), &room, spills);
        squeezed.map_err(|lack| lacks_room("planned", lack))
    }
}

fn lacks_room(field: &str, lack: Shortage) -> Invalid {
    let why = format!(
        "step {} uses chunks that need {} more device memory. Use smaller chunks, or recompute more layers",
        lack.access,
        Bytes(lack.missing)
    );
    Invalid::field(field, why)
}

impl Chunks {
    /// Whether a chunk is a table on the host, whose gradients are complete there alone.
    pub fn is_host_table(&self, chunk: usize) -> bool {
        self.table.is_some() && chunk == HostTable::CHUNK
    }

    /// Bytes of a chunk's payload on the device.
    pub fn payload_bytes(&self, chunk: usize) -> u64 {
        self.bytes(chunk, |of| self.sharing.payload(of))
    }

    /// Bytes of a rank's device that the chunks whose state is there take in every step, without intervals: see
    /// [`Sharing::always_bytes`].
    pub fn on_device_bytes(&self) -> u64 {
        let all = self.layout.chunks().iter().enumerate();
        let there = all.filter(|(index, _)| self.uses.is_on_device(*index));
        let of = |(index, chunk)| self.sharing.always_bytes(chunk, &self.lists, self.uses.are_apart(index));
        there.map(of).fold(0, u64::saturating_add)
    }

    /// What of this room in each step is left for intervals.
    fn room_for_intervals(&self, room: &[u64]) -> Result<Vec<u64>, Invalid> {
        let taken = self.on_device_bytes();
        let left = |(step, &room): (usize, &u64)| {
            room.checked_sub(taken).ok_or_else(|| {
                let why = format!(
                    "step {step} needs {} more device memory for the resident chunks alone. List fewer resident chunks",
                    Bytes(taken - room)
                );
                Invalid::field("resident_chunks", why)
            })
        };
        room.iter().enumerate().map(left).collect()
    }

    /// Bytes that a copy of a chunk's payload moves: what has tensors, or of what ranks share the part that one owns.
    /// Unfinished gradients are each rank's own, all of them.
    pub fn copied_bytes(&self, chunk: usize, is_unfinished: bool) -> u64 {
        self.bytes(chunk, |of| match (self.sharing.ranks(), is_unfinished) {
            (1, _) => of.extent,
            (_, true) => self.sharing.payload(of),
            (_, false) => self.sharing.part(of),
        })
    }

    /// Bytes of a chunk that other ranks own.
    pub fn others_bytes(&self, chunk: usize) -> u64 {
        let others = u64::from(self.sharing.ranks().saturating_sub(1));
        if others == 0 { 0 } else { self.copied_bytes(chunk, false).saturating_mul(others) }
    }

    /// Bytes of the rows that a micro-batch takes of a table on the host; none where none is there.
    pub fn row_bytes(&self) -> u64 {
        let taken = self.table.map_or(0, |table| table.taken());
        taken.saturating_mul(self.lists.scalar_bytes(List::Parameters))
    }

    /// Whether a step is a forward pass that is not recomputed.
    pub fn is_forward(&self, step: usize) -> bool {
        matches!(self.steps.all().get(step), Some(Step::Forward { .. }))
    }

    /// Bytes of what these intervals copy in an iteration, of rows that are gathered on the host, and of what ranks give each
    /// other. A chunk's parts whenever it comes, and its gradients when all of them are there; of a table on the host both once.
    pub fn moved(&self, intervals: &Intervals<'_>) -> Moved {
        let bytes = |chunk, is_unfinished| self.copied_bytes(chunk, is_unfinished);
        let mut moved = intervals.moved(bytes, |step| self.is_forward(step));
        for (_, interval, copies) in intervals.all() {
            let others = self.others_bytes(interval.payload.chunk);
            let of = |is_moved: bool| if is_moved { others } else { 0 };
            moved.gathered = moved.gathered.saturating_add(of(copies.is_gathered));
            moved.scattered = moved.scattered.saturating_add(of(copies.is_complete));
        }
        if let Some(HostTable { gathers, scatters, .. }) = self.table {
            let others = self.others_bytes(HostTable::CHUNK);
            moved.gathered = moved.gathered.saturating_add(others);
            moved.scattered = moved.scattered.saturating_add(others);
            moved.copied(CopyCause::Rows, gathers.saturating_mul(self.row_bytes()));
            moved.copied(CopyCause::RowGradients, scatters.saturating_mul(self.row_bytes()));
        }
        moved
    }

    fn bytes(&self, chunk: usize, elements: impl Fn(&Chunk) -> u64) -> u64 {
        let elements = self.layout.chunks().get(chunk).map_or(0, elements);
        elements.saturating_mul(self.lists.scalar_bytes(List::Parameters))
    }
}
