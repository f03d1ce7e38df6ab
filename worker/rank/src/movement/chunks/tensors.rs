//! The trained tensors of a model whose state is in chunks.

use std::ops::Range;
use std::sync::Arc;

use loadmaster_proto::chunks::layout::Place;
use loadmaster_proto::chunks::residency::uses::LayerTensor;
use loadmaster_proto::training::actions::Step;
use tch::{Device, Kind, TchError, Tensor};

use crate::error::RankError;
use crate::ffi::{self, Storage};
use crate::layers::Trained;
use crate::tape::defect;

/// What is in a trained tensor's space on the device, and who computes with it (PatrickStar, § tensor states). Libtorch
/// does not look whether a tensor's memory is there, so this does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TensorState {
    /// Nothing: it has not been used in this iteration.
    Free,
    /// Its value, which a pass reads.
    Compute,
    /// Its value, which a forward pass has read.
    HoldAfterForward,
    /// Its value, which a backward pass has read.
    Hold,
    /// Its gradient: no one may read it as a value any more.
    HoldAfterBackward,
}

/// A trained tensor in its chunk.
#[derive(Debug)]
pub(super) struct ChunkTensor {
    pub(super) trained: Trained,
    pub(super) place: Place,
    state: TensorState,
    /// Its gradient is in its chunk, or a part of it.
    has_gradient: bool,
}

/// The trained tensors of a model.
#[derive(Debug)]
pub(super) struct Tensors {
    pub(super) all: Vec<ChunkTensor>,
    /// Which of them each layer computes with.
    layers: Vec<Vec<LayerTensor>>,
    /// The pass that was begun last.
    computing: Option<Step>,
}

/// A chunk's block on the device: memory that comes and goes, behind tensors that stay.
#[derive(Debug)]
pub(super) struct ChunkBlock {
    /// Holds the storage.
    whole: Tensor,
    pub(super) storage: Arc<Storage>,
}

impl ChunkBlock {
    /// Of so many numbers, away.
    ///
    /// # Errors
    /// What libtorch says.
    pub(super) fn away(elements: u64, like: (Kind, Device)) -> Result<Self, RankError> {
        let elements = i64::try_from(elements).map_err(|_| defect("a chunk is too large"))?;
        // It is given back at once, so that it is never memory of the device.
        let whole = ffi::aside(|| Tensor::f_empty([elements], like))?;
        let storage = Arc::new(Storage::of(&whole)?);
        if let Some(mut held) = storage.hold() {
            held.give_back()?;
        }
        Ok(Self { whole, storage })
    }

    /// All of a tensor, which stays.
    ///
    /// # Errors
    /// What libtorch says.
    pub(super) fn of(whole: Tensor) -> Result<Self, RankError> {
        let storage = Arc::new(Storage::of(&whole)?);
        Ok(Self { whole, storage })
    }

    /// Gives it memory for good.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn stay(&self) -> Result<(), RankError> {
        match self.storage.hold() {
            Some(mut held) => Ok(held.renew()?),
            None => Ok(()),
        }
    }

    /// Where its memory is, when it has any.
    pub(super) fn device(&self) -> Device {
        self.whole.device()
    }

    /// The format of its numbers.
    pub(super) fn kind(&self) -> Kind {
        self.whole.kind()
    }

    /// So many of its numbers, from one on.
    ///
    /// # Errors
    /// What libtorch says.
    pub(super) fn part(&self, (offset, elements): (u64, u64)) -> Result<Tensor, TchError> {
        let place = Place { chunk: 0, offset, elements };
        self.tensor(place, &[i64::try_from(elements).unwrap_or(i64::MAX)])
    }

    /// A tensor that lies in it. What is written to others that lie there is no change of this one to autograd, which would
    /// refuse what it saved.
    ///
    /// # Errors
    /// What libtorch says.
    pub(super) fn tensor(&self, place: Place, shape: &[i64]) -> Result<Tensor, TchError> {
        let _no_grad = tch::no_grad_guard();
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis].max(1);
        }
        let offset = i64::try_from(place.offset).unwrap_or(i64::MAX);
        let mut tensor = Tensor::f_empty([0_i64], (self.whole.kind(), self.whole.device()))?;
        tensor.f_set_source_tensor_storage_offset_(&self.whole, offset, shape, strides.as_slice())
    }
}

impl ChunkTensor {
    pub(super) fn new(trained: Trained, place: Place) -> Self {
        Self { trained, place, state: TensorState::Free, has_gradient: false }
    }

    /// Puts the gradient that backward passes have left into a block, or adds it to what is there, and forgets it. A tensor
    /// without one keeps its value.
    fn deliver(&mut self, block: &ChunkBlock) -> Result<(), RankError> {
        let Some(gradient) = self.trained.gradient()? else { return Ok(()) };
        let _no_grad = tch::no_grad_guard();
        let mut space = block.tensor(self.place, &gradient.size())?;
        if self.has_gradient {
            drop(space.f_add_(&gradient)?);
        } else {
            space.f_copy_(&gradient)?;
        }
        self.has_gradient = true;
        drop(gradient);
        Ok(self.trained.forget_gradient()?)
    }
}

impl Tensors {
    pub(super) fn new(layers: Vec<Vec<LayerTensor>>) -> Self {
        Self { all: Vec::new(), layers, computing: None }
    }

    /// A pass begins: what it reads must be there, as `is_here` says of a chunk's parameters.
    ///
    /// # Errors
    /// Something is away, or its space holds a gradient: a defect.
    pub(super) fn compute(&mut self, step: Step, is_here: impl Fn(usize) -> bool) -> Result<(), RankError> {
        self.let_go();
        let Some((layer, is_backward)) = pass_of(step) else { return Ok(()) };
        for of in self.layers.get(layer).into_iter().flatten() {
            if is_backward && !of.is_read_back {
                continue;
            }
            let tensor = &mut self.all[of.tensor];
            let is_here = is_here(tensor.place.chunk);
            if !is_here || tensor.state == TensorState::HoldAfterBackward {
                let why = if is_here { "has a gradient" } else { "is not on the device" };
                let name = tensor.trained.global_name();
                return Err(defect(&format!("layer {layer} needs {name}, which {why}")));
            }
            tensor.state = TensorState::Compute;
        }
        self.computing = Some(step);
        Ok(())
    }

    /// The last pass is over.
    fn let_go(&mut self) {
        let Some((layer, is_backward)) = self.computing.take().and_then(pass_of) else { return };
        for of in self.layers.get(layer).into_iter().flatten() {
            let state = &mut self.all[of.tensor].state;
            if *state == TensorState::Compute {
                *state = if is_backward { TensorState::Hold } else { TensorState::HoldAfterForward };
            }
        }
    }

    /// A backward pass is over that ends with its layer's gradients in their chunks. `target` is the block of a chunk's
    /// gradients, if it is there, and whether they take the parameters' space.
    ///
    /// # Errors
    /// A chunk is away: a defect.
    pub(super) fn deliver<'a>(
        &mut self,
        step: Step,
        target: impl Fn(usize) -> (Option<&'a ChunkBlock>, bool),
    ) -> Result<(), RankError> {
        self.let_go();
        let Some((layer, _)) = pass_of(step) else { return Ok(()) };
        for of in self.layers.get(layer).into_iter().flatten() {
            let tensor = &mut self.all[of.tensor];
            let (block, takes_space) = target(tensor.place.chunk);
            let Some(block) = block else {
                let name = tensor.trained.global_name();
                return Err(defect(&format!(
                    "the chunk that contains {name} is not on the device when the gradient is computed"
                )));
            };
            tensor.deliver(block)?;
            if tensor.has_gradient && takes_space {
                tensor.state = TensorState::HoldAfterBackward;
            }
        }
        Ok(())
    }

    /// An iteration is over.
    pub(super) fn end_iteration(&mut self) {
        self.let_go();
        for tensor in &mut self.all {
            (tensor.state, tensor.has_gradient) = (TensorState::Free, false);
        }
    }

    /// Those of these tensors that have a gradient.
    pub(super) fn having_gradients(&self, of: &Range<usize>) -> impl Iterator<Item = &ChunkTensor> {
        self.all.get(of.clone()).unwrap_or_default().iter().filter(|tensor| tensor.has_gradient)
    }

    /// Where they are in a part of their chunk: from which of its elements on, and how many. Neighbours are one, since a pass
    /// over many elements is faster.
    pub(super) fn with_gradients(&self, of: &Range<usize>, part: Range<u64>) -> Vec<(u64, u64)> {
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for ChunkTensor { place, .. } in self.having_gradients(of) {
            let Range { start, end } = place.range();
            let (start, end) = (start.clamp(part.start, part.end), end.clamp(part.start, part.end));
            let (offset, elements) = (start - part.start, end - start);
            match spans.last_mut() {
                Some((first, count)) if *first + *count == offset => *count += elements,
                _ => spans.push((offset, elements)),
            }
        }
        spans.retain(|&(_, elements)| elements > 0);
        spans
    }
}

/// The layer of a pass, and whether it goes backward.
fn pass_of(step: Step) -> Option<(usize, bool)> {
    match step {
        Step::Forward { layer, .. } | Step::Again { layer, .. } => Some((layer, false)),
        Step::Backward { layer, .. } => Some((layer, true)),
        Step::Renew | Step::Exchange | Step::Update { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORWARD: Step = Step::Forward { micro_batch: 0, layer: 0 };
    const BACKWARD: Step = Step::Backward { micro_batch: 0, layer: 0 };

    /// A layer with one tensor of two elements, in a block of its own.
    fn one_tensor() -> (Tensors, ChunkBlock) {
        let like = (Kind::Float, Device::Cpu);
        let block = ChunkBlock::of(Tensor::zeros([2], like)).unwrap();
        let place = Place { chunk: 0, offset: 0, elements: 2 };
        let value = block.tensor(place, &[2]).unwrap().set_requires_grad(true);
        let mut tensors = Tensors::new(vec![vec![LayerTensor { tensor: 0, is_read_back: true }]]);
        let trained = Trained { layer: 0, name: "weight", value, master: None, main: None };
        tensors.all.push(ChunkTensor::new(trained, place));
        (tensors, block)
    }

    fn refusal(of: Result<(), RankError>) -> String {
        of.unwrap_err().to_string()
    }

    /// Whatever comes and leaves, no pass reads a tensor whose chunk is away, nor a gradient in its place, and no gradient goes to
    /// a chunk that is away: the tensor is named, where libtorch would touch memory that is not there.
    #[test]
    fn what_is_away_is_refused_by_name() {
        let (mut tensors, block) = one_tensor();
        for step in [FORWARD, BACKWARD] {
            let says = refusal(tensors.compute(step, |_| false));
            assert!(says.contains("layer 0 needs layers.0.weight, which is not on the device"), "{says}");
        }
        tensors.compute(FORWARD, |_| true).unwrap();
        tensors.compute(BACKWARD, |_| true).unwrap();
        let says = refusal(tensors.deliver(BACKWARD, |_| (None, true)));
        assert!(
            says.contains("the chunk that contains layers.0.weight is not on the device when the gradient"),
            "{says}"
        );

        tensors.all[0].trained.value.sum(Kind::Float).backward();
        tensors.deliver(BACKWARD, |_| (Some(&block), true)).unwrap();
        assert_eq!(Vec::<f32>::try_from(block.part((0, 2)).unwrap()).unwrap(), [1.0, 1.0]);
        let says = refusal(tensors.compute(FORWARD, |_| true));
        assert!(says.contains("layers.0.weight, which has a gradient"), "{says}");

        // What is next in its place are its parameters.
        tensors.end_iteration();
        tensors.compute(FORWARD, |_| true).unwrap();
    }

    /// A gradient in a chunk of its own leaves the parameters to be read.
    #[test]
    fn gradients_that_are_apart_hide_no_parameters() {
        let (mut tensors, _parameters) = one_tensor();
        let apart = ChunkBlock::of(Tensor::zeros([2], (Kind::Float, Device::Cpu))).unwrap();
        tensors.compute(FORWARD, |_| true).unwrap();
        tensors.all[0].trained.value.sum(Kind::Float).backward();
        tensors.deliver(BACKWARD, |_| (Some(&apart), false)).unwrap();
        tensors.compute(FORWARD, |_| true).unwrap();
        tensors.compute(BACKWARD, |_| true).unwrap();
    }

    /// What a backward pass does not read may be away in it.
    #[test]
    fn tables_need_not_be_there_backwards() {
        let (mut tensors, _) = one_tensor();
        tensors.layers[0][0].is_read_back = false;
        tensors.compute(BACKWARD, |_| false).unwrap();
        assert!(tensors.compute(FORWARD, |_| false).is_err());
    }
}
