//! A model in its steps, and its chunks in them: what choices have in common that differ in what is where.

use std::cmp::Reverse;

use loadmaster_proto::bytes::Bytes;
use loadmaster_proto::chunks::activations::{ActivationPlace, on_host};
use loadmaster_proto::chunks::embedding::{EmbeddingPlace, HostTable};
use loadmaster_proto::chunks::groups::{ChunkOwners, Sharing};
use loadmaster_proto::chunks::host::{HostCopy, HostMemory, may_leave_unfinished};
use loadmaster_proto::chunks::layout::{Chunk, Layout};
use loadmaster_proto::chunks::lists::{List, Lists};
use loadmaster_proto::chunks::packing::{ChunkLayout, Packing};
use loadmaster_proto::chunks::residency::paged::Paging;
use loadmaster_proto::chunks::residency::uses::{PayloadUses, Uses};
use loadmaster_proto::chunks::sequence::Sequence;
use loadmaster_proto::chunks::stage::{ChunkMoves, ChunkResidency, ChunkedStage, Chunks, UpdateTime};
use loadmaster_proto::error::Invalid;
use loadmaster_proto::training::RecomputePolicy;
use loadmaster_proto::training::actions::{StageActions, Steps};
use loadmaster_proto::training::chunk_order::ChunkOrder;

use super::question::{ChunkQuestion, PassChoice, Passes, StepCosts};
use super::refusal::NoChunks;

/// The passes of an iteration.
#[derive(Debug, Clone)]
pub(super) struct Ground {
    pub(super) order: ChunkOrder,
    pub(super) recompute: RecomputePolicy,
    pub(super) embedding: EmbeddingPlace,
    /// The table of tokens, where that is on the host.
    pub(super) table: Option<HostTable>,
    pub(super) steps: Steps,
    pub(super) costs: StepCosts,
    /// What is done so that activations are where they are.
    pub(super) actions: StageActions,
}

impl Ground {
    /// All that may be chosen with activations in one of these places and can be predicted.
    ///
    /// # Errors
    /// None can be.
    pub(super) fn all(
        question: &ChunkQuestion,
        passes: &impl Passes,
        places: &[ActivationPlace],
    ) -> Result<Vec<Self>, NoChunks> {
        question.check()?;
        let mut refused = None;
        let mut grounds = Vec::new();
        for of in question.pass_choices_in(places) {
            match Self::of(question, passes, of) {
                Ok(ground) => grounds.push(ground),
                Err(why) => refused = Some(why),
            }
        }
        match refused {
            Some(why) if grounds.is_empty() => Err(why),
            _ => Ok(grounds),
        }
    }

    pub(super) fn of(
        question: &ChunkQuestion,
        passes: &impl Passes,
        of: PassChoice,
    ) -> Result<Self, NoChunks> {
        let PassChoice { order, recompute, embedding, activations } = of;
        let training = question.training(recompute);
        let steps = Steps::of_chunks(&training, question.model.layers().len(), order);
        let table = HostTable::of(embedding, &question.model, &training, question.stage().devices(), &steps)?;
        let mut costs = passes.costs(of)?;
        let count = steps.all().len();
        costs.needed.resize(count, 0);
        costs.seconds.resize(count, 0.0);
        let actions = activations.map(|points| StageActions {
            host_pool: costs.pool,
            ..on_host(question.model.layers().len(), recompute, points)
        });
        Ok(Self { order, recompute, embedding, table, steps, costs, actions: actions.unwrap_or_default() })
    }

    /// Seconds of the passes of an iteration, which takes no less.
    pub(super) fn pass_seconds(&self) -> f64 {
        self.costs.seconds.iter().sum()
    }
}

/// A ground with chunks of one size.
#[derive(Debug, Clone)]
pub(super) struct Laid<'a> {
    pub(super) question: &'a ChunkQuestion,
    pub(super) ground: &'a Ground,
    pub(super) layout: ChunkLayout,
    pub(super) lists: Lists,
    pub(super) places: Layout,
    /// Who owns which part of each chunk.
    pub(super) sharing: Sharing,
    /// As if all state were on the host.
    pub(super) uses: Uses,
    /// Chunks in the order in which their state is better on the device: whose gradients arrive last and that are needed
    /// first, since these are waited for where one iteration ends and the next begins. Not a table on the host.
    pub(super) ranked: Vec<usize>,
}

impl<'a> Laid<'a> {
    /// # Errors
    /// No or too many ranks.
    pub(super) fn new(
        question: &'a ChunkQuestion,
        ground: &'a Ground,
        (layout, lists): (ChunkLayout, Lists),
        places: Layout,
    ) -> Result<Self, Invalid> {
        let owners = ChunkOwners::of_layout(layout);
        let sharing = Sharing::new(question.ranks, lists.alignment_elements(), owners)?;
        let uses = Uses::of(&question.model, &places, &ground.steps, ground.embedding);
        let first = if ground.table.is_some() { HostTable::CHUNK + 1 } else { 0 };
        let mut ranked: Vec<usize> = (first..places.chunks().len()).collect();
        ranked.sort_by_key(|&chunk| {
            (Reverse(completed(&uses, chunk)), uses.payloads()[chunk].steps.first().copied())
        });
        Ok(Self { question, ground, layout, lists, places, sharing, uses, ranked })
    }

    /// Layouts of every size that is tried, the largest first.
    pub(super) fn lay_out(
        question: &ChunkQuestion,
        sequence: &Sequence,
        (layout, lists): (ChunkLayout, Lists),
        embedding: EmbeddingPlace,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Layout, Invalid>>, Invalid> {
        let packing = Packing::new(sequence, layout, lists)?;
        let packing = match embedding {
            EmbeddingPlace::Chunk => packing,
            EmbeddingPlace::Host => packing.with_table_apart(),
        };
        let sizes = question.choices.sizes.of(&packing)?;
        let ranks = question.ranks;
        let is_whole = ranks > 1 && ChunkOwners::of_layout(layout) == ChunkOwners::Whole;
        let lay_out = move |size| {
            let places = packing.lay_out(size)?;
            if is_whole { places.in_groups(ranks) } else { Ok(places) }
        };
        Ok(sizes.into_iter().map(lay_out))
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

    /// Whether a payload may leave the device before its gradients are complete, where its chunk's state is on the host.
    pub(super) fn may_leave_unfinished(&self, host_copy: HostCopy, of: &PayloadUses) -> bool {
        may_leave_unfinished(host_copy, &self.sharing, false, of)
    }

    /// Whether the state of each chunk is on the device where that of the `count` first ranked is.
    pub(super) fn are_on_device(&self, count: usize) -> Vec<bool> {
        let mut are = vec![false; self.count()];
        self.ranked.iter().take(count).for_each(|&chunk| are[chunk] = true);
        are
    }

    /// Bytes of a rank's device that the first ranked chunks take always where their state is there.
    pub(super) fn on_device_bytes(&self, count: usize) -> u64 {
        let of = |&chunk: &usize| {
            let always = |of| self.sharing.always_bytes(of, &self.lists, self.uses.are_apart(chunk));
            self.places.chunks().get(chunk).map_or(0, always)
        };
        self.ranked.iter().take(count).map(of).fold(0, u64::saturating_add)
    }

    /// The least bytes of the device in each step that are not `N(t)`.
    pub(super) fn least_chunk_bytes(&self, host_copy: HostCopy, on_device: usize) -> Vec<u64> {
        let are = self.are_on_device(on_device);
        let is_on_device = |of: &PayloadUses| are.get(of.payload.chunk).copied().unwrap_or(false);
        let is_shared = self.sharing.ranks() > 1;
        let mut bare = self.uses.bare_bytes(
            |chunk| self.payload_bytes(chunk),
            |of| !is_shared && is_on_device(of),
            |of| may_leave_unfinished(host_copy, &self.sharing, is_on_device(of), of),
        );
        let always = self.on_device_bytes(on_device);
        bare.iter_mut().for_each(|bytes| *bytes = bytes.saturating_add(always));
        bare
    }

    /// The step that lacks most on the device, and the bytes that lack: none where it suffices.
    pub(super) fn device_lack(&self, host_copy: HostCopy, on_device: usize) -> Option<(usize, u64)> {
        self.lack_of(&self.least_chunk_bytes(host_copy, on_device), self.question.capacity.0)
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
    pub(super) fn host_bytes(&self, host_copy: HostCopy, on_device: usize) -> Result<u64, Invalid> {
        let Bytes(pool) = self.ground.costs.pool;
        Ok(self.host(&self.uses_with(on_device), host_copy)?.bytes.saturating_add(pool))
    }

    fn host(&self, uses: &Uses, host_copy: HostCopy) -> Result<HostMemory, Invalid> {
        let copies = (host_copy, self.question.choices.staging);
        HostMemory::new(&self.places, &self.lists, uses, &self.sharing, copies, self.ground.table.as_ref())
    }

    fn uses_with(&self, on_device: usize) -> Uses {
        self.uses.clone().with_on_device(&self.on_device(on_device), &self.sharing)
    }

    /// The first ranked chunks, ascending.
    pub(super) fn on_device(&self, count: usize) -> Vec<usize> {
        let mut chunks: Vec<usize> = self.ranked.iter().copied().take(count).collect();
        chunks.sort_unstable();
        chunks
    }

    /// The most chunks whose state may be on the device, whatever room there is.
    pub(super) fn most_choosable(&self) -> usize {
        self.ranked.len()
    }

    /// All that follows from a choice.
    ///
    /// # Errors
    /// More bytes of the host than can be counted.
    pub(super) fn chunks(&self, host_copy: HostCopy, on_device: usize) -> Result<Chunks, Invalid> {
        self.chunks_of(self.uses_with(on_device), host_copy)
    }

    /// The same where the chunks on the device are those of these uses.
    pub(super) fn chunks_of(&self, uses: Uses, host_copy: HostCopy) -> Result<Chunks, Invalid> {
        let host = self.host(&uses, host_copy)?;
        let Self { lists, places, sharing, ground, .. } = self;
        let steps = ground.steps.clone();
        let (lists, layout, sharing, table) = (*lists, places.clone(), *sharing, ground.table);
        Ok(Chunks { lists, layout, steps, uses, sharing, table, host })
    }

    /// How it is trained, with visits of a rule until others are planned.
    pub(super) fn stage(&self, host_copy: HostCopy, on_device: usize) -> ChunkedStage {
        ChunkedStage {
            layout: self.layout,
            chunk_elements: self.places.chunk_elements(),
            owners: self.sharing.owners(),
            order: self.ground.order,
            host_copy,
            staging: self.question.choices.staging,
            moves: ChunkMoves::Dropped,
            update: UpdateTime::OnArrival,
            kernel: self.question.choices.kernel,
            embedding: self.ground.embedding,
            on_device: self.on_device(on_device),
            residency: ChunkResidency::Paged(Paging::AT_NEED),
            host_memory: self.question.host_memory,
        }
    }

    /// The most chunks whose state the device has room for; none where it lacks room even with none of them.
    pub(super) fn most_on_device(&self, host_copy: HostCopy) -> Option<usize> {
        // With one more of them no step needs less: the state comes to what the payload may need anyway; where ranks share
        // chunks the part comes besides, and of the payload nothing leaves that stayed.
        let fits = |count: usize| self.device_lack(host_copy, count).is_none();
        if !fits(0) {
            return None;
        }
        let (mut fit, mut not) = (0, self.most_choosable() + 1);
        while fit + 1 < not {
            let middle = fit + (not - fit) / 2;
            if fits(middle) { fit = middle } else { not = middle }
        }
        Some(fit)
    }
}

/// The most elements of a chunk that a rank updates: those that it owns.
pub(super) fn most_updated(sharing: &Sharing, chunk: &Chunk) -> u64 {
    sharing.part(chunk).min(chunk.extent)
}

/// The step behind which all gradients of a chunk are there, where nobody's state is on the device.
pub(super) fn completed(uses: &Uses, chunk: usize) -> Option<usize> {
    let of: Option<&PayloadUses> = uses.payloads().get(uses.gradients_of(chunk));
    of.and_then(|of| of.changed).map(|(_, last)| last)
}
