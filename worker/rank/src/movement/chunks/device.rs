//! Chunks whose state is on the device, or of what ranks share each rank's part: nothing of them passes the link, and they are
//! updated in their turn of the backward pass.

use std::ops::Range;

use loadmaster_proto::chunks::layout::{List, Lists as ListsOfChunks};
use loadmaster_proto::chunks::stage::StepKernel;
use tch::{Device, Kind, Tensor};

use super::device_step;
use super::host::Updating;
use super::host_step::HostStep;
use super::lists::{Bf16, Instructions, Lists, Scalar};
use super::tensors::ChunkBlock;
use crate::error::RankError;
use crate::ffi::{Number, Numbers, StepKernels, StepLists, StepNumbers, Storage};
use crate::optimizer::{OptimizerState, update};
use crate::tape::defect;

/// What a rank has of a chunk on its device, always.
#[derive(Debug)]
pub(super) struct DeviceState {
    /// Which elements of the chunk: all where no one shares it.
    owned: Range<u64>,
    /// What the optimizer keeps of them: the fp32 copy first, then what the rule needs.
    state: Vec<Tensor>,
    /// The parameters of which payloads are gathered. None where the payload is always there, and has them.
    parameters: Option<ChunkBlock>,
}

impl DeviceState {
    /// Zeros.
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn new(
        owned: Range<u64>,
        is_shared: bool,
        lists: &ListsOfChunks,
        (kind, device): (Kind, Device),
    ) -> Result<Self, RankError> {
        let elements = owned.end.saturating_sub(owned.start);
        let zeros = |kind: Kind| {
            let elements = i64::try_from(elements).map_err(|_| defect("a chunk is too large"))?;
            Ok::<_, RankError>(Tensor::f_zeros([elements], (kind, device))?)
        };
        let states = lists.all().iter().filter(|&&list| list != List::Parameters);
        let state = states.map(|_| zeros(Kind::Float)).collect::<Result<_, _>>()?;
        let parameters = is_shared.then(|| ChunkBlock::of(zeros(kind)?)).transpose()?;
        Ok(Self { owned, state, parameters })
    }

    /// Which elements of the chunk it has.
    pub(super) fn owned(&self) -> Range<u64> {
        self.owned.clone()
    }

    /// So many elements of the fp32 copy, from one of its own on.
    ///
    /// # Errors
    /// What libtorch says.
    pub(super) fn weights(&self, first: u64, elements: u64) -> Result<Tensor, RankError> {
        part(self.state.first().ok_or_else(no_fp32_copy)?, (first, elements))
    }

    /// Writes values that a training starts with, from one of its elements on; into the payload too where that has the
    /// parameters.
    ///
    /// # Errors
    /// What libtorch says.
    pub(super) fn start(&self, first: u64, values: &Tensor, payload: &ChunkBlock) -> Result<(), RankError> {
        let span = (first, values.numel() as u64);
        let _no_grad = tch::no_grad_guard();
        self.weights(span.0, span.1)?.f_copy_(values)?;
        self.parameters.as_ref().unwrap_or(payload).part(span)?.f_copy_(values)?;
        Ok(())
    }

    /// Copies its parameters to where others gather them from.
    ///
    /// # Errors
    /// What libtorch says.
    pub(super) fn give(&self, part: &Tensor) -> Result<(), RankError> {
        let Some(parameters) = &self.parameters else { return Ok(()) };
        let _no_grad = tch::no_grad_guard();
        let own = parameters.part((0, part.numel() as u64))?;
        part.shallow_clone().f_copy_(&own)?;
        Ok(())
    }

    /// Updates its elements with the gradients in one payload, and writes the new parameters into another, which may be the
    /// same, or among its own. In one pass without a block more: on CPU slots as chunks on the host are, on a GPU by its kernels.
    ///
    /// # Errors
    /// Out of memory, for one.
    pub(super) fn update(
        &self,
        (gradients, payload): (&ChunkBlock, &ChunkBlock),
        spans: &[(u64, u64)],
        updating: Updating,
        kernels: Option<&StepKernels>,
        steps: i32,
    ) -> Result<(), RankError> {
        let parameters = self.parameters.as_ref().unwrap_or(payload);
        for &span in spans {
            match (gradients.device(), gradients.kind()) {
                (Device::Cpu, Kind::Float) => {
                    self.update_here::<f32>(gradients, parameters, span, updating, steps)?
                }
                (Device::Cpu, _) => self.update_here::<Bf16>(gradients, parameters, span, updating, steps)?,
                _ => match kernels {
                    Some(kernels) => {
                        let numbers = device_step::numbers(updating.rule, steps);
                        self.update_in_one_pass(gradients, parameters, span, (kernels, numbers))?;
                    }
                    None => self.update_tensor_wise(gradients, parameters, span, updating, steps)?,
                },
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
            Numbers::of(storage, first, count).ok_or_else(|| defect("a chunk is not on the device"))
        }
        let mut state = Vec::with_capacity(3);
        for tensor in &self.state {
            state.push(numbers::<f32>(&Storage::of(tensor)?, span)?);
        }
        let mut gradient = numbers::<L>(&gradients.storage, self.in_chunk(span))?;
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
            StepKernel::TensorWise => device_step::step_tensor_wise(lists, updating.rule, steps)?,
        }
        if gradients.storage.id() != parameters.storage.id() {
            numbers::<L>(&parameters.storage, span)?.all().copy_from_slice(gradient.all());
        }
        Ok(())
    }

    /// On a GPU, without a block more.
    fn update_in_one_pass(
        &self,
        gradients: &ChunkBlock,
        parameters: &ChunkBlock,
        span: (u64, u64),
        (kernels, numbers): (&StepKernels, StepNumbers),
    ) -> Result<(), RankError> {
        let (gradients, parameters) = (gradients.part(self.in_chunk(span))?, parameters.part(span)?);
        let [weights, first, second] = self.state_of(span)?;
        let lists = StepLists {
            gradients: &gradients,
            parameters: &parameters,
            weights: weights.as_ref().ok_or_else(no_fp32_copy)?,
            first: first.as_ref(),
            second: second.as_ref(),
        };
        Ok(kernels.update(numbers, lists)?)
    }

    /// On a GPU with libtorch's operations, whose results need blocks of their own.
    fn update_tensor_wise(
        &self,
        gradients: &ChunkBlock,
        parameters: &ChunkBlock,
        span: (u64, u64),
        updating: Updating,
        steps: i32,
    ) -> Result<(), RankError> {
        let _no_grad = tch::no_grad_guard();
        let [weights, first, second] = self.state_of(span)?;
        let weights = weights.ok_or_else(no_fp32_copy)?;
        let gradient = gradients.part(self.in_chunk(span))?.f_to_kind(Kind::Float)?;
        update(updating.rule, steps, &mut OptimizerState { first, second }, &weights, &gradient)?;
        Ok(parameters.part(span)?.f_copy_(&weights)?)
    }

    /// What the optimizer keeps of some of its elements: the fp32 copy, then what the rule needs.
    fn state_of(&self, span: (u64, u64)) -> Result<[Option<Tensor>; 3], RankError> {
        let of = |index: usize| self.state.get(index).map(|tensor| part(tensor, span)).transpose();
        Ok([of(0)?, of(1)?, of(2)?])
    }

    /// Where elements of its own are in the chunk.
    fn in_chunk(&self, (first, elements): (u64, u64)) -> (u64, u64) {
        (self.owned.start + first, elements)
    }
}

fn no_fp32_copy() -> RankError {
    defect("a chunk has no fp32 master weights")
}

fn part(tensor: &Tensor, (first, elements): (u64, u64)) -> Result<Tensor, RankError> {
    let [first, elements] = [first, elements].map(|of| i64::try_from(of).unwrap_or(i64::MAX));
    Ok(tensor.f_narrow(0, first, elements)?)
}
