//! What crosses the edges of a stage, to and from real or made-up neighbours.

mod frame;
mod host;
mod link;
mod meeting;
mod pairs;
mod route;
mod sockets;
mod synthetic;

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use loadmaster_proto::measure::rank::{Edges, RankSpec};
use tch::{Device, Kind, Tensor};

pub(crate) use host::to_host;
pub(crate) use meeting::{Address, Appointment, meet};
pub(crate) use pairs::Pairs;
pub use sockets::Sockets;
pub use synthetic::Synthetic;

use crate::collective::{Groups, Membership};
use crate::error::RankError;
use crate::layers::{gradient_kind, kind};
pub(crate) use frame::Tie;
use route::Place;
use sockets::Plan;

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

/// Number format and shape of a tensor that crosses an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// Number format.
    pub kind: Kind,
    /// Shape, samples included.
    pub shape: Vec<i64>,
}

impl Form {
    /// The same with other rows.
    fn with_rows(&self, rows: &Range<i64>) -> Self {
        let mut shape = self.shape.clone();
        if let Some(first) = shape.first_mut() {
            *first = rows.end - rows.start;
        }
        Self { kind: self.kind, shape }
    }
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

/// Everybody that a rank talks to.
#[derive(Debug)]
pub struct Connections {
    /// The stages before and after it, and the one that it shares a weight with.
    pub neighbours: Box<dyn Neighbours>,
    /// The other devices of its stage.
    pub groups: Groups,
}

/// Reaches everybody that the rank of a specification talks to.
///
/// # Errors
/// When somebody does not come in time.
pub fn connect(spec: &RankSpec, forms: Forms) -> Result<Connections, RankError> {
    let own = Address { stage: spec.position.stage_index, shard: spec.shard };
    let [replicas, shards] = Membership::of(&spec.position.stage, own);
    let peers = replicas.peers().iter().chain(shards.peers());
    let mut wanted: BTreeSet<Appointment> = peers.map(|&peer| (Tie::Shard, peer)).collect();
    // Cannot fail on a checked specification.
    let patience = Duration::try_from_secs_f64(spec.neighbour_timeout_seconds).unwrap_or_default();
    let deadline = Instant::now() + patience;
    let (neighbours, mut met): (Box<dyn Neighbours>, _) = match &spec.edges {
        Edges::Synthetic => {
            let met = meet(&spec.folder, own, &wanted, deadline)?;
            (Box::new(Synthetic::new(forms, spec.training.seed)), met)
        }
        Edges::Sockets { partitioning } => {
            let place = Place {
                model: &spec.model,
                partitioning,
                position: spec.position,
                shard: spec.shard,
                micro_batch_size: spec.training.micro_batch_size,
            };
            let plan = Plan::of(&place, forms);
            wanted.extend(plan.appointments());
            let mut met = meet(&spec.folder, own, &wanted, deadline)?;
            (Box::new(plan.start(&mut met)?), met)
        }
    };
    // NCCL's ranks meet once more when they join: all in the same order.
    let shards = shards.join(&mut met, spec.collectives)?;
    let replicas = replicas.join(&mut met, spec.collectives)?;
    Ok(Connections { neighbours, groups: Groups { replicas, shards } })
}

fn unexpected(crossing: Crossing) -> RankError {
    RankError::Other(format!("this stage has no neighbour for {crossing:?}"))
}
