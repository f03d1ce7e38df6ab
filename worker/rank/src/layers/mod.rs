//! Layers: tensors and what is computed with them.
//!
//! Shapes and initialisation come from `LayerKind::parameters` and `LayerKind::buffers`, the one place
//! that defines them. Every layer lets go of what it no longer needs as soon as autograd allows, as a
//! careful trainer does: what is measured here is what such a trainer needs.

mod affine;
mod amoeba;
mod attention;
mod embedding;
mod map;
mod norm;
mod parameters;
mod tokens;
mod transformer;

use loadmaster_proto::model::layer::LayerKind;
use loadmaster_proto::training::shard::Shard;
use tch::{TchError, Tensor};

use crate::collective::Group;
use crate::error::RankError;
use crate::movement::Movement;
use amoeba::Cell;
use map::Map;
use parameters::Parts;

pub use affine::{Affine, Convolution, Role, Split};
pub use parameters::{ParameterMaker, Trained};

/// What a forward pass counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardKind {
    /// The ordinary one.
    First,
    /// Done again in a backward pass.
    Again,
}

/// A layer of a stage.
#[derive(Debug)]
pub struct Layer {
    index: usize,
    compute: Compute,
    is_random: bool,
    split_output: Option<Split>,
}

/// What a layer computes with.
#[derive(Debug, Default)]
pub struct LayerTensors {
    /// Those of `LayerKind::parameters`, in their order, and for a tied head the shared one; of a
    /// tensor-parallel stage the slices that `LayerKind::shard_parameters` says.
    pub parameters: Vec<Tensor>,
    /// Those of `LayerKind::buffers`.
    pub buffers: Vec<Tensor>,
    /// The shards of a tensor-parallel stage.
    pub shards: Option<Group>,
    /// Its output is what the loss is computed of.
    pub feeds_loss: bool,
    /// From where the rows of a table on the host come.
    pub movement: Movement,
}

/// What a layer computes.
#[derive(Debug)]
enum Compute {
    /// Something of one tensor.
    Map(Map),
    /// Something of one or two tensors, of which two may leave it.
    Cell(Box<Cell>),
}

impl Layer {
    /// A layer that computes with these tensors.
    ///
    /// # Errors
    /// When there are too few tensors.
    pub fn new(index: usize, kind: LayerKind, tensors: LayerTensors) -> Result<Self, RankError> {
        let LayerTensors { parameters, buffers, shards, feeds_loss, movement } = tensors;
        let extents = split_extents(kind, shards.as_ref());
        let split = |extent: Option<i64>| {
            extent.zip(shards.as_ref()).map(|(extent, group)| Split { group: group.clone(), extent })
        };
        let parameters: Vec<_> =
            parameters.into_iter().zip(extents).map(|(tensor, extent)| (tensor, split(extent))).collect();
        let is_head = matches!(kind, LayerKind::LanguageModelHead { .. });
        let vocabulary = parameters.first().and_then(|(_, split)| split.clone());
        let split_output = vocabulary.filter(|_| is_head && feeds_loss);
        let mut parts = Parts::new(index, parameters, buffers, movement);
        let compute = match kind {
            LayerKind::AmoebaCell(cell) => Compute::Cell(Box::new(Cell::new(&cell, &mut parts)?)),
            kind => Compute::Map(Map::new(kind, &mut parts, split_output.is_some())?),
        };
        Ok(Self { index, compute, is_random: kind.is_random(), split_output })
    }

    /// Among whom the last axis of its output is split, where it is not put together: the loss computes
    /// with the slices.
    pub fn split_output(&self) -> Option<&Split> {
        self.split_output.as_ref()
    }

    /// Index in the model.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Whether it draws random numbers.
    pub fn is_random(&self) -> bool {
        self.is_random
    }

    /// The forward pass: from the tensors at the edge before the layer to those behind it. A pass that is
    /// done again changes no running statistics.
    ///
    /// # Errors
    /// What libtorch says.
    pub fn forward(&self, inputs: &[Tensor], pass: ForwardKind) -> Result<Vec<Tensor>, RankError> {
        match (&self.compute, inputs) {
            (Compute::Cell(cell), _) => cell.forward(inputs, pass),
            (Compute::Map(map), [input]) => Ok(vec![map.forward(input, pass)?]),
            (Compute::Map(_), _) => {
                let message = format!("layer {} needs one tensor, not {}", self.index, inputs.len());
                Err(TchError::Shape(message).into())
            }
        }
    }
}

/// The whole extents of the axes along which the shards split a layer's parameters.
fn split_extents(kind: LayerKind, shards: Option<&Group>) -> Vec<Option<i64>> {
    let shard = shards.map_or(Shard::WHOLE, Group::own);
    let own = kind.shard_parameters(shard).into_iter();
    own.chain(kind.shard_shared_parameter(shard))
        .map(|parameter| parameter.whole.shape.get(parameter.slice?.axis).copied())
        .collect()
}

/// Dropout while training. Nothing is computed, copied or drawn when nothing is dropped.
fn dropout(input: Tensor, probability: f64) -> Result<Tensor, RankError> {
    if probability > 0.0 { Ok(input.f_dropout(probability, true)?) } else { Ok(input) }
}
