//! A model in its steps, and its chunks in them: what choices have in common that differ in what is where.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::rc::Rc;

use loadmaster_predict::PredictionError;
use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::embedding::EmbeddingPlace;
use loadmaster_proto::chunks::host::{HostMemory, HostParameters};
use loadmaster_proto::chunks::layout::{Layout, List, Lists};
use loadmaster_proto::chunks::packing::{ChunkLayout, Packing};
use loadmaster_proto::chunks::residency::intervals::ResidencyInterval;
use loadmaster_proto::chunks::residency::uses::Uses;
use loadmaster_proto::chunks::sequence::Sequence;
use loadmaster_proto::chunks::stage::{ChunkedStage, Chunks};
use loadmaster_proto::error::Invalid;

use super::baseline::static_intervals;
use super::chunk_usage::ChunkUsage;
use super::pass_costs::PassCosts;
use super::question::{ChunkQuestion, PassChoice, Passes, StepCosts};
use super::room::first_where;
use super::step_memory::resident;

/// A ground with chunks of one size.
#[derive(Debug, Clone)]
pub(super) struct LayoutEvaluation<'a> {
    pub(super) question: &'a ChunkQuestion,
    pub(super) ground: &'a PassCosts,
    pub(super) placed: Rc<ChunkUsage<'a>>,
    /// The least seconds of all, by the number of chunks on the device.
    pub(super) least_seconds: SecondsMemo,
}

impl<'a> LayoutEvaluation<'a> {
    pub(super) fn new(ground: &'a PassCosts, placed: Rc<ChunkUsage<'a>>) -> Self {
        Self { question: placed.question, ground, placed, least_seconds: SecondsMemo::default() }
    }

    /// Each of these grounds with the chunks of a layout. Grounds that are like each other do the same with them.
    ///
    /// # Errors
    /// No or too many ranks.
    pub(super) fn all(
        question: &'a ChunkQuestion,
        grounds: impl IntoIterator<Item = &'a PassCosts>,
        lists: Lists,
        places: &'a Layout,
    ) -> Result<Vec<Self>, Invalid> {
        let mut all: Vec<Self> = Vec::new();
        for ground in grounds {
            let like = all.iter().find(|of| of.ground.is_like(ground)).map(|of| Rc::clone(&of.placed));
            let placed = match like {
                Some(placed) => placed,
                None => Rc::new(ChunkUsage::new(question, ground, (ChunkLayout::Aligned, lists), places)?),
            };
            all.push(Self::new(ground, placed));
        }
        Ok(all)
    }

    /// Aligned layouts of every size that is tried, the largest first.
    pub(super) fn lay_out(
        question: &ChunkQuestion,
        sequence: &Sequence,
        lists: Lists,
        embedding: EmbeddingPlace,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Layout, Invalid>>, Invalid> {
        let packing = Packing::new(sequence, ChunkLayout::Aligned, lists)?;
        let packing = match embedding {
            EmbeddingPlace::Chunk => packing,
            EmbeddingPlace::Host => packing.with_table_apart(),
        };
        let sizes = question.choices.sizes.of(&packing)?;
        Ok(sizes.into_iter().map(move |size| packing.lay_out(size)))
    }

    /// The step that lacks most on the device, and the bytes that lack: none where it suffices.
    pub(super) fn device_lack(&self, on_device: usize) -> Option<(usize, u64)> {
        let bytes = if self.question.choices.is_paged() {
            self.placed.least_chunk_bytes(on_device)
        } else {
            self.placed.static_chunk_bytes(on_device)
        };
        self.lack_of(&bytes, self.question.capacity.0)
    }

    /// The same of these bytes of chunks in each step, on a device of this capacity.
    pub(super) fn lack_of(&self, chunk_bytes: &[u64], capacity: u64) -> Option<(usize, u64)> {
        let all = chunk_bytes.iter().zip(&self.ground.costs.needed);
        let lack = all.map(|(bytes, needed)| bytes.saturating_add(*needed)).enumerate();
        let lack = lack.map(|(step, bytes)| (step, bytes.saturating_sub(capacity)));
        lack.filter(|(_, lack)| *lack > 0).max_by_key(|&(step, lack)| (lack, Reverse(step)))
    }

    /// Bytes that chunks take of the host, and activations that are there.
    ///
    /// # Errors
    /// More than can be counted.
    pub(super) fn host_bytes(&self, host_copy: HostParameters, on_device: usize) -> Result<u64, Invalid> {
        let Bytes(pool) = self.ground.costs.pool;
        Ok(self.placed.host_bytes(host_copy, on_device)?.saturating_add(pool))
    }

    /// All that follows from a choice.
    ///
    /// # Errors
    /// More bytes of the host than can be counted.
    pub(super) fn chunks(&self, host_copy: HostParameters, on_device: usize) -> Result<Chunks, Invalid> {
        let ChunkUsage { uses, sharing, .. } = &*self.placed;
        let uses = uses.clone().with_on_device(&self.placed.on_device(on_device), sharing);
        self.chunks_of(uses, host_copy)
    }

    /// The same where the chunks on the device are those of these uses.
    pub(super) fn chunks_of(&self, uses: Uses, host_copy: HostParameters) -> Result<Chunks, Invalid> {
        let host = HostMemory::new(&self.placed.on_host(&uses, host_copy))?;
        let ChunkUsage { lists, places, sharing, table, .. } = *self.placed;
        let (layout, steps) = (places.clone(), self.ground.course.steps.clone());
        Ok(Chunks { lists, layout, steps, uses, sharing, table, host })
    }

    /// How it is trained, with intervals of a rule until others are planned.
    pub(super) fn stage(&self, host_copy: HostParameters, on_device: usize) -> ChunkedStage {
        ChunkedStage {
            layout: self.placed.layout,
            order: self.ground.course.order,
            host_copy,
            staging: self.question.choices.staging,
            update: self.question.choices.update,
            embedding: self.ground.course.embedding,
            on_device: self.placed.on_device(on_device),
            ..ChunkedStage::on_demand(self.placed.places.chunk_elements(), self.question.host_memory)
        }
    }

    /// The most chunks whose state the device has room for, whatever the host holds of the parameters; none where it lacks room
    /// even with none of them.
    pub(super) fn most_on_device(&self) -> Option<usize> {
        // With one more of them no step needs less: the state comes to what the payload may need anyway; where ranks share
        // chunks the part comes besides, and of the payload nothing leaves that stayed.
        let most = self.most_always()?;
        first_where(0..=most, |fewer| self.device_lack(most - fewer).is_none()).map(|fewer| most - fewer)
    }

    /// The most chunks whose state has room beside what is no chunk; none where not even that has.
    fn most_always(&self) -> Option<usize> {
        let room = self.question.capacity.0.checked_sub(self.ground.most_needed())?;
        let sums = self.placed.always_bytes().scan(0_u64, |sum, bytes| {
            *sum = sum.saturating_add(bytes);
            Some(*sum)
        });
        Some(sums.take_while(|&sum| sum <= room).count())
    }

    /// Residency intervals of chunks whose parameters are there from the first step to the last, as ZeRO-Offload has
    /// them; none where that has no room.
    pub(super) fn all_there(&self, stage: &ChunkedStage, chunks: &Chunks) -> Option<Vec<ResidencyInterval>> {
        // A table on the host may never come.
        let on_host = self
            .placed
            .table
            .and_then(|_| self.placed.places.chunks().first())
            .map_or(0, |table| table.extent);
        let parameters = self.question.model.parameter_count() / u64::from(self.question.shards.max(1));
        let parameters = parameters.saturating_sub(on_host);
        let least = self.placed.lists.scalar_bytes(List::Parameters).saturating_mul(parameters);
        if least > self.question.capacity.0.saturating_sub(self.ground.most_needed()) {
            return None;
        }
        let intervals = static_intervals(&chunks.uses);
        let held = resident(chunks, &stage.told(chunks, &intervals).ok()?);
        self.lack_of(&held, self.question.capacity.0).is_none().then_some(intervals)
    }

    /// Room for chunks in each step.
    pub(super) fn room(&self) -> Vec<u64> {
        let needed = self.ground.costs.needed.iter();
        needed.map(|needed| self.question.capacity.0.saturating_sub(*needed)).collect()
    }
}

/// Passes that remember what they said.
#[derive(Debug)]
pub struct PassesMemo<P> {
    passes: P,
    /// As many as there are choices of passes: a few dozens.
    known: RefCell<Vec<(PassChoice, Result<StepCosts, PredictionError>)>>,
}

impl<P: Passes> PassesMemo<P> {
    /// Nothing was asked so far.
    pub fn new(passes: P) -> Self {
        Self { passes, known: RefCell::default() }
    }
}

impl<P: Passes> Passes for PassesMemo<P> {
    fn costs(&self, of: PassChoice) -> Result<StepCosts, PredictionError> {
        let known =
            self.known.borrow().iter().find(|(known, _)| *known == of).map(|(_, costs)| costs.clone());
        known.unwrap_or_else(|| {
            let costs = self.passes.costs(of);
            self.known.borrow_mut().push((of, costs.clone()));
            costs
        })
    }
}

/// Seconds by the number of chunks on the device: a dozen of them, at most.
#[derive(Debug, Clone, Default)]
pub(super) struct SecondsMemo(RefCell<Vec<(usize, f64)>>);

impl SecondsMemo {
    /// What is known for so many, or else what is found out now.
    pub(super) fn of(&self, on_device: usize, find: impl FnOnce() -> f64) -> f64 {
        let known = self.0.borrow().iter().find(|(count, _)| *count == on_device).map(|of| of.1);
        known.unwrap_or_else(|| {
            let found = find();
            self.0.borrow_mut().push((on_device, found));
            found
        })
    }
}
