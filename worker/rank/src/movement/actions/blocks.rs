//! Which storages a block is.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use loadmaster_proto::training::actions::{Absence, Block, Part};
use tch::Tensor;

use crate::error::RankError;
use crate::ffi::{Finder, Storage};
use crate::layers::Trained;

/// Storages, each once, in order.
#[derive(Debug, Clone, Default)]
struct Storages {
    all: Vec<Arc<Storage>>,
    ids: HashSet<u64>,
}

impl Storages {
    fn add(&mut self, storage: Arc<Storage>) {
        if self.ids.insert(storage.id()) {
            self.all.push(storage);
        }
    }

    fn add_tensor(&mut self, tensor: &Tensor) -> Result<(), RankError> {
        self.add(Arc::new(Storage::of(tensor)?));
        Ok(())
    }

    fn remove_all(&mut self, others: &Self) {
        self.ids.retain(|id| !others.ids.contains(id));
        self.all.retain(|storage| !others.has(storage));
    }

    fn has(&self, storage: &Storage) -> bool {
        self.ids.contains(&storage.id())
    }
}

/// What a micro-batch has left in a layer.
#[derive(Debug, Default)]
struct Passed {
    /// What is held for the backward pass: saved by autograd, or the input of a run.
    held: Storages,
    /// At the edge that the next layer reads.
    outputs: Storages,
}

/// What is known of a rank's blocks.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Whether any block leaves: nothing is noted where none does.
    is_moving: bool,
    /// Layers of which it must be known which storages micro-batches hold: of which some leave, and those above, which may hold
    /// the same. To look costs each saved tensor some time.
    watched: HashSet<usize>,
    /// What all micro-batches share, so that it is no one's activation: parameters and buffers.
    shared: Storages,
    trained: HashMap<usize, Vec<Trained>>,
    optimizer: HashMap<usize, Storages>,
    passed: HashMap<(u32, usize), Passed>,
    /// Weights that one micro-batch alone still needs, of each layer.
    versions: HashMap<u32, HashMap<usize, Storages>>,
}

impl Blocks {
    /// None yet, of which these leave.
    pub(super) fn new(absences: &[Absence]) -> Self {
        let leave = |absence: &&Absence| matches!(absence.block, Block::Activations | Block::Inputs);
        let watched = absences.iter().filter(leave).flat_map(|absence| [absence.layer, absence.layer + 1]);
        Self { is_moving: !absences.is_empty(), watched: watched.collect(), ..Self::default() }
    }

    /// A layer's tensors were made.
    pub(super) fn made(
        &mut self,
        layer: usize,
        trained: &[Trained],
        buffers: &[Tensor],
    ) -> Result<(), RankError> {
        if !self.is_moving {
            return Ok(());
        }
        for trained in trained {
            self.shared.add_tensor(&trained.value)?;
            trained.master.iter().try_for_each(|master| self.shared.add_tensor(master))?;
        }
        buffers.iter().try_for_each(|buffer| self.shared.add_tensor(buffer))?;
        let own = trained.iter().map(Trained::shallow_clone).collect();
        self.trained.insert(layer, own);
        Ok(())
    }

    /// The weights have other memory from now on, and what they had is left to these micro-batches.
    pub(crate) fn renewed(
        &mut self,
        holders: &[u32],
        older: &[Trained],
        newest: &[Trained],
    ) -> Result<(), RankError> {
        if !self.is_moving {
            return Ok(());
        }
        let mut left: HashMap<usize, Storages> = HashMap::new();
        for trained in older {
            left.entry(trained.layer).or_default().add_tensor(&trained.value)?;
        }
        left.values().for_each(|older| self.shared.remove_all(older));
        self.trained.clear();
        for trained in newest {
            self.shared.add_tensor(&trained.value)?;
            self.trained.entry(trained.layer).or_default().push(trained.shallow_clone());
        }
        // What several of them need stays.
        if let &[holder] = holders {
            self.versions.insert(holder, left);
        }
        Ok(())
    }

    /// The optimizer keeps these for a layer.
    pub(crate) fn stepped<'a>(
        &mut self,
        layer: usize,
        state: impl Iterator<Item = &'a Tensor>,
    ) -> Result<(), RankError> {
        if !self.is_moving {
            return Ok(());
        }
        let known = self.optimizer.entry(layer).or_default();
        state.into_iter().try_for_each(|tensor| known.add_tensor(tensor))
    }

    /// A run of a micro-batch begins with a layer and holds its input.
    pub(crate) fn entered(
        &mut self,
        micro_batch: u32,
        layer: usize,
        inputs: &[Tensor],
    ) -> Result<(), RankError> {
        if !self.watched.contains(&layer) {
            return Ok(());
        }
        let passed = self.passed.entry((micro_batch, layer)).or_default();
        inputs.iter().try_for_each(|input| passed.held.add_tensor(input))
    }

    /// Looks at what autograd saves in a layer, if anybody asks.
    pub(crate) fn find(&self, layer: usize) -> Result<Option<Finder>, RankError> {
        Ok(if self.watched.contains(&layer) { Some(Finder::begin()?) } else { None })
    }

    /// A micro-batch has gone forward through a layer, for the first time.
    pub(crate) fn passed(
        &mut self,
        micro_batch: u32,
        layer: usize,
        finder: Option<Finder>,
        outputs: &[Tensor],
    ) -> Result<(), RankError> {
        let Some(finder) = finder else { return Ok(()) };
        let passed = self.passed.entry((micro_batch, layer)).or_default();
        for storage in finder.found() {
            if !self.shared.has(&storage) {
                passed.held.add(Arc::new(storage));
            }
        }
        outputs.iter().try_for_each(|output| passed.outputs.add_tensor(output))
    }

    /// Nothing is in flight any more.
    pub(super) fn forget_micro_batches(&mut self) {
        self.passed.clear();
    }

    /// A micro-batch is back.
    pub(crate) fn forget(&mut self, micro_batch: u32) {
        self.passed.retain(|&(of, _), _| of != micro_batch);
        self.versions.remove(&micro_batch);
    }

    /// The storages that are meant by an absence, as it begins.
    pub(super) fn of(&self, absence: &Absence) -> Result<Vec<Arc<Storage>>, RankError> {
        match absence.block {
            Block::Activations | Block::Inputs => Ok(absence
                .micro_batch
                .map_or(Vec::new(), |micro_batch| self.of_micro_batch(micro_batch, absence))),
            Block::Versions => {
                let of = absence.micro_batch.and_then(|micro_batch| self.versions.get(&micro_batch));
                Ok(of.and_then(|of| of.get(&absence.layer)).map_or(Vec::new(), |of| of.all.clone()))
            }
            Block::Weights => self.weights(absence.layer),
            Block::Gradients => self.gradients(absence.layer),
            Block::Optimizer => {
                Ok(self.optimizer.get(&absence.layer).map_or(Vec::new(), |state| state.all.clone()))
            }
        }
    }

    /// A tensor at an edge is the highest layer's that holds it.
    fn of_micro_batch(&self, micro_batch: u32, absence: &Absence) -> Vec<Arc<Storage>> {
        let at = |layer| self.passed.get(&(micro_batch, layer));
        let Some(Passed { held, outputs }) = at(absence.layer) else { return Vec::new() };
        let held = held.all.iter();
        match (absence.part, at(absence.layer + 1)) {
            (Part::Own, _) => held.filter(|storage| !outputs.has(storage)).cloned().collect(),
            (Part::Above, None) => Vec::new(),
            (Part::Above, Some(above)) => held
                .filter(|storage| {
                    outputs.has(storage) && !above.held.has(storage) && !above.outputs.has(storage)
                })
                .cloned()
                .collect(),
        }
    }

    fn weights(&self, layer: usize) -> Result<Vec<Arc<Storage>>, RankError> {
        let mut weights = Storages::default();
        for trained in self.trained.get(&layer).into_iter().flatten() {
            weights.add_tensor(&trained.value)?;
            trained.master.iter().try_for_each(|master| weights.add_tensor(master))?;
        }
        Ok(weights.all)
    }

    /// Those whose memory nothing else reads: autograd takes the first gradient of a parameter over as it is, which may
    /// share its memory with one that is still on its way.
    fn gradients(&self, layer: usize) -> Result<Vec<Arc<Storage>>, RankError> {
        let mut gradients = Storages::default();
        let mut owners: HashMap<u64, u64> = HashMap::new();
        for trained in self.trained.get(&layer).into_iter().flatten() {
            if let Some(gradient) = trained.gradient()? {
                let storage = Arc::new(Storage::of(&gradient)?);
                *owners.entry(storage.id()).or_default() += 1;
                gradients.add(storage);
            }
        }
        let is_alone = |storage: &Arc<Storage>| {
            let tensors = storage.hold().map_or(0, |held| held.tensors());
            owners.get(&storage.id()).is_some_and(|&owners| tensors <= owners)
        };
        gradients.all.retain(is_alone);
        Ok(gradients.all)
    }
}
