//! A training in chunks, boundary by boundary: which payloads come and leave at each.

use std::ops::Range;
use std::sync::Arc;

use loadmaster_proto::chunks::embedding::HostTable;
use loadmaster_proto::chunks::host::HostPart;
use loadmaster_proto::chunks::layout::Place;
use loadmaster_proto::chunks::residency::intervals::ResidencyInterval;
use loadmaster_proto::chunks::residency::intervals::{BoundaryVisits, PayloadInterval};
use loadmaster_proto::chunks::residency::uses::layer_tensors;
use loadmaster_proto::chunks::stage::{ChunkResidency, ChunkedStage, Chunks};
use loadmaster_proto::measure::chunked;
use loadmaster_proto::measure::rank::RankSpec;
use loadmaster_proto::training::actions::{Step, Steps};
use loadmaster_proto::training::boundaries::BoundaryAct;
use loadmaster_proto::training::shard::ShardParameter;
use tch::{Device, Kind, Tensor};

use super::embedding_rows::Tokens;
use super::payloads::Payloads;
use super::tensors::{ChunkTensor, Tensors};
use super::trace::{Counts, Trace};
use crate::collective::Group;
use crate::error::RankError;
use crate::ffi;
use crate::layers::{ParameterMaker, Trained};
use crate::memory::Memory;
use crate::movement::lane::Ways;
use crate::tape::defect;
use crate::tensor::{copy_of, kind};

/// A training in chunks.
#[derive(Debug)]
pub(crate) struct ChunkRun {
    stage: ChunkedStage,
    chunks: Arc<Chunks>,
    capacity: u64,
    device: Device,
    /// Who shares the chunks, and which of them this rank is.
    group: Option<Group>,
    rank: u32,
    /// Number format of what layers compute with.
    kind: Kind,
    tensors: Tensors,
    payloads: Payloads,
    intervals: BoundaryVisits,
    /// Whether visits are those of the training; the first iteration has its own.
    is_settled: bool,
    is_replanned: bool,
    /// Gradients of the first iteration, where someone wants them.
    gradients: Option<Vec<(String, Tensor)>>,
    pub(crate) trace: Trace,
}

impl ChunkRun {
    /// Takes the host's memory for a rank's chunks.
    ///
    /// # Errors
    /// The specification contradicts itself, or the host has not so much memory.
    pub(crate) fn new(
        spec: &RankSpec,
        stage: ChunkedStage,
        group: Option<Group>,
        memory: &Memory,
    ) -> Result<Self, RankError> {
        let devices = &spec.position.stage;
        let chunks = stage.lay_out_split(&spec.model, &spec.training, devices);
        let chunks = chunks.map_err(|of| of.under("chunks"))?;
        let chunks = Arc::new(chunks);
        let mut run = Self {
            capacity: spec.device.capacity.0,
            device: memory.device(),
            kind: kind(spec.training.precision),
            tensors: Tensors::new(layer_tensors(&spec.model, stage.embedding)),
            rank: group.as_ref().map_or(0, |group| group.own().index),
            group: group.clone(),
            payloads: Payloads::new(spec, &stage, &chunks, group, memory)?,
            intervals: BoundaryVisits::default(),
            is_settled: false,
            is_replanned: false,
            // Of a table that ranks share on their hosts no one has the whole.
            gradients: (spec.dump_gradients.is_some()
                && (devices.data_degree == 1 || chunks.table.is_none()))
            .then(Vec::new),
            trace: Trace::new(memory.clone(), chunks.uses.steps()),
            stage,
            chunks,
        };
        let bare = run.stage.bare_intervals(&run.chunks)?;
        run.adopt(&bare)?;
        Ok(run)
    }

    /// From now on these are its visits.
    fn adopt(&mut self, intervals: &[ResidencyInterval]) -> Result<(), RankError> {
        let chunks = self.chunks.clone();
        let intervals = self.stage.told(&chunks, intervals)?;
        let stays = chunks.on_device_bytes();
        let resident = intervals.resident(|chunk| chunks.payload_bytes(chunk));
        self.trace.payload_bytes = resident.into_iter().map(|bytes| bytes.saturating_add(stays)).collect();
        self.intervals = BoundaryVisits::new(&intervals, |_| [true; 4]);
        Ok(())
    }

    /// Makes a trained tensor at its start in its chunk, each in the order of the layers.
    ///
    /// # Errors
    /// What libtorch says.
    pub(crate) fn make(
        &mut self,
        maker: &ParameterMaker,
        (layer, position): (usize, usize),
        parameter: &ShardParameter,
    ) -> Result<Trained, RankError> {
        let start = maker.start_aside(layer, position, parameter)?;
        let place = self.chunks.layout.tensors().get(self.tensors.all.len()).copied();
        let place =
            place.ok_or_else(|| defect("the layers have more tensors than the chunk layout lists"))?;
        // Places are as long as those of the first shard.
        let elements = start.numel() as u64;
        if elements > place.elements {
            return Err(defect("a tensor has more elements than the chunk layout reserves"));
        }
        let place = Place { elements, ..place };
        // The payloads of parameters are the first, in the order of chunks.
        let value =
            self.payloads.block(place.chunk).tensor(place, &start.size())?.f_set_requires_grad(true)?;
        self.write_start(place, &start)?;
        let name = parameter.whole.name;
        let trained = Trained { layer, name, value, master: None, main: None };
        self.tensors.all.push(ChunkTensor::new(trained.shallow_clone(), place));
        Ok(trained)
    }

    /// Writes the fp32 copy of a tensor, and what layers compute with where the host keeps that.
    fn write_start(&self, place: Place, start: &Tensor) -> Result<(), RankError> {
        let host = &self.payloads.host;
        let chunk = &host.memory.chunks[place.chunk];
        let layout = &self.chunks.layout.chunks()[place.chunk];
        let owned = self.chunks.sharing.owned(layout, self.rank);
        // What of the tensor is in the part that this rank owns.
        let Range { start: first, end } = place.range();
        let (from, to) = (first.max(owned.start), end.min(owned.end));
        if from >= to {
            return Ok(());
        }
        let [skip, count] = [from - first, to - from].map(|of| i64::try_from(of).unwrap_or(i64::MAX));
        if let Some(state) = self.payloads.state_on_device(place.chunk) {
            let values = start.f_reshape([-1])?.f_narrow(0, skip, count)?;
            return state.start(from - owned.start, &values, self.payloads.block(place.chunk));
        }
        // Others give theirs before the first rows.
        let whole =
            host.memory.table.and_then(|table| table.whole).filter(|_| place.chunk == HostTable::CHUNK);
        let write = |part: HostPart, tensor: &Tensor| {
            let size = tensor.kind().elt_size_in_bytes() as u64;
            // A place for the whole chunk begins with its first element, one for a part with the part's.
            let is_whole = part.bytes > size * (owned.end - owned.start);
            let at = if is_whole { from } else { from - owned.start };
            let bytes = host.mapping.numbers::<u8>(part.start + size * at, size * (to - from));
            let mut bytes = bytes.ok_or_else(|| defect("a chunk is not in CPU memory"))?;
            let tensor = tensor.f_to_device(Device::Cpu)?.f_view([-1])?.f_narrow(0, skip, count)?;
            Ok::<_, RankError>(tensor.f_copy_data_u8(bytes.all(), tensor.numel())?)
        };
        ffi::aside(|| {
            let _no_grad = tch::no_grad_guard();
            if let Some(&weights) = chunk.state.first() {
                write(weights, start)?;
            }
            let computed = chunk.parameters.into_iter().chain(whole);
            computed.into_iter().try_for_each(|place| write(place, &start.f_to_kind(self.kind)?))
        })
    }

    /// A pass begins, at whose boundary all is done that is due.
    ///
    /// # Errors
    /// What it reads is away: a defect.
    pub(crate) fn compute(&mut self, step: Step) -> Result<(), RankError> {
        self.tensors.compute(step, |chunk| self.payloads.is_here(chunk))
    }

    /// One of the acts at a boundary.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(crate) fn act(&mut self, boundary: usize, act: BoundaryAct) -> Result<(), RankError> {
        let due: Vec<PayloadInterval> = self.intervals.due(boundary, act).copied().collect();
        due.into_iter().try_for_each(|told| match act {
            BoundaryAct::Leave => self.leave(told),
            BoundaryAct::Free => self.payloads.free(told),
            BoundaryAct::Fetch => self.payloads.fetch(told),
            BoundaryAct::Settle => self.payloads.settle(told),
        })
    }

    /// A payload leaves, with gradients that ranks which share its chunk have added up where they are complete.
    fn leave(&mut self, told: PayloadInterval) -> Result<(), RankError> {
        let chunk = told.interval.payload.chunk;
        if told.copies.leaves_changed && told.copies.is_complete {
            self.payloads.reduce(told.payload)?;
            if !self.chunks.is_host_table(chunk) {
                self.note_gradients(told.payload, chunk)?;
            }
        }
        self.payloads.leave(told, &self.tensors)
    }

    /// The rows of tokens, where their table is on the host, and the tokens as its thread knows them.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(crate) fn gather(&mut self, tokens: &Tensor) -> Result<Option<(Tensor, Tokens)>, RankError> {
        let Some(table) = self.chunks.table else { return Ok(None) };
        // A loader has them on the host; here they are made on the device, and the host waits for those of a GPU.
        let named = ffi::aside(|| Vec::<i64>::try_from(tokens.f_to_device(Device::Cpu)?.f_flatten(0, -1)?))?;
        let named: Tokens = named.into();
        let width = i64::try_from(table.width).unwrap_or(i64::MAX);
        let shape: Vec<i64> = tokens.size().into_iter().chain([width]).collect();
        let rows = Tensor::f_empty(shape, (self.kind, tokens.device()))?;
        self.payloads.gather(named.clone(), &rows)?;
        Ok(Some((rows, named)))
    }

    /// The gradient of the rows of these tokens.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub(crate) fn scatter(&mut self, tokens: Tokens, gradient: &Tensor) -> Result<(), RankError> {
        self.payloads.scatter(tokens, gradient)
    }

    /// Copies the gradient of a table on the host, where someone wants it.
    fn note_table(&mut self) -> Result<(), RankError> {
        let Some(noted) = self.gradients.as_mut().filter(|_| !self.is_settled) else { return Ok(()) };
        let Some(ChunkTensor { trained, .. }) = self.tensors.all.get(HostTable::TENSOR) else {
            return Ok(());
        };
        let gradient = self.payloads.table_gradient(&trained.value.size())?;
        noted.push((trained.global_name(), gradient));
        Ok(())
    }

    /// Copies the gradients of a complete payload, added up by all ranks that share it, where someone wants them.
    fn note_gradients(&mut self, payload: usize, chunk: usize) -> Result<(), RankError> {
        let Some(noted) = self.gradients.as_mut().filter(|_| !self.is_settled) else { return Ok(()) };
        self.payloads.gather_gradients(payload)?;
        let block = self.payloads.block(payload);
        let tensors = &self.chunks.layout.chunks()[chunk].tensors;
        for ChunkTensor { trained, place, .. } in self.tensors.having_gradients(tensors) {
            let copy = ffi::aside(|| copy_of(&block.tensor(*place, &trained.value.size())?))?;
            noted.push((trained.global_name(), copy));
        }
        Ok(())
    }

    /// The gradients of the first iteration, by name.
    pub(crate) fn take_gradients(&mut self) -> Vec<(String, Tensor)> {
        self.gradients.take().unwrap_or_default()
    }

    /// A backward pass is over: its layer's gradients go to their chunks, if they are all there.
    ///
    /// # Errors
    /// What libtorch says.
    pub(crate) fn went_backward(&mut self, step: Step) -> Result<(), RankError> {
        let chunks = self.chunks.clone();
        let (uses, payloads) = (&chunks.uses, &self.payloads);
        let Some(index) = chunks.steps.index(step).filter(|&index| uses.delivers(index)) else {
            return Ok(());
        };
        self.tensors.deliver(step, |chunk| {
            let payload = uses.gradients_of(chunk);
            (payloads.is_here(payload).then(|| payloads.block(payload)), !uses.are_apart(chunk))
        })?;
        for chunk in uses.completed_on_device(index) {
            self.payloads.reduce(uses.gradients_of(chunk))?;
            self.note_gradients(uses.gradients_of(chunk), chunk)?;
            self.payloads.update_on_device(chunk, &self.tensors)?;
        }
        if chunks.table.is_some_and(|table| table.last == Some(index)) {
            self.note_table()?;
            self.payloads.update_table()?;
        }
        Ok(())
    }

    /// An iteration is over, with its last boundary, and the next may begin.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(crate) fn end_iteration(&mut self) -> Result<(), RankError> {
        self.payloads.end_iteration()?;
        self.tensors.end_iteration();
        if self.is_settled { Ok(()) } else { self.settle_visits() }
    }

    /// The first iteration is over, and what steps need besides payloads is known.
    fn settle_visits(&mut self) -> Result<(), RankError> {
        self.is_settled = true;
        let room = self.room()?;
        let intervals = self.stage.intervals(&self.chunks, &room)?;
        // Something may need more than was planned.
        self.is_replanned = matches!(&self.stage.residency, ChunkResidency::Planned(of) if *of != intervals);
        self.adopt(&intervals)?;
        // What would have come in the iteration that is over.
        over_end(&self.intervals).try_for_each(|told| self.payloads.fetch(told))
    }

    /// What each step leaves of the device for payloads: the least of all ranks that share them, since these must do the same.
    fn room(&self) -> Result<Vec<u64>, RankError> {
        let own = self.trace.other_bytes.iter().map(|&other| self.capacity.saturating_sub(other));
        let Some(group) = &self.group else { return Ok(own.collect()) };
        let lacks: Vec<f64> = own.map(|room| -(room as f64)).collect();
        let most = ffi::aside(|| group.largest(&lacks, self.device))?;
        Ok(most.into_iter().map(|lacks| -lacks as u64).collect())
    }

    /// Waits until all updates are done, and gives back what came for an iteration that no one begins.
    ///
    /// # Errors
    /// When one failed.
    pub(crate) fn finish(&mut self) -> Result<(), RankError> {
        self.payloads.host.settle()?;
        over_end(&self.intervals).try_for_each(|told| self.payloads.abandon(told))
    }

    /// The ways on which chunks leave and come.
    pub(crate) fn ways(&self) -> Ways {
        self.payloads.ways.clone()
    }

    /// The steps of an iteration.
    pub(crate) fn steps(&self) -> Steps {
        self.chunks.steps.clone()
    }

    /// Its parameters, as layers would compute with them, by name. Once all updates are done.
    ///
    /// # Errors
    /// What libtorch says.
    pub(crate) fn parameters(&self) -> Result<Vec<(String, Tensor)>, RankError> {
        let of = |ChunkTensor { trained, place, .. }: &ChunkTensor| {
            let weights = self.weights(*place)?.f_view(trained.value.size().as_slice())?;
            Ok((trained.global_name(), weights.f_to_kind(self.kind)?))
        };
        ffi::aside(|| self.tensors.all.iter().map(of).collect())
    }

    /// The fp32 copy of a tensor, of which other ranks may have parts: all of them ask for the same, one after the other.
    fn weights(&self, place: Place) -> Result<Tensor, RankError> {
        let host = &self.payloads.host;
        let part = self.chunks.sharing.part(&self.chunks.layout.chunks()[place.chunk]);
        let own = match self.payloads.state_on_device(place.chunk) {
            Some(state) => state.weights(0, part)?,
            None => {
                let weights = host.memory.chunks[place.chunk].state.first();
                let own = weights.and_then(|weights| host.mapping.numbers::<f32>(weights.start, part));
                let mut own = own.ok_or_else(|| defect("a chunk is not in CPU memory"))?;
                Tensor::f_from_slice(own.all())?
            }
        };
        let whole = match &self.group {
            None => own,
            Some(group) => {
                // Between GPUs it is exchanged from there.
                let own = own.f_to_device(self.payloads.block(place.chunk).device())?;
                let ranks = 0..self.chunks.sharing.ranks();
                let parts = ranks
                    .map(|rank| if rank == self.rank { Ok(own.shallow_clone()) } else { own.f_zeros_like() });
                let parts: Vec<Tensor> = parts.collect::<Result<_, _>>()?;
                group.all_gather(&parts)?;
                Tensor::f_cat(&parts, 0)?
            }
        };
        let [offset, elements] =
            [place.offset, place.elements].map(|of| i64::try_from(of).unwrap_or(i64::MAX));
        Ok(whole.f_narrow(0, offset, elements)?)
    }

    /// Bytes of the device between iterations.
    pub(crate) fn resting_bytes(&self) -> u64 {
        let bytes =
            over_end(&self.intervals).map(|told| self.chunks.payload_bytes(told.interval.payload.chunk));
        bytes.fold(self.chunks.on_device_bytes(), u64::saturating_add)
    }

    /// What was moved and held.
    ///
    /// # Errors
    /// When the device failed.
    pub(crate) fn told(&self) -> Result<chunked::ChunkRun, RankError> {
        let told = self.payloads.counts.told(&self.trace)?;
        Ok(chunked::ChunkRun {
            host_bytes: loadmaster_proto::bytes::Bytes(self.chunks.host.bytes),
            fetches: self.intervals.all().iter().map(|told| u64::from(told.copies.comes)).sum(),
            is_replanned: self.is_replanned,
            ..told
        })
    }

    /// Forgets what was counted.
    pub(crate) fn reset(&mut self) {
        self.payloads.counts = Counts::default();
        self.trace.reset();
    }
}

/// Those that begin in the iteration before.
fn over_end(intervals: &BoundaryVisits) -> impl Iterator<Item = PayloadInterval> {
    intervals.all().iter().copied().filter(|told| told.interval.at.is_over_end())
}
