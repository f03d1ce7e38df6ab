//! AmoebaNet's cells, and the stem's convolution, which is built like theirs.

use loadmaster_proto::model::layer::{AmoebaCell, CellConvolution, Operation};
use tch::{TchError, Tensor};

use super::ForwardKind;
use super::affine::Convolution;
use super::norm::BatchNorm;
use super::parameters::Parts;
use crate::error::RankError;

/// Rectifier, convolution, batch normalisation.
#[derive(Debug)]
pub(super) struct ReluConvNorm {
    convolution: Convolution,
    norm: BatchNorm,
}

impl ReluConvNorm {
    pub(super) fn new(stride: [i64; 2], padding: [i64; 2], parts: &mut Parts) -> Result<Self, RankError> {
        Ok(Self { convolution: parts.convolution(stride, padding, false)?, norm: parts.batch_norm()? })
    }

    fn of(convolution: &CellConvolution, parts: &mut Parts) -> Result<Self, RankError> {
        Self::new(convolution.stride, convolution.padding, parts)
    }

    pub(super) fn forward(&self, input: &Tensor, pass: ForwardKind) -> Result<Tensor, RankError> {
        let convolved = self.convolution.forward(&input.f_relu()?)?;
        self.norm.forward(&convolved, pass)
    }
}

/// Halves rows and columns: a convolution of the even pixels beside one of the odd ones.
#[derive(Debug)]
struct FactorisedReduction {
    even: Convolution,
    odd: Convolution,
    norm: BatchNorm,
}

impl FactorisedReduction {
    fn new(parts: &mut Parts) -> Result<Self, RankError> {
        let mut half = || parts.convolution([2, 2], [0, 0], false);
        let (even, odd) = (half()?, half()?);
        Ok(Self { even, odd, norm: parts.batch_norm()? })
    }

    fn forward(&self, input: &Tensor, pass: ForwardKind) -> Result<Tensor, RankError> {
        let active = input.f_relu()?;
        let even = self.even.forward(&active)?;
        let shifted = active.f_slice(2, 1, None, 1)?.f_slice(3, 1, None, 1)?;
        drop(active);
        let odd = self.odd.forward(&shifted)?;
        drop(shifted);
        let both = Tensor::f_cat(&[even, odd], 1)?;
        self.norm.forward(&both, pass)
    }
}

/// How the second input is brought to the cell's channels and size.
#[derive(Debug)]
enum SecondInput {
    AsItIs,
    Convolved(ReluConvNorm),
    Reduced(FactorisedReduction),
}

/// One of the ten operations.
#[derive(Debug)]
enum Computed {
    Identity,
    AveragePool3 { stride: i64 },
    MaxPool2 { stride: i64 },
    Convolutions(Vec<ReluConvNorm>),
}

/// The tensors of a cell.
#[derive(Debug)]
pub(super) struct Cell {
    first: ReluConvNorm,
    second: SecondInput,
    operations: Vec<(usize, Computed)>,
    concatenated: &'static [usize],
    is_last: bool,
}

impl Cell {
    /// Takes the tensors in the order of `LayerKind::parameters`.
    pub(super) fn new(kind: &AmoebaCell, parts: &mut Parts) -> Result<Self, RankError> {
        let first = ReluConvNorm::of(&kind.first_input(), parts)?;
        let second = match kind.second_input() {
            _ if kind.after_reduction => SecondInput::Reduced(FactorisedReduction::new(parts)?),
            Some(convolution) => SecondInput::Convolved(ReluConvNorm::of(&convolution, parts)?),
            None => SecondInput::AsItIs,
        };
        let mut operations = Vec::new();
        for (state, operation) in kind.operations() {
            let computed = match operation {
                Operation::Identity => Computed::Identity,
                Operation::AveragePool3 { stride } => Computed::AveragePool3 { stride },
                Operation::MaxPool2 { stride } => Computed::MaxPool2 { stride },
                Operation::Convolutions(convolutions) => Computed::Convolutions(
                    convolutions
                        .iter()
                        .map(|convolution| ReluConvNorm::of(convolution, parts))
                        .collect::<Result<_, _>>()?,
                ),
            };
            operations.push((state, computed));
        }
        Ok(Self { first, second, operations, concatenated: kind.concatenated(), is_last: kind.last })
    }

    /// From the predecessor's output, and its first input, to the cell's output, and its first input.
    pub(super) fn forward(&self, inputs: &[Tensor], pass: ForwardKind) -> Result<Vec<Tensor>, RankError> {
        let Some(input) = inputs.first() else {
            return Err(TchError::Shape("a cell needs an input".to_owned()).into());
        };
        let before = inputs.get(1).unwrap_or(input);
        let first = self.first.forward(input, pass)?;
        let second = match &self.second {
            SecondInput::AsItIs => before.shallow_clone(),
            SecondInput::Convolved(convolution) => convolution.forward(before, pass)?,
            SecondInput::Reduced(reduction) => reduction.forward(before, pass)?,
        };
        let mut states = States { tensors: vec![Some(first), Some(second)] };
        for (position, pair) in self.operations.chunks_exact(2).enumerate() {
            let [(left, first), (right, second)] = pair else { continue };
            let mut sum = first.forward(states.get(*left)?, pass)?;
            let other = second.forward(states.get(*right)?, pass)?;
            sum = sum.f_add(&other)?;
            states.tensors.push(Some(sum));
            // Those that no later pair reads and that do not leave the cell.
            let later = self.operations.get(2 * position + 2..).unwrap_or_default();
            states.keep(|state| {
                self.concatenated.contains(&state) || later.iter().any(|&(used, _)| used == state)
            });
        }
        let parts =
            self.concatenated.iter().map(|&state| states.get(state)).collect::<Result<Vec<_>, _>>()?;
        let mut outputs = vec![Tensor::f_cat(&parts, 1)?];
        if !self.is_last {
            outputs.push(input.shallow_clone());
        }
        Ok(outputs)
    }
}

impl Computed {
    fn forward(&self, input: &Tensor, pass: ForwardKind) -> Result<Tensor, RankError> {
        match self {
            Self::Identity => Ok(input.shallow_clone()),
            Self::AveragePool3 { stride } => {
                Ok(input.f_avg_pool2d([3, 3], [*stride, *stride], [1, 1], false, false, None)?)
            }
            Self::MaxPool2 { stride } => {
                Ok(input.f_max_pool2d([2, 2], [*stride, *stride], [0, 0], [1, 1], false)?)
            }
            Self::Convolutions(convolutions) => {
                let mut value = input.shallow_clone();
                for convolution in convolutions {
                    value = convolution.forward(&value, pass)?;
                }
                Ok(value)
            }
        }
    }
}

/// The states of a cell that are still needed.
struct States {
    tensors: Vec<Option<Tensor>>,
}

impl States {
    fn get(&self, state: usize) -> Result<&Tensor, RankError> {
        let tensor = self.tensors.get(state).and_then(Option::as_ref);
        tensor.ok_or_else(|| TchError::Shape(format!("a cell has no state {state}")).into())
    }

    fn keep(&mut self, is_needed: impl Fn(usize) -> bool) {
        for (state, tensor) in self.tensors.iter_mut().enumerate() {
            if !is_needed(state) {
                *tensor = None;
            }
        }
    }
}
