//! Chunks whose state is on the device: nothing of them moves, and they are updated in their turn of the backward pass.

use loadmaster_proto::chunks::layout::Chunk;
use loadmaster_proto::chunks::lists::{List, Lists as ListsOfChunks};
use loadmaster_proto::chunks::stage::StepKernel;
use tch::{Device, Kind, Tensor};

use super::host::Updating;
use super::host_step::HostStep;
use super::lists::{Bf16, Instructions, Lists, Scalar};
use super::tensor_step;
use super::tensors::ChunkBlock;
use crate::error::RankError;
use crate::ffi::{Number, Numbers, Storage};
use crate::optimizer::{OptimizerState, update};
use crate::tape::defect;

/// What the optimizer keeps of a chunk, on the device: the fp32 copy first, then what the rule needs.
#[derive(Debug)]
pub(super) struct DeviceState(Vec<Tensor>);

impl DeviceState {
    /// Zeros.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn new(chunk: &Chunk, lists: &ListsOfChunks, device: Device) -> Result<Self, RankError> {
        let elements = i64::try_from(chunk.capacity).map_err(|_| defect("a chunk is too large"))?;
        let states = lists.all().iter().filter(|&&list| list != List::Parameters);
        let state = states.map(|_| Tensor::f_zeros([elements], (Kind::Float, device)));
        Ok(Self(state.collect::<Result<_, _>>()?))
    }

    /// So many elements of the fp32 copy, from one on.
    ///
    /// # Errors
    /// What libtorch says.
    pub(super) fn weights(&self, first: u64, elements: u64) -> Result<Tensor, RankError> {
        let lacks = || defect("a chunk has no fp32 copy");
        part(self.0.first().ok_or_else(lacks)?, (first, elements))
    }

    /// Updates elements of the chunk with the gradients in one block, and writes the new parameters into another, which may
    /// be the same. On CPU slots as chunks on the host are, without a block more.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(super) fn update(
        &self,
        (gradients, parameters): (&ChunkBlock, &ChunkBlock),
        spans: &[(u64, u64)],
        updating: Updating,
        steps: i32,
    ) -> Result<(), RankError> {
        for &span in spans {
            match (gradients.device(), gradients.kind()) {
                (Device::Cpu, Kind::Float) => {
                    self.update_here::<f32>(gradients, parameters, span, updating, steps)?
                }
                (Device::Cpu, _) => self.update_here::<Bf16>(gradients, parameters, span, updating, steps)?,
                _ => self.update_there(gradients, parameters, span, updating, steps)?,
            }
        }
        Ok(())
    }

    fn update_here<L: Scalar + Number>(
        &self,
        gradients: &ChunkBlock,
        parameters: &ChunkBlock,
        span: (u64, u64),
        updating: Updating,
        steps: i32,
    ) -> Result<(), RankError> {
        fn numbers<T: Number>(
            storage: &Storage,
            (first, count): (u64, u64),
        ) -> Result<Numbers<T>, RankError> {
            Numbers::of(storage, first, count).ok_or_else(|| defect("a chunk on the device is away"))
        }
        let mut state = Vec::with_capacity(3);
        for tensor in &self.0 {
            state.push(numbers::<f32>(&Storage::of(tensor)?, span)?);
        }
        let mut gradient = numbers::<L>(&gradients.storage, span)?;
        let mut state = state.iter_mut().map(Numbers::all);
        let lists = Lists {
            parameters: gradient.all(),
            weights: state.next().unwrap_or_default(),
            first: state.next().unwrap_or_default(),
            second: state.next().unwrap_or_default(),
        };
        match updating.kernel {
            StepKernel::OnePass => {
                let step = HostStep::new(updating.rule, steps);
                lists.step(&step, Instructions::Widest, updating.threads);
            }
            StepKernel::TensorWise => tensor_step::step(lists, updating.rule, steps)?,
        }
        if gradients.storage.id() != parameters.storage.id() {
            numbers::<L>(&parameters.storage, span)?.all().copy_from_slice(gradient.all());
        }
        Ok(())
    }

    /// With libtorch's operations, whose results need blocks of their own.
    fn update_there(
        &self,
        gradients: &ChunkBlock,
        parameters: &ChunkBlock,
        span: (u64, u64),
        updating: Updating,
        steps: i32,
    ) -> Result<(), RankError> {
        let _no_grad = tch::no_grad_guard();
        let of = |index: usize| self.0.get(index).map(|tensor| part(tensor, span)).transpose();
        let weights = self.weights(span.0, span.1)?;
        let gradient = gradients.part(span)?.f_to_kind(Kind::Float)?;
        let mut state = OptimizerState { first: of(1)?, second: of(2)? };
        update(updating.rule, steps, &mut state, &weights, &gradient)?;
        Ok(parameters.part(span)?.f_copy_(&weights)?)
    }
}

fn part(tensor: &Tensor, (first, elements): (u64, u64)) -> Result<Tensor, RankError> {
    let [first, elements] = [first, elements].map(|of| i64::try_from(of).unwrap_or(i64::MAX));
    Ok(tensor.f_narrow(0, first, elements)?)
}
