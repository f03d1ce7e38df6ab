//! What crosses the edges of a stage, to and from real or made-up neighbours.

mod frame;
mod link;
mod meeting;
mod pairs;
mod pools;
mod route;
mod shared_memory;
mod sockets;
mod synthetic;

use loadmaster_proto::measure::rank::RankSpec;
use tch::{Device, Tensor};

use crate::error::RankError;
use crate::tensor::{Form, gradient_kind, kind};

pub(crate) use meeting::meet;
pub(crate) use pairs::Pairs;
pub(crate) use pools::{Lending, Pools};
pub(crate) use route::Place;
pub(crate) use shared_memory::SharedPools;
pub(crate) use sockets::Plan;
pub use sockets::Sockets;
pub use synthetic::Synthetic;

/// What a tensor is for a stage that gets it from a neighbour or gives it to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crossing {
    /// Comes from the previous stage, goes to the next one.
    Activation,
    /// Comes from the next stage, goes to the previous one.
    Gradient,
    /// The gradient of a weight that first and last stage share: comes from and goes to the other one.
    TiedGradient,
}

/// The neighbours of a stage.
pub trait Neighbours: std::fmt::Debug {
    /// The tensors of this micro-batch, made on the stage's device when they are asked for.
    ///
    /// # Errors
    /// When the neighbour is gone or sends something else, or the device is full.
    fn receive(&mut self, crossing: Crossing, micro_batch: u32) -> Result<Vec<Tensor>, RankError>;

    /// Gives the tensors away: their bytes leave the device before this returns.
    ///
    /// # Errors
    /// When the neighbour is gone.
    fn send(&mut self, crossing: Crossing, micro_batch: u32, tensors: Vec<Tensor>) -> Result<(), RankError>;

    /// Waits until everything has been sent.
    ///
    /// # Errors
    /// When a neighbour is gone.
    fn finish(self: Box<Self>) -> Result<(), RankError>;
}

/// The forms of what crosses a stage's edges, and where it is made.
#[derive(Debug, Clone)]
pub struct Forms {
    /// What the stage takes; nothing on the first stage.
    pub inputs: Vec<Form>,
    /// What the stage yields; nothing on the last stage.
    pub outputs: Vec<Form>,
    /// The shared weight, if the other half of the pair is in another stage.
    pub tied: Vec<Form>,
    /// Where tensors are made.
    pub device: Device,
}

impl Forms {
    /// What crosses the edges of the stage of this specification.
    pub fn of(spec: &RankSpec, device: Device) -> Self {
        let model = &spec.model;
        let stage = spec.position.stage;
        let layer_count = model.layers().len();
        let (is_first, is_last) = (stage.first_layer == 0, stage.last_layer + 1 == layer_count);
        let kind = kind(spec.training.precision);
        let samples = i64::from(stage.per_device_micro_batch(spec.training.micro_batch_size));
        let edge = |edge: usize, exists: bool| -> Vec<Form> {
            let shapes = if exists { model.edge(edge) } else { &[] };
            shapes.iter().map(|shape| Form { kind, shape: [&[samples], shape.as_slice()].concat() }).collect()
        };
        let shard = stage.shard(spec.shard);
        let shared = model.layers().last().and_then(|layer| layer.kind.shard_shared_parameter(shard));
        Self {
            inputs: edge(stage.first_layer, !is_first),
            outputs: edge(stage.last_layer + 1, !is_last),
            tied: shared
                .filter(|_| is_first != is_last)
                .map(|shared| Form { kind: gradient_kind(spec.training.precision), shape: shared.shape() })
                .into_iter()
                .collect(),
            device,
        }
    }

    /// The forms of what is received in this way.
    fn incoming(&self, crossing: Crossing) -> &[Form] {
        match crossing {
            Crossing::Activation => &self.inputs,
            Crossing::Gradient => &self.outputs,
            Crossing::TiedGradient => &self.tied,
        }
    }
}

fn unexpected(crossing: Crossing) -> RankError {
    RankError::Other(format!("this stage has no neighbour for {crossing:?}"))
}
