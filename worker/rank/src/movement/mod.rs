//! Movement between a device and other memory: blocks of memory optimizations, and chunks. The crate's README has the walk.
//!
//! Both move at the boundaries between steps alone. `Mover` is where a rank is in its iteration: it goes from boundary to boundary,
//! and lets both parts do what is due at each, act by act. Layers, passes, the optimizer and hooks of backward passes, which run on
//! threads of libtorch, have handles of it ([`Movement`]).
//!
//! | module | question |
//! |---|---|
//! | here | which boundary is next, and what happens there in which order? |
//! | `actions` | which storages are a block, and where is it meanwhile? |
//! | [`chunks`] | where are parameters, gradients and optimizer state? |
//! | `lane` | how do bytes get there without anybody waiting, and who waited how long? |

pub(crate) mod actions;
pub mod chunks;
pub(crate) mod lane;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loadmaster_proto::measure::rank::RankSpec;
use loadmaster_proto::measure::run::SoloStage;
use loadmaster_proto::training::actions::{Step, Steps};
use loadmaster_proto::training::boundaries::BoundaryAct;
use tch::Tensor;

use crate::collective::{Group, operators};
use crate::error::RankError;
use crate::ffi::{GradientUse, Mapping};
use crate::memory::Memory;
use crate::tape::defect;
use actions::BlockMover;
use chunks::ChunkRun;

/// A handle of what moves on a rank. Nothing does by default.
#[derive(Debug, Clone, Default)]
pub struct Movement {
    steps: Arc<Steps>,
    mover: Arc<Mutex<Mover>>,
}

impl Movement {
    /// That of a training in which nothing moves.
    pub fn none(steps: Steps) -> Self {
        Self { steps: Arc::new(steps), mover: Arc::default() }
    }

    /// What a specification wants to be moved: takes the host's memory. `borrowed` are pools on other stages' devices. The
    /// replicas of the model, or of this shard of it, share its chunks. Before the stage is built.
    ///
    /// # Errors
    /// The specification contradicts itself, or the host has not so much memory.
    pub(crate) fn begin(
        spec: &RankSpec,
        replicas: Option<&Group>,
        borrowed: &BTreeMap<u32, Arc<Mapping>>,
        memory: &Memory,
    ) -> Result<Self, RankError> {
        let chunks = spec.chunks.as_ref();
        let chunks = chunks.map(|stage| ChunkRun::new(spec, (**stage).clone(), replicas.cloned(), memory));
        let chunks = chunks.transpose()?;
        let steps = Arc::new(chunks.as_ref().map_or_else(|| steps_of(spec), ChunkRun::steps));
        let shared = chunks.as_ref().map(ChunkRun::ways);
        let actions = BlockMover::begin(spec, &steps, borrowed, shared, memory)?;
        let mover = Mover { steps: steps.clone(), next: 0, actions, chunks };
        let movement = Self { steps, mover: Arc::new(Mutex::new(mover)) };
        // What is on its way when a training fails stays until the process ends: who drops a copy of a GPU waits for it, and it may
        // be behind an exchange with a rank that is gone. Both parts of a training that succeeds are ended one by one.
        std::mem::forget(movement.clone());
        Ok(movement)
    }

    /// The steps of an iteration.
    pub(crate) fn steps(&self) -> &Steps {
        &self.steps
    }

    /// Where it is now. Hooks wait meanwhile, so nothing may go backward.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Mover> {
        self.mover.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with all blocks back on the device, which is not counted and to which no capacity applies.
    ///
    /// # Errors
    /// Those of what is done.
    pub(crate) fn whole<T>(&self, work: impl FnOnce() -> Result<T, RankError>) -> Result<T, RankError> {
        self.lock().actions.lend()?;
        let done = work()?;
        self.lock().actions.take_back()?;
        Ok(done)
    }

    /// The rows of tokens, where their table is on the host; none where an embedding looks them up itself. What a backward pass
    /// finds of them goes to the host.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(crate) fn embed(&self, table: &Tensor, tokens: &Tensor) -> Result<Option<Tensor>, RankError> {
        let gathered = self.lock().chunks.as_mut().map(|chunks| chunks.gather(tokens)).transpose()?;
        let Some((rows, named)) = gathered.flatten() else { return Ok(None) };
        // An embedding keeps its tokens until then.
        let (movement, tokens) = (self.clone(), tokens.shallow_clone());
        let backward = move |gradient: Tensor| {
            if let Some(chunks) = &mut movement.lock().chunks {
                chunks.scatter(named, &gradient)?;
            }
            drop(tokens);
            // No one finds a gradient of the whole table.
            Ok(Tensor::new())
        };
        operators::with_backward_of(table, &rows, GradientUse::Read, backward).map(Some)
    }
}

/// What the stage of a rank does in an iteration where nothing is in chunks.
fn steps_of(spec: &RankSpec) -> Steps {
    let SoloStage { stage, stage_count, stage_index } = spec.position;
    let exchanges = Steps::exchanges(Some(&spec.model), &stage);
    Steps::of_stage(&spec.training, &stage, (stage_index, stage_count), &spec.actions, exchanges)
}

/// Goes from boundary to boundary.
#[derive(Debug, Default)]
pub(crate) struct Mover {
    steps: Arc<Steps>,
    /// The boundary of the iteration that comes next.
    next: usize,
    /// Blocks, none of which leaves where no memory optimization moves them.
    pub(crate) actions: BlockMover,
    /// Chunks, where the stage trains in them.
    pub(crate) chunks: Option<ChunkRun>,
}

impl Mover {
    /// Boundaries of an iteration. That behind the last step is the first of the next iteration, but what chunks move there belongs
    /// to the one that ends.
    fn boundaries(&self) -> usize {
        self.steps.all().len().max(1) + usize::from(self.chunks.is_some())
    }

    /// The boundary before a step, and those before the steps that did not happen. Returns whether there was one.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(crate) fn before(&mut self, step: Step) -> Result<bool, RankError> {
        if self.chunks.is_none() && !self.actions.is_moving() {
            return Ok(false);
        }
        let index = match self.steps.index_within(step, self.next.saturating_sub(1)) {
            Some(index) => index,
            // Where no one exchanges gradients, for one, that is no step.
            None if self.chunks.is_none() => return Ok(false),
            None => return Err(defect(&format!("{step:?} is not among the steps of this rank's iteration"))),
        };
        if index < self.next {
            return Ok(false);
        }
        self.catch_up(index + 1)?;
        self.chunks.as_mut().map_or(Ok(()), |chunks| chunks.compute(step))?;
        Ok(true)
    }

    /// A backward pass of one layer is over: in chunks its gradients go there.
    ///
    /// # Errors
    /// What libtorch says.
    pub(crate) fn went_backward(&mut self, step: Step) -> Result<(), RankError> {
        self.chunks.as_mut().map_or(Ok(()), |chunks| chunks.went_backward(step))
    }

    /// The boundary before a micro-batch's backward pass.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(crate) fn before_backward(&mut self, micro_batch: u32) -> Result<(), RankError> {
        let Some(run) = self.steps.runs(self.steps.slot(micro_batch)).last() else { return Ok(()) };
        let first = if run.is_recomputed {
            Step::Again { micro_batch, layer: *run.layers.start() }
        } else {
            Step::Backward { micro_batch, layer: *run.layers.end() }
        };
        self.before(first).map(drop)
    }

    /// The last step of an iteration, or of a turn, is done, but for its gradients. All boundaries of it that are left, since behind
    /// the last layer that is trained others may have a step.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(crate) fn updated(&mut self) -> Result<(), RankError> {
        let turn = self.steps.turn().unwrap_or_else(|| self.boundaries()).max(1);
        self.catch_up(self.next.div_ceil(turn) * turn)
    }

    /// A turn of a training that never flushes is over, and the micro-batch is back that went backward in it.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(crate) fn end_turn(&mut self) -> Result<(), RankError> {
        let Some(steps) = self.steps.turn() else { return Ok(()) };
        self.updated()?;
        let turn = (self.next / steps.max(1)).saturating_sub(1);
        self.actions.blocks.forget(u32::try_from(turn).unwrap_or(u32::MAX));
        if self.next == self.boundaries() {
            self.next = 0;
        }
        Ok(())
    }

    /// An iteration is over: what is left of it happens, and the next may begin.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(crate) fn end_iteration(&mut self) -> Result<(), RankError> {
        let flushes = self.steps.turn().is_none();
        if flushes {
            self.updated()?;
            self.next = 0;
        }
        self.chunks.as_mut().map_or(Ok(()), ChunkRun::end_iteration)?;
        self.actions.end_iteration(flushes)
    }

    /// Boundaries up to one. What of both parts leaves has left before anything of both gets memory. What micro-batches keep
    /// on the host leaves and comes before chunks: it is needed soon, and chunks may come long before.
    fn catch_up(&mut self, end: usize) -> Result<(), RankError> {
        while self.next < end {
            let boundary = self.next;
            self.chunks.as_mut().map_or(Ok(()), |chunks| chunks.trace.step_is_over(boundary))?;
            self.next += 1;
            for act in BoundaryAct::ALL {
                self.actions.act(boundary, act)?;
                self.chunks.as_mut().map_or(Ok(()), |chunks| chunks.act(boundary, act))?;
            }
            self.chunks.as_mut().map_or(Ok(()), |chunks| chunks.trace.step_begins())?;
        }
        Ok(())
    }

    /// Forgets what was counted so far.
    pub(crate) fn reset(&mut self) {
        self.actions.reset();
        self.chunks.iter_mut().for_each(ChunkRun::reset);
    }
}
