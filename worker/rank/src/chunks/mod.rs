//! Chunks: a model's state in blocks of CPU memory (PatrickStar). The crate's README has the walk.
//!
//! What layers compute with comes to the device in time and leaves, by chunks, and gradients leave in the same memory. When
//! follows from [`ChunkedStage`](loadmaster_proto::chunks::stage::ChunkedStage) alone, the contract with the planner. A chunk is
//! one storage, in which tensors lie; its memory comes and goes, and the tensors, and what autograd saved of them, stay.
//!
//! | module | question |
//! |---|---|
//! | here | how does the rest of the rank tell where it is? |
//! | `run` | what happens at a boundary? |
//! | `payloads` | how do they? |
//! | `tensors` | what is in a tensor's space, and may be read? |
//! | `device` | what if a chunk's state is on the device? |
//! | `device_step` | what does the optimizer do there? |
//! | `host` | where are chunks on the host, and who updates them? |
//! | `embedding_rows` | who gathers rows of a table on the host, and adds up their gradients? |
//! | `trace` | what does each step need, and what was moved? |
//! | `host_step` | what does the optimizer do to one element? |
//! | `double_float` | how does it compute to more bits than fp32 has? |
//! | `lists` | how does it go over the lists of a chunk: in one pass, with which instructions, on which cores? |
//!
//! Passes are as in plain training, and backward passes in libtorch's hands: hence a static, as of
//! [memory actions](crate::actions).

mod device;
mod device_step;
mod double_float;
mod embedding_rows;
mod host;
pub mod host_step;
pub mod lists;
mod payloads;
mod run;
mod tensors;
mod trace;

use std::sync::{Mutex, MutexGuard, PoisonError};

use loadmaster_proto::measure::chunked;
use loadmaster_proto::measure::rank::RankSpec;
use loadmaster_proto::training::actions::{Step, Steps};
use loadmaster_proto::training::shard::ShardParameter;
use tch::Tensor;

use crate::actions::lane::Ways;
use crate::collective::{Group, operators};
use crate::error::RankError;
use crate::ffi::{GradientUse, MemoryCounts};
use crate::layers::{ParameterMaker, Trained};
use crate::memory::Memory;
use run::ChunkRun;

static RUN: Mutex<Option<ChunkRun>> = Mutex::new(None);

fn run() -> MutexGuard<'static, Option<ChunkRun>> {
    RUN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the run says; none where nothing is in chunks.
fn with<T>(act: impl FnOnce(&mut ChunkRun) -> Result<T, RankError>) -> Result<Option<T>, RankError> {
    run().as_mut().map(act).transpose()
}

/// The run does something, if there is one.
fn tell(act: impl FnOnce(&mut ChunkRun) -> Result<(), RankError>) -> Result<(), RankError> {
    run().as_mut().map_or(Ok(()), act)
}

/// Begins to train in chunks, if a specification wants it: takes the host's memory. Before the stage is built. The replicas of
/// the model, or of this shard of it, share the chunks. Returns the steps of an iteration, and the ways on which chunks leave and
/// come.
///
/// # Errors
/// The specification contradicts itself, or the host has not so much memory.
pub(crate) fn begin(
    spec: &RankSpec,
    replicas: Option<&Group>,
    memory: &Memory,
) -> Result<Option<(Steps, Ways)>, RankError> {
    let Some(stage) = &spec.chunks else { return Ok(None) };
    let begun = ChunkRun::new(spec, (**stage).clone(), replicas.cloned(), memory)?;
    let of = (begun.steps(), begun.ways());
    *run() = Some(begun);
    Ok(Some(of))
}

/// A parameter at its start in its chunk, each in the order of the layers; none where nothing is in chunks.
///
/// # Errors
/// What libtorch says.
pub fn make(
    maker: &ParameterMaker,
    (layer, position): (usize, usize),
    parameter: &ShardParameter,
) -> Result<Option<Trained>, RankError> {
    with(|run| {
        let start = maker.start_aside(layer, position, parameter)?;
        run.make(layer, parameter.whole.name, &start)
    })
}

/// The boundary before a step. Returns whether there was one.
///
/// # Errors
/// Out of memory, for one.
pub fn before(step: Step) -> Result<bool, RankError> {
    Ok(with(|run| run.before(step))?.unwrap_or(false))
}

/// A backward pass is over.
///
/// # Errors
/// Out of memory, for one.
pub fn went_backward(step: Step) -> Result<(), RankError> {
    tell(|run| run.went_backward(step))
}

/// The rows of tokens, where their table is on the host; none where an embedding looks them up itself. What a backward pass
/// finds of them goes to the host.
///
/// # Errors
/// Out of memory, for one.
pub fn embed(table: &Tensor, tokens: &Tensor) -> Result<Option<Tensor>, RankError> {
    let Some(Some((rows, of))) = with(|run| run.gather(tokens))? else { return Ok(None) };
    // An embedding keeps its tokens until then.
    let tokens = tokens.shallow_clone();
    let backward = move |gradient: Tensor| {
        tell(|run| run.scatter(of, &gradient))?;
        drop(tokens);
        // Nobody finds a gradient of the whole table.
        Ok(Tensor::new())
    };
    operators::with_backward_of(table, &rows, GradientUse::Read, backward).map(Some)
}

/// An iteration is over.
///
/// # Errors
/// Out of memory, for one.
pub fn end_iteration() -> Result<(), RankError> {
    tell(ChunkRun::end_iteration)
}

/// Waits until all that was computed so far has updated its chunks.
///
/// # Errors
/// When an update failed.
pub fn finish() -> Result<(), RankError> {
    tell(|run| run.finish())
}

/// Its parameters by name, once all is updated.
///
/// # Errors
/// What libtorch says.
pub fn parameters() -> Result<Vec<(String, Tensor)>, RankError> {
    Ok(with(|run| run.parameters())?.unwrap_or_default())
}

/// The gradients of the first iteration by name, where somebody wants them.
pub fn take_gradients() -> Vec<(String, Tensor)> {
    run().as_mut().map(ChunkRun::take_gradients).unwrap_or_default()
}

/// Bytes of the device that chunks take between iterations.
pub fn resting_bytes() -> u64 {
    run().as_ref().map_or(0, ChunkRun::resting_bytes)
}

/// Forgets what was counted so far.
pub fn reset() {
    if let Some(run) = run().as_mut() {
        run.reset();
    }
}

/// The highest counts of the device since the last reset, which are looked at at every boundary.
///
/// # Errors
/// When libtorch has no statistics.
pub fn highest() -> Result<Option<MemoryCounts>, RankError> {
    with(|run| run.trace.highest())
}

/// What was moved and held; none where nothing is in chunks.
///
/// # Errors
/// When the device failed.
pub fn told() -> Result<Option<chunked::ChunkRun>, RankError> {
    with(|run| run.told())
}

/// Ends. Nothing may compute with what is away by now.
pub fn end() {
    *run() = None;
}
